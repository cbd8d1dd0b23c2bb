"""The DNF of attention forward and backward in one: output and gradients from q, k, v and the cotangent.

The formulas are those of forward/spec.py and backward/spec.py. Nothing of order n^2 goes in or comes out.
"""

from __future__ import annotations

from typing import ClassVar

from advisor.kernels import attention, gradients
from advisor.kernels.attention import AttentionSpec, dims_of
from advisor.kernels.spec import Array, Elements, Expected
from advisor.records import Problem


class FusedSpec(AttentionSpec):
    """Attention forward and backward; see the head of this module."""

    name: ClassVar[str] = "fused"
    buffers: ClassVar[tuple[str, ...]] = ("q", "k", "v", "gout", "out", "gq", "gk", "gv")
    written: ClassVar[tuple[str, ...]] = ("out", "gq", "gk", "gv")

    def flops(self, problem: Problem) -> int:
        """Per pair (i, j) six products of 2d (q.k, out, gout.v, gq, gk, gv) and 8 for softmax and GS.

        Per query row d divisions and 2d for gout . out. Variants that compute scores twice do more.
        """
        m = dims_of(problem)
        return m.batch * m.heads * (m.pairs * (12 * m.head_dim + 8) + 3 * m.n * m.head_dim)

    def elements(self, problem: Problem) -> Elements:
        """M_fwd+bwd = 8nd a sequence and head: read q, k, v, gout (4nd), write out, gq, gk, gv (4nd).

        P is never written, which is the point of fusing: forward then backward with P kept moves
        M_fwd + M_bwd = 12nd + 2n^2 + n. Heads of k and v that several query heads share count once.
        """
        m = dims_of(problem)
        rows = m.batch * m.n * m.head_dim * (2 * m.heads + 2 * m.kv_heads)
        return Elements(rows, rows)

    def inputs(self, problem: Problem, seed: int, draw: str = "normal") -> dict[str, Array]:
        """q, gout [b,h,n,d], k and v [b,g,n,d], in their storage."""
        found = super().inputs(problem, seed, draw)
        return {**found, "gout": gradients.scaled(found["gout"], problem.dtype, draw)}

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """out, gq, gk, gv in float64: all rows, or chosen ones of every head where all would take over 5 s.

        delta is that of out before it is rounded to its storage.
        """
        m, exact = dims_of(problem), self.widened(problem, inputs)
        known = gradients.Known(*attention.forward(m, exact))
        make = gradients.all_rows if self.flops(problem) <= attention.SAMPLED_FLOPS else gradients.some_rows
        return gradients.expected(problem, exact, make(m, exact, known))


SPEC = FusedSpec()
