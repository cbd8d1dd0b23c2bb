"""What is asked of a validation, and its defaults: the paper's shape, sizes and dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from advisor.device import CPU
from advisor.errors import BadInput, UnknownName
from advisor.kernels import registry
from advisor.kernels.memory import USABLE, need_bytes, room_bytes
from advisor.kernels.spec import KernelSpec
from advisor.records import Machine, Pairs, Problem
from advisor.search.space import OVERSUBSCRIBE, cpu_budget, thread_counts

KERNELS = ("forward", "backward", "fused", "decode", "rmsnorm", "norm_linear", "mlp", "block")
"""The paper's kernels, in its order; norm_linear is between two of them."""

IN_TWO_LANGUAGES = ("decode", "rmsnorm", "norm_linear", "mlp")
"""Of these C is put beside Fortran; nothing else is measured of those on rows."""

SWEPT = ("forward", "backward", "fused", "decode", "block")
"""Of these growth, threads and bytes are measured."""

DTYPES = {"decode": "float32"}
"""What the paper computed in, where it is not float64. Source: Mullin and Hains, section 5.1."""

SHAPE: dict[str, Any] = {
    "batch": 2,
    "heads": 1,
    "kv_heads": 1,
    "head_dim": 64,
    "d_model": 64,
    "d_ff": 256,
    "d_out": 192,
}
"""The paper's; d_out is that of q, k and v together. Source: Mullin and Hains, sections 3.1 and 6.2."""

SIZES = tuple(64 << i for i in range(6))
"""64 to 2048 doubling. The paper goes on to 8192, which takes minutes a variant on few CPUs: ask with --n."""

DECODE_SIZES = tuple(1024 << i for i in range(9))
"""1024 to 262144 doubling: decode's time grows with n and not n^2. The paper goes on to 1048576."""

ROW_SIZES = tuple(256 << 2 * i for i in range(4))
"""256 to 16384 by fours. The paper's 11 sizes go from 64 to 65536."""

BLOCK_SIZES = (64, 256, 1024, 2048, 4096)
"""The paper's ends, and the step from 2048 to 4096 where its time jumps."""

DEFAULT_SIZES = {
    "decode": DECODE_SIZES,
    "block": BLOCK_SIZES,
    **dict.fromkeys(("rmsnorm", "norm_linear", "mlp"), ROW_SIZES),
}


class Request(NamedTuple):
    """What is asked. `sizes`, `threads` empty, `dtype` None: the defaults. `shape`: what differs from the paper's.

    `device`: cpu, or cuda:N, the number that CUDA programs started here would use.
    """

    kernels: tuple[str, ...] = KERNELS
    sizes: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    dtype: str | None = None
    shape: Pairs = ()
    budget_s: float = 120.0
    kernel_dirs: tuple[str, ...] = ()
    device: str = CPU


def kernel_names(text: str) -> tuple[str, ...]:
    """The kernels of a word list, in the order of the paper.

    Raises:
        UnknownName: one is none of the paper's kernels.
    """
    known = registry.kernels()
    here = tuple(name for name in KERNELS if name in known)
    if text.strip() == "all":
        return here
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words or [text]:
        if word not in here:
            raise UnknownName("the paper has no such kernel", got=word, allowed=f"{', '.join(here)}, all")
    return tuple(name for name in here if name in words)


def thread_list(text: str) -> tuple[int, ...]:
    """Thread counts from `1,2,4`, ascending.

    Raises:
        BadInput: not whole numbers of at least 1.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) < 1 << 20 for word in words):
        raise BadInput("thread counts are whole numbers of at least 1", got=text, allowed="1,2,4")
    return tuple(sorted({int(word) for word in words}))


def teams(machine: Machine, asked: Sequence[int]) -> tuple[int, ...]:
    """The thread counts to measure: those asked for, else those of this machine.

    Raises:
        BadInput: more threads than twice the CPUs in reach.
    """
    limit = OVERSUBSCRIBE * cpu_budget(machine)
    if asked and max(asked) > limit:
        raise BadInput(
            "more threads than that say nothing new", got=max(asked), allowed=f"1 to {limit}, twice the CPUs in reach"
        )
    return tuple(asked) or thread_counts(machine)


def paper_shape(spec: KernelSpec, asked: Pairs = ()) -> dict[str, Any]:
    """The paper's shape of a kernel, but for what is asked; what the kernel has no such parameter for is left out."""
    return {name: value for name, value in {**SHAPE, **dict(asked)}.items() if name in spec.parameters}


def check_shape(request: Request) -> None:
    """Every part of the shape that is asked for must be a parameter of one of the kernels.

    Raises:
        BadInput: one is of none.
    """
    known = {name for kernel in request.kernels for name in registry.spec(kernel, request.kernel_dirs).parameters}
    for name, value in request.shape:
        if name not in known:
            raise BadInput(
                "a part of the shape must be a parameter of a kernel that is measured",
                got=f"{name}={value}",
                allowed=", ".join(sorted(known)),
                next_step=f"of these kernels none has it: {', '.join(request.kernels)}",
            )


def problems(request: Request, kernel: str) -> tuple[KernelSpec, tuple[Problem, ...]]:
    """A kernel's spec and its problems, ascending in n.

    Raises:
        BadInput: a size, shape or dtype that makes no sense, or operands that do not fit into memory.
    """
    spec = registry.spec(kernel, request.kernel_dirs)
    sizes = request.sizes or DEFAULT_SIZES.get(kernel, SIZES)
    dtype = request.dtype or DTYPES.get(kernel, "float64")
    found = tuple(spec.problem(n, dtype=dtype, **paper_shape(spec, request.shape)) for n in sizes)
    room = room_bytes()
    large = [problem.n for problem in found if room is not None and need_bytes(spec, problem) > USABLE * room]
    if large:
        raise BadInput(
            "the operands must fit into memory",
            got=f"{kernel} at n = {large[0]}",
            allowed=f"{(room or 0) * USABLE / 2**30:.3g} GiB",
            next_step="ask for smaller sizes, or a smaller shape",
        )
    return spec, found
