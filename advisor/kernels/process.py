"""Starting child processes: the environment that a process part means, the launch mask, and ending them.

The same mapping serves bench workers and exported launch lines, so that what was measured is what is run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from advisor.errors import BadInput
from advisor.kernels.numa import MODES
from advisor.records import Process

LAUNCH_MASK = frozenset(os.sched_getaffinity(0))
"""The CPUs this program was started with. Children get it back: a pinned caller would hand them its one CPU."""

RUNTIMES = ("libgomp", "libomp")
WAIT_POLICIES = ("default", "active", "passive")
MEMORY_POLICIES = tuple(MODES)

_FOREIGN = ("OMP_", "GOMP_", "KMP_", "OPENBLAS_", "MKL_", "BLIS_")
_ONE_BLAS_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "BLIS_NUM_THREADS": "1"}


def openmp_environment(process: Process) -> dict[str, str]:
    """The environment variables that make an OpenMP runtime behave as a process part says.

    For libgomp `spin` is GOMP_SPINCOUNT, in turns of its waiting loop. libomp has no such count: there `spin` is
    KMP_BLOCKTIME, in milliseconds. OMP_PROC_BIND is off since placements are applied thread by thread.

    Source: libgomp manual, "Environment Variables"; LLVM/OpenMP runtime documentation, "KMP_BLOCKTIME".

    Raises:
        BadInput: a runtime, wait policy, spin count or memory policy that does not exist.
    """
    _check(process)
    variables = {"OMP_DYNAMIC": "false", "OMP_PROC_BIND": "false"}
    if process.wait_policy != "default":
        variables["OMP_WAIT_POLICY"] = process.wait_policy.upper()
    if process.runtime == "libgomp" and process.spin is not None:
        variables["GOMP_SPINCOUNT"] = str(process.spin)
    if process.runtime == "libomp":
        variables.update(_libomp(process))
    return variables


def _libomp(process: Process) -> dict[str, str]:
    if process.spin is not None:
        return {"KMP_BLOCKTIME": str(process.spin)}
    blocktime = {"active": "infinite", "passive": "0"}
    return {"KMP_BLOCKTIME": blocktime[process.wait_policy]} if process.wait_policy in blocktime else {}


def _check(process: Process) -> None:
    for what, value, allowed in (
        ("OpenMP runtime", process.runtime, RUNTIMES),
        ("wait policy", process.wait_policy, WAIT_POLICIES),
        ("memory policy", process.memory_policy, MEMORY_POLICIES),
    ):
        if value not in allowed:
            raise BadInput(f"a process part needs a known {what}", got=value, allowed=", ".join(allowed))
    if process.spin is not None and (not isinstance(process.spin, int) or process.spin < 0):
        raise BadInput("a spin count is a whole number of at least 0, or None", got=process.spin)


def worker_environment(process: Process, inherited: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a bench worker: nothing of the caller's OpenMP or BLAS settings, one BLAS thread."""
    clean = {key: value for key, value in inherited.items() if not key.startswith(_FOREIGN)}
    return {**clean, **_ONE_BLAS_THREAD, **openmp_environment(process)}


_running: set[int] = set()
"""Commands of `run` that have not ended, whichever thread waits for them."""


def kill_running() -> None:
    """Kill every command that some thread runs now; each `run` then returns soon, as after a crash."""
    for pid in tuple(_running):
        kill_group(pid)


def widen(pid: int) -> None:
    """Give a child, just started, the launch mask. A child that is already gone needs none."""
    with contextlib.suppress(ProcessLookupError, OSError):
        os.sched_setaffinity(pid, LAUNCH_MASK)


def run(
    command: Sequence[str],
    timeout_s: float,
    cwd: str | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, str]:
    """Run a command in a process group of its own under a limit.

    Args:
        command: argv; no shell.
        timeout_s: wall-clock limit.
        cwd: its working folder.
        variables: set in its environment, beside those inherited.

    Returns:
        (exit status, its standard output and error together). Exit status 124 when it was killed at the limit, 127
        when it could not be started.
    """
    environment = {**os.environ, "LC_ALL": "C", **variables}
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return 127, str(error)
    _running.add(child.pid)
    with child:
        widen(child.pid)
        try:
            output, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            kill_group(child.pid)
            output, _ = child.communicate()
            return 124, f"{output.decode(errors='replace')}\nkilled after {timeout_s:g} s"
        except BaseException:
            kill_group(child.pid)
            raise
        finally:
            _running.discard(child.pid)
    return child.returncode, output.decode(errors="replace")


def kill_group(pid: int) -> None:
    """Kill a session leader and everything it started. Nothing happens when it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
