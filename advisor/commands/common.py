"""What several commands share: options, and the two ways to say something."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from advisor.answers import Answer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for programs.")]
Kernels = Annotated[str, typer.Option("--kernel", "-k", help="Kernels, comma separated, or all.")]
Sizes = Annotated[str, typer.Option("--n", help="Sizes: 4096, or 1024,4096,16k, or 64..8192 (doubling).")]
MaybeSizes = Annotated[
    str | None,
    typer.Option("--n", help="Sizes: 4096, or 1024,4096,16k, or 64..8192 (doubling). Default: those that suit."),
]
ModelConfig = Annotated[
    str | None, typer.Option("--model-config", help="A Hugging Face config.json: the shapes of this model's kernels.")
]
Regime = typer.Option(help="warm: calls find their inputs in cache. cold: other work has evicted them.")
Objective = typer.Option(
    help="Best at what. latency: time. robust: mean time beside a busy neighbour. efficiency: effort within 5 % of it."
)
Device = typer.Option(help="cpu, or a GPU by the number that CUDA programs started here would use: cuda:0.")
KernelDir = Annotated[
    list[str] | None, typer.Option("--kernel-dir", help="A folder with further variants. Repeatable.")
]
WorkloadFile = Annotated[
    str | None, typer.Option("--workload", help='A JSON histogram of n: {"4096": 120} or {"decode": {"4096": 120}}.')
]
FromLog = Annotated[str | None, typer.Option("--from-log", help="Count n in this log instead; needs --regex.")]
Regex = Annotated[
    str | None, typer.Option("--regex", help=r"What finds n in a line of the log, its first group: 'n=(\d+)'.")
]
DimOption = Annotated[
    int | None, typer.Option(min=1, help="Part of the fixed shape; the kernel's default when left out.")
]
Causal = Annotated[
    bool | None,
    typer.Option(
        "--causal/--no-causal", help="Attend only to rows up to the own one; the kernel's default when left out."
    ),
]


def emit(document: Any) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(document, allow_nan=False, indent=2))


def shape_of(**given: int | None) -> dict[str, int]:
    """The entries that were given; a flag is 0 or 1."""
    return {key: int(value) for key, value in given.items() if value is not None}


def naming(answers: Sequence[tuple[Answer, int]]) -> str:
    """Options that leave one of several answers, the first: those in which they differ, with its values.

    Args:
        answers: two or more, with their n.

    Returns:
        For example `--dtype float32 --heads 32`.
    """
    asked = [_options(answer, n) for answer, n in answers]
    differ = [name for name in asked[0] if len({one.get(name) for one in asked}) > 1]
    return " ".join(asked[0][name] for name in differ)


def _options(answer: Answer, n: int) -> dict[str, str]:
    shape = {name: f"--{name.replace('_', '-')} {value}" for name, value in answer.shape_pairs}
    if "causal" in shape:
        shape["causal"] = "--causal" if dict(answer.shape_pairs)["causal"] else "--no-causal"
    plain = {"kernel": answer.kernel, "dtype": answer.dtype, "regime": answer.regime}
    return {**{name: f"--{name} {value}" for name, value in plain.items()}, **shape, "n": f"--n {n}"}
