"""The errors of advisor: one parent, children that are also the fitting builtin.

Every message has four parts: the rule that was broken, the value that was got, what is allowed, the next step.
Standard library only: the hot path imports this module.
"""

from __future__ import annotations

_UNSET = object()


class AdvisorError(Exception):
    """Parent of every error that advisor raises on purpose.

    Args:
        rule: the rule that was broken, one sentence without a full stop.
        got: the value that broke it; left out of the message when not given.
        allowed: what would have been accepted.
        next_step: what the reader can do now.
    """

    def __init__(self, rule: str, *, got: object = _UNSET, allowed: str = "", next_step: str = "") -> None:
        self.rule = rule
        self.allowed = allowed
        self.next_step = next_step
        parts = [rule]
        if got is not _UNSET:
            parts.append(f"got {got!r}")
        if allowed:
            parts.append(f"allowed: {allowed}")
        if next_step:
            parts.append(next_step)
        super().__init__("; ".join(parts))


class BadInput(AdvisorError, ValueError):
    """A value from outside (argument, file, header) breaks a rule."""


class SchemaError(BadInput):
    """A file's schema is missing, of another kind, or of a newer major version than this reader knows."""


class PlacementError(BadInput):
    """A placement expression cannot be read, or makes no sense on this machine."""


class UnknownName(AdvisorError, KeyError):
    """A name (kernel, variant, axis, compiler) that does not exist was asked for."""

    def __str__(self) -> str:  # KeyError would quote the whole message
        return str(self.args[0])


class BuildError(AdvisorError, RuntimeError):
    """A variant does not compile or does not load; the compiler's last lines are in the message."""


class OutOfTime(AdvisorError, TimeoutError):
    """The time allowed ended before something was done; it has not failed, and may be tried again."""


class WorkerDied(AdvisorError, RuntimeError):
    """A bench worker crashed, hung past its limit, or could not be started."""


class Busy(AdvisorError, TimeoutError):
    """Somebody else holds a lock (another tuner, another table writer)."""


class Missing(AdvisorError, FileNotFoundError):
    """A file or folder that must be there is not."""
