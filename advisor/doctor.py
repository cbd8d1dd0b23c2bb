"""What is missing on this machine, what that costs, and what to do about it."""

from __future__ import annotations

import os
import shutil
from typing import NamedTuple

from advisor import identity, paths
from advisor.errors import AdvisorError
from advisor.topology import limits, software, tries
from advisor.topology.files import text
from advisor.topology.software import runtime_version

COUNTERS, BINDING, GPU_COUNTERS = "hardware counters", "memory binding", "counters of GPUs"
PARANOID = "/proc/sys/kernel/perf_event_paranoid"


class Finding(NamedTuple):
    """One thing looked at. `remedy` is empty when all is well; `needed`: tuning cannot do without it."""

    what: str
    found: str
    remedy: str
    needed: bool = False


def examine() -> tuple[Finding, ...]:
    """Look at everything that advisor uses from outside. Makes the folders it looks at, and nothing else."""
    tried = tries.attempt(limits.read().allowed_mems or (0,))
    return (
        _compiler(),
        _fortran(),
        _openblas(),
        _openmp(),
        _cache(),
        _run_delay(),
        _counters(str(dict(tried).get("counters", "not known how to try on this architecture"))),
        _memory_binding(dict(tried).get("memory_policy")),
        _numa_tools(),
        _balancing(),
        _gpu(),
        _gpu_counters(),
        _lscpu(),
        _home(),
    )


def _compiler() -> Finding:
    """Without one nothing but calls of libraries can be tuned, and without those nothing at all."""
    from advisor.kernels.compilers import compilers
    from advisor.kernels.libraries import libraries

    try:
        found = ", ".join(f"{tool.name} with {tool.runtime}" for tool in compilers())
    except (AdvisorError, OSError) as error:
        return Finding("C compiler with OpenMP", "cannot be tried", str(error), needed=True)
    if found:
        return Finding("C compiler with OpenMP", found, "", needed=True)
    calls = ", ".join(tool.name for tool in libraries())
    remedy = "install a C compiler with OpenMP; Debian: apt-get install gcc, or clang libomp-dev"
    if calls:
        found = f"none: of the variants only calls of {calls} are available"
        return Finding("C compiler with OpenMP", found, f"{remedy}; docs/traps/no-compiler.md")
    remedy += "; or the library whose calls need none: pip install onf-advisor[torch]"
    return Finding("C compiler with OpenMP", "none, so no variant is available", remedy, needed=True)


def _fortran() -> Finding:
    """Only variants in Fortran need one, and it needs a C compiler with its runtime."""
    from advisor.kernels.available import FRAMES
    from advisor.kernels.fortran import fortran_compilers, without_frame

    what = "Fortran compiler"
    try:
        found, bare = fortran_compilers(), without_frame()
    except (AdvisorError, OSError) as error:
        return Finding(what, "cannot be tried", str(error))
    if found:
        return Finding(what, ", ".join(f"{tool.name} with {tool.runtime}" for tool in found), "")
    if bare:
        said = f"{bare[0].name}, but no C compiler with {bare[0].runtime} for its frame"
        return Finding(what, said, FRAMES[bare[0].runtime])
    return Finding(what, "none", "variants in Fortran are left out; Debian: apt-get install gfortran")


def _openblas() -> Finding:
    """Only variants that link it need it, and of its builds that on OpenMP."""
    from advisor.kernels import openblas

    what = "OpenBLAS on OpenMP"
    try:
        found, note = openblas.find(), openblas.core_note()
    except (AdvisorError, OSError) as error:
        return Finding(what, "cannot be tried", str(error))
    if found.tool is None:
        return Finding(what, f"not to be used: {found.reason}", f"variants that call it are left out; {found.remedy}")
    build, configured = found.tool.version.splitlines()[:2]
    return Finding(what, f"{build}, {' '.join(configured.split()[-2:])}", note)


def _openmp() -> Finding:
    """The runtimes that compilers here would link, whether or not a build works."""
    try:
        found = [f"{name} {found}" for name, by, files in software.OPENMP if (found := runtime_version(by, files))]
    except (AdvisorError, OSError) as error:
        return Finding("OpenMP runtime", "cannot be looked for", str(error))
    remedy = "" if found else "Debian: libgomp1 comes with gcc, libomp-dev goes with clang; libraries bring their own"
    return Finding("OpenMP runtime", ", ".join(found) or "none", remedy)


def _counters(word: str) -> Finding:
    """Hardware counters: only the validation of predicted traffic can use them."""
    if word == tries.ALLOWED:
        return Finding(COUNTERS, word, "")
    level = text(PARANOID)
    found = word if level is None else f"{word}; {PARANOID} is {level}"
    without = "without them bytes are predicted, not counted"
    if "ENOENT" in word or "EOPNOTSUPP" in word:
        return Finding(COUNTERS, found, f"this machine (a virtual one, in general) offers none; {without}")
    if "EACCES" in word or "EPERM" in word:
        return Finding(COUNTERS, found, f"sysctl kernel.perf_event_paranoid=2, or grant CAP_PERFMON; {without}")
    return Finding(COUNTERS, found, f"a kernel with perf events is needed; {without}")


def _memory_binding(policy: object) -> Finding:
    """Whether a process may say where its memory lies: tried, with both calls read back."""
    if not isinstance(policy, dict):
        return Finding(BINDING, "not known how to try on this architecture", "")
    refused = [f"{name} {word}" for name, word in sorted(policy.items()) if word != tries.ALLOWED]
    remedy = (
        "containers forbid it by default: grant CAP_SYS_NICE, or allow set_mempolicy and mbind in the seccomp profile; "
        "without it only first touch places memory"
    )
    if all("ENOSYS" in word for word in refused):
        remedy = "this kernel is built without NUMA: there is one place for memory, and nothing to bind"
    return Finding(BINDING, "; ".join(refused) or "allowed, and in force", remedy if refused else "")


def _lscpu() -> Finding:
    found = shutil.which("lscpu")
    remedy = "" if found else "the probe has one witness less; Debian: apt-get install util-linux"
    return Finding("lscpu", found or "none", remedy)


def _cache() -> Finding:
    try:
        return Finding("compiled variants are kept in", paths.private(paths.cache_dir()), paths.cache_note())
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
    remedy = "; ".join(found.warnings)
    unused = identity.pci_gpus()
    if unused and not found.gpus:
        seen = f"{len(unused)} on the PCI bus, none that answers"
        return Finding("NVIDIA GPU", seen, remedy or "install the NVIDIA driver; `nvidia-smi` must list the GPU")
    return Finding("NVIDIA GPU", names or "none that answers", remedy)


def _gpu_counters() -> Finding:
    """Whether `tune --counters` can count: tried with a kernel that does nothing, which takes as long as a start."""
    from advisor.kernels.gpu.tools import gpu_tools
    from advisor.topology.gpu import find

    if not gpu_tools():
        return Finding(GPU_COUNTERS, "not tried: no CuPy", "")
    known = [gpu for gpu in find(()).gpus if gpu.visible is not False and gpu.uuid]
    if not known:
        return Finding(GPU_COUNTERS, "not tried: no GPU that answers", "")
    from advisor.kernels.gpu.counters import attempt
    from advisor.kernels.gpu.counts import NoCounters

    found = attempt(known[0])
    if isinstance(found, NoCounters):
        without = "without them bytes are predicted, not counted; docs/counters.md"
        return Finding(GPU_COUNTERS, f"none: {found.reason}", "; ".join(filter(None, [found.remedy, without])))
    took = f"{found.start_s:.1f} s to its first count, {found.cost_s:.1f} s to its end"
    return Finding(GPU_COUNTERS, f"readable by {found.tool}, which took {took}", "")


def _home() -> Finding:
    try:
        return Finding("results are kept in", paths.writable(paths.state_dir()), paths.home_note())
    except AdvisorError as error:
        return Finding("results are kept in", paths.state_dir(), str(error), needed=True)
