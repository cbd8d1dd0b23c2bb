"""Libraries in C that variants link: which build of each lies here, told by its file. None is loaded or started.

Of OpenBLAS only a build on libgomp counts: its calls then run on the team that the advisor sizes and pins. A build on
threads of its own competes with that team (docs/traps/two-thread-pools.md). Standard library only: hot path.
"""

from __future__ import annotations

import os
import struct
from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO, NamedTuple

    class Shared(NamedTuple):  # noqa: D101 (documented below, where it is made)
        path: str
        needed: tuple[str, ...]
        build_id: str

else:
    Shared = namedtuple("Shared", "path needed build_id")
    Shared.__doc__ = """A shared library: its real path, the libraries that it names, its build id in hex (or empty)."""

RUNTIME = "libgomp"
"""The OpenMP runtime whose builds count: compilers here link it, and the frame pins its team."""

ROOT = "/usr/lib"

PLAIN = ("/opt/OpenBLAS/lib", "/usr/local/lib", "/usr/local/lib64", "/usr/lib64", ROOT)
"""Where it may lie, beside the folders of the environment and Debian's. Source: OpenBLAS' Makefile; Fedora."""

FILES = ("libopenblaso.so", "libopenblaso.so.0", "libopenblas.so", "libopenblas.so.0")
"""What it is called; with an `o` is Fedora's name of the OpenMP build."""

LARGEST_PART = 1 << 20
"""Bytes of a table that are read at most: real ones have a few thousand, a damaged file may claim any number."""

_LOAD, _DYNAMIC, _NOTE = 1, 2, 4
_NEEDED, _STRINGS = 1, 5
_BUILD_ID = 3
_LONGEST_NAME = 256


def version(library: str) -> str | None:
    """Version and build of a linked library, such as `0.3.21 build 4fa1c02e`; None where there is none that counts.

    The build is told by the file's build id, or by its size where it has none.
    """
    found = openblas() if library == "openblas" else None
    return described(found) if found else None


def described(library: Shared) -> str:
    """The same for a file: its name has the version, as far as packagers put it there (`libopenblasp-r0.3.21.so`)."""
    number = os.path.basename(library.path).partition("-r")[2].partition(".so")[0] or "unknown"
    mark = library.build_id[:8] or f"of {os.path.getsize(library.path)} bytes"
    return f"{number} build {mark}"


def openblas() -> Shared | None:
    """The first OpenBLAS here that counts and has its headers; without such the first that counts."""
    first = None
    for library in filter(counts, candidates()):
        if headers(library):
            return library
        first = first or library
    return first


def counts(library: Shared) -> bool:
    """Whether it runs on the OpenMP runtime that the frame pins."""
    return any(name.startswith(f"{RUNTIME}.so") for name in library.needed)


def headers(library: Shared) -> str:
    """The folder of the cblas.h that belongs to it, empty where there is none.

    The pkg-config file beside the library says where; without one, by the library's own place: Debian has a folder
    of the build's name among the headers, others PREFIX/include or PREFIX/include/openblas.
    """
    folder = os.path.dirname(library.path)
    by_name = folder.replace("/lib/", "/include/", 1)
    include = os.path.join(os.path.dirname(folder), "include")
    places = [*_included(folder), by_name, include, os.path.join(include, "openblas")]
    return next((place.rstrip("/") for place in places if os.path.isfile(os.path.join(place, "cblas.h"))), "")


def _included(folder: str) -> list[str]:
    """The `includedir` lines of the pkg-config files beside a library that can be read; none with a variable in it."""
    beside = os.path.join(folder, "pkgconfig")
    try:
        names = sorted(name for name in os.listdir(beside) if name.startswith("openblas") and name.endswith(".pc"))
    except OSError:
        return []
    return [place for name in names for place in _places(os.path.join(beside, name))]


def _places(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            pairs = [line.partition("=") for line in file]
    except OSError:
        return []
    found = [value.strip() for name, _, value in pairs if name.strip() == "includedir"]
    return [place for place in found if place.startswith("/") and "$" not in place]


def candidates() -> Iterator[Shared]:
    """Every OpenBLAS in reach, each once, those of the environment's folders first."""
    seen = set()
    for folder in (
        *_named(),
        *_debian("openblas-openmp"),
        *PLAIN,
        *_debian(""),
        *_debian("openblas-pthread"),
        *_debian("openblas-serial"),
    ):
        for name in FILES:
            path = os.path.realpath(os.path.join(folder, name))
            if path not in seen and os.path.isfile(path):
                seen.add(path)
                found = read(path)
                if found:
                    yield found


def _named() -> list[str]:
    """Folders that the environment names: modules of clusters and conda set these."""
    variables = [os.environ.get(name, "") for name in ("LIBRARY_PATH", "LD_LIBRARY_PATH")]
    packages = os.environ.get("PKG_CONFIG_PATH", "").split(os.pathsep)
    conda = os.environ.get("CONDA_PREFIX")
    found = [path for text in variables for path in text.split(os.pathsep)]
    found += [os.path.dirname(path) for path in packages if path]
    found += [os.path.join(conda, "lib")] if conda else []
    return [path for path in found if os.path.isabs(path)]


def _debian(name: str) -> list[str]:
    """Folders of that name below those of Debian's architectures; empty: these themselves."""
    try:
        known = sorted(one for one in os.listdir(ROOT) if "-linux-gnu" in one)
    except OSError:
        return []
    return [os.path.join(ROOT, one, name) for one in known]


def read(path: str) -> Shared | None:
    """What a shared library says of itself; None for a file that is none, or not for programs such as this one.

    64-bit ELF is read, of the byte order and machine of the running interpreter.

    Source: System V ABI, "Object Files" and "Dynamic Linking"; elf(5).
    """
    try:
        with open(path, "rb") as file:
            return _read(path, file)
    except (OSError, struct.error, IndexError, OverflowError, StopIteration):
        return None


def _read(path: str, file: BinaryIO) -> Shared | None:
    head = file.read(64)
    if head[:5] != b"\x7fELF\x02" or _kind(head) != _own_kind(head):
        return None
    order = "<" if head[5] == 1 else ">"
    start, size, count = *struct.unpack_from(f"{order}Q", head, 32), *struct.unpack_from(f"{order}HH", head, 54)
    parts = []
    for index in range(count):
        kind, _, offset, address, _, length = struct.unpack_from(f"{order}IIQQQQ", _at(file, start + index * size, 40))
        parts.append((kind, offset, address, length))
    tables = [_at(file, offset, length) for kind, offset, _, length in parts if kind == _DYNAMIC]
    notes = [_at(file, offset, length) for kind, offset, _, length in parts if kind == _NOTE]
    needed = [name for table in tables for name in _names(file, order, table, parts)]
    ids = [found for piece in notes for found in _build_ids(order, piece)]
    return Shared(path, tuple(needed), next(iter(ids), ""))


def _kind(head: bytes) -> bytes:
    """Class, byte order and machine of an ELF header."""
    return head[4:6] + head[18:20]


def _own_kind(otherwise: bytes) -> bytes:
    """The same of the interpreter that runs; that of `otherwise` where it cannot be read."""
    try:
        with open("/proc/self/exe", "rb") as file:
            own = file.read(20)
    except OSError:
        own = otherwise
    return _kind(own)


def _at(file: BinaryIO, offset: int, size: int) -> bytes:
    if size > LARGEST_PART:
        raise OverflowError("a damaged file")
    file.seek(offset)
    return file.read(size)


def _names(file: BinaryIO, order: str, table: bytes, parts: list[tuple[int, int, int, int]]) -> list[str]:
    """The libraries that a dynamic table names."""
    entries = list(struct.iter_unpack(f"{order}qQ", table[: len(table) // 16 * 16]))
    strings = next(value for tag, value in entries if tag == _STRINGS)
    loads = (part[1:] for part in parts if part[0] == _LOAD)
    base = next(offset + strings - at for offset, at, size in loads if at <= strings < at + size)
    found = [_at(file, base + value, _LONGEST_NAME) for tag, value in entries if tag == _NEEDED]
    return [os.fsdecode(name.partition(b"\0")[0]) for name in found]


def _build_ids(order: str, notes: bytes) -> list[str]:
    """Build ids among the notes of a part."""
    found, at = [], 0
    while at + 12 <= len(notes):
        name, size, kind = struct.unpack_from(f"{order}III", notes, at)
        at += 12 + (name + 3) // 4 * 4
        if kind == _BUILD_ID:
            found.append(notes[at : at + size].hex())
        at += (size + 3) // 4 * 4
    return found
