"""What is missing on this machine, what that costs, and what to do about it."""

from __future__ import annotations

import os
import shutil
from typing import NamedTuple

from advisor import paths
from advisor.errors import AdvisorError


class Finding(NamedTuple):
    """One thing looked at. `remedy` is empty when all is well; `needed`: tuning cannot do without it."""

    what: str
    found: str
    remedy: str
    needed: bool = False


def examine() -> tuple[Finding, ...]:
    """Look at everything that advisor uses from outside. Makes the folders it looks at, and nothing else."""
    return (_compiler(), _cache(), _run_delay(), _numa_tools(), _balancing(), _gpu(), _home())


def _compiler() -> Finding:
    from advisor.kernels.compilers import compilers

    try:
        found = ", ".join(f"{tool.name} with {tool.runtime}" for tool in compilers())
    except (AdvisorError, OSError) as error:
        return Finding("C compiler with OpenMP", "cannot be tried", str(error), needed=True)
    remedy = "" if found else "install a C compiler with OpenMP; Debian: apt-get install gcc, or clang libomp-dev"
    return Finding("C compiler with OpenMP", found or "none", remedy, needed=True)


def _cache() -> Finding:
    try:
        return Finding("compiled variants are kept in", paths.private(paths.cache_dir()), "", needed=True)
    except AdvisorError as error:
        return Finding("compiled variants are kept in", paths.cache_dir(), str(error), needed=True)


def _run_delay() -> Finding:
    readable = os.access("/proc/self/schedstat", os.R_OK)
    remedy = (
        "" if readable else "interference is judged by context switches instead; a kernel with SCHED_INFO tells more"
    )
    return Finding("run delay of threads", "readable" if readable else "not readable", remedy)


def _numa_tools() -> Finding:
    found = shutil.which("numactl")
    remedy = "" if found else "`--format numactl` prints lines that need it; Debian: apt-get install numactl"
    return Finding("numactl", found or "none", remedy)


def _balancing() -> Finding:
    try:
        with open("/proc/sys/kernel/numa_balancing", encoding="utf-8") as file:
            value = file.read().strip()
    except OSError:
        return Finding("automatic NUMA balancing", "not in this kernel", "")
    remedy = "" if value == "0" else "it moves pages while kernels are timed; docs/traps/first-touch.md"
    return Finding("automatic NUMA balancing", "off" if value == "0" else f"on ({value})", remedy)


def _gpu() -> Finding:
    from advisor.topology.gpu import find

    found = find(())
    names = ", ".join(gpu.name or "unnamed" for gpu in found.gpus)
    return Finding("NVIDIA GPU", names or "none that answers", "; ".join(found.warnings))


def _home() -> Finding:
    try:
        return Finding("results are kept in", paths.writable(paths.state_dir()), paths.home_note())
    except AdvisorError as error:
        return Finding("results are kept in", paths.state_dir(), str(error), needed=True)
