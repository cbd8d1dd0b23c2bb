"""Small kernel files and the two ways in which they spell CPU sets: lists (`0-3,8`) and masks (`00ff,00000000`).

Every reader takes a root folder, so that a recorded tree is read like the machine at hand. What is missing or cannot be
read is None, never an error. Standard library only, and no `typing` or `re`: the hot path imports this module.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

seen: dict[str, str | None] | None = None
"""Where every read is noted, path -> text and listed folder -> None, while `record` watches; else None."""

_CHUNK = 65536
_MOST_CPUS = 1 << 20  # a range wider than any machine is a torn file, not a CPU list


def raw(path: str, limit: int = 0) -> str | None:
    """The text of a file, NUL bytes dropped (some kernels append one); None where it cannot be read.

    Args:
        path: the file.
        limit: 0 for all of it; else bytes of ONE read call, for files that the kernel is slow to make.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = [os.read(handle, limit or _CHUNK)]
        while not limit and parts[-1]:
            parts.append(os.read(handle, _CHUNK))
    except OSError:
        return None
    finally:
        os.close(handle)
    found = b"".join(parts).decode("utf-8", "replace").replace("\0", "")
    if seen is not None:
        seen[path] = max(found, seen.get(path) or "", key=len)
    return found


def text(path: str) -> str | None:
    """`raw` without white space at its ends: a value."""
    found = raw(path)
    return None if found is None else found.strip()


def number(path: str) -> int | None:
    """A whole number, or None where the file has none."""
    found = text(path)
    try:
        return int(found) if found else None
    except ValueError:
        return None


def names(folder: str) -> list[str]:
    """The names in a folder, sorted; none where it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def is_folder(path: str) -> bool:
    """Whether there is such a folder."""
    found = os.path.isdir(path)
    if found and seen is not None:
        seen.setdefault(path, None)
    return found


def numbered(folder: str, prefix: str) -> list[int]:
    """N of every `prefixN` in a folder, ascending: `numbered(".../cpu", "cpu")`."""
    tails = (name[len(prefix) :] for name in names(folder) if name.startswith(prefix))
    found = sorted(int(tail) for tail in tails if tail.isascii() and tail.isdigit())
    if seen is not None:
        seen.update((f"{folder}/{prefix}{tail}", None) for tail in found)
    return found


def parse_list(found: str) -> tuple[int, ...] | None:
    """CPU ids of a list such as `0-3,8`, ascending; None when it is not one. The empty text is the empty list."""
    ids: set[int] = set()
    for part in found.replace("\n", ",").replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if not part:
            continue
        if not (first.isascii() and first.isdigit()) or (dash and not (last.isascii() and last.isdigit())):
            return None
        low, high = int(first), int(last or first)
        if high - low > _MOST_CPUS:
            return None
        ids.update(range(low, high + 1))
    return tuple(sorted(ids))


def parse_mask(found: str) -> tuple[int, ...] | None:
    """CPU ids of a mask of hexadecimal words, highest first; None when it is not one."""
    words = "".join(found.split())
    try:
        # each word but the first is padded to eight digits, so joining them is one number
        bits = int(words.replace(",", ""), 16)
    except ValueError:
        return None
    ids = []
    while bits:
        low = bits & -bits
        ids.append(low.bit_length() - 1)
        bits ^= low
    return tuple(ids)


def cpu_set(list_path: str, mask_path: str = "") -> tuple[int, ...] | None:
    """The CPU ids of a list file, or of a mask file where there is no list; None where there is neither."""
    found = text(list_path)
    ids = parse_list(found) if found is not None else None
    if ids is None and mask_path:
        found = text(mask_path)
        ids = parse_mask(found) if found is not None else None
    return ids


def span(ids: Iterable[int]) -> str:
    """The shortest list spelling: `0-3,8`."""
    parts: list[str] = []
    first = last = -2
    for cpu in [*sorted(set(ids)), -1]:
        if cpu == last + 1 and cpu >= 0:
            last = cpu
            continue
        if first >= 0:
            parts.append(str(first) if first == last else f"{first}-{last}")
        first = last = cpu
    return ",".join(parts)
