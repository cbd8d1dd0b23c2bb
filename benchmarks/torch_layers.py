"""The forms in which PyTorch can compute each kernel around attention: what benchmarks/torch_peer.py times.

    rmsnorm           rms_norm, formula (mean of squares, rsqrt and products)
    rmsnorm_backward  autograd, formula
    norm_linear       linear, and onednn where it is float32
    mlp               linear, joined (wg and wu as one matrix, so that x is read once), onednn
    mlp_backward      autograd, formula (as products, from a and b as a forward pass left them)
    block             linear, joined, onednn; attention is scaled_dot_product_attention in all
    block_backward    autograd

onednn: weights packed beforehand, silu and the product of the gate inside of the linears, as PyTorch's own compiler
calls it. A backward's time holds no forward pass: training keeps one, so this is PyTorch's best; our mlp_backward and
block_backward make what they need of it anew inside of their time. Nothing here is compiled by torch.compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_forms import Form, without_autograd

from advisor.kernels.registry import spec
from advisor.kernels.rms import EPS

Tensors = dict[str, Any]


def operands(torch: Any, kernel: str, dtype: str, shape: dict[str, int], n: int) -> Tensors:
    """The kernel's own inputs by name."""
    own = spec(kernel)
    made = own.inputs(own.problem(n, dtype, **shape), seed=0)
    return {name: torch.from_numpy(array) for name, array in made.items()}


def layer_forms(
    torch: Any, kernel: str, dtype: str, shape: dict[str, int], n: int
) -> tuple[dict[str, Form], dict[str, str]]:
    """Every form of a kernel for one problem; none is left out beforehand."""
    return MAKERS[kernel](torch, operands(torch, kernel, dtype, shape, n), shape), {}


def inference(torch: Any, calls: dict[str, Callable[[], Any]]) -> dict[str, Form]:
    """Forms that give one result and record nothing for a backward pass."""
    return {name: without_autograd(torch, call) for name, call in calls.items()}


def kept(torch: Any, result: Any, leaves: list[Any], cotangent: Any) -> Form:
    """The backward pass alone, through the graph of a forward pass."""
    return lambda: tuple(torch.autograd.grad(result, leaves, cotangent, retain_graph=True))


def leaves(x: Tensors, *without: str) -> Tensors:
    """The operands, those that have a gradient as leaves that it is asked of."""
    return {name: one if name in without else one.detach().clone().requires_grad_() for name, one in x.items()}


# --- RMSNorm ---


def root(torch: Any, x: Any) -> Any:
    """r [..., 1] of every row."""
    return torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


def normed(torch: Any, x: Any, g: Any) -> Any:
    """RMSNorm by one call."""
    return torch.nn.functional.rms_norm(x, g.shape, g, EPS)


def rmsnorm_forms(torch: Any, x: Tensors, _: dict[str, int]) -> dict[str, Form]:
    """y."""
    calls = {
        "rms_norm": lambda: normed(torch, x["x"], x["g"]),
        "formula": lambda: x["x"] * root(torch, x["x"]) * x["g"],
    }
    return inference(torch, calls)


def rmsnorm_backward_forms(torch: Any, x: Tensors, _: dict[str, int]) -> dict[str, Form]:
    """gx and gg."""
    leaf = leaves(x, "gy")
    y = normed(torch, leaf["x"], leaf["g"])

    def formula() -> tuple[Any, ...]:
        with torch.inference_mode():
            r = root(torch, x["x"])
            scaled, weighted = x["x"] * r, x["gy"] * x["g"]
            mean = (weighted * scaled).mean(-1, keepdim=True)
            gg = (x["gy"] * scaled).flatten(0, -2).sum(0)
            return (weighted - scaled.mul_(mean)).mul_(r), gg

    return {"autograd": kept(torch, y, [leaf["x"], leaf["g"]], x["gy"]), "formula": formula}


# --- linears ---


def packed_linear(torch: Any, weight: Any, rows: int) -> Callable[..., Any]:
    """A linear of oneDNN on float32 weights packed now: of x [rows,d], with silu, or times another array."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    linear = torch.ops.mkldnn._linear_pointwise

    def call(x: Any, then: str = "none", other: Any = None) -> Any:
        if other is not None:
            return linear.binary(x, other, packed, None, "mul")
        return linear(x, packed, None, then, [], "")

    return call


def gates(torch: Any, x: Tensors, rows: int) -> dict[str, Callable[[Any], Any]]:
    """Form -> the gated MLP of rows [..., d]."""
    of = torch.nn.functional
    both = torch.cat([x["wg"], x["wu"]])

    def linear(m: Any) -> Any:
        return of.linear(of.silu(of.linear(m, x["wg"]), inplace=True).mul_(of.linear(m, x["wu"])), x["wd"])

    def joined(m: Any) -> Any:
        a, b = of.linear(m, both).chunk(2, dim=-1)
        return of.linear(of.silu(a).mul_(b), x["wd"])

    found: dict[str, Callable[[Any], Any]] = {"linear": linear, "joined": joined}
    if x["wg"].dtype == torch.float32:
        wg, wu, wd = (packed_linear(torch, x[name], rows) for name in ("wg", "wu", "wd"))

        def onednn(m: Any) -> Any:
            return wd(wu(m, other=wg(m, "swish")))

        found["onednn"] = onednn
    return found


def flat(x: Any) -> Any:
    """[b,n,d] as rows."""
    return x.reshape(-1, x.shape[-1])


def norm_linear_forms(torch: Any, x: Tensors, _: dict[str, int]) -> dict[str, Form]:
    """y."""
    rows, of = flat(x["x"]), torch.nn.functional
    calls = {"linear": lambda: of.linear(normed(torch, rows, x["g"]), x["w"])}
    if rows.dtype == torch.float32:
        packed = packed_linear(torch, x["w"], len(rows))
        calls["onednn"] = lambda: packed(normed(torch, rows, x["g"]))
    return inference(torch, calls)


def mlp_forms(torch: Any, x: Tensors, _: dict[str, int]) -> dict[str, Form]:
    """y."""
    rows = flat(x["x"])

    def of_rows(gate: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: gate(rows)

    return inference(torch, {name: of_rows(gate) for name, gate in gates(torch, x, len(rows)).items()})


def mlp_backward_forms(torch: Any, x: Tensors, _: dict[str, int]) -> dict[str, Form]:
    """gx, gwg, gwu and gwd."""
    leaf, of = leaves(x, "gy"), torch.nn.functional
    y = of.linear(of.silu(of.linear(leaf["x"], leaf["wg"])) * of.linear(leaf["x"], leaf["wu"]), leaf["wd"])
    rows, gy = flat(x["x"]), flat(x["gy"])
    a, b = of.linear(rows, x["wg"]), of.linear(rows, x["wu"])

    def formula() -> tuple[Any, ...]:
        with torch.inference_mode():
            gh, s = gy @ x["wd"], torch.sigmoid(a)
            silu = a * s
            gb = gh * silu
            ga = gh.mul_(b).mul_(s + silu * (1 - s))
            gx = torch.addmm(gb @ x["wu"], ga, x["wg"])
            return gx, ga.T @ rows, gb.T @ rows, gy.T @ silu.mul_(b)

    wanted = [leaf[name] for name in ("x", "wg", "wu", "wd")]
    return {"autograd": kept(torch, y, wanted, x["gy"]), "formula": formula}


# --- the block ---


def attended(torch: Any, qkv: Any, shape: dict[str, int]) -> Any:
    """Attention's result as rows [b,n,heads * head_dim]; qkv [b * n, all heads of q, k and v]."""
    own, groups = shape["heads"], shape["kv_heads"]
    split = qkv.view(shape["batch"], -1, own + 2 * groups, shape["head_dim"]).transpose(1, 2)
    q, k, v = split[:, :own], split[:, own:-groups], split[:, -groups:]
    attention = torch.nn.functional.scaled_dot_product_attention
    out = attention(q, k, v, is_causal=bool(shape["causal"]), enable_gqa=own != groups)
    return out.transpose(1, 2).flatten(2).flatten(0, 1)


def block_of(torch: Any, x: Tensors, shape: dict[str, int], into: Any, out: Any, gate: Callable[[Any], Any]) -> Any:
    """y as rows: `into` projects to q, k and v, `out` from attention's result; `gate` is the MLP."""
    rows = flat(x["x"])
    middle = out(attended(torch, into(normed(torch, rows, x["g1"])), shape)) + rows
    return gate(normed(torch, middle, x["g2"])) + middle


def block_forms(torch: Any, x: Tensors, shape: dict[str, int]) -> dict[str, Form]:
    """y."""
    of, rows = torch.nn.functional, x["x"].shape[0] * x["x"].shape[1]
    plain: tuple[Any, Any] = (lambda m: of.linear(m, x["wqkv"]), lambda m: of.linear(m, x["wo"]))

    def form(name: str, gate: Callable[[Any], Any]) -> Callable[[], Any]:
        ends = tuple(packed_linear(torch, x[key], rows) for key in ("wqkv", "wo")) if name == "onednn" else plain
        return lambda: block_of(torch, x, shape, *ends, gate)

    return inference(torch, {name: form(name, gate) for name, gate in gates(torch, x, rows).items()})


def block_backward_forms(torch: Any, x: Tensors, shape: dict[str, int]) -> dict[str, Form]:
    """gx and the gradients of the weights, in the order of the kernel's buffers."""
    leaf, of = leaves(x, "gy"), torch.nn.functional

    def gate(m: Any) -> Any:
        return of.linear(of.silu(of.linear(m, leaf["wg"])) * of.linear(m, leaf["wu"]), leaf["wd"])

    def by(name: str) -> Callable[[Any], Any]:
        return lambda m: of.linear(m, leaf[name])

    y = block_of(torch, leaf, shape, by("wqkv"), by("wo"), gate)
    wanted = [one for name, one in leaf.items() if name != "gy"]
    return {"autograd": kept(torch, y, wanted, flat(x["gy"]))}


MAKERS: dict[str, Callable[[Any, Tensors, dict[str, int]], dict[str, Form]]] = {
    "rmsnorm": rmsnorm_forms,
    "rmsnorm_backward": rmsnorm_backward_forms,
    "norm_linear": norm_linear_forms,
    "mlp": mlp_forms,
    "mlp_backward": mlp_backward_forms,
    "block": block_forms,
    "block_backward": block_backward_forms,
}
"""Kernel -> what makes its forms from torch, operands and shape."""
