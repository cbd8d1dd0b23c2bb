"""Lines for `eval` in a shell: `--format env`."""

from __future__ import annotations

from advisor.answers import Answer
from advisor.policy.launch.values import exports, identifier, of_host, variables, whole, word

_KNOBS_THERE = r"$(env | sed -n 's/^\(ADVISOR_KNOB_[A-Za-z0-9_]*\)=.*/\1/p')"
"""Shell text: the names of the knobs that an earlier answer exported; which those are, only the shell knows."""


def env(answer: Answer) -> str:
    """Lines for `eval` in a POSIX shell: exports, and one unset of what must not be there.

    A GPU's answer leaves OpenMP as it is and sets what `device_variables` says for whoever launches the kernel, after
    an unset of all that an earlier answer for a GPU left.
    """
    if answer.device:
        return _device_env(answer)
    of_host(answer, "env")
    return exports(variables(answer))


def device_variables(answer: Answer) -> dict[str, str]:
    """ADVISOR_VARIANT, ADVISOR_TOOL and ADVISOR_KNOB_<name> of a GPU's answer; none where nothing was tuned.

    Raises:
        BadInput: a name that is no plain word, or a knob that is no whole number.
    """
    named = {"ADVISOR_VARIANT": answer.variant, "ADVISOR_TOOL": answer.compiler}
    found = {name: word(value, name) for name, value in named.items() if value is not None}
    knobs = {f"ADVISOR_KNOB_{identifier(name)}": str(whole(value, 0)) for name, value in answer.knob_pairs}
    return {} if answer.variant is None else {**found, **knobs}


def _device_env(answer: Answer) -> str:
    wanted: dict[str, str | None] = {**device_variables(answer)}
    lines = exports(wanted)
    return f"unset ADVISOR_VARIANT ADVISOR_TOOL {_KNOBS_THERE}" + (f"\n{lines}" if lines else "")
