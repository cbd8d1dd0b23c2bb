"""The GPUs of the machine at hand, asked through NVML in a child process that may not take long.

No driver is no error: it is a machine without usable GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from advisor.codec import from_json, loads
from advisor.errors import BadInput
from advisor.records import Gpu, NumaNode
from advisor.topology.child import ask_python
from advisor.topology.files import number

LIMIT_S = 10.0
"""NVML starts in 0.02 to 2 s, the longest without persistence mode; a wedged driver never answers."""

SIGNS = ("dev/nvidiactl", "proc/driver/nvidia", "dev/dxg")
"""Any of these means that an NVIDIA driver may answer (dxg: the one of a Windows host)."""


class GpuReport(NamedTuple):
    """`gpus` with host NUMA nodes; versions and power limits for the environment; sentences on what went wrong."""

    gpus: tuple[Gpu, ...]
    driver: str | None
    cuda: str | None
    power_limits_w: tuple[float, ...]
    warnings: tuple[str, ...]


NONE = GpuReport((), None, None, (), ())


def find(nodes: Sequence[NumaNode]) -> GpuReport:
    """The GPUs of the machine at hand.

    Args:
        nodes: the NUMA nodes, to tell which node with CPUs is nearest to each GPU.
    """
    if not any(os.path.exists(os.path.join("/", sign)) for sign in SIGNS):
        return NONE
    answer = ask_python(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_child.py"), LIMIT_S)
    if answer is None:
        return NONE._replace(warnings=(f"the NVIDIA driver did not answer within {LIMIT_S:g} s: no GPU is listed",))
    return read(answer, nodes)


def read(answer: str, nodes: Sequence[NumaNode]) -> GpuReport:
    """The report of the child's JSON text; see `find`."""
    try:
        told = loads(answer, "the GPU report")
    except BadInput:
        return NONE._replace(warnings=("the GPU report cannot be read: no GPU is listed",))
    if "error" in told:
        return NONE._replace(warnings=(f"an NVIDIA driver is there but cannot be asked ({told['error']})",))
    listed = told.get("gpus", ())
    power = tuple(float(item["power_limit_w"]) for item in listed if item.get("power_limit_w"))
    return GpuReport(tuple(_gpu(item, nodes) for item in listed), told.get("driver"), told.get("cuda"), power, ())


def _gpu(item: dict[str, Any], nodes: Sequence[NumaNode]) -> Gpu:
    values = {name: item.get(name) for name in Gpu._fields}
    node = _bus_node(item.get("pci"))
    values["numa_node"] = host_node(values["numa_node"] if node is None else node, nodes)
    gpu: Gpu = from_json(Gpu, values)
    return gpu


def _bus_node(address: str | None) -> int | None:
    """The NUMA node that the kernel gives the device; NVML writes the PCI domain with eight digits, sysfs with four."""
    if not address:
        return None
    domain, _, rest = address.lower().partition(":")
    node = number(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node")
    return node if node is not None and node >= 0 else None


def host_node(node: int | None, nodes: Sequence[NumaNode]) -> int | None:
    """The node with CPUs that is nearest to a GPU's node: a GPU's own memory may be a node without any.

    Args:
        node: the node that the kernel or NVML gave.
        nodes: all NUMA nodes.

    Returns:
        `node` itself when it has CPUs; the only node with CPUs where there is one; None where nothing is known.
    """
    hosts = [n for n in nodes if n.cpus]
    if len(hosts) == 1:
        return hosts[0].id
    at = next((n for n in nodes if n.id == node), None)
    if at is None or at.cpus:
        return None if at is None else at.id
    order = [n.id for n in nodes]
    reached = [n for n in hosts if order.index(n.id) < len(at.distances)]
    return min(reached, key=lambda n: at.distances[order.index(n.id)]).id if reached else None
