#!/usr/bin/env bash
# Every figure of one machine in one go, for docs/figures.md: benchmarks/machine.sh FOLDER [PART ...]
# Parts run in this order, each under its own limit, so that a stop in the middle keeps what was measured.
set -u
out=$1
shift
parts=${*:-probe verify traps tune tables kernels layers lookup judge}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
mkdir -p "$out"
export ADVISOR_HOME=${ADVISOR_HOME:-$out/home}

run() { # run NAME SECONDS COMMAND...: its output in FOLDER/NAME.txt, the end of it here
  local name=$1 limit=$2
  shift 2
  echo "== $name"
  timeout --signal=INT --kill-after=20 "$limit" "$@" >"$out/$name.txt" 2>"$out/$name.err" || echo "ended with status $?"
  tail -n "${TAIL:-30}" "$out/$name.txt"
}

for part in $parts; do
  case $part in
  probe) run probe 60 "$python" -m advisor.cli probe ;;
  verify)
    for kernel in decode forward backward fused; do
      run "verify-$kernel" "${VERIFY_S:-300}" "$python" -m advisor.cli verify --kernel "$kernel"
    done
    ;;
  traps) run traps "${TRAPS_S:-300}" "$python" "$here/traps.py" --n "${TRAPS_N:-1024,16384,262144}" --json "$out/traps.json" ;;
  tune) # may be called again with the same folder: rows that are there are kept
    for kernel in ${TUNE_KERNELS:-decode forward}; do # KERNEL_TUNER: the Python that has Kernel Tuner, if another one
      sizes=TUNE_N_$kernel
      run "tune-$kernel" "${TUNE_LIMIT_S:-290}" "$python" "$here/tune.py" --kernel "$kernel" --n "${!sizes:-}" --limit "${TUNE_S:-265}" \
        --each "${TUNE_EACH_S:-90}" --kernel-tuner "${KERNEL_TUNER:-$python}" ${TUNE_OPTIONS:-} --json "$out/tune.json"
    done
    ;;
  tables) # what the kernels part then takes its choices from; without them it looks for itself
    for kernel in forward backward fused; do
      run "table-$kernel" 240 "$python" -m advisor.cli tune --kernel "$kernel" --n "${ATTENTION_N:-64..4096}" --budget "${TABLE_S:-90s}"
    done
    run table 240 "$python" -m advisor.cli tune --kernel decode --n "${TABLE_N:-1k..1m}" --budget "${TABLE_S:-90s}"
    run table-served 240 "$python" -m advisor.cli tune --kernel decode --n "${SERVED_N:-1k..64k}" --budget "${SERVED_S:-90s}" --batch 1 --heads 32 --kv-heads 8 --head-dim 128
    ;;
  kernels) # each may be called again with the same folder: rows that are there are kept
    run kernels-paper "${KERNELS_LIMIT_S:-900}" "$python" "$here/kernels.py" --budget "${KERNELS_S:-600s}" --json "$out/kernels-paper.json"
    run kernels-served "${KERNELS_LIMIT_S:-900}" "$python" "$here/kernels.py" --shape served --budget "${KERNELS_S:-600s}" --json "$out/kernels-served.json"
    run kernels-causal "${KERNELS_LIMIT_S:-900}" "$python" "$here/kernels.py" --shape served-causal --kernel forward,backward,fused --budget "${KERNELS_S:-600s}" --json "$out/kernels-causal.json"
    run kernels-16bit "${KERNELS_LIMIT_S:-900}" "$python" "$here/kernels.py" --shape served --kernel decode --dtype float16,bfloat16 --heads 40:8 --n 1919,1920,1921,2808,4094,4095 --budget "${SIXTEEN_S:-120s}" --json "$out/kernels-16bit.json"
    ;;
  layers) # each may be called again with the same folder; LAYER_SHAPES without served: for a few cores
    run layers-paper "${LAYERS_LIMIT_S:-300}" "$python" "$here/kernels.py" --kernel layers --dtype float32 --quick --budget "${LAYERS_S:-110s}" --json "$out/layers-paper.json"
    for shape in ${LAYER_SHAPES:-served-1b served}; do
      run "layers-$shape" "${LAYERS_LIMIT_S:-300}" "$python" "$here/kernels.py" --kernel rmsnorm,norm_linear,mlp,block --shape "$shape" --dtype float32 --quick --budget "${LAYERS_SERVED_S:-65s}" --json "$out/layers-$shape.json"
    done
    ;;
  lookup) run lookup 180 "$python" "$here/lookup.py" ;;
  judge) run judge "${JUDGE_S:-300}" "$python" "$here/judge.py" --real --n "${JUDGE_N:-4096}" --races "${RACES:-60}" --json "$out/judge.json" ;;
  *) echo "no such part: $part" >&2; exit 2 ;;
  esac
done
