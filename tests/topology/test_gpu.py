import json
import os
import time

import pytest
from commanding import SCALE, Site
from gpus import Card, NoPermission, NotSupported, Slice, cuda_device, pynvml, witnesses
from trees import Shape, affinity, build, machine, node

from advisor.records import NumaNode
from advisor.topology import cuda_child, details, gpu, gpu_child
from advisor.topology.array import live
from advisor.topology.candidates import candidates
from advisor.topology.placement import evaluate
from advisor.topology.probe import topology

GRACE = (
    NumaNode(0, tuple(range(72)), 1 << 38, (10, 40, 80, 80)),
    NumaNode(1, tuple(range(72, 144)), 1 << 38, (40, 10, 80, 80)),
    NumaNode(2, (), 1 << 36, (80, 60, 10, 90)),
    NumaNode(5, (), 1 << 36, (20, 60, 90, 10)),
)

NO_LIBRARY = "NVMLError_LibraryNotFound: NVML Shared Library Not Found"
MISMATCH = "NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch."


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


def found(*arguments, nodes=()):
    return gpu.find(nodes, witnesses(*arguments))


# --- G-01: what a driver refuses, and drivers that cannot be asked ---


def test_g01_what_is_told_is_text_and_numbers():
    report = found([Card()])
    (one,) = report.gpus
    assert (report.driver, report.cuda, report.power_limits_w) == ("580.1", "12.8", (700.0,))
    assert (one.index, one.uuid, one.name, one.memory_bytes) == (0, "GPU-1", "NVIDIA H200", 1 << 37)
    assert (one.sm_count, one.compute_capability, one.mig) == (132, "9.0", "disabled")
    assert (one.cuda_index, one.visible, one.reasons) == (0, True, ())


@pytest.mark.parametrize("error", [NO_LIBRARY, MISMATCH, "ModuleNotFoundError: No module named 'pynvml'"])
def test_g01_a_driver_that_cannot_be_asked_is_a_warning(error):
    report = found(error)
    assert report.gpus == ()
    assert any(error in warning for warning in report.warnings)


def test_g01_a_wedged_driver_is_a_warning_and_nobody_else_is_sent_into_it():
    never = gpu.Witnesses(lambda: None, lambda: pytest.fail("asked"), lambda argv: pytest.fail("asked"), lambda: "smi")
    report = gpu.find((), never)
    assert report.gpus == ()
    assert "did not answer" in report.warnings[0]


def test_g01_a_call_that_sleeps_for_ever_is_ended(tmp_path, monkeypatch):
    lines = ("import time", "nvmlInit = lambda: None", "nvmlDeviceGetCount = lambda: time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", pynvml(tmp_path, *lines))
    monkeypatch.setattr(gpu, "LIMIT_S", 1.5)
    start = time.monotonic()
    report = gpu.find(())
    assert time.monotonic() - start < 60  # not the 600 s of the call
    assert "did not answer within 1.5 s" in report.warnings[0]


def test_g01_a_mismatched_library_in_a_real_process(tmp_path, monkeypatch):
    lines = ("class NVMLError(Exception): pass", "def nvmlInit():", "    raise NVMLError('version mismatch')")
    monkeypatch.setenv("PYTHONPATH", pynvml(tmp_path, *lines))
    (warning,) = gpu.find(()).warnings
    assert "NVMLError: version mismatch" in warning


@pytest.mark.parametrize("error", ["Driver/library version mismatch", "NVML Shared Library Not Found"])
def test_g01_the_command_ends_well_and_the_rest_is_described(tmp_path, error):
    """The library fails in a real process, and the nvidia-smi beside it fails too."""
    folder = pynvml(tmp_path / "lib", f"def nvmlInit(): raise RuntimeError({error!r})")
    site = Site(str(tmp_path / "home"), str(tmp_path / "cache"))
    path = f"{program(tmp_path, 'echo Failed to initialize NVML >&2; exit 18')}{os.pathsep}{os.environ['PATH']}"
    done = site.advisor("probe", "--json", PYTHONPATH=folder, PATH=path)
    assert done.status == 0, done.err
    told = json.loads(done.out)
    assert told["gpus"] == []
    assert any(error in warning for warning in told["warnings"])
    assert told["allowed_cpus"]


def test_g01_memory_falls_back_to_cuda():
    card = Card(refuses={"nvmlDeviceGetMemoryInfo": NotSupported()})
    (one,) = found([card], [cuda_device(0, "1", memory_bytes=5 << 30)]).gpus
    assert (one.memory_bytes, one.reasons, one.unified_memory) == (5 << 30, (), None)
    assert one.name == "NVIDIA H200"


def test_g01_memory_that_is_the_hosts_is_marked():
    (one,) = found([Card(refuses={"nvmlDeviceGetMemoryInfo": NotSupported()})]).gpus
    assert (one.memory_bytes, one.unified_memory) == (details.memory_total("/"), True)


def test_g01_each_field_fails_by_itself_and_says_why():
    refusing = ("GetMemoryInfo", "GetNumGpuCores", "GetName", "GetPowerManagementLimit", "GetMigMode", "GetPciInfo")
    card = Card(refuses={f"nvmlDevice{name}": NoPermission() for name in refusing})
    (one,) = found([card]).gpus
    assert (one.memory_bytes, one.sm_count, one.name, one.power_limit_w, one.mig) == (None,) * 5
    assert dict(one.reasons)["memory_bytes"] == "NoPermission: Insufficient Permissions"
    assert set(dict(one.reasons)) == {"memory_bytes", "sm_count", "name", "power_limit_w", "mig", "pci"}
    assert one.compute_capability == "9.0"
    assert one.device_id is None


def test_zero_is_unknown():
    (one,) = found([Card(memory=0, cores=0, power_w=0)]).gpus
    assert (one.memory_bytes, one.sm_count, one.power_limit_w) == (None, None, None)


def test_a_gpu_whose_handle_is_refused_keeps_its_place():
    report = found([Card(), Card("GPU-2")])
    assert [one.index for one in report.gpus] == [0, 1]
    told = {"gpus": [{"index": 0, "reasons": {"index": "GpuIsLost"}}, {"index": 1, "name": "B"}]}
    assert [one.name for one in gpu.read(json.dumps(told), ()).gpus] == [None, "B"]


# --- G-01, G-02: nvidia-smi in NVML's place ---

CSV = "0, GPU-9b, NVIDIA A100-SXM4-40GB, {memory}, 8.0, 00000000:07:00.0, {power}, {mig}\n"
LIST = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-9b)
  MIG 3g.20gb     Device  0: (UUID: MIG-77)
"""
XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log><driver_version>535.1</driver_version><cuda_version>12.2</cuda_version>
<gpu id="00000000:07:00.0"><uuid>GPU-9b</uuid><mig_devices><mig_device><index>0</index>
<device_attributes><shared><multiprocessor_count>{count}</multiprocessor_count></shared></device_attributes>
<fb_memory_usage><total>{memory}</total></fb_memory_usage></mig_device></mig_devices></gpu></nvidia_smi_log>
"""


def smi(memory="40960", power="400.00", mig="Disabled", count="42", slice_memory="19968 MiB"):
    return {
        "--query-gpu": CSV.format(memory=memory, power=power, mig=mig),
        "-L": LIST,
        "-x": XML.format(count=count, memory=slice_memory),
    }


def test_nvidia_smi_stands_in_for_nvml():
    report = found(NO_LIBRARY, None, smi())
    (one,) = report.gpus
    assert (report.driver, report.cuda, report.power_limits_w) == ("535.1", "12.2", (400.0,))
    assert (one.memory_bytes, one.mig, one.pci) == (40960 << 20, "disabled", "00000000:07:00.0")
    assert (one.sm_count, one.visible) == (None, True)


@pytest.mark.parametrize("word", ["[N/A]", "[Insufficient Permissions]", "[Not Supported]", "[Unknown Error]", "N/A"])
def test_g02_words_in_the_place_of_numbers_are_unknown(word):
    (one,) = found(NO_LIBRARY, None, smi(memory=word, power=word)).gpus
    if "Supported" not in word:
        assert one.memory_bytes is None
        assert dict(one.reasons)["memory_bytes"] in word
    assert one.power_limit_w is None


@pytest.mark.parametrize("memory", ["40960", "[Insufficient Permissions]", "[N/A]"])
def test_g02_a_slice_has_its_own_sizes(memory):
    (one,) = found(NO_LIBRARY, None, smi(memory=memory, mig="Enabled")).gpus
    assert (one.memory_bytes, one.sm_count, one.mig) == (19968 << 20, 42, "3g.20gb")
    assert (one.uuid, one.slice_of) == ("MIG-77", "GPU-9b")


def test_g02_a_slice_whose_size_is_a_word_is_unknown():
    report = found(NO_LIBRARY, None, smi(mig="Enabled", slice_memory="Insufficient Permissions", count="N/A"))
    (one,) = report.gpus
    assert (one.memory_bytes, one.sm_count) == (None, None)


@pytest.mark.parametrize("table", ["", "No devices were found\n", "0, GPU-1, short row\n"])
def test_an_nvidia_smi_without_gpus_is_a_warning(table):
    report = found(NO_LIBRARY, None, {"--query-gpu": table})
    assert report.gpus == ()
    assert report.warnings


def test_g01_an_nvidia_smi_that_hangs_is_no_help_and_no_harm():
    report = found(NO_LIBRARY, None, {})
    assert report.gpus == ()
    assert len(report.warnings) == 1


def test_g01_a_real_nvidia_smi_that_hangs_is_ended(tmp_path, monkeypatch):
    """NVML cannot be loaded, and the program that stands in for it never answers."""
    monkeypatch.setenv("PYTHONPATH", pynvml(tmp_path / "lib", "def nvmlInit(): raise RuntimeError('no library')"))
    monkeypatch.setenv("PATH", f"{program(tmp_path, 'exec sleep 600')}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(gpu, "LIMIT_S", 1.5)
    start = time.monotonic()
    report = gpu.find(())
    assert time.monotonic() - start < 60  # not the 600 s of the program
    assert report.gpus == ()
    assert any("no library" in warning for warning in report.warnings)


def program(folder, body):
    """A folder with an nvidia-smi that is this shell script."""
    path = folder / "bin" / "nvidia-smi"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path.parent


@pytest.mark.serial
def test_g01_tuning_goes_on_beside_a_broken_driver(tmp_path):
    """The whole of `advisor tune` on the CPU, with a driver library that does not fit its driver."""
    folder = pynvml(tmp_path / "lib", "def nvmlInit(): raise RuntimeError('Driver/library version mismatch')")
    site = Site(str(tmp_path / "home"), str(tmp_path / "cache"))
    words = ("tune", *SCALE, "--n", "64", "--quick", "--budget", "8s", "--json")
    path = f"{program(tmp_path, 'exit 18')}{os.pathsep}{os.environ['PATH']}"
    done = site.advisor(*words, PYTHONPATH=folder, PATH=path)
    assert done.status == 0, done.err
    assert json.loads(done.out)["best"][0]["p25_ns"] > 0


# --- G-02: slices through NVML ---

CUT = Card(slices=(Slice("3g.71gb", 60, 70 << 10), Slice("1g.18gb", 16, 16 << 10)))


def test_g02_nvml_slices_are_rows_of_their_own():
    large, small = found([CUT]).gpus
    assert (large.mig, large.sm_count, large.memory_bytes) == ("3g.71gb", 60, 70 << 30)
    assert (small.mig, small.sm_count, small.memory_bytes) == ("1g.18gb", 16, 16 << 30)
    assert {large.name, small.name} == {"NVIDIA H200"}
    assert {large.slice_of, small.slice_of} == {"GPU-1"}


def test_g02_a_slice_when_the_parent_may_not_be_asked():
    (one,) = found([CUT._replace(slices=CUT.slices[:1], refuses={"nvmlDeviceGetMemoryInfo": NoPermission()})]).gpus
    assert (one.memory_bytes, one.sm_count, one.reasons) == (70 << 30, 60, ())


def test_g02_slices_and_whole_gpus_are_never_mixed():
    whole = found([Card()]).gpus[0]
    large, small = found([CUT]).gpus
    again = found([CUT._replace(uuid="GPU-other", pci="00000000:01:00.0")]).gpus[0]
    capped = found([Card(power_w=350)]).gpus[0]
    assert len({whole.device_id, large.device_id, small.device_id, capped.device_id}) == 4
    assert again.device_id == large.device_id


def test_g02_two_machines_that_differ_in_the_slice_alone(tmp_path):
    """The id that GPU tables are kept under differs; that of the machine, which must not need a driver, is one."""
    boards = [
        found(NO_LIBRARY, None, smi()),
        found(NO_LIBRARY, None, smi(mig="Enabled")),
        found(NO_LIBRARY, None, {**smi(mig="Enabled"), "-L": LIST.replace("3g.20gb", "1g.5gb")}),
    ]
    assert len({report.gpus[0].device_id for report in boards} - {None}) == 3
    hosts = [topology(str(build(tmp_path / str(i), "1s4c")))._replace(gpus=b.gpus) for i, b in enumerate(boards)]
    assert len({host.hardware_id for host in hosts}) == 1


@pytest.mark.parametrize(
    "cards",
    [
        [Card(slices=())],  # cut, but nobody says into what
        [CUT._replace(slices=CUT.slices[:1], refuses={"nvmlDeviceGetUUID": NoPermission()})],
        [Card(refuses={"nvmlDeviceGetMigMode": NoPermission()})],
    ],
)
def test_g02_what_may_be_a_slice_is_never_taken_for_the_whole_gpu(cards):
    whole, (one,) = found([Card()]).gpus[0], found(cards).gpus
    assert one.device_id != whole.device_id


def test_g02_a_gpu_that_has_no_slices_at_all_is_whole():
    (old,) = found([Card(refuses={"nvmlDeviceGetMigMode": NotSupported()})]).gpus
    assert old.device_id == found([Card()]).gpus[0].device_id


def test_g02_a_slice_that_cuda_alone_tells_of():
    told = {"name": "NVIDIA H200", "compute_capability": "9.0"}
    whole = found(NO_LIBRARY, [cuda_device(0, "ab", **told)]).gpus[0]
    (one,) = found(NO_LIBRARY, [cuda_device(0, "ab", **{**told, "name": "NVIDIA H200 MIG 3g.71gb"})]).gpus
    assert (one.name, one.mig) == ("NVIDIA H200", "3g.71gb")
    assert one.device_id != whole.device_id


def test_mig_without_slices():
    (one,) = found([Card(slices=())]).gpus
    assert (one.mig, one.slice_of, one.device_id) == ("enabled", None, None)


# --- G-03: whose number is whose ---

SLOW = Card("GPU-slow", "Slow", "00000000:01:00.0", 8 << 30)
FAST = Card("GPU-fast", "Fast", "00000000:02:00.0", 80 << 30)


def test_g03_cuda_and_nvml_are_joined_by_uuid():
    """CUDA_VISIBLE_DEVICES=1, and CUDA counts the fast one as 0: the program gets the slow one."""
    slow, fast = found([SLOW, FAST], [cuda_device(0, "slow", sm_count=10)]).gpus
    assert (slow.cuda_index, slow.visible, slow.sm_count) == (0, True, 10)
    assert (fast.cuda_index, fast.visible) == (None, False)


def test_g03_cuda_order_differs_from_nvml_order():
    slow, fast = found([SLOW, FAST], [cuda_device(0, "fast"), cuda_device(1, "slow")]).gpus
    assert (slow.index, slow.cuda_index, fast.index, fast.cuda_index) == (0, 1, 1, 0)


def test_g03_joined_by_bus_where_a_uuid_is_missing():
    slow, fast = found([SLOW, FAST], [cuda_device(0, None, pci="0000:02:00.0")]).gpus
    assert (slow.visible, fast.cuda_index) == (False, 0)


def test_g03_what_cannot_be_joined_is_left_unknown():
    report = found([SLOW, FAST], [cuda_device(0, None, name="Fast", memory_bytes=1)])
    assert [(one.cuda_index, one.visible) for one in report.gpus] == [(None, None)] * 2
    assert [one.memory_bytes for one in report.gpus] == [8 << 30, 80 << 30]
    assert any("cannot be told" in warning for warning in report.warnings)


def test_g03_without_cuda_an_index_among_different_gpus_is_not_guessed(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [one.visible for one in found([SLOW, FAST]).gpus] == [None, None]
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert [one.cuda_index for one in found([SLOW, FAST]).gpus] == [None, 0]


def test_cuda_alone_tells_of_boards_without_nvml():
    (one,) = found(NO_LIBRARY, [cuda_device(0, "ab", name="Orin", memory_bytes=7, unified_memory=True)]).gpus
    assert (one.uuid, one.name, one.cuda_index, one.unified_memory) == ("GPU-ab", "Orin", 0, True)


def test_the_l2_is_what_cuda_tells_and_no_part_of_an_id():
    known, unknown = (found([FAST], [cuda_device(0, "fast", l2_bytes=size)]).gpus[0] for size in (60 << 20, None))
    assert (known.l2_bytes, unknown.l2_bytes) == (60 << 20, None)
    assert known._replace(l2_bytes=None) == unknown


class FakeCuda:
    """A driver with one device, which tells the attributes that it is given and refuses all else."""

    def __init__(self, attributes):
        self.attributes = attributes

    def cuDeviceGet(self, handle, index):  # noqa: N802
        return 0

    def cuDeviceGetAttribute(self, value, number, device):  # noqa: N802
        value._obj.value = self.attributes.get(number, 0)
        return 0 if number in self.attributes else 1

    def __getattr__(self, name):
        return lambda *_: 1


@pytest.mark.parametrize(("told", "size"), [({38: 60 << 20}, 60 << 20), ({38: 0}, None), ({}, None)])
def test_cuda_is_asked_for_the_l2(told, size):
    assert cuda_child.device(FakeCuda(told), 0)["l2_bytes"] == size


# --- N-02: a GPU's memory node is not a CPU node ---


def test_n02_the_gpus_own_memory_node_is_resolved_to_the_nearest_with_cpus():
    (one,) = found([Card(node=2, pci="0000FFFF:7F:00.0")], nodes=GRACE).gpus
    assert one.numa_node == 1


@pytest.mark.parametrize(("node_id", "host"), [(0, 0), (1, 1), (2, 1), (5, 0), (None, None), (77, None)])
def test_n02_host_nodes(node_id, host):
    assert gpu.host_node(node_id, GRACE) == host


def test_n02_a_row_of_distances_that_does_not_fit_is_not_read():
    """Node 0 is gone, the rows still have its column: which distance is whose cannot be told."""
    assert gpu.host_node(2, GRACE) == 1
    assert gpu.host_node(2, (*GRACE, NumaNode(7, (150,), 1 << 30, ()))) is None


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


@pytest.mark.parametrize("answer", ["", "not json", "[]", '{"error": "NVMLError: no driver"}'])
def test_a_report_that_cannot_be_read_is_a_warning(answer):
    report = gpu.read(answer, ())
    assert report.gpus == ()
    assert len(report.warnings) == 1


def test_without_a_sign_of_a_driver_nobody_is_asked(monkeypatch):
    monkeypatch.setattr(gpu, "_may_be_there", lambda: False)
    monkeypatch.setattr(gpu, "ask_python", lambda script, limit_s: pytest.fail("asked"))
    assert gpu.find(()) == gpu.NONE


@pytest.mark.parametrize("script", [gpu_child.__file__, cuda_child.__file__])
def test_the_children_run_by_themselves_with_or_without_a_driver(script):
    """The real scripts in real processes: one JSON object, whatever this machine has."""
    answer = gpu.ask_python(script, 30.0)
    assert {"gpus", "devices", "error"} & set(json.loads(answer))


@pytest.mark.gpu
@pytest.mark.skipif(
    not any(os.path.exists(f"/{sign}") for sign in gpu.SIGNS), reason="no NVIDIA driver on this machine"
)
def test_the_gpus_at_hand():
    report = gpu.find(topology("/").numa_nodes)
    assert report.gpus
    assert all(one.name and one.memory_bytes and one.sm_count and one.compute_capability for one in report.gpus)
    assert report.driver
