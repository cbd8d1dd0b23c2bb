"""An initial RAM disk with a Python program and just the files that it loads, taken from this machine."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping

LIST = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
with open("/proc/self/maps") as maps:
    files |= {line.split(maxsplit=5)[5].strip() for line in maps if "/" in line}
print(json.dumps([sorted(f for f in files if f and not f.startswith("[")), sys.path]))
"""


def loaded(modules: Iterable[str], path: Iterable[str]) -> tuple[set[str], list[str]]:
    """Files that a fresh interpreter has open or mapped after these imports, and its module path."""
    import json

    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", LIST, *modules], env=env, capture_output=True, text=True, check=True)
    files, search = json.loads(done.stdout)
    return {file for file in files if os.path.isfile(file)}, search


def needed_libraries(files: Iterable[str]) -> set[str]:
    """Shared libraries, the loader among them, that the dynamic linker would load for these files."""
    found: set[str] = set()
    for file in files:
        done = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
        found |= set(re.findall(r"(/\S+\.so\S*)", done.stdout))
    return {os.path.normpath(name) for name in found}


def cpio(files: Iterable[str], texts: Mapping[str, tuple[bytes, int]]) -> bytes:
    """An archive in the kernel's "newc" format: files under their own paths (links kept), texts, /dev/console.

    Source: Linux Documentation/driver-api/early-userspace/buffer-format.rst.
    """
    out = bytearray()
    made: set[str] = set()

    def entry(name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        raw = name.lstrip("/").encode() + b"\0"
        fields = (len(made) + 1, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(raw), 0)
        out.extend(b"070701" + b"".join(b"%08X" % field for field in fields) + raw)
        out.extend(b"\0" * (-len(out) % 4) + data)
        out.extend(b"\0" * (-len(out) % 4))
        made.add(name)

    def folders(path: str) -> None:
        parent = os.path.dirname(path)
        if parent not in ("", "/") and parent not in made:
            add(parent)

    def add(path: str) -> None:
        if path in made:
            return
        folders(path)
        if path in made:  # a parent was a link
            return
        if os.path.islink(path):
            target = os.readlink(path)
            entry(path, stat.S_IFLNK | 0o777, target.encode())
            add(os.path.normpath(os.path.join(os.path.dirname(path), target)))
        elif os.path.isdir(path):
            entry(path, stat.S_IFDIR | 0o755)
        else:
            with open(path, "rb") as file:
                entry(path, stat.S_IFREG | 0o755, file.read())

    for path in sorted(files):
        add(path)
    for path, (data, mode) in texts.items():
        if os.path.dirname(path) not in ("", "/", *made):
            add(os.path.dirname(path))
        entry(path, stat.S_IFREG | mode, data)
    for name in ("/dev", "/proc", "/sys", "/tmp"):
        if name not in made:
            entry(name, stat.S_IFDIR | 0o755)
    entry("/dev/console", stat.S_IFCHR | 0o600, b"", (5, 1))
    entry("TRAILER!!!", 0)
    return bytes(out)
