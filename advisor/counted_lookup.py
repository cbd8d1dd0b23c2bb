"""A policy that also counts what it has no measured answer for; see `advisor.misses`. Hits cost one comparison more.

Standard library only and no `typing` at run time. Loaded only where misses are counted.
"""

from __future__ import annotations

from bisect import bisect_right

from advisor import misses
from advisor.lookup import _AXES, _REMEMBERED, Policy, _meant
from advisor.paths import machine_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from advisor.answers import Answer
    from advisor.gather import Sources
    from advisor.misses import Question
    from advisor.site import Site

    Counted = tuple[list[int], list[Answer], list[Question | None]]

KERNEL, SHAPE, N, STALE, ELSEWHERE = "kernel", "shape", "n", "stale", "elsewhere"
"""Why a lookup missed: no table of the kernel; none of such a shape or dtype; n outside the tuned region, or a process
part that was not tuned; what the row depends on has changed; the answer comes from other machines or a model."""

MEASURED = ("EXACT", "INTERPOLATED")


class CountingPolicy(Policy):
    """A `Policy` whose misses are counted. `Policy.load` makes one."""

    __slots__ = ("_counted", "_misses")

    def __init__(self, site: Site, sections: Sources, reasons: dict[str, str], notes: list[str]) -> None:
        super().__init__(site, sections, reasons, notes)
        self._misses = misses.of(machine_dir(site.hardware_id, site.limits_id))
        self._counted: dict[tuple[object, ...], Counted] = {}

    def choose(  # noqa: PLR0913 (named arguments are twice as fast as a dict of them)
        self,
        /,
        kernel: str,
        n: int,
        *,
        batch: int | None = None,
        heads: int | None = None,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        dtype: str | None = None,
        regime: str | None = None,
        **more: Any,
    ) -> Answer:
        """The answer for one n, as `Policy.choose` gives it."""
        try:
            if more:
                raise LookupError
            borders, answers, asked = self._counted[kernel, batch, heads, kv_heads, head_dim, dtype, regime]
            place = bisect_right(borders, n)
            answer, question = answers[place], asked[place]
        except Exception:  # a server must get an answer whatever it hands in
            axes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "dtype": dtype}
            return self._slowly(kernel, n, {**axes, "regime": regime, **more})
        if question is not None:
            question.note(n)
        return answer

    def bind(self, /, kernel: str, **axes: Any) -> Callable[[int], Answer]:
        """A function of n alone, as `Policy.bind` gives it."""
        plain = super().bind(kernel, **axes)
        try:
            borders, answers, asked = self._with_questions(kernel, axes)
        except Exception:  # an odd caller
            return plain

        def answer(n: int) -> Answer:
            try:
                place = bisect_right(borders, n)
                question = asked[place]
                if question is not None:
                    question.note(n)
                return answers[place]
            except Exception:  # a server must get an answer whatever it hands in
                return plain(n)

        return answer

    def flush(self) -> bool:
        """Write the misses counted so far; whether all are written. Not for the request path."""
        return self._misses.flush()

    def _slowly(self, kernel: str, n: Any, axes: dict[str, Any]) -> Answer:
        answer = super()._slowly(kernel, n, axes)
        try:
            borders, _, asked = self._with_questions(kernel, axes)
            question = asked[bisect_right(borders, n)]
            if question is not None:
                question.note(n)
        except Exception:  # a question that makes no sense is no miss
            return answer
        return answer

    def _with_questions(self, kernel: str, axes: dict[str, Any]) -> Counted:
        """The ranges of a question, with what counts the misses of each; remembered."""
        given = {name: value for name, value in axes.items() if value is not None}
        named = set(given) <= set(_AXES)
        key = (kernel, *map(given.get, _AXES))
        if named and key in self._counted:
            return self._counted[key]
        borders, answers = self._ranges(kernel, given)
        found = borders, answers, self._questions(kernel, given, answers)
        if named and len(self._counted) < _REMEMBERED:
            self._counted[key] = found
        return found

    def _questions(self, kernel: str, given: dict[str, Any], answers: list[Answer]) -> list[Question | None]:
        """For each answer what counts it as a miss, None where it is none."""
        keys = [key for key in self._groups if key[0] == kernel]
        found = _meant(keys, given)
        if len(found) > 1:  # more axes would have found a row: nothing to tune
            return [None] * len(answers)
        if not found:
            question = self._misses.question(kernel, given, SHAPE if keys else KERNEL)
            return [question if self._why(answer) else None for answer in answers]  # a rule may answer for the shape
        _, dtype, regime, shape = found[0]
        axes = {"dtype": dtype, "regime": regime, **dict(shape)}
        every = {why: self._misses.question(kernel, axes, why) for why in (N, STALE, ELSEWHERE)}
        return [every.get(self._why(answer)) for answer in answers]

    def _why(self, answer: Answer) -> str:
        """Why an answer is a miss, the empty text where it is none. What was measured with the whole machine holds for
        a part of it as well as anything can."""
        if answer.basis in MEASURED or (self.site.part and answer.basis == "TRANSFERRED"):
            return ""
        if answer.basis == "DEFAULT":
            return STALE if answer.in_tuned_region else N
        return STALE if answer.basis == "STALE" else ELSEWHERE
