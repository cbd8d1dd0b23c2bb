"""What the transformer block forward and backward share: axes, the fixed shape, inputs, edge problems, costs.

    xn[i,d] = x[i,d] r(x[i]) g1[d]                          r(x) = 1 / sqrt(mean over d of x[d]**2 + EPS)
    (q, k, v)[i,p] = sum over d of xn[i,d] wqkv[p,d]        p: all elements of all heads of q, then of k, then of v
    a[i,h,e] = attention of q, k and v, causal or not, scores divided by sqrt(head_dim)
    m[i,d] = x[i,d] + sum over h and e of a[i,h,e] wo[d,h,e]
    mn[i,d] = m[i,d] r(m[i]) g2[d]
    y[i,d] = m[i,d] + sum over f of silu(mn[i] . wg[f]) (mn[i] . wu[f]) wd[d,f]

for every row (token) i of every sequence: RMSNorm, projections, attention, residual; RMSNorm, gated MLP, residual, as
Llama has it, without biases. There is no rotary embedding: it turns q and k between projection and attention, costs
6 operations an element of q and k, and no traffic.

wqkv is one matrix [(heads + 2 kv_heads) head_dim, d_model]: the rows of q_proj, k_proj and v_proj of a model's file one
below the other, as servers keep them, so that one product reads the normalised rows once.

Source: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023, section 2.2; grouped heads:
Ainslie et al., "GQA", 2023.
"""

from __future__ import annotations

import itertools
from typing import ClassVar, NamedTuple

import numpy as np

from advisor.kernels import attention
from advisor.kernels.normal import drawn
from advisor.kernels.rms import massive, narrowed
from advisor.kernels.spec import COMPUTED_IN, DRAWS, Array, KernelSpec, Parameter, dims_in
from advisor.records import Problem

SHAPE_EDGES = (
    {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64, "d_model": 64, "d_ff": 256, "causal": 0},
    {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 64, "d_model": 80, "d_ff": 33, "causal": 1},
    {"batch": 1, "heads": 2, "kv_heads": 2, "head_dim": 7, "d_model": 7, "d_ff": 5, "causal": 1},
    {"batch": 2, "heads": 3, "kv_heads": 1, "head_dim": 16, "d_model": 1, "d_ff": 1, "causal": 0},
)
"""The paper's; grouped heads wider than a row; odd ones that no vector divides; one element a row."""

SIZE_EDGES = (1, 2, 17, 65)
"""One row, two, a prime, one past a power of two."""

MATRICES = ("wqkv", "wo", "wg", "wu", "wd")
INNER = ("wg", "wu", "wd")
WEIGHTS = ("g1", "wqkv", "wo", "g2", "wg", "wu", "wd")


class Dims(NamedTuple):
    """The numbers of a problem."""

    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    d_model: int
    d_ff: int
    causal: int
    n: int

    @property
    def rows(self) -> int:
        """Rows of all sequences."""
        return self.batch * self.n

    @property
    def own(self) -> int:
        """Elements of all heads of q: columns of wo."""
        return self.heads * self.head_dim

    @property
    def all(self) -> int:
        """Elements of all heads of q, k and v: rows of wqkv."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def weights(self) -> int:
        """Elements of all weights."""
        return self.d_model * (self.all + self.own + 3 * self.d_ff + 2)

    @property
    def of_attention(self) -> attention.Dims:
        """What attention has of them."""
        return attention.Dims(self.batch, self.heads, self.kv_heads, self.head_dim, self.causal, self.n)


def dims_of(problem: Problem) -> Dims:
    """The dims of a problem of one of these kernels."""
    return dims_in(Dims, problem)


def inner_slice(weights: dict[str, Array], some: slice) -> tuple[Array, Array, Array]:
    """wg, wu [f,d] and wd [d,f] of some f, in float64: all at once would be the largest arrays of a reference."""
    wg, wu, wd = weights["wg"][some], weights["wu"][some], weights["wd"][:, some]
    return wg.astype(np.float64), wu.astype(np.float64), wd.astype(np.float64)


def paper_elements(problem: Problem) -> int:
    """M_block = 24 n d + 4 n d_ff with n rows of all sequences: the traffic that the paper predicts of a block.

    It counts what rows move through memory from step to step, reads and writes together, and leaves the weights out: at
    batch 2, n = 256, d = 64, d_ff = 256 and 8 bytes 10.49 MB. The paper has one head of d_model elements; where heads
    together are wider or narrower than a row, or share k and v, it says nothing, and neither does this.

    Source: Mullin and Hains, section on the transformer block.
    """
    m = dims_of(problem)
    return m.rows * (24 * m.d_model + 4 * m.d_ff)


class TransformerSpec(KernelSpec):
    """What block and block_backward have in common. Subclasses add buffers, costs and the reference.

    `magnitudes`: in draw outlier rows of x take these factors in turn.
    """

    magnitudes: ClassVar[tuple[float, ...]]
    axes: ClassVar[dict[str, str]] = {
        "b": "sequence of the batch",
        "i": "row of a sequence (a token), 0 .. n-1; j: a row that it attends to, to i only where causal",
        "d": "element of a row, 0 .. d_model-1",
        "h": "query head; g: head of k and v, shared by heads / kv_heads query heads",
        "e": "element of a head, 0 .. head_dim-1",
        "p": "element of all heads of q, then of k, then of v",
        "f": "element within the MLP, 0 .. d_ff-1",
    }
    parameters: ClassVar[dict[str, Parameter]] = {
        "batch": Parameter("sequences", 2),
        "heads": Parameter("query heads", 1),
        "kv_heads": Parameter("heads of k and v; heads must be a multiple", 1),
        "head_dim": Parameter("elements of one head", 64),
        "d_model": Parameter("elements of one row", 64),
        "d_ff": Parameter("elements within the MLP", 256),
        "causal": Parameter("1: row i attends to rows up to i only", 0, 0),
    }
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    draws: ClassVar[tuple[str, ...]] = DRAWS
    dims: ClassVar[tuple[str, ...]] = Dims._fields

    def check(self, shape: dict[str, int]) -> None:
        """Query heads share the heads of k and v evenly, causal is 0 or 1. Raises BadInput."""
        attention.check_heads(shape)

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """g1, g2 [d], wqkv [p,d], wo [d,h*e], wg, wu [f,d], wd [d,f] and their gradients; all others [b,n,d]."""
        m = dims_of(problem)
        inner = dict.fromkeys(("wg", "wu"), (m.d_ff, m.d_model))
        outer = {"wqkv": (m.all, m.d_model), "wo": (m.d_model, m.own), "wd": (m.d_model, m.d_ff)}
        known: dict[str, tuple[int, ...]] = {**inner, **outer, "g1": (m.d_model,), "g2": (m.d_model,)}
        found = {**known, **{f"g{name}": shape for name, shape in known.items()}}
        return {name: found.get(name, (m.batch, m.n, m.d_model)) for name in self.buffers}

    def inputs(self, problem: Problem, seed: int, draw: str = "normal") -> dict[str, Array]:
        """Normal numbers; a row of weights has norm 1 or so, so that no step grows or shrinks what passes through it.
        Draw outlier: x has rows of several magnitudes and a few massive elements, as for RMSNorm. All are rounded to
        nearest in the problem's dtype.
        """
        shapes = self.shapes(problem)
        wanted = {name: shapes[name] for name in self.buffers if name not in self.written}
        found = drawn(wanted, seed, "normal", np.dtype(COMPUTED_IN[problem.dtype]))
        return narrowed(self.scaled(found, draw), problem.dtype)

    def scaled(self, found: dict[str, Array], draw: str) -> dict[str, Array]:
        """Drawn numbers at their scale, in place; also a device's."""
        for name in MATRICES:
            found[name] *= found[name].shape[1] ** -0.5
        if draw == "outlier":
            massive(found["x"], self.magnitudes)
        return found

    def edges(self) -> tuple[Problem, ...]:
        """All sizes on all shapes in all dtypes."""
        cases = itertools.product(self.dtypes, SHAPE_EDGES, SIZE_EDGES)
        return tuple(self.problem(n, dtype, "warm", **shape) for dtype, shape, n in cases)

    def shape_label(self, shape: tuple[tuple[str, int], ...]) -> str:
        """For example `batch 1, heads 32:8, head_dim 128, d_model 4096, d_ff 14336, causal`."""
        of = dict(shape)
        causal = ", causal" if of["causal"] else ""
        heads = f"heads {of['heads']}:{of['kv_heads']}, head_dim {of['head_dim']}"
        return f"batch {of['batch']}, {heads}, d_model {of['d_model']}, d_ff {of['d_ff']}{causal}"
