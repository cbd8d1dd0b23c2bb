"""Short digests, and the one that names a variant's source. Standard library only, no `typing` or `re`: hot path.

A table stores it, a build is keyed by it, and a lookup compares it with the source that lies here now. It covers the
headers of the variant's own folder and of the frame too, or an edit to a shared header would pass as the old variant.
"""

from __future__ import annotations

import os

FRAME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels", "frame")
"""Headers that variants of all kernels share."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _sha256() -> Callable[[bytes], Any]:
    """The interpreter's own sha256: hashlib would load OpenSSL, which costs milliseconds."""
    for module in (
        "_sha256",
        "_sha2",
        "hashlib",
    ):  # its name until Python 3.11, from 3.12, and where it is not built in
        try:
            found: Callable[[bytes], Any] = __import__(module).sha256
        except ImportError:
            continue
        return found
    raise ImportError("no sha256")


_HASH: list[Callable[[bytes], Any]] = []
"""The function, once it was needed."""


def short_hash(data: bytes) -> str:
    """Twelve hex digits of sha256."""
    if not _HASH:
        _HASH.append(_sha256())
    return str(_HASH[0](data).hexdigest()[:12])


def parts(path: str) -> dict[str, bytes]:
    """A source file and the headers beside it or in the frame that it includes, directly or through others.

    Args:
        path: of the source.

    Returns:
        Path -> content, the source first, each once, in the order of inclusion.

    Raises:
        OSError: the source cannot be read.
    """
    folders = (os.path.dirname(path), FRAME)
    found: dict[str, bytes] = {}
    waiting = [path]
    while waiting:
        name = waiting.pop(0)
        with open(name, "rb") as file:
            found[name] = file.read()
        headers = (_place(header, folders) for header in _included(found[name]))
        waiting += [h for h in dict.fromkeys(headers) if h and h not in found and h not in waiting]
    return found


def _place(header: str, folders: tuple[str, ...]) -> str:
    """The first folder's file of that name; empty where none has it (a header of the system's)."""
    paths = (os.path.join(folder, header) for folder in folders)
    return next((path for path in paths if os.path.isfile(path)), "")


def _included(content: bytes) -> list[str]:
    """Names in `#include "..."` lines."""
    names = []
    for piece in content.replace(b"# include", b"#include").split(b"#include")[1:]:
        words = piece.split(b"\n", 1)[0].split(b'"')
        if len(words) > 2 and not words[0].strip():
            names.append(os.fsdecode(words[1]))
    return names


def source_hash(path: str) -> str:
    """Twelve hex digits that name a source file together with its headers.

    Raises:
        OSError: the source cannot be read.
    """
    return short_hash(b"".join(parts(path).values()))
