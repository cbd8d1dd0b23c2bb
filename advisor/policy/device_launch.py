"""How a GPU's answer is launched at one n: blocks, warps and shared memory, worked out from its variant's header."""

from __future__ import annotations

from typing import Any

from advisor.answers import Answer
from advisor.errors import AdvisorError

WARP = 32
"""Threads of a warp. Source: CUDA C++ Programming Guide, "SIMT Architecture"."""


def launch_of(answer: Answer, n: int) -> dict[str, Any] | None:
    """The launch of a CUDA variant at n; None for other variants, and where its source is not here in that version.

    Args:
        answer: what a policy said at n, for a GPU.
        n: the swept size.

    Returns:
        `grid` (three extents), `block` (threads), `warps` of a block, `shared_bytes` of a block, `workspace_bytes`.
    """
    from advisor.kernels import registry
    from advisor.kernels.gpu.geometry import geometry
    from advisor.kernels.header import GPU_LANGUAGES
    from advisor.kernels.variant import variants

    try:
        known = variants(answer.kernel, (), GPU_LANGUAGES)
        variant = next(v for v in known if (v.name, v.source_hash) == (answer.variant, answer.source_hash) and v.launch)
        spec = registry.spec(answer.kernel)
        problem = spec.problem(n, answer.dtype or "", answer.regime or "warm", **answer.shape)
        found = geometry(spec, variant, problem, answer.knob_pairs)
    except (AdvisorError, StopIteration):
        return None
    return {
        "grid": list(found.grid),
        "block": found.block,
        "warps": -(-found.block // WARP),
        "shared_bytes": found.shared_bytes,
        "workspace_bytes": found.workspace_bytes,
    }


def words(launch: dict[str, Any]) -> str:
    """A launch in a few words."""
    grid = " x ".join(str(extent) for extent in launch["grid"] if extent > 1) or "1"
    shared = f", {launch['shared_bytes']} bytes of shared memory" if launch["shared_bytes"] else ""
    return f"{grid} blocks of {launch['warps']} warps ({launch['block']} threads){shared}"
