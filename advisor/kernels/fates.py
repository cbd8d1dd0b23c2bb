"""What every pool does around a measurement, on a CPU or a device: which variant is meant, whether it may exist, and
what is known to crash or hang and is not run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from advisor.errors import BadInput
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, is_valid
from advisor.records import Build, Choice, Measurement, Problem

HANGS = 2
"""A variant that has not come back so often, and never once did, is not run again: each time costs the whole limit."""

Key = tuple[str, str]
"""Name and source hash of a variant."""

Known = Mapping[Key, Variant]


def by_key(variants: Sequence[Variant]) -> dict[Key, Variant]:
    """The variants by what a build says of its own."""
    return {(variant.name, variant.source_hash): variant for variant in variants}


def variant_of(known: Known, made: Build) -> Variant:
    """The variant of a build.

    Raises:
        BadInput: it is not at hand, or not in this version.
    """
    key = (made.variant, made.source_hash)
    if key not in known:
        raise BadInput(
            "a choice must be of a variant at hand, in this very version",
            got=f"{made.variant} {made.source_hash}",
            allowed=", ".join(f"{name} {digest}" for name, digest in sorted(known)),
        )
    return known[key]


def check_exists(spec: KernelSpec, variant: Variant, problem: Problem, made: Build) -> None:
    """Refuse a build that its variant does not have for a problem.

    Raises:
        BadInput: with the rules of the variant.
    """
    if problem.kernel != spec.name or not is_valid(variant, problem, made.knobs):
        raise BadInput(
            f"{variant.name} does not exist for this problem with these knobs",
            got=f"{problem.kernel} {problem.dtype} {problem.dims()} {dict(made.knobs)}",
            allowed=" and ".join(variant.valid) or f"{', '.join(variant.dtypes)} of {spec.name}",
        )
    if not set(variant.prepares) <= set(spec.constant):
        raise BadInput(
            f"{variant.name} may prepare only what stays the same from call to call",
            got=", ".join(variant.prepares),
            allowed=", ".join(spec.constant) or f"no input of {spec.name}",
        )


class Fates:
    """What choices came to. A choice that crashed or hung is not run again on the same problem, a variant that only
    ever hung not at all: `measured` then answers with what is known."""

    def __init__(self) -> None:
        self._fatal: dict[tuple[Problem, Build, int], Measurement] = {}
        self._hangs: dict[Key, int] = {}
        self._returned: set[Key] = set()

    def measured(self, problem: Problem, choice: Choice, attempt: Callable[[], Measurement]) -> Measurement:
        """What an attempt gives, with the wall time it took, or what is known of the choice without one."""
        start = time.monotonic()
        known = self._not_again(problem, choice)
        if known is not None:
            return known
        found = attempt()
        self._note(problem, choice, found)
        return found._replace(seconds=time.monotonic() - start)

    def _not_again(self, problem: Problem, choice: Choice) -> Measurement | None:
        known = self._fatal.get(_key(problem, choice))
        if known is not None:
            return known._replace(choice=choice, reason=f"not run again: {known.reason}", seconds=0.0, compile_s=0.0)
        variant = choice.build.variant, choice.build.source_hash
        if self._hangs.get(variant, 0) >= HANGS and variant not in self._returned:
            reason = f"not run: {choice.build.variant} hung {HANGS} times and never came back"
            return Measurement(problem, choice, "skipped", reason=reason)
        return None

    def _note(self, problem: Problem, choice: Choice, found: Measurement) -> None:
        if found.status in ("crashed", "timeout"):
            self._fatal[_key(problem, choice)] = found
        variant = choice.build.variant, choice.build.source_hash
        if found.status == "timeout":
            self._hangs[variant] = self._hangs.get(variant, 0) + 1
        elif found.status == "ok":
            self._returned.add(variant)


def _key(problem: Problem, choice: Choice) -> tuple[Problem, Build, int]:
    return problem, choice.build, choice.team.threads if choice.team else 0
