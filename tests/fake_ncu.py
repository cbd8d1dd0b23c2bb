"""Executables that stand for ncu: what they print and how they end is a case; no GPU and no profiler is needed."""

import gzip
import os
import sys
from pathlib import Path

RECORDED = Path(__file__).resolve().parent / "data" / "ncu"
PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
HELD = (
    "==ERROR== An error was reported by the driver:\n==ERROR== Profiling failed because a driver resource was "
    "unavailable. Ensure that no other tool (like DCGM) is concurrently collecting profiling data."
)

_PROGRAM = """#!{python}
import json, os, sys, time
words = sys.argv[1:]
with open({calls!r}, "a") as file:
    file.write(json.dumps(words) + "\\n")
if words == ["--version"]:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 1) (public-release)")
    sys.exit(0)
log = words[words.index("--log-file") + 1]
folder = words[words.index("advisor.kernels.gpu.counted") + 1]
told = open(os.path.join(folder, "asked")).read().splitlines()
trials = [line for line in told if line.startswith('{{"trial"')]
until = float(words[words.index("advisor.kernels.gpu.counted") + 3])
def say(text):
    with open(log, "a") as file:
        file.write(text)
def times(*each):
    with open(os.path.join(folder, "times"), "w") as file:
        file.writelines(repr(one) + "\\n" for one in each)
def ran(replies=None):
    ok = [{{"reply": {{"status": "ok"}}}}] * len(trials)
    with open(os.path.join(folder, "replies"), "w") as file:
        file.writelines(json.dumps(one) + "\\n" for one in (ok if replies is None else replies))
{body}
"""


def install(folder, body):
    """A program named ncu in a folder of its own; `calls` beside it has every argv.

    Its body may use say, ran, times, told (the lines it is to run), trials (those of them that are trials) and until
    (when the program under it is to end).

    Returns:
        (the folder for PATH, the file of calls).
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, calls = folder / "ncu", folder / "calls"
    path.write_text(_PROGRAM.format(python=sys.executable, calls=str(calls), body=body))
    os.chmod(path, 0o755)
    return str(folder), calls


def recorded(name, size, marked=True, choices=1):
    """A recording as the counted program would have left it: a mark before each call.

    The recordings were made before there were marks, which are put in here: launches of a kernel that does nothing.

    Args:
        name: of the recording.
        size: kernels of a call.
        marked: whether marks are there at all.
        choices: how many choices, of three calls each, are taken.
    """
    text = gzip.decompress((RECORDED / f"{name}.csv.gz").read_bytes()).decode()
    lines = text.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith('"0"'))
    head, rows = lines[:first], lines[first : first + 3 * size * choices]
    made = []
    for i, row in enumerate(rows):
        if marked and i % size == 0:
            made.append(_mark(row, i // size // 3 + 1))
        made.append(row)
    return "".join([*head, *made])


def whole():
    """The body of an ncu that counts whatever it is told to.

    It has a first launch, then of each trial three calls, each a mark and a launch of every entry of its program, all
    with the figures of one recorded launch.
    """
    head, row = _first()
    return f"""
{row}
say({head!r} + row("advisor_start", 1))
times(time.monotonic(), time.monotonic())
for number, line in enumerate(trials, 1):
    program = json.loads(line)["trial"]["program"]
    names = [program["symbol"], *program.get("then", [])]
    say((row("advisor_mark", number) + "".join(row(name, 1) for name in names)) * 3)
ran([{{"reply": {{"status": "ok", "conditions": {{"counted": 3}}}}}}] * len(trials))
"""


def _first():
    """What a page has before its rows, and the source of a function that makes a row, with recorded figures."""
    text = gzip.decompress((RECORDED / "decode_cuda.csv.gz").read_bytes()).decode()
    lines = text.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith('"0"'))
    cells = lines[first].strip().strip('"').split('","')
    made = f"""
def row(name, blocks):
    cells = {cells!r}
    return '"' + '","'.join([*cells[:4], name, *cells[5:8], f"({{blocks}}, 1, 1)", *cells[9:]]) + '"' + chr(10)
"""
    return "".join(lines[:first]), made


def _mark(row, number):
    cells = row.rstrip("\n").strip('"').split('","')
    cells[4], cells[8] = "advisor_mark", f"({number}, 1, 1)"
    return '"' + '","'.join(cells) + '"\n'


_PROFILE = """import contextlib, json, os, sys
sys.path.extend({places!r})
import device_driver
_launch, _within = device_driver.MadeUpDriver.launch, []
def launch(self, functions, geometry, arrays):
    if _within:
        with open(os.environ["MADE_UP_LAUNCHES"], "a") as file:
            for name, extent in zip(functions, geometry.extents):
                file.write(json.dumps([name, extent[0][0]]) + "\\n")
    if len(arrays):
        _launch(self, functions, geometry, arrays)
device_driver.MadeUpDriver.launch = launch
@contextlib.contextmanager
def profile():
    _within.append(True)
    yield
    _within.clear()
"""


def profiler(folder):
    """What stands for CuPy's profiler in the counted program of a made-up GPU: it notes the launches in its range.

    Args:
        folder: on PYTHONPATH.

    Returns:
        The variable that says where to.
    """
    (folder / "cupyx").mkdir()
    (folder / "cupyx" / "__init__.py").write_text("")
    here = str(Path(__file__).resolve().parent)
    (folder / "cupyx" / "profiler.py").write_text(_PROFILE.format(places=[here, os.path.join(here, "kernels", "gpu")]))
    return {"MADE_UP_LAUNCHES": str(folder / "launches")}


def running():
    """The body of an ncu that really runs the program, and has a row for each launch that its profiler noted."""
    head, row = _first()
    return f"""
import subprocess
noted = os.environ["MADE_UP_LAUNCHES"]
open(noted, "w").close()
done = subprocess.run(words[words.index("--log-file") + 2 :])
{row}
say({head!r} + "".join(row(*json.loads(line)) for line in open(noted)))
sys.exit(done.returncode)
"""
