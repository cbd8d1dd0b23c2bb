"""The executor that a machine needs: real workers on its CPUs, or the worker of its one device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from advisor.device import is_device
from advisor.kernels.spec import KernelSpec
from advisor.kernels.variant import Variant
from advisor.records import Machine

if TYPE_CHECKING:
    from advisor.kernels.gpu.pool import GpuPool
    from advisor.kernels.pool import WorkerPool


def pool_for(
    machine: Machine, spec: KernelSpec, variants: Sequence[Variant], seed: int = 0, until: float = math.inf
) -> WorkerPool | GpuPool:
    """An executor for a machine, or for the device that `gpu.device.machine_of` gave; the caller closes it.

    Args:
        machine: where choices run.
        spec: the kernel's DNF.
        variants: its realisations.
        seed: of the inputs.
        until: on the monotonic clock; then what compiles on CPUs is ended. On a device programs compile in a moment.
    """
    if is_device(machine.limits_id):
        from advisor.kernels.gpu.pool import GpuPool

        return GpuPool(machine.gpus[0], spec, variants, seed)
    from advisor.kernels.pool import WorkerPool

    pool = WorkerPool(machine, spec, variants, seed)
    pool.until = until
    return pool
