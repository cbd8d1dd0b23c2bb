"""The forms in which PyTorch can compute each attention kernel: what benchmarks/torch_peer.py times.

    decode    sdpa, sdpa_expand, matmul; on 16-bit caches matmul_float32 as well, which widens k and v in the call
    forward   sdpa, sdpa_expand, matmul
    backward  flash (the backward of SDPA called by itself), sdpa_autograd (autograd.grad through a kept graph),
              matmul (the formulas, from q, k, v, out, lse and gout)
    fused     flash (SDPA's forward and backward called by themselves), sdpa_autograd, matmul_autograd

`_expand`: k and v were copied to all query heads beforehand, outside of the timing. matmul: scores, softmax and sums as
batched products over the query heads of a group, which writes n^2 weights. A backward's time holds no forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from advisor.kernels.memory import room_bytes

Form = Callable[[], tuple[Any, ...]]

SQUARES = {"decode": 0, "forward": 3, "backward": 4, "fused": 6}
"""Arrays of n^2 elements a query head that a matmul form may hold at once, scores, weights, mask and gradients."""

MATMUL_SHARE = 0.5
"""Share of the free memory that they may take."""

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


class Operands(NamedTuple):
    """q, gout [b,h,n,d] (decode: n = 1), k, v [b,g,n,d]; wide_k, wide_v [b,h,n,d]; `mask` [n,n] or None."""

    q: Any
    k: Any
    v: Any
    gout: Any
    wide_k: Any
    wide_v: Any
    mask: Any
    causal: bool

    @property
    def groups(self) -> int:
        """Query heads on one head of k and v."""
        return int(self.q.shape[1] // self.k.shape[1])


def operands(torch: Any, kernel: str, dtype: str, shape: dict[str, int], n: int) -> Operands:
    """Standard normal numbers. In 16 bits q is stored so too: PyTorch takes one dtype for all."""
    kind, causal = getattr(torch, dtype), bool(shape.get("causal"))
    b, h, g, d = (shape[key] for key in ("batch", "heads", "kv_heads", "head_dim"))
    rows = 1 if kernel == "decode" else n
    q, gout = torch.randn(b, h, rows, d).to(kind), torch.randn(b, h, rows, d).to(kind)
    k, v = torch.randn(b, g, n, d).to(kind), torch.randn(b, g, n, d).to(kind)
    wide = [x if h == g else x.repeat_interleave(h // g, dim=1) for x in (k, v)]
    mask = torch.full((n, n), float("-inf"), dtype=kind).triu(1) if causal else None
    return Operands(q, k, v, gout, *wide, mask, causal)


def forms(torch: Any, kernel: str, dtype: str, shape: dict[str, int], n: int) -> tuple[dict[str, Form], dict[str, str]]:
    """Every form of a kernel for one problem, and why some are left out."""
    x = operands(torch, kernel, dtype, shape, n)
    makers = {"decode": decode_forms, "forward": forward_forms, "backward": backward_forms, "fused": fused_forms}
    found = makers[kernel](torch, x)
    need = SQUARES[kernel] * shape["batch"] * shape["heads"] * n * n * BYTES[dtype]
    room = room_bytes()
    if room is None or need <= MATMUL_SHARE * room:
        return found, {}
    reason = f"its n^2 arrays need {need / 2**30:.1f} GiB, {room / 2**30:.1f} are free"
    return (
        {name: form for name, form in found.items() if "matmul" not in name},
        {name: reason for name in found if "matmul" in name},
    )


def without_autograd(torch: Any, call: Callable[[], Any]) -> Form:
    """The call in inference mode: nothing is recorded for a backward pass."""

    def run() -> tuple[Any, ...]:
        with torch.inference_mode():
            return (call(),)

    return run


def sdpa(torch: Any, x: Operands) -> dict[str, Callable[[], Any]]:
    """scaled_dot_product_attention; on groups by enable_gqa and on expanded k and v."""
    attention = torch.nn.functional.scaled_dot_product_attention
    if x.groups == 1:
        return {"sdpa": lambda: attention(x.q, x.k, x.v, is_causal=x.causal)}
    return {
        "sdpa": lambda: attention(x.q, x.k, x.v, is_causal=x.causal, enable_gqa=True),
        "sdpa_expand": lambda: attention(x.q, x.wide_k, x.wide_v, is_causal=x.causal),
    }


def grouped(x: Operands, array: Any) -> Any:
    """[b,h,n,d] as [b,g,groups * n,d]: the rows of all query heads of a group, so that a product reads k or v once."""
    b, g, _, d = x.k.shape
    return array.reshape(b, g, -1, d)


def scores(x: Operands, q: Any) -> Any:
    """q k / sqrt(d), [b,g,groups * n,n], masked where causal; `q` grouped."""
    found = (q * q.shape[-1] ** -0.5) @ x.k.transpose(-1, -2)
    if x.mask is None:
        return found
    n = x.mask.shape[0]
    return (found.reshape(-1, x.groups, n, n) + x.mask).view(found.shape)


def decode_forms(torch: Any, x: Operands) -> dict[str, Form]:
    """out of one query row a head."""

    def matmul() -> Any:
        return torch.softmax(scores(x, grouped(x, x.q)), dim=-1) @ x.v

    def widened() -> Any:
        wide = x._replace(k=x.k.float(), v=x.v.float())
        return (torch.softmax(scores(wide, grouped(wide, x.q.float())), dim=-1) @ wide.v).to(x.q.dtype)

    calls = {**sdpa(torch, x), "matmul": matmul}
    if x.q.element_size() == 2:
        calls["matmul_float32"] = widened
    return {name: without_autograd(torch, call) for name, call in calls.items()}


def forward_forms(torch: Any, x: Operands) -> dict[str, Form]:
    """out."""

    def matmul() -> Any:
        return torch.softmax(scores(x, grouped(x, x.q)), dim=-1) @ x.v

    return {name: without_autograd(torch, call) for name, call in {**sdpa(torch, x), "matmul": matmul}.items()}


def flash_forward(torch: Any, x: Operands) -> tuple[Any, Any]:
    """out and the log of the sum of exp of the scores."""
    found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(x.q, x.wide_k, x.wide_v, 0.0, x.causal)
    return found[0], found[1]


def flash_backward(torch: Any, x: Operands, out: Any, lse: Any) -> tuple[Any, ...]:
    """gq, gk, gv; those of k and v summed over the query heads of a group."""
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    gq, gk, gv = backward(x.gout, x.q, x.wide_k, x.wide_v, out, lse, 0.0, x.causal)
    return gq, gathered(x, gk), gathered(x, gv)


def gathered(x: Operands, gradient: Any) -> Any:
    """A gradient [b,h,n,d] of expanded k or v as that of k or v, [b,g,n,d]."""
    if x.groups == 1:
        return gradient
    b, g, n, d = x.k.shape
    return gradient.view(b, g, x.groups, n, d).sum(2)


def tracked(x: Operands) -> Operands:
    """The same operands as leaves that gradients are asked of."""
    q, k, v = (array.detach().clone().requires_grad_() for array in (x.q, x.k, x.v))
    return x._replace(q=q, k=k, v=v)


def attended(torch: Any, x: Operands) -> Any:
    """out by SDPA, to be differentiated."""
    attention = torch.nn.functional.scaled_dot_product_attention
    return attention(x.q, x.k, x.v, is_causal=x.causal, **({"enable_gqa": True} if x.groups > 1 else {}))


def backward_forms(torch: Any, x: Operands) -> dict[str, Form]:
    """gq, gk, gv from what a forward pass left behind."""
    with torch.no_grad():
        out, lse = flash_forward(torch, x)
    leaf = tracked(x)
    kept = attended(torch, leaf)
    q, gout = grouped(x, x.q), grouped(x, x.gout)
    totals = lse.to(x.q.dtype).reshape(*q.shape[:-1], 1)

    def matmul() -> tuple[Any, ...]:
        with torch.inference_mode():
            weights = scores(x, q).sub_(totals).exp_()
            gv = weights.transpose(-1, -2) @ gout
            change = gout @ x.v.transpose(-1, -2)
            change.sub_((gout * grouped(x, out)).sum(-1, keepdim=True)).mul_(weights).mul_(q.shape[-1] ** -0.5)
            return (change @ x.k).reshape(x.q.shape), change.transpose(-1, -2) @ q, gv

    def flash() -> tuple[Any, ...]:
        with torch.inference_mode():
            return flash_backward(torch, x, out, lse)

    def autograd() -> tuple[Any, ...]:
        found: tuple[Any, ...] = torch.autograd.grad(kept, (leaf.q, leaf.k, leaf.v), x.gout, retain_graph=True)
        return found

    return {"flash": flash, "sdpa_autograd": autograd, "matmul": matmul}


def fused_forms(torch: Any, x: Operands) -> dict[str, Form]:
    """out, gq, gk, gv in one call."""
    leaf = tracked(x)

    def flash() -> tuple[Any, ...]:
        with torch.inference_mode():
            out, lse = flash_forward(torch, x)
            return out, *flash_backward(torch, x, out, lse)

    def by_autograd(forward: Callable[[], Any]) -> Form:
        def run() -> tuple[Any, ...]:
            out = forward()
            return out.detach(), *torch.autograd.grad(out, (leaf.q, leaf.k, leaf.v), x.gout)

        return run

    def matmul() -> Any:
        return (torch.softmax(scores(leaf, grouped(leaf, leaf.q)), dim=-1) @ leaf.v).reshape(x.q.shape)

    return {
        "flash": flash,
        "sdpa_autograd": by_autograd(lambda: attended(torch, leaf)),
        "matmul_autograd": by_autograd(matmul),
    }
