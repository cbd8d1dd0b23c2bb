"""What one bench worker made and the others need too: inputs and references, as files in a folder of the pool's.

Workers of one pool compute the same inputs from the same seed, and the same float64 reference; the first to need them
puts them on the shelf. Only one worker runs at a time, so nobody waits; a folder of arrays is written aside and
renamed, so one that is there is whole. Files are numpy's, never a pickle.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np

from advisor.codec import digest
from advisor.kernels.compilers import private_child
from advisor.kernels.spec import Array, Expected
from advisor.paths import cache_dir
from advisor.records import Problem

MOST_BYTES = 128 << 20
"""Larger inputs are made anew: writing them would take as long, and keep the disk busy while others are timed."""

MAPPED_BYTES = 1 << 20
"""Larger arrays are mapped, smaller ones read: a file of a few rows is read faster than it is mapped."""

LEFTOVER_S = 86400.0
"""Age of a folder after which the pool that made it cannot be at work any more, but was killed."""

Arrays = dict[str, Array]


def folder() -> str:
    """A new private folder for the shelf of one pool, which removes it in the end; old leftovers go now."""
    root = private_child(cache_dir(), "shelf")
    for name in os.listdir(root):
        path = os.path.join(root, name)
        with contextlib.suppress(OSError):
            if time.time() - os.lstat(path).st_mtime > LEFTOVER_S:
                shutil.rmtree(path)
    return tempfile.mkdtemp(dir=root)


class Shelf:
    """Arrays by problem, draw of inputs, and what they are. An empty folder name: nothing is kept."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def inputs(self, drawn: tuple[Problem, str], make: Callable[[], Arrays]) -> Arrays:
        """The inputs of a problem, taken from the shelf or made and put there."""
        return self._arrays("inputs", drawn, make)

    def expected(self, drawn: tuple[Problem, str], make: Callable[[], dict[str, Expected]]) -> dict[str, Expected]:
        """The reference of a problem, taken from the shelf or made and put there."""
        return _unpacked(self._arrays("expected", drawn, lambda: _packed(make())))

    def _arrays(self, kind: str, drawn: tuple[Problem, str], make: Callable[[], Arrays]) -> Arrays:
        path = os.path.join(self.folder, f"{kind}-{digest(drawn)}") if self.folder else ""
        found = _read(path) if path else None
        if found is None:
            found = make()
            if path and sum(array.nbytes for array in found.values()) <= MOST_BYTES:
                _write(path, found)
        return found


def _packed(found: dict[str, Expected]) -> Arrays:
    arrays = {f"{name}.values": one.values for name, one in found.items()}
    arrays |= {f"{name}.tolerance": np.array(one.tolerance) for name, one in found.items()}
    further = {
        f"{name}.{key}": np.array(value)
        for name, one in found.items()
        for key, value in (("rows", one.rows), ("columns", one.columns), ("cache_tolerance", one.cache_tolerance))
        if value is not None
    }
    return arrays | further


def _unpacked(arrays: Arrays) -> dict[str, Expected]:
    names = [key.removesuffix(".values") for key in arrays if key.endswith(".values")]
    return {name: _expected(name, arrays) for name in names}


def _expected(name: str, arrays: Arrays) -> Expected:
    rows, columns, loose = (arrays.get(f"{name}.{key}") for key in ("rows", "columns", "cache_tolerance"))
    tolerance = float(arrays[f"{name}.tolerance"])
    return Expected(arrays[f"{name}.values"], tolerance, rows, None if loose is None else float(loose), columns)


def _read(path: str) -> Arrays | None:
    """The arrays in a folder, mapped, not copied: they are copied once more, into operands."""
    try:
        names = os.listdir(path)
        return {name.removesuffix(".npy"): _mapped(os.path.join(path, name)) for name in names} or None
    except (OSError, ValueError, EOFError):
        return None  # not there, or of no use: it is made anew


def _mapped(path: str) -> Array:
    found: Array = np.load(path, mmap_mode="r" if os.path.getsize(path) > MAPPED_BYTES else None, allow_pickle=False)
    return found


def _write(path: str, arrays: Arrays) -> None:
    """Keep arrays; a full or read-only disk is no reason to stop, the next worker then makes its own."""
    scratch = f"{path}.{os.getpid()}"
    try:
        os.mkdir(scratch, 0o700)
        with _large_files():
            for name, array in arrays.items():
                np.save(os.path.join(scratch, f"{name}.npy"), array, allow_pickle=False)
        os.rename(scratch, path)
    except OSError:
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _large_files() -> Iterator[None]:
    """A worker's files may not grow past a little, for variants that print without end; these may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
