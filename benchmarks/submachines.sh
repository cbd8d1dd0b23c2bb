#!/usr/bin/env bash
# Sub-machines of one machine (1, 2, 4, 8, 12, 16 CPUs), each tuned and then left out: benchmarks/submachines.sh FOLDER [OPTION ...]
# Fits into 280 s on 16 CPUs; called again with the same folder it goes on where it ended. PYTHON: the interpreter.
set -u
out=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
export PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}"
timeout --signal=INT --kill-after=10 "${LIMIT_S:-280}" "${PYTHON:-python3}" "$here/submachines.py" "$out" "$@" \
  >"$out/submachines.txt" 2>"$out/submachines.err"
status=$?
tail -n "${TAIL:-60}" "$out/submachines.txt"
exit $status
