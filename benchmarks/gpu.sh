#!/usr/bin/env bash
# Every figure of one GPU, for docs/figures.md and policies/: benchmarks/gpu.sh FOLDER [PART ...]
# check: every variant of every kernel, right on edges in each dtype and timed once; KERNELS=forward,fused for some.
# Parts run in this order, each within its own seconds and each going on where it stopped, so that calls with the same
# FOLDER add up; every choice is checked before it is timed, and `verify`, which is not among them, checks all. FROM=FILE unpacks what an earlier machine packed; PACK=FILE is where all of it goes.
set -u
out=$1
shift
parts=${*:-check tune cold counters race regret show pack}
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
mkdir -p "$out"
out=$(cd "$out" && pwd)
if [ -n "${FROM:-}" ] && [ ! -e "$out/rows.jsonl" ]; then tar -xzf "$FROM" -C "$out"; fi
export ADVISOR_HOME=${ADVISOR_HOME:-$out/home} ADVISOR_CACHE=${ADVISOR_CACHE:-$out/cache} PYTHONUNBUFFERED=1
cd "$root" || exit 1

say() { # say NAME SECONDS COMMAND...: its output in FOLDER/NAME.txt, the end of it here
  local name=$1 limit=$2
  shift 2
  echo "== $name"
  timeout --signal=INT --kill-after=20 "$limit" "$@" >"$out/$name.txt" 2>&1
  local status=$?
  tail -n "${TAIL:-12}" "$out/$name.txt"
  return $status
}

part() { # part NAME SECONDS OPTIONS...: once more where the device was lost on the way
  local name=$1 seconds=$2 begun=$SECONDS status
  shift 2
  for _ in 1 2; do
    say "$name" $((seconds + 60)) "$python" -m benchmarks.gpu "$name" --out "$out" --seconds $((seconds - SECONDS + begun)) --resume "$@"
    status=$?
    if [ $status -ne 1 ] || [ $((SECONDS - begun)) -ge $((seconds / 2)) ]; then break; fi
  done
  [ $status -eq 0 ] || echo "$name ended with status $status"
}

for one in $parts; do
  case $one in
  check)
    say probe 60 "$python" -m advisor.cli probe
    say doctor 60 "$python" -m advisor.cli doctor
    TAIL=${CHECK_LINES:-90} part check "${CHECK_S:-240}" ${KERNELS:+--kernel "$KERNELS"}
    ;;
  verify) say verify "${VERIFY_S:-120}" "$python" -m advisor.cli verify --kernel decode --device cuda:0 ;;
  tune) part tune "${TUNE_S:-330}" ;;
  cold) part cold "${COLD_S:-65}" ;;
  counters) part counters "${COUNTERS_S:-55}" ;;
  race) part race "${RACE_S:-230}" ;;
  regret) part regret "${REGRET_S:-220}" --shapes "${REGRET_SHAPE:-40:8}" --n "${REGRET_N:-1024,4096,16384,65536,262144}" ;;
  show)
    "$python" -m benchmarks.gpu show "$out" --json >"$out/judged.json"
    TAIL=200 say tables 60 "$python" -m benchmarks.gpu show "$out"
    ;;
  pack)
    if [ -e "$out/policy/measurements.jsonl" ]; then gzip -9 -kf "$out/policy/measurements.jsonl"; fi # as policies/ has it
    tar -czf "${PACK:-$out.tar.gz}" --exclude=./cache -C "$out" . && ls -l "${PACK:-$out.tar.gz}"
    ;;
  *) echo "no such part: $one" >&2; exit 2 ;;
  esac
done
