"""In which dtypes a kernel runs on CPUs and on devices: a spec may have more than its variants there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from advisor.device import is_device
from advisor.errors import BadInput
from advisor.kernels.header import CPU_LANGUAGES, GPU_LANGUAGES
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant, variants
from advisor.records import Machine


def served(kernels: Iterable[str], kernel_dirs: Sequence[str], device: bool) -> dict[str, set[str]]:
    """The dtypes in which each kernel has variants for a device, or for CPUs: a spec may have more."""
    languages = GPU_LANGUAGES if device else CPU_LANGUAGES
    return {
        kernel: {dtype for variant in variants(kernel, kernel_dirs, languages) for dtype in variant.dtypes}
        for kernel in kernels
    }


def check_dtype(spec: KernelSpec, found: Sequence[Variant], dtype: str, machine: Machine) -> None:
    """Refuse a dtype in which a kernel is defined, but has no variant where it is to run.

    Raises:
        BadInput: with the dtypes in which it has some.
    """
    able = {one for variant in found for one in variant.dtypes}
    if dtype not in able:
        where = machine.gpus[0].name if is_device(machine.limits_id) else "CPUs"
        raise BadInput(
            f"{spec.name} must have a variant in the dtype for {where}",
            got=dtype,
            allowed=", ".join(one for one in spec.dtypes if one in able),
            next_step="" if is_device(machine.limits_id) else "name a GPU: --device cuda:0",
        )
