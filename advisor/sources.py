"""Short digests, and the one that names a variant's source. Standard library only, no `typing` or `re`: hot path.

A table stores it, a build is keyed by it, and a lookup compares it with the source that lies here now. It covers the
headers of the variant's own folder too, or an edit to a shared header would pass as the old variant.
"""

from __future__ import annotations

import os


def short_hash(data: bytes) -> str:
    """Twelve hex digits of sha256. The interpreter's own module is tried first: hashlib loads OpenSSL, which costs."""
    try:
        from _sha2 import sha256  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        try:
            from _sha256 import sha256  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            from hashlib import sha256
    return str(sha256(data).hexdigest()[:12])


def parts(path: str) -> dict[str, bytes]:
    """A source file and the headers beside it that it includes, directly or through others.

    Args:
        path: of the source.

    Returns:
        Path -> content, the source first, each once, in the order of inclusion.

    Raises:
        OSError: the source cannot be read.
    """
    folder = os.path.dirname(path)
    found: dict[str, bytes] = {}
    waiting = [path]
    while waiting:
        name = waiting.pop(0)
        with open(name, "rb") as file:
            found[name] = file.read()
        headers = (os.path.join(folder, header) for header in _included(found[name]))
        waiting += [h for h in dict.fromkeys(headers) if h not in found and h not in waiting and os.path.isfile(h)]
    return found


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
