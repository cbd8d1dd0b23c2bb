import json
import os
from types import SimpleNamespace

import pytest
from trees import Shape, affinity, machine, node

from advisor.records import NumaNode
from advisor.topology import gpu, gpu_child
from advisor.topology.array import live
from advisor.topology.placement import candidates, evaluate
from advisor.topology.probe import topology

GRACE = (
    NumaNode(0, tuple(range(72)), 1 << 38, (10, 40, 80, 80)),
    NumaNode(1, tuple(range(72, 144)), 1 << 38, (40, 10, 80, 80)),
    NumaNode(2, (), 1 << 36, (80, 60, 10, 90)),
    NumaNode(5, (), 1 << 36, (20, 60, 90, 10)),
)


NAMES = {"handle 0": "NVIDIA H200", "slice 0": "NVIDIA H200 MIG 1g.18gb", "slice 1": "NVIDIA H200 MIG 2g.35gb"}


class FakeNvml:
    """Some functions answer, one refuses, the others are missing, as with an old driver."""

    nvmlSystemGetDriverVersion = staticmethod(lambda: "580.1")  # noqa: N815 (NVML's names)
    nvmlSystemGetCudaDriverVersion_v2 = staticmethod(lambda: 12080)  # noqa: N815
    nvmlDeviceGetCount = staticmethod(lambda: 1)  # noqa: N815
    nvmlDeviceGetHandleByIndex = staticmethod(lambda index: f"handle {index}")  # noqa: N815
    nvmlDeviceGetUUID = staticmethod(lambda handle: b"GPU-1")  # noqa: N815
    nvmlDeviceGetName = staticmethod(lambda handle: NAMES[handle])  # noqa: N815
    nvmlDeviceGetMemoryInfo = staticmethod(lambda handle: SimpleNamespace(total=1 << 37))  # noqa: N815
    nvmlDeviceGetCudaComputeCapability = staticmethod(lambda handle: (9, 0))  # noqa: N815
    nvmlDeviceGetNumGpuCores = staticmethod(lambda handle: 16896)  # noqa: N815
    nvmlDeviceGetPciInfo = staticmethod(lambda handle: SimpleNamespace(busId=b"0000FFFF:7F:00.0"))  # noqa: N815
    nvmlDeviceGetNumaNodeId = staticmethod(lambda handle: 2)  # noqa: N815
    nvmlDeviceGetMaxMigDeviceCount = staticmethod(lambda handle: 2)  # noqa: N815
    nvmlDeviceGetMigDeviceHandleByIndex = staticmethod(lambda handle, index: f"slice {index}")  # noqa: N815

    def __init__(self, mig=0):
        self.nvmlDeviceGetMigMode = lambda handle: (mig, mig)

    @staticmethod
    def nvmlDeviceGetPowerManagementLimit(handle):  # noqa: N802
        raise RuntimeError("not supported")


def test_what_is_refused_is_none_and_the_rest_is_told():
    told = json.loads(json.dumps(gpu_child.report(FakeNvml())))
    found = gpu.read(json.dumps(told), GRACE)
    assert (found.driver, found.cuda, found.power_limits_w) == ("580.1", "12.8", ())
    (one,) = found.gpus
    assert (one.index, one.uuid, one.name, one.memory_bytes) == (0, "GPU-1", "NVIDIA H200", 1 << 37)
    assert (one.sm_count, one.compute_capability, one.mig) == (132, "9.0", "disabled")


def test_n02_the_gpus_own_memory_node_is_resolved_to_the_nearest_with_cpus():
    (one,) = gpu.read(json.dumps(gpu_child.report(FakeNvml())), GRACE).gpus
    assert one.numa_node == 1


@pytest.mark.parametrize(("node_id", "host"), [(0, 0), (1, 1), (2, 1), (5, 0), (None, None), (77, None)])
def test_n02_host_nodes(node_id, host):
    assert gpu.host_node(node_id, GRACE) == host


def test_n02_one_cpu_node_among_nine(tmp_path):
    machine(tmp_path, Shape(cores=72))
    for number in range(1, 9):
        node(tmp_path, number, (), distances=" ".join(["80"] * number + ["10"] + ["80"] * (8 - number)))
    affinity(tmp_path, "0-71", mems="0-8")
    found = topology(str(tmp_path))
    assert len(found.numa_nodes) == 9
    assert dict(found.groupings)["numa"] == (tuple(range(72)),)
    assert found.array.shape[found.array.axes.index("numa")] == 1
    part = live(found.array, found.allowed_cpus)
    assert all(evaluate(expression, found.array, found.allowed_cpus) for expression in candidates(part))
    assert gpu.host_node(2, found.numa_nodes) == 0
    assert gpu.host_node(None, found.numa_nodes) == 0


def test_mig_slices_are_named():
    assert gpu_child.mig(FakeNvml(mig=1), "handle 0") == "1g.18gb, 2g.35gb"


@pytest.mark.parametrize(
    ("cores", "capability", "count"),
    [
        (6912, (8, 0), 108),
        (10752, (8, 6), 84),
        (16384, (8, 9), 128),
        (5120, (7, 0), 80),
        (None, (8, 0), None),
        (64, (2, 0), None),
    ],
)
def test_multiprocessors(cores, capability, count):
    assert gpu_child.sm_count(cores, capability) == count


@pytest.mark.parametrize("answer", ["", "not json", '{"error": "NVMLError: no driver"}'])
def test_a_driver_that_cannot_be_asked_is_a_warning(answer):
    found = gpu.read(answer, ())
    assert found.gpus == ()
    assert len(found.warnings) == 1


def test_a_wedged_driver_is_a_warning(monkeypatch):
    monkeypatch.setattr(gpu, "SIGNS", ("proc",))
    monkeypatch.setattr(gpu, "ask_python", lambda script, limit_s: None)
    assert gpu.find(()).warnings


def test_without_a_sign_of_a_driver_nobody_is_asked(monkeypatch):
    monkeypatch.setattr(gpu, "SIGNS", ("no/such/file",))
    monkeypatch.setattr(gpu, "ask_python", lambda script, limit_s: pytest.fail("asked"))
    assert gpu.find(()) == gpu.NONE


def test_the_child_runs_by_itself_with_or_without_a_driver():
    """The real script in a real process: one JSON object, whatever this machine has."""
    answer = gpu.ask_python(gpu_child.__file__, 30.0)
    assert {"gpus", "error"} & set(json.loads(answer))


@pytest.mark.gpu
@pytest.mark.skipif(
    not any(os.path.exists(f"/{sign}") for sign in gpu.SIGNS), reason="no NVIDIA driver on this machine"
)
def test_the_gpus_at_hand():
    found = gpu.find(topology("/").numa_nodes)
    assert found.gpus
    assert all(one.name and one.memory_bytes and one.sm_count and one.compute_capability for one in found.gpus)
    assert found.driver
