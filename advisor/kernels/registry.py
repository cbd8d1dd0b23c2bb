"""Which kernels there are, and in which folders their files lie.

A kernel is a folder with a `spec.py`. Folders come from three places: beside this file, from other packages by the
entry point group `advisor.kernels` (name: the kernel; value: a package with the files), and from `--kernel-dir DIR`,
whose subfolders `DIR/<kernel>/` count, as well as DIR itself for sources whose header names its kernel.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
import warnings
from collections.abc import Sequence

from advisor.errors import BadInput, UnknownName
from advisor.kernels.spec import KernelSpec

HERE = os.path.dirname(os.path.abspath(__file__))
GROUP = "advisor.kernels"
SPEC_FILE = "spec.py"
PYTHON_MARK = b'"""variant'
"""How a Python file begins that is a variant."""

_OWN = frozenset({"frame", "__pycache__"})


def kernels(extra_dirs: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of all kernels that have a spec, sorted. Nothing is imported but the packages of entry points."""
    return tuple(name for name, places in sorted(folders(extra_dirs).items()) if _spec_file(places))


def spec(kernel: str, extra_dirs: Sequence[str] = ()) -> KernelSpec:
    """The spec of a kernel, imported now.

    Args:
        kernel: its name.
        extra_dirs: folders given by `--kernel-dir`; a spec there runs as code of the user's.

    Raises:
        UnknownName: no such kernel.
        BadInput: its spec.py does not define SPEC as it must.
    """
    path = _spec_file(folders(extra_dirs).get(kernel, ()))
    if path is None:
        raise UnknownName("there is no such kernel", got=kernel, allowed=", ".join(kernels(extra_dirs)))
    found = load_spec(path)
    if found.name != kernel:
        raise BadInput("a spec must carry the name of its folder", got=found.name, allowed=kernel)
    return found


def folders(extra_dirs: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """Kernel name -> its folders, the one beside this file first. Only folders that exist.

    Raises:
        BadInput: a folder of `extra_dirs` does not exist.
    """
    found: dict[str, list[str]] = {}
    pairs = [*_package_folders(), *_entry_point_folders(), *_extra_folders(extra_dirs)]
    for kernel, folder in pairs:
        real = os.path.realpath(folder)
        places = found.setdefault(kernel, [])
        if real not in places:
            places.append(real)
    return {kernel: tuple(places) for kernel, places in found.items()}


def _package_folders() -> list[tuple[str, str]]:
    return _subfolders(HERE)


def _subfolders(root: str) -> list[tuple[str, str]]:
    """Subfolders that hold a kernel: a spec or at least one source of a variant."""
    entries = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and entry.name not in _OWN)
    return [(name, os.path.join(root, name)) for name in entries if _holds_kernel(os.path.join(root, name))]


def holds_kernels(root: str) -> bool:
    """Whether a folder given by `--kernel-dir` has the folder of a kernel, with a spec or a variant in it."""
    return bool(_subfolders(root))


def _holds_kernel(folder: str) -> bool:
    return any(name == SPEC_FILE or is_source(os.path.join(folder, name)) for name in os.listdir(folder))


def is_source(path: str) -> bool:
    """Whether a file is the source of a variant: C, Fortran, CUDA, or Python that begins with a variant's docstring."""
    if not os.path.isfile(path):
        return False
    if not path.endswith(".py"):
        return path.endswith((".c", ".f90", ".cu"))
    with open(path, "rb") as file:
        return file.read(len(PYTHON_MARK)) == PYTHON_MARK


def _entry_point_folders() -> list[tuple[str, str]]:
    found = []
    for point in importlib.metadata.entry_points(group=GROUP):
        try:
            module = importlib.util.find_spec(point.value)
        except (ImportError, ValueError, AttributeError) as error:
            module, reason = None, str(error)
        else:
            reason = "no such package"
        places = list(module.submodule_search_locations or ()) if module else []
        if not places:
            warnings.warn(f"kernel plug-in {point.name} = {point.value} is left out: {reason}", stacklevel=2)
        found += [(point.name, place) for place in places if os.path.isdir(place)]
    return found


def _extra_folders(extra_dirs: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for root in extra_dirs:
        if not os.path.isdir(root):
            raise BadInput("--kernel-dir must be an existing folder", got=root)
        found += _subfolders(root)
    return found


def _spec_file(places: Sequence[str]) -> str | None:
    files = (os.path.join(place, SPEC_FILE) for place in places)
    return next((path for path in files if os.path.isfile(path)), None)


def origin(kernel_spec: KernelSpec) -> str:
    """The file that defines a spec, for another process to load it with `load_spec`."""
    return os.path.realpath(inspect.getfile(type(kernel_spec)))


@functools.lru_cache(maxsize=64)
def load_spec(path: str) -> KernelSpec:
    """The SPEC of one spec.py.

    Raises:
        BadInput: the file does not define SPEC as an instance of KernelSpec.
    """
    module_name = _module_name(path)
    try:
        module = importlib.import_module(module_name) if module_name else _load_file(path)
    except (Exception, SystemExit) as error:  # it is somebody else's program
        where = f"{type(error).__name__}: {error}"
        raise BadInput(f"{path} must run as Python", got=where, next_step="mend it; docs/add-a-variant.md") from error
    found = getattr(module, "SPEC", None)
    if not isinstance(found, KernelSpec):
        raise BadInput(f"{path} must define SPEC, an instance of a KernelSpec subclass", got=type(found).__name__)
    return found


def _module_name(path: str) -> str | None:
    """The importable name of a spec that lies beside this file, so that it is never loaded twice under two names."""
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(HERE))
    if relative.startswith(os.pardir):
        return None
    return "advisor.kernels." + relative.removesuffix(".py").replace(os.sep, ".")


def _load_file(path: str) -> object:
    name = "advisor_kernel_" + hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:12]
    if name in sys.modules:
        return sys.modules[name]
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise BadInput("a spec must be a Python file", got=path)
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module  # before it runs: inspect.getfile looks classes up by module name
    try:
        module_spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
