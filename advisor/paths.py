"""Where advisor keeps things. Standard library only, and no `typing` at run time: the hot path imports this module.

    state   $ADVISOR_HOME, else $XDG_DATA_HOME/advisor, else ~/.local/share/advisor
            holds machines/<hardware_id>-<limits_id>/{machine.json, measurements.jsonl, <kernel>.table.json}
    cache   $ADVISOR_CACHE, else $XDG_CACHE_HOME/advisor, else ~/.cache/advisor; 0700, its owner is checked
    shipped policies/ beside the package in a checkout, advisor/_policies in a wheel

Where the home folder is unset, "/", or not writable, or the cache folder is another user's, one of this user's in the
temporary directory serves, and `home_note` and `cache_note` say so. (platformdirs does not look at the owner, and is no
part of the standard library.)
"""

from __future__ import annotations

import os

from advisor.errors import BadInput, Missing

_HERE = os.path.dirname(os.path.abspath(__file__))


def _temporary() -> str:
    base = os.environ.get("TMPDIR") or "/tmp"
    return os.path.join(base, f"advisor-{os.getuid()}")


def _usable(folder: str) -> bool:
    """Whether the folder, or the nearest parent that exists, can be written to."""
    while not os.path.isdir(folder):
        parent = os.path.dirname(folder)
        if parent == folder:
            return False
        folder = parent
    return os.access(folder, os.W_OK | os.X_OK)


def _is_foreign(folder: str) -> bool:
    """Whether it is another user's: the superuser may write there, but nothing is loaded from it."""
    try:
        return os.lstat(folder).st_uid != os.getuid()
    except OSError:
        return False


def _folder(own: str, xdg: str, fallback: str) -> str:
    if os.environ.get(own):
        return os.path.abspath(os.environ[own])
    home = os.environ.get("HOME") or ""
    base = os.environ.get(xdg) or (os.path.join(home, fallback) if home.strip("/") else "")
    if base and os.path.isabs(base):
        folder = os.path.join(base, "advisor")
        if _usable(folder) and not (own == "ADVISOR_CACHE" and _is_foreign(folder)):
            return folder
    return _spare(own)


def _spare(own: str) -> str:
    return os.path.join(_temporary(), "state" if own == "ADVISOR_HOME" else "cache")


def state_dir() -> str:
    """Folder of machine descriptions, logs and tables. Not created."""
    return _folder("ADVISOR_HOME", "XDG_DATA_HOME", ".local/share")


def cache_dir() -> str:
    """Folder of compiled variants. Not created; see `private`."""
    return _folder("ADVISOR_CACHE", "XDG_CACHE_HOME", ".cache")


def home_note() -> str:
    """A sentence when the temporary directory had to serve, else the empty text: also where it was asked for."""
    if not os.environ.get("ADVISOR_HOME") and state_dir() == _spare("ADVISOR_HOME"):
        return f"no writable home folder: results are kept in {state_dir()}; set ADVISOR_HOME to keep them elsewhere"
    return ""


def cache_note() -> str:
    """The same for what is compiled."""
    if not os.environ.get("ADVISOR_CACHE") and cache_dir() == _spare("ADVISOR_CACHE"):
        return f"no cache folder of this user's: it is made in {cache_dir()}; set ADVISOR_CACHE to have it elsewhere"
    return ""


def machine_dir(hardware_id: str, limits_id: str) -> str:
    """Folder of one machine under its limits. Not created."""
    return os.path.join(state_dir(), "machines", f"{hardware_id}-{limits_id}")


def shipped_policies() -> str:
    """Folder of the tables that come with advisor, in a checkout or in an installed wheel.

    Raises:
        Missing: neither place exists.
    """
    for folder in (os.path.join(_HERE, "_policies"), os.path.join(os.path.dirname(_HERE), "policies")):
        if os.path.isdir(folder):
            return folder
    raise Missing("the shipped policies must lie beside or inside the package", next_step="reinstall advisor")


def writable(folder: str) -> str:
    """Create a folder for results, and see that files can be made in it.

    Raises:
        BadInput: they cannot.
    """
    trial = os.path.join(folder, f".writable-{os.getpid()}")
    try:
        os.makedirs(folder, exist_ok=True)
        os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        os.unlink(trial)
    except OSError as error:
        raise BadInput(
            "the folder for results must be writable",
            got=folder,
            next_step=f"{error.strerror}; set ADVISOR_HOME to another folder",
        ) from None
    return folder


def _open_to_others(folder: str) -> bool:
    found = os.lstat(folder)
    return os.path.islink(folder) or found.st_uid != os.getuid() or bool(found.st_mode & 0o022)


def private(folder: str) -> str:
    """Create a folder for this user alone, or check that an existing one is.

    Raises:
        BadInput: it cannot be made, is a link, belongs to another user, or others may write to it.
    """
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise BadInput(
            "the cache folder must be one that can be made",
            got=folder,
            next_step=f"{error.strerror}; set ADVISOR_CACHE to another folder",
        ) from None
    shared = _temporary()  # everybody can make that one, and whoever owns it can swap what lies in it
    suspects = [shared, folder] if os.path.abspath(folder).startswith(shared + os.sep) else [folder]
    if any(_open_to_others(suspect) for suspect in suspects):
        raise BadInput(
            "the cache folder must belong to this user and be writable by nobody else",
            got=folder,
            next_step="remove it or set ADVISOR_CACHE to a folder of your own",
        )
    return folder


def text_of(path: str) -> str:
    """What a small text file holds, such as one of the kernel's; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
