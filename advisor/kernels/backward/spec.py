"""The DNF of attention backward: gradients of q, k and v for a cotangent of out.

    gq[i] = sum over j of GS[i,j] k[j] / sqrt(d)     GS[i,j] = P[i,j] (gout[i] . v[j] - gout[i] . out[i])
    gk[j] = sum over i of GS[i,j] q[i] / sqrt(d)     gv[j]   = sum over i of P[i,j] gout[i]

A forward pass went before it, so its output `out` and the row statistics `lse` (log of the sum of exp of the scores)
are inputs: with them P[i,j] = exp(q[i] . k[j] / sqrt(d) - lse[i]) without looking at a whole row.
"""

from __future__ import annotations

from typing import ClassVar

from advisor.kernels import attention, gradients
from advisor.kernels.attention import AttentionSpec, dims_of
from advisor.kernels.sixteen import narrow
from advisor.kernels.spec import COMPUTED_IN, Array, Elements, Expected
from advisor.records import Problem


class BackwardSpec(AttentionSpec):
    """Attention backward; see the head of this module for the formulas."""

    name: ClassVar[str] = "backward"
    buffers: ClassVar[tuple[str, ...]] = ("q", "k", "v", "out", "lse", "gout", "gq", "gk", "gv")
    written: ClassVar[tuple[str, ...]] = ("gq", "gk", "gv")

    def flops(self, problem: Problem) -> int:
        """Per pair (i, j) five products of 2d (q.k, gout.v, gq, gk, gv) and 5 for scale, exponential, GS.

        Per query row 2d for gout . out.
        """
        m = dims_of(problem)
        return m.batch * m.heads * (m.pairs * (10 * m.head_dim + 5) + 2 * m.n * m.head_dim)

    def elements(self, problem: Problem) -> Elements:
        """M_bwd = 8nd + n^2 + n a sequence and head, in the convention of M_fwd.

        Read q, k, v, out, gout (5nd), the row statistics (n) and the weights P (n^2), which the form with P
        materialised takes from the forward pass; write gq, gk, gv (3nd). Heads of k and v that several query heads
        share count once. Variants that recompute P read no n^2: their headers say what they move.
        """
        m = dims_of(problem)
        rows = m.batch * m.n * m.head_dim
        weights = m.batch * m.heads * (m.pairs + m.n)
        return Elements(rows * (3 * m.heads + 2 * m.kv_heads) + weights, rows * (m.heads + 2 * m.kv_heads))

    def inputs(self, problem: Problem, seed: int, draw: str = "normal") -> dict[str, Array]:
        """q, gout [b,h,n,d], k, v [b,g,n,d]; out and lse [b,h,n] of them, in float64, then rounded."""
        found = super().inputs(problem, seed, draw)
        found["gout"] = gradients.scaled(found["gout"], problem.dtype, draw)
        out, lse = attention.forward(dims_of(problem), self.widened(problem, found))
        kind = COMPUTED_IN[problem.dtype]
        return {**found, "out": narrow(out.astype(kind), problem.dtype), "lse": lse.astype(kind)}

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """gq, gk, gv in float64: all rows, or chosen ones of every head where all would take over 5 s.

        It starts from out and lse as they are stored: that they were rounded is nobody's error.
        """
        m, exact = dims_of(problem), self.widened(problem, inputs)
        make = gradients.all_rows if self.flops(problem) <= attention.SAMPLED_FLOPS else gradients.some_rows
        found = make(m, exact, gradients.Known(exact["out"], exact["lse"]))
        made = gradients.expected(problem, exact, found)
        return {name: made[name] for name in self.written}


SPEC = BackwardSpec()
