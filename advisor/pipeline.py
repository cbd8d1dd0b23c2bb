"""The stages in a row, as the commands need them: probe, recommend, verify; `advisor.tuning` has tune.

Nothing is decided here: each stage is a function of what the one before it left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor import codec
from advisor.device import CPU, is_device
from advisor.errors import AdvisorError, BadInput, UnknownName
from advisor.kernels import registry
from advisor.kernels.available import check as check_tools
from advisor.kernels.available import lines as unavailable_lines
from advisor.kernels.available import unavailable
from advisor.kernels.gpu.device import target
from advisor.kernels.gpu.geometry import check_header
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.memory import USABLE, need_bytes, operand_sets, room_bytes
from advisor.kernels.served import check_dtype, served
from advisor.kernels.variant import Variant, check_expressions, for_machine, variants
from advisor.records import REGIMES, Gpu, Machine, Problem
from advisor.search.space import space_options
from advisor.topology import probe as topology

if TYPE_CHECKING:
    from advisor.answers import Answer
    from advisor.kernels.spec import KernelSpec
    from advisor.kernels.verify import Row
    from advisor.lookup import Policy
    from advisor.search.request import Progress


Need = tuple[int, Problem]
"""Bytes that a problem takes."""


def kernel_names(
    text: str, kernel_dirs: Sequence[str] = (), tabled: Sequence[str] = (), device: str = CPU
) -> tuple[str, ...]:
    """The kernels that a word list names.

    Args:
        text: names separated by commas, or `all`: on a GPU those that have variants for one.
        kernel_dirs: folders with further kernels.
        tabled: kernels that may be named since there is a table of them.
        device: cpu, or cuda:N.

    Raises:
        UnknownName: no such kernel.
    """
    known = tuple(dict.fromkeys([*registry.kernels(kernel_dirs), *tabled]))
    if text == "all":
        return known if device == CPU else tuple(k for k, dtypes in served(known, kernel_dirs, True).items() if dtypes)
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for name in names or (text,):
        if name not in known:
            raise UnknownName("no such kernel", got=name, allowed=f"{', '.join(known)}, all")
    return names


def check_shape(specs: Sequence[KernelSpec], shape: Iterable[str]) -> None:
    """Refuse a shape entry that none of the kernels has; one that some have applies to those.

    Raises:
        BadInput: with the entries that there are.
    """
    known = tuple(dict.fromkeys(entry for spec in specs for entry in spec.parameters))
    for entry in shape:
        if entry not in known:
            names = " and ".join(spec.name for spec in specs)
            raise BadInput(f"{names} must have the shape entry", got=entry, allowed=", ".join(known))


def own_shape(spec: KernelSpec, shape: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a shape that a kernel has."""
    return {entry: value for entry, value in shape.items() if entry in spec.parameters}


def check_memory(spec: KernelSpec, problems: Sequence[Problem], machine: Machine | None = None) -> None:
    """Refuse sizes whose operands cannot be held here, before time is spent on the others.

    Args:
        spec: the kernel's spec.
        problems: what is asked.
        machine: where it is to be timed: the cold regime needs many sets of operands there. None: one set.

    Raises:
        BadInput: with the largest size that fits, roughly.
    """
    usable, needs = _memory(spec, problems, machine)
    large = [(need, problem) for need, problem in needs if need > usable]
    if large:
        need, problem = large[0]
        cold = " in the cold regime" if problem.regime == "cold" else ""
        where = machine.gpus[0].name if machine is not None and is_device(machine.limits_id) else ""
        raise BadInput(
            f"the operands must fit into {f'the free memory of the {where}' if where else 'memory'}",
            got=f"n = {problem.n}, which needs {need / 2**30:.3g} GiB{cold}",
            allowed=f"{usable / 2**30:.3g} GiB, about n = {max(1, int(problem.n * usable / need))}",
            next_step="ask for smaller sizes, or a smaller shape",
        )


def fitting(spec: KernelSpec, problems: Sequence[Problem], machine: Machine) -> tuple[Problem, ...]:
    """The problems whose operands can be held, the first always."""
    usable, needs = _memory(spec, problems, machine)
    return tuple(problem for i, (need, problem) in enumerate(needs) if i == 0 or need <= usable)


def _memory(spec: KernelSpec, problems: Sequence[Problem], machine: Machine | None) -> tuple[float, list[Need]]:
    """Bytes that may be taken, infinite where that is not known, and what each problem takes."""
    if machine is not None and is_device(machine.limits_id):
        room, needs = _device_memory(spec, problems, machine.gpus[0])
    else:
        room = room_bytes()
        needs = [(need_bytes(spec, p, operand_sets(machine, spec, p) if machine else 1), p) for p in problems]
    return (math.inf if room is None else USABLE * room), needs


def _device_memory(spec: KernelSpec, problems: Sequence[Problem], gpu: Gpu) -> tuple[int | None, list[Need]]:
    """What is free on a device, and what each problem takes there."""
    from advisor.kernels.gpu import memory

    needs = [(memory.need_bytes(spec, p, memory.sets(spec, p, gpu)), p) for p in problems]
    return memory.room_bytes(gpu), needs


# --- variants ---


def variants_for(kernel: str, kernel_dirs: Sequence[str], machine: Machine) -> tuple[Variant, ...]:
    """The variants of a kernel for a machine's CPUs, or for its device.

    Raises:
        BadInput: a device, and the kernel has none for it.
    """
    if not is_device(machine.limits_id):
        return for_machine(variants(kernel, kernel_dirs), machine)
    found = variants(kernel, kernel_dirs, GPU_LANGUAGES)
    if not found:
        raise BadInput(
            f"{kernel} must have variants for a GPU",
            got="none",
            allowed=", ".join(GPU_LANGUAGES),
            next_step="see docs/add-a-gpu-variant.md, or tune it on the CPU",
        )
    return found


def check_headers(spec: KernelSpec, found: Sequence[Variant], problems: Sequence[Problem]) -> None:
    """Refuse variants whose headers lie, before anything is run.

    Raises:
        BadInput: naming the source and the expression.
    """
    for variant in found:
        if variant.language in GPU_LANGUAGES:
            check_header(spec, variant, problems)
        else:
            check_expressions(variant, problems)


# --- probe ---


def bench(machine: Machine, say: Callable[[str], None]) -> Machine:
    """The machine at hand with its signature, measured now, while nobody else of ours measures.

    Raises:
        BadInput: there is no C compiler with OpenMP.
        Busy: a tuner is at work and does not end.
    """
    from advisor import show
    from advisor.signature.keep import with_signature
    from advisor.signature.measure import signature
    from advisor.turn import alone

    with show.progress(say) as progress, alone(progress):
        return with_signature(machine, signature(machine, progress))


def signature_text(machine: Machine) -> str:
    """The signature of a machine as tables; empty without one."""
    from advisor.signature.keep import signature_of
    from advisor.signature.show import shown

    found = signature_of(machine)
    return "" if found is None else shown(found)


# --- recommend ---


class Where(NamedTuple):
    """What answers are for, see `Policy.load`: path of a machine description, device, objective; `force`: answer
    from stale rows too."""

    machine: str | None = None
    device: str | None = None
    objective: str | None = None
    force: bool = False


def load(where: Where) -> Policy:
    """The policy that answers for a place. Raises BadInput: no such machine, device or objective."""
    from advisor.lookup import Policy

    stale = "use" if where.force else "default"
    return Policy.load(
        machine=where.machine,
        objective=where.objective,
        device=where.device,
        stale=stale,
        count_misses=False,  # what people try out at the command line is no load
    )


def recommend(
    kernels: str, sizes: Sequence[int], axes: dict[str, Any], where: Where
) -> tuple[Policy, list[tuple[Answer, int]]]:
    """The answers for every kernel, tabled shape and size, under the process part that is best for each.

    Where nobody measured a kernel here and no shape is named, only its default shape is meant.

    Args:
        kernels: names, comma separated; `all`: every kernel that has a table.
        sizes: swept sizes.
        axes: entries of the shape, dtype; narrows which tables answer. One counts for the kernels that have it.
        where: the machine or device, and what the answers shall be best at.

    Returns:
        The policy (for its notes), and (answer, n) pairs.

    Raises:
        UnknownName: a kernel that is not installed and has no table.
        BadInput: an axis that none of the kernels has, or a shape or dtype that makes sense for none; no such device.
    """
    from advisor.untuned import filled, narrowed

    if axes.get("regime", "warm") not in REGIMES:
        raise UnknownName("no such regime", got=axes["regime"], allowed=", ".join(REGIMES))
    policy = load(where)
    tabled = [problem["kernel"] for problem in policy.problems()]
    names = kernel_names(kernels, tabled=tabled)
    given = _axes_of(names, policy, axes)
    carried = given if kernels != "all" or not tabled else {}  # all: those that have a table, if there is one
    policy = filled(policy, carried, (where.machine, where.device), sizes)
    questions = [p for p in policy.problems() if p["kernel"] in names]
    questions = [p for p in questions if all(p.get(key, value) == value for key, value in given[p["kernel"]].items())]
    questions = narrowed(policy, questions, given)
    if not questions:
        questions = [{"kernel": name, **given[name]} for name in _meant(names, given, where)]
    answers = [(question, policy.best(n=n, **question), n) for question in questions for n in sizes]
    # what was published by numbers of threads is told where there is something to tell
    return policy, [
        (answer, n) for question, answer, n in answers if "threads" not in question or answer.basis != "DEFAULT"
    ]


def _axes_of(names: Sequence[str], policy: Policy, axes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Kernel -> the axes that it has of those given.

    Raises:
        BadInput: an axis that none of them has.
    """
    known = {name: {"dtype", "regime", *(key for p in policy.problems(name) for key in p)} for name in names}
    for name in names if set(axes) - {"dtype", "regime"} else ():  # a spec takes a while to import
        if name in registry.kernels():
            known[name] |= set(registry.spec(name).parameters)
    everywhere = sorted(set().union(*known.values()) - {"kernel"})
    for axis in axes:
        if axis not in everywhere:
            raise BadInput(f"{' and '.join(names)} must have the axis", got=axis, allowed=", ".join(everywhere))
    return {name: {axis: value for axis, value in axes.items() if axis in known[name]} for name in names}


def _meant(names: Sequence[str], given: Mapping[str, Mapping[str, Any]], where: Where) -> list[str]:
    """The kernels for which what was given makes sense: a slip of the keyboard is no question for a careful rule, nor
    is a dtype in which nothing could run there.

    Raises:
        BadInput: it makes sense for none; what the first one says.
    """
    meant, refused = [], []
    for name in names:
        try:
            if given[name] and name in registry.kernels():  # a spec takes a while to import
                registry.spec(name).problem(1, **given[name])
                _has_variants(name, given[name].get("dtype"), where.device)
            meant.append(name)
        except BadInput as error:
            refused.append(error)
    if not meant and refused:
        raise refused[0]
    return meant


def _has_variants(kernel: str, dtype: str | None, device: str | None) -> None:
    """Raises BadInput: no installed variant of the kernel runs in the dtype there."""
    on_device = device not in (None, CPU)
    able = served((kernel,), (), on_device)[kernel]
    if dtype is not None and dtype not in able:
        place = "a GPU" if on_device else "CPUs"
        raise BadInput(
            f"{kernel} must have a variant in the dtype for {place}",
            got=dtype,
            allowed=", ".join(sorted(able)) or "none",
        )


# --- verify ---


class VerifyRequest(NamedTuple):
    """What `advisor verify` is asked. `dtype` None: all; `variants` empty: all; `sizes`: beside the edge problems;
    `device`: cpu, or cuda:N."""

    kernels: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    dtype: str | None = None
    variants: tuple[str, ...] = ()
    kernel_dirs: tuple[str, ...] = ()
    device: str = CPU


class _Part(NamedTuple):
    """What is verified of one kernel."""

    spec: KernelSpec
    variants: tuple[Variant, ...]
    problems: tuple[Problem, ...]


def verify(asked: VerifyRequest, progress: Progress) -> list[tuple[str, Row]]:
    """Every variant of the kernels against its DNF, on the edge problems and the sizes given.

    Returns:
        (kernel, row) pairs in the order checked.

    Raises:
        BadInput: no compiler, no such device, a dtype that no kernel has, or a size that does not fit into memory.
        UnknownName: a variant that no kernel has.
    """
    from advisor.kernels.verify import rows

    machine = target(topology.probe(), asked.device)
    languages = {tool.language for tool in space_options(machine).compilers}
    parts = _parts(asked, machine)  # without a tool for any of them nothing can be checked, and that is no success
    check_tools([variant for part in parts for variant in part.variants], languages)
    found: list[tuple[str, Row]] = []
    for part in parts:
        progress.stage(f"verify {part.spec.name}", None)
        for row in rows(machine, part.spec, part.variants, part.problems):
            found.append((part.spec.name, row))
            progress.advance(f"{row.variant} n={row.problem.n}")
    return found


def _parts(asked: VerifyRequest, machine: Machine) -> list[_Part]:
    """What a request means; a dtype or variant counts for the kernels that have it."""
    specs = [registry.spec(kernel, asked.kernel_dirs) for kernel in asked.kernels]
    parts = [_part(asked, spec, machine) for spec in specs]
    known = [variant.name for part in parts for variant in part.variants]
    for name in asked.variants:
        if name not in known:
            raise UnknownName("no such variant", got=name, allowed=", ".join(dict.fromkeys(known)))
    dtypes = tuple(dict.fromkeys(dtype for spec in specs for dtype in spec.dtypes))
    if asked.dtype is not None and asked.dtype not in dtypes:
        names = " and ".join(asked.kernels)
        raise BadInput(f"{names} must be defined for the dtype", got=asked.dtype, allowed=", ".join(dtypes))
    wanted = [part._replace(variants=tuple(v for v in part.variants if v.name in asked.variants)) for part in parts]
    found = [part for part in (wanted if asked.variants else parts) if part.variants and part.problems]
    if asked.dtype is None:
        return found
    able = [part for part in found if any(asked.dtype in variant.dtypes for variant in part.variants)]
    for part in () if able else found:  # nothing checked is no success
        check_dtype(part.spec, part.variants, asked.dtype, machine)
    return able


def _part(asked: VerifyRequest, spec: KernelSpec, machine: Machine) -> _Part:
    """All variants of a kernel, and the problems of the dtype asked for, read and checked."""
    dtypes = spec.dtypes if asked.dtype is None else tuple({asked.dtype} & set(spec.dtypes))
    further = [spec.problem(n, asked.dtype or "float32") for n in asked.sizes if dtypes]
    problems = tuple(problem for problem in (*spec.edges(), *further) if problem.dtype in dtypes)
    check_memory(spec, problems, machine if is_device(machine.limits_id) else None)
    found = variants_for(spec.name, asked.kernel_dirs, machine)
    check_headers(spec, found, problems)
    return _Part(spec, found, problems)


def left_out(asked: VerifyRequest) -> list[str]:
    """What a request for CPUs means and cannot be made here, in lines."""
    wanted = unavailable() if asked.device == CPU else ()
    return unavailable_lines(
        one for one in wanted if one.kernel in asked.kernels and one.variant in (asked.variants or (one.variant,))
    )


def verified_json(kernel: str, row: Row) -> dict[str, Any]:
    """One row of `advisor verify --json`."""
    data = codec.to_json(row)
    if not isinstance(data, dict):  # rows are records
        raise AdvisorError("a row must be a record", got=row)
    return {"kernel": kernel, **data}
