"""The environment: versions of what compiles and runs the kernels. Subprocesses are short and time-limited."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from advisor import identity
from advisor.installed import COMPILERS as OF_CPUS
from advisor.installed import DEVICE_TOOLS, LIBRARIES, LINKED, OTHER_NAMES, installed, nvrtc
from advisor.records import Pairs, pairs
from advisor.topology.child import ask

LIMIT_S = 5.0
COMPILERS = (*OF_CPUS, "nvcc")
OPENMP = (("libgomp", "gcc", ("libgomp.so.1",)), ("libomp", "clang", ("libomp.so", "libomp.so.5")))
"""(runtime, compiler that knows where it lies, file names, the first that exists counts)."""

_VERSION = re.compile(r"(?:version|release|\)) *V?(\d+\.\d+[\w.+-]*)")


def environment() -> Pairs:
    """Versions on the machine at hand; what is not there is left out.

    Returns:
        Pairs with `kernel` (MAJOR.MINOR, as a lookup reads it), `kernel_release`, `python`, `glibc`, one entry a
        compiler, OpenMP runtime and library found, and the lists `compilers` and `openmp` of what was found.
    """
    with ThreadPoolExecutor() as pool:  # each waits for a program
        asked = [pool.submit(compiler_version, name) for name in COMPILERS]
        looked = [pool.submit(runtime_version, by, files) for _, by, files in OPENMP]
    compilers = {name: version for name, said in zip(COMPILERS, asked, strict=True) if (version := said.result())}
    runtimes = {name: version for (name, _, _), said in zip(OPENMP, looked, strict=True) if (version := said.result())}
    called = {name: version for name in (*LIBRARIES, *LINKED) if (version := installed(name))}
    libc = platform.libc_ver()
    found = {
        "kernel": identity.kernel_release(),
        "kernel_release": os.uname().release,
        "python": platform.python_version(),
        **({"glibc": libc[1]} if libc[0] == "glibc" else {}),
        **compilers,
        **runtimes,
        **called,
        "compilers": tuple(f"{name} {version}" for name, version in compilers.items()),
        "openmp": tuple(f"{name} {version}" for name, version in runtimes.items()),
    }
    return pairs(found)


def device_tools() -> dict[str, str | None]:
    """Versions of what variants of a GPU are made with, by which another machine answers for one of this machine's;
    None where one is not there."""
    return {**{name: installed(name) for name in DEVICE_TOOLS}, "nvrtc": nvrtc()}


def compiler_version(name: str) -> str | None:
    """Version number of a compiler on PATH, or the first line it writes when no number is in it; None without one."""
    path = next(filter(None, map(shutil.which, (name, *OTHER_NAMES.get(name, ())))), None)
    lines = (ask([path, "--version"], LIMIT_S) or "").splitlines() if path else []
    for line in lines:
        found = _VERSION.search(line)
        if found:
            return found.group(1).rstrip(",.-")
    return lines[0].strip() if lines else None


def runtime_version(compiler: str, files: Sequence[str]) -> str | None:
    """What follows `.so.` in the real name of an OpenMP library, as the compiler finds it; the name where nothing does.

    Returns:
        For example `1.0.0` for libgomp; None where the compiler or the library is missing.
    """
    program = shutil.which(compiler)
    for file in files if program else ():
        answer = (ask([str(program), f"-print-file-name={file}"], LIMIT_S) or "").strip()
        if os.path.isabs(answer) and os.path.exists(answer):
            name = os.path.basename(os.path.realpath(answer))
            return name.partition(".so.")[2] or name
    return None


def warnings() -> tuple[str, ...]:
    """Sentences on environment variables that slow down or steer libraries behind advisor's back."""
    coretype = os.environ.get("OPENBLAS_CORETYPE")
    if not coretype:
        return ()
    return (f"OPENBLAS_CORETYPE is {coretype}: if that is an older core than this one, OpenBLAS may run at half speed",)
