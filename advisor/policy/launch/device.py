"""How a GPU's choice is launched at one n: blocks, warps and shared memory of each kernel, by its variant's header."""

from __future__ import annotations

from typing import Any

from advisor.answers import Answer
from advisor.errors import AdvisorError
from advisor.records import Build, Problem
from advisor.words import many

TYPE_CHECKING = False
if TYPE_CHECKING:  # answering must not wait for what measures
    from advisor.kernels.gpu.geometry import Extent

WARP = 32
"""Threads of a warp. Source: CUDA C++ Programming Guide, "SIMT Architecture"."""


def launch_of(problem: Problem, made: Build) -> dict[str, Any] | None:
    """The launches of a CUDA variant's call; None for other variants, and where its source is not here in that version.

    Args:
        problem: what is computed.
        made: the build part of the choice.

    Returns:
        `grid` (three extents), `block` (threads), `warps` of a block, `shared_bytes` of a block, `workspace_bytes` of
        the call; `then`: the same of each kernel that follows in it, with its `symbol`.
    """
    from advisor.kernels import registry
    from advisor.kernels.gpu.geometry import geometry
    from advisor.kernels.header import GPU_LANGUAGES
    from advisor.kernels.variant import variants

    try:
        known = variants(problem.kernel, (), GPU_LANGUAGES)
        variant = next(v for v in known if (v.name, v.source_hash) == (made.variant, made.source_hash) and v.launch)
        found = geometry(registry.spec(problem.kernel), variant, problem, made.knobs)
    except (AdvisorError, StopIteration):
        return None
    first, *then = (_extent(one) for one in found.extents)
    more = [{"symbol": symbol, **one} for symbol, one in zip(variant.symbols[1:], then, strict=True)]
    return {**first, "workspace_bytes": found.workspace_bytes, "then": more}


def _extent(one: Extent) -> dict[str, Any]:
    return {
        "grid": list(one.grid),
        "block": one.block,
        "warps": -(-one.block // WARP),
        "shared_bytes": one.shared_bytes,
    }


def words(launch: dict[str, Any]) -> str:
    """The launches of a call in a few words."""
    return "; then ".join(_words(one) for one in (launch, *launch["then"]))


def _words(launch: dict[str, Any]) -> str:
    grid = " x ".join(str(extent) for extent in launch["grid"] if extent > 1) or "1"
    blocks = f"{grid} block{'' if grid == '1' else 's'}"
    shared = f", {launch['shared_bytes']} bytes of shared memory" if launch["shared_bytes"] else ""
    return f"{blocks} of {many(launch['warps'], 'warp')} ({many(launch['block'], 'thread')}){shared}"


def launch_at(answer: Answer, n: int) -> dict[str, Any] | None:
    """The launch of an answer at n, see `launch_of`; None where nothing was tuned.

    Args:
        answer: what a policy said.
        n: the n that was asked.
    """
    if answer.variant is None or answer.dtype is None:
        return None
    problem = Problem(answer.kernel, answer.dtype, answer.shape_pairs, n, answer.regime or "warm")
    known = answer.source_hash or "", answer.knob_pairs, answer.compiler or "", answer.flags or ""
    return launch_of(problem, Build(answer.variant, *known))
