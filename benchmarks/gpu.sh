#!/usr/bin/env bash
# Every figure of one GPU, for docs/figures.md and policies/: benchmarks/gpu.sh FOLDER [PART ...]
# Parts run in the order given, each within its own seconds and each going on where it stopped, so that calls with the
# same FOLDER add up. FROM=FILE unpacks what an earlier machine packed; PACK=FILE is where all of it goes.
# KERNELS=decode or forward,fused for some kernels, SHAPES=forward-bf16-P,... for some cells: benchmarks/gpu_cells.py.
#   check     every variant of every kernel, right on edges in each dtype and timed once, a line each   CHECK_S 240
#   ahead     compile what the next parts call, a dozen workers at a time                               AHEAD_S 60
#   tune      the product tunes cell after cell, the most important first                               TUNE_S 240
#   race      the table's choice, the best own variants and the libraries take turns                    RACE_S 105
#   chain     every own variant of forward, backward and fused by its thread mapping, float64           CHAIN_S 85
#   regret    our search beside an exhaustive pass: REGRET_CELLS, each CELL@N,N,... in an equal share   REGRET_S 66
#   counters  what calls move, through ncu                                                              COUNTERS_S 40
#   cold      the first call of a fresh process, of decode                                              COLD_S 65
#   verify    `advisor verify` of KERNELS                                                               VERIFY_S 120
#   learn     tables again, from the tunes and the races after them; no device is needed
#   show, pack: tables and verdicts; all of it in one file. ship: tables and log into policies/ (POLICIES), after learn.
# The chain's figures are one call of under ten minutes: ahead tune chain race regret show pack; those of decode, with
# KERNELS=decode: tune cold counters race regret show pack.
set -u
out=$1
shift
parts=${*:-ahead tune chain race regret show pack}
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
    say "$name${CELL:+-$CELL}" $((seconds + 60)) "$python" -m benchmarks.gpu "$name" --out "$out" \
      --seconds $((seconds - SECONDS + begun)) --resume ${KERNELS:+--kernel "$KERNELS"} "$@"
    status=$?
    if [ $status -ne 1 ] || [ $((SECONDS - begun)) -ge $((seconds / 2)) ]; then break; fi
  done
  [ $status -eq 0 ] || echo "$name ended with status $status after $((SECONDS - begun)) s"
}

cells=${SHAPES:+--shapes $SHAPES}
searched=${REGRET_CELLS:-forward-bf16-P@512,2048 backward-f32-P@512,2048 fused-f64-P@512,2048}
for one in $parts; do
  case $one in
  check)
    say probe 60 "$python" -m advisor.cli probe
    say doctor 60 "$python" -m advisor.cli doctor
    TAIL=${CHECK_LINES:-90} part check "${CHECK_S:-240}"
    ;;
  verify) say verify "${VERIFY_S:-120}" "$python" -m advisor.cli verify --kernel "${KERNELS:-decode}" --device cuda:0 ;;
  ahead)
    whole=
    case " $parts " in *" regret "*) whole=$(for cell in $searched; do printf '%s,' "${cell%@*}"; done) ;; esac
    part ahead "${AHEAD_S:-60}" $cells ${whole:+--whole "$whole"}
    ;;
  tune) part tune "${TUNE_S:-240}" $cells ;;
  race) part race "${RACE_S:-105}" $cells ${RACE_N:+--n "$RACE_N"} ;;
  chain) part chain "${CHAIN_S:-85}" ;;
  counters) part counters "${COUNTERS_S:-40}" ;;
  cold) part cold "${COLD_S:-65}" ;;
  regret)
    for cell in $searched; do
      seconds=$((${REGRET_S:-66} / $(echo $searched | wc -w)))
      CELL=${cell%@*} part regret $seconds --shapes "${cell%@*}" --n "${cell#*@}"
    done
    ;;
  show)
    "$python" -m benchmarks.gpu show "$out" --json >"$out/judged.json"
    TAIL=${SHOW_LINES:-200} say tables 60 "$python" -m benchmarks.gpu show "$out"
    ;;
  pack) tar -czf "${PACK:-$out.tar.gz}" --exclude=./cache -C "$out" . && ls -l "${PACK:-$out.tar.gz}" ;;
  learn) TAIL=60 say learn 120 "$python" benchmarks/gpu_learn.py "$out" || exit 1 ;;
  ship) "$python" benchmarks/gpu_ship.py "$out" "${POLICIES:-policies/nvidia-h200}" ;;
  *) echo "no such part: $one" >&2; exit 2 ;;
  esac
done
