"""`--device cuda:N` through the real command on a made-up GPU (`devices.py`); what is refused before time is spent."""

import json
import os
import signal
import time
import types

import pytest
from commanding import Site
from device_tables import VERSIONS, none, report, whole
from devices import H200, TUNE, variables
from gpus import Card, FakeNvml

from advisor import codec, pipeline, tuning
from advisor.errors import AdvisorError, BadInput, UnknownName
from advisor.kernels.gpu import memory
from advisor.policy.store import load_table
from advisor.records import Choice
from advisor.search.request import Silent


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """The variables of a machine with one H200."""
    return variables(tmp_path_factory.mktemp("made-up"))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, cache, made_up):
    """A site with the table of its GPU, and what the command printed. Tests that use it change nothing."""
    site = Site(str(tmp_path_factory.mktemp("home")), cache)
    done = site.advisor(*TUNE, "--n", "64,128", "--quick", "--budget", "8s", "--json", **made_up)
    assert done.status == 0, done.err
    return site, json.loads(done.out), done.err


def looks(site):
    """First looks in the log, as (n, choice)."""
    trials = [record for record in site.log() if record["kind"] == "trial" and record["phase"] == "search"]
    return [(record["measurement"]["problem"]["n"], record["choice_id"]) for record in trials]


# --- tune, then ask ---


def test_a_gpu_is_tuned_by_the_command(tuned):
    _, told, progress = tuned
    assert told["device"] == "NVIDIA H200, 132 multiprocessors, 690 W"
    assert [best["n"] for best in told["best"]] == [64, 128]
    for best in told["best"]:
        assert (best["choice"]["team"], best["choice"]["process"]) == (None, None)
        assert best["choice"]["build"]["compiler"] == "cupy-14.2"
        assert best["fragility"] is None
    assert told["trials"]["ok"] > 1
    assert set(told["trials"]) - {"ok"} == {name for name, count in told["trials"].items() if count == 0}
    assert "not quiet" not in " ".join([progress, *told["notes"]])


def test_its_table_and_description_are_those_of_the_device(tuned):
    site, told, _ = tuned
    table = load_table(told["table_path"])
    (section,) = table.sections
    assert section.process is None
    with open(site.file("machine.json"), encoding="utf-8") as file:
        machine = json.load(file)
    assert (table.hardware_id, table.limits_id) == (machine["hardware_id"], "device")
    assert [gpu["device_id"] for gpu in machine["gpus"]] == [table.hardware_id]
    assert machine["environment"]["cupy"] == "14.2.0"
    assert os.path.basename(os.path.dirname(told["table_path"])) == f"{table.hardware_id}-device"


def test_winners_ran_again_in_a_fresh_process(tuned):
    site, told, _ = tuned
    again = [record["choice_id"] for record in site.log() if record.get("phase") == "again"]
    assert {codec.digest(codec.from_json(Choice, best["choice"])) for best in told["best"]} >= set(again)
    assert again or any("fresh process" in note for note in told["notes"])


def test_the_command_answers_from_the_table_and_for_another_driver_only_by_force(tuned, made_up):
    site, told, _ = tuned
    ask = ("recommend", "--device", "cuda:0", "--kernel", "decode", "--n", "64", "--heads", "2", "--json")
    (answer,) = json.loads(site.advisor(*ask, **made_up).out)["answers"]
    assert (answer["basis"], answer["variant"]) == ("EXACT", told["best"][0]["choice"]["build"]["variant"])
    assert answer["launch"]["warps"] >= 1
    other = {**made_up, "MADE_UP_DRIVER": "590.44"}
    (answer,) = json.loads(site.advisor(*ask, "--force", **other).out)["answers"]
    assert (answer["basis"], answer["warnings"]) == ("STALE", ["driver was 580, is 590"])


def test_its_table_is_checked_on_the_device(tuned, made_up):
    """The device's own rows, timed by its worker beside the default choice; stale with another branch of the driver."""
    site, *_ = tuned
    done = site.advisor("check", "--device", "cuda:0", "--budget", "20s", "--json", **made_up)
    found = json.loads(done.out)
    assert (done.status, found["verdict"], found["kernels"], found["stale"]) == (0, "holds", ["decode"], []), done.err
    assert {cell["verdict"] for cell in found["cells"]} == {"holds"}
    assert {cell["choice"]["team"] for cell in found["cells"]} == {None}
    assert any(cell["ratio"] is not None or cell["choice"] == cell["reference"] for cell in found["cells"])
    done = site.advisor("check", "--device", "cuda:0", "--json", **{**made_up, "MADE_UP_DRIVER": "590.10.01"})
    found = json.loads(done.out)
    assert (done.status, found["verdict"], found["cells"]) == (1, "broken", []), done.err
    assert {change["field"] for one in found["stale"] for change in one["changes"]} == {"driver"}


def test_the_description_answers_on_a_machine_without_a_gpu(tuned):
    site, _, _ = tuned
    done = site.advisor("recommend", "--machine", site.file("machine.json"), "--kernel", "decode", "--n", "64")
    assert done.status == 0, done.err
    assert "device   NVIDIA H200" in done.out
    assert "EXACT" in done.out


def test_a_killed_tuner_loses_the_trial_in_flight_and_resume_goes_on(tmp_path, cache, made_up):
    site = Site(str(tmp_path), cache)
    words = (*TUNE, "--n", "64", "--quick", "--budget", "30s")
    running = site.start(*words, **made_up, MADE_UP_CALL_S="0.02")
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and (not os.listdir(tmp_path) or len(_seen(site)) < 3):
            time.sleep(0.05)
    finally:
        os.kill(running.pid, signal.SIGKILL)
        running.communicate(timeout=60)
    before = looks(site)
    assert len(before) >= 3
    done = site.advisor(*words[:-1], "6s", "--resume", "--json", **made_up)
    assert done.status == 0, done.err
    after = looks(site)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after)
    assert json.loads(done.out)["trials"]["ok"] >= len(after)


def _seen(site):
    try:
        return looks(site)
    except (ValueError, OSError):  # the log is not there yet, or its last line is half written
        return []


# --- what is refused before anything runs ---


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Say which GPUs this machine has; nothing is measured on it."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("advisor.kernels.gpu.tools.installed", VERSIONS.get)
    monkeypatch.setattr(memory, "state", lambda gpu: memory.State())

    def have(*cards):
        probe = types.SimpleNamespace(probe=lambda: whole(*cards) if cards else whole({})._replace(gpus=none().gpus))
        monkeypatch.setattr(tuning, "topology", probe)
        monkeypatch.setattr(pipeline, "topology", probe)

    have({})
    yield have
    assert not os.path.exists(tmp_path / "home")


def tune(kernel="decode", n=(64,), device="cuda:0", **more):
    return tuning.tune(tuning.TuneRequest((kernel,), n, device=device, **more), Silent())


REFUSED = {
    "no such device": ({"device": "cuda:3"}, "got 'cuda:3'; allowed: cpu, cuda:0"),
    "no device name": ({"device": "gpu"}, "got 'gpu'; allowed: cpu, cuda:0"),
    "robust": ({"objective": "robust"}, "keeps a CPU busy.*allowed: latency, efficiency"),
    "efficiency without a counter": ({"objective": "efficiency"}, "joules a call.*none that NVML tells"),
    "oversubscribe": ({"oversubscribe": True}, "--oversubscribe is about threads on CPUs"),
    "compilers of the host": ({"compilers": "gcc-12"}, "got 'gcc-12'; allowed: cupy-14.2, triton-3.6, torch-2.11"),
    "memory": ({"n": (1 << 30,)}, "free memory of the NVIDIA H200.*about n = "),
    "a kernel without GPU variants": ({"kernel": "mlp_backward"}, "mlp_backward must have variants for a GPU"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_on_a_device_is_refused(here, case):
    asked, words = REFUSED[case]
    with pytest.raises(BadInput, match=words):
        tune(**asked)


def test_a_shape_that_no_variant_takes_is_refused_before_others_are_tuned(here):
    with pytest.raises(UnknownName, match="no variant can run this problem on this device"):
        tune(shape=(("head_dim", 24),), dtype="bfloat16", compilers="cupy-14.2")


def test_all_kernels_on_a_device_are_those_with_variants_for_it():
    able = pipeline.kernel_names("all", device="cuda:0")
    assert {"forward", "backward", "fused", "decode", "rmsnorm", "mlp"} <= set(able)
    assert "mlp_backward" not in able
    assert set(able) < set(pipeline.kernel_names("all"))
    assert pipeline.kernel_names("mlp_backward", device="cuda:0") == ("mlp_backward",)  # named: refused with its reason


def test_a_machine_without_a_gpu_is_sent_to_the_doctor(here):
    here()
    with pytest.raises(BadInput, match="allowed: cpu; no GPU answers: see `advisor doctor`"):
        tune()
    with pytest.raises(BadInput, match="advisor doctor"):
        pipeline.verify(pipeline.VerifyRequest(("decode",), device="cuda:0"), Silent())


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ({"mig": None, "reasons": {"mig": "Insufficient Permissions"}}, "mig: Insufficient Permissions"),
        ({"compute_capability": None, "reasons": {"compute_capability": "Not Supported"}}, "Not Supported"),
        ({"uuid": None, "pci": "0000:01:00.0", "reasons": {"uuid": "Unknown Error"}}, "UUID.*Unknown Error"),
    ],
)
def test_a_device_that_does_not_tell_what_it_is_is_refused(here, monkeypatch, card, words):
    found = report(card).gpus[0]._replace(cuda_index=0, visible=True)
    probe = types.SimpleNamespace(probe=lambda: whole({})._replace(gpus=(found,)))
    monkeypatch.setattr(tuning, "topology", probe)
    with pytest.raises(BadInput, match=words):
        tune()


def test_cupy_is_needed_and_how_to_get_it_is_said(here, monkeypatch):
    monkeypatch.setattr("advisor.kernels.gpu.tools.installed", lambda name: None)
    with pytest.raises(BadInput, match=r"needs CuPy.*pip install cupy-cuda13x"):
        tune()


def test_the_number_is_that_of_cuda_and_not_of_nvml(here, monkeypatch):
    first, second = report({"name": "NVIDIA T4"}, {}).gpus
    swapped = (first._replace(cuda_index=1), second._replace(cuda_index=0))
    machine = whole({})._replace(gpus=swapped)
    assert tuning.target(machine, "cuda:0").gpus == (swapped[1],)
    assert tuning.target(machine, "cuda:1").hardware_id == first.device_id
    assert tuning.target(machine, "cpu") is machine


def test_hidden_devices_are_not_offered(here):
    hidden = whole({})._replace(gpus=(report({}).gpus[0]._replace(visible=False, cuda_index=None),))
    with pytest.raises(AdvisorError, match="allowed: cpu; no GPU answers"):
        tuning.target(hidden, "cuda:0")


# --- who else uses it ---


def nvml(monkeypatch, **card):
    told = FakeNvml([Card(**{**H200, **card})])
    monkeypatch.setitem(__import__("sys").modules, "pynvml", told)
    return report({"uuid": "GPU-1"}).gpus[0]


def test_memory_that_others_hold_counts(monkeypatch):
    gpu = nvml(monkeypatch, free=1 << 30)
    assert memory.room_bytes(gpu) == 1 << 30
    assert memory.room_bytes(gpu._replace(uuid="GPU-other")) == gpu.memory_bytes


def test_a_busy_device_is_named_and_a_quiet_one_is_not(monkeypatch):
    quiet, busy = memory.state(nvml(monkeypatch)), memory.state(nvml(monkeypatch, busy=43))
    assert memory.sentence(quiet) == ""
    users = "kernels of others ran 43% of the last second (process 1 1024 MiB)"
    assert memory.sentence(busy) == f"this GPU is not quiet: {users}"
    assert dict(memory.recorded(busy))["busy"] == 0.43
    assert memory.sentence(memory.state(report({"uuid": "GPU-7"}).gpus[0])) == ""


def test_a_busy_cpu_is_no_business_of_a_device(here, monkeypatch):
    monkeypatch.setattr(tuning.others, "look", lambda: pytest.fail("the CPUs were looked at"))
    seen = tuning._look(tuning.target(tuning.topology.probe(), "cuda:0"))
    assert seen.sentence == ""
