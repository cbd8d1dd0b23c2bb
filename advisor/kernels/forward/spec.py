"""The DNF of attention forward: every query row against all rows of k and v, or those up to its own (causal).

out[b,h,i,:] = sum over j of P[i,j] v[b,g,j,:]       P[i,j] = softmax over j of q[b,h,i,:] . k[b,g,j,:] / sqrt(d)
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from advisor.kernels import attention
from advisor.kernels.attention import AttentionSpec, dims_of
from advisor.kernels.spec import Array, Elements, Expected
from advisor.records import Problem


class ForwardSpec(AttentionSpec):
    """Attention forward; see the head of this module for the formula."""

    name: ClassVar[str] = "forward"
    buffers: ClassVar[tuple[str, ...]] = ("q", "k", "v", "out")
    written: ClassVar[tuple[str, ...]] = ("out",)

    def flops(self, problem: Problem) -> int:
        """Per pair (i, j): 2d for the dot product, 2d for the weighted sum, 4 for scale, maximum, exponential, total.

        Per query row d divisions.
        """
        m = dims_of(problem)
        return m.batch * m.heads * (m.pairs * (4 * m.head_dim + 4) + m.n * m.head_dim)

    def elements(self, problem: Problem) -> Elements:
        """Read q, k, v once; write out and the weights P [n,n] once: M_fwd = 4nd + n^2 a sequence and head.

        That is the cost function of the form in which P is materialised, the one the paper states and measures against:
        at n = 2048, d = 64, batch 2 and 8 bytes 75.497 MB. Heads of k and v that several query heads share are read
        once; causal, P has n (n + 1) / 2 elements. The fused variants write no P: their headers say what they move.

        Source: Mullin and Hains, section 3.3.
        """
        m = dims_of(problem)
        rows = m.batch * m.n * m.head_dim
        return Elements(rows * (m.heads + 2 * m.kv_heads), m.batch * m.heads * m.pairs + rows * m.heads)

    def reference(self, problem: Problem, inputs: dict[str, Array]) -> dict[str, Expected]:
        """out in float64: all rows, or chosen ones of every head where all would take over 5 s.

        The tolerance is attention.out_tolerance, in units of the arithmetic's roundoff, and the rounding of the result
        where that is stored in 16 bits (attention.stored). attention.cache_tolerance allows for weights that are
        rounded to the problem's dtype between the two products, and holds the rounding of the result already.
        """
        m, exact = dims_of(problem), self.widened(problem, inputs)
        tolerance, loose = attention.out_tolerances(problem, exact)
        if self.flops(problem) <= attention.SAMPLED_FLOPS:
            return {"out": Expected(attention.forward(m, exact)[0], tolerance, cache_tolerance=loose)}
        rows = attention.sampled(m)
        heads = [head for _, _, head in attention.heads_of(m, exact)]
        found = attention.in_parallel(lambda head: attention.attend(head, rows).out, heads)
        values, places = np.concatenate(found), attention.flat(m, m.heads, rows)
        return {"out": Expected(values, tolerance, places, loose)}


SPEC = ForwardSpec()
