"""What each kernel of a tuning is asked: sizes that suit it, and of a model its shape and dtype."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from advisor.errors import BadInput
from advisor.kernels.spec import KernelSpec
from advisor.model import Fit, Model, fit
from advisor.records import Pairs, Problem

CACHE, ROWS, SEQUENCE = "cache", "rows", "sequence"
"""What a kernel's n is: rows of a cache that one query reads, rows that do not know of each other, a whole sequence."""

SIZES = {
    CACHE: tuple(1 << k for k in range(10, 19)),
    ROWS: tuple(1 << k for k in range(6, 17)),
    SEQUENCE: tuple(1 << k for k in range(6, 13)),
}
"""Sizes of a kernel by itself. Source: the paper's, as far as a search over all of them ends in minutes."""

MODEL_SIZES = {
    CACHE: (256, 1024, 4096, 16384, 65536),
    ROWS: (1, 8, 64, 512, 4096),
    SEQUENCE: (64, 256, 1024, 4096),
}
"""Sizes of a kernel of a model: fewer, as all kernels share one budget. One row is the step of decoding a token."""

SMALLER = {SEQUENCE: (4, 16)}
"""Below them, for a kernel whose share of a budget has no room for the smallest: prompts of a few rows. There a call
reads the weights once, as at n = 1, and few other things."""

SHORT = 4096
"""A model whose context ends below is still tuned to here: prompts are cut into parts, batches are joined."""

UNKNOWN_CONTEXT = 16384
"""Where a model does not say how long a sequence may be."""

COTANGENTS = ("gy", "gout")


class Own(NamedTuple):
    """What one kernel is asked: `sizes` ascending; none: those that suit it. `shape`: its whole fixed shape."""

    kernel: str
    sizes: tuple[int, ...]
    dtype: str
    shape: Pairs


class Wanted(NamedTuple):
    """What was asked of all kernels of a model: sizes (none: those that suit each), dtype (None: the model's), batch;
    whether kernels were named, so that one that the model has no use for is refused."""

    sizes: tuple[int, ...] = ()
    dtype: str | None = None
    batch: int = 1
    named: bool = False


def role(spec: KernelSpec) -> str:
    """What a kernel's n is."""
    if spec.name == "decode":
        return CACHE
    return SEQUENCE if "heads" in spec.parameters else ROWS


def is_training(spec: KernelSpec) -> bool:
    """Whether a kernel computes gradients, which a server never does."""
    return spec.name.endswith("_backward") or any(name in COTANGENTS for name in spec.buffers)


def default_sizes(spec: KernelSpec, model: Model | None = None) -> tuple[int, ...]:
    """Sizes that suit a kernel; of a model no longer than its context."""
    kind = role(spec)
    if model is None:
        return SIZES[kind]
    most = max(SHORT, model.context or UNKNOWN_CONTEXT)
    return tuple(n for n in MODEL_SIZES[kind] if kind == ROWS or n <= most)


def smaller_sizes(spec: KernelSpec) -> tuple[int, ...]:
    """Sizes below those that suit a kernel of a model, ascending."""
    return SMALLER.get(role(spec), ())


def of_model(
    model: Model, specs: Sequence[KernelSpec], wanted: Wanted, served: Mapping[str, Collection[str]] | None = None
) -> tuple[tuple[Own, ...], tuple[str, ...]]:
    """What each kernel of a model is asked, those first that cost least, as what they leave of a budget others get.

    Args:
        model: the model.
        specs: of the kernels.
        wanted: sizes, dtype and batch for all of them.
        served: kernel -> the dtypes in which it has variants where it is to run; one that is not there has all its own.

    Returns:
        One Own a kernel that the model has, and notes: the model's own, kernels left out, dtypes that are replaced.

    Raises:
        BadInput: the model has a use for none of them, or not for one that was named.
    """
    able = served or {}
    fits = [(spec, fit(model, spec, wanted.batch, wanted.dtype, able.get(spec.name))) for spec in specs]
    left_out = [found.left_out for _, found in fits if found.left_out]
    kept = [(spec, found) for spec, found in fits if not found.left_out]
    if left_out and (wanted.named or not kept):
        raise BadInput("the model must have what a kernel computes", got="; ".join(left_out))
    owns = []
    for spec, found in kept:
        sizes = wanted.sizes or default_sizes(spec, model)
        cost = spec.flops(Problem(spec.name, found.dtype, found.shape, sizes[-1]))
        owns.append((cost, Own(spec.name, sizes, found.dtype, found.shape)))
    notes = (*model.notes, *left_out, *_replaced(model, kept))
    return tuple(own for _, own in sorted(owns, key=lambda pair: (pair[0], pair[1].kernel))), notes


def _replaced(model: Model, kept: Sequence[tuple[KernelSpec, Fit]]) -> tuple[str, ...]:
    """A sentence on the kernels that lack the model's dtype."""
    names = [spec.name for spec, found in kept if found.replaced]
    return (f"without {model.dtype}, the model's dtype, and so taken in float32: {', '.join(names)}",) if names else ()
