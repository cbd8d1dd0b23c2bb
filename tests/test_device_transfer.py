"""A GPU that was never tuned: the answer is what the nearest GPU's table says, as far as it can run here."""

import json
import os

import pytest
from device_tables import FEW, MANY, SHAPE, SOURCES, VERSIONS, gpu, keep, report, table, whole
from tabling import write, write_machine
from typer.testing import CliRunner

from advisor import gather, pipeline, untuned
from advisor.cli import app
from advisor.kernels.gpu.device import machine_of
from advisor.policy import transfer
from advisor.records import pairs
from advisor.search import elsewhere

A100 = {"name": "NVIDIA A100", "compute_capability": "8.0", "sm_count": 108, "memory_bytes": 80 << 30}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A state folder with the table of one H200."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    for module in (gather, elsewhere):
        monkeypatch.setattr(module, "shipped_policies", lambda: str(tmp_path / "shipped"))
    monkeypatch.setattr(untuned, "variants", lambda *asked: tuple(SOURCES[one.build.variant] for one in (FEW, MANY)))
    return keep(tmp_path / "home", monkeypatch)


def described(folder, **changes):
    """The machine.json of another GPU, as `advisor tune` would leave it there."""
    os.makedirs(folder, exist_ok=True)
    return write_machine(folder, machine_of(whole({}), gpu(**{**A100, **changes})))


def ask(path, n=4096, **axes):
    _, answers = pipeline.recommend("decode", (n,), axes, pipeline.Where(path))
    return [answer for answer, _ in answers]


def test_a_gpu_without_a_table_answers_as_the_nearest_one(home, tmp_path):
    (small,), (large,) = (ask(described(tmp_path / "a100"), n) for n in (300, 4096))
    assert [one.variant for one in (small, large)] == [FEW.build.variant, MANY.build.variant]
    assert (large.basis, large.rung, large.machines) == ("TRANSFERRED", "nearest", (os.path.basename(home),))
    assert (large.validated_regret, large.expected_ns, large.regret_bound) == (None, None, None)
    assert (large.shape, large.device, large.in_tuned_region) == (SHAPE, "NVIDIA A100", False)
    assert "CPU" not in large.why


@pytest.mark.parametrize("tools", [VERSIONS, {**VERSIONS, "torch": "2.11.0+cpu"}])
def test_a_file_of_a_whole_machine_answers_by_the_tools_that_it_names(home, tmp_path, monkeypatch, tools):
    """It answered by those of the machine that asks, and called its own answer stale."""
    for name in ("installed", "nvrtc"):
        monkeypatch.setattr(f"advisor.kernels.gpu.device.{name}", lambda *asked: None)  # nothing where it is asked
    found = whole(A100)
    told = pairs({**dict(found.environment), **tools})
    os.makedirs(tmp_path / "whole")
    path = write_machine(tmp_path / "whole", found._replace(environment=told))
    _, answers = pipeline.recommend("decode", (4096,), {}, pipeline.Where(path, "cuda:0"))
    ((answer, _),) = answers
    assert (answer.basis, answer.variant, answer.compiler) == ("TRANSFERRED", MANY.build.variant, "cupy-14.2")


def test_a_variant_that_needs_a_higher_compute_capability_is_passed_over(home, tmp_path):
    (answer,) = ask(described(tmp_path / "old", name="NVIDIA P100", compute_capability="3.0"))
    assert (answer.basis, answer.variant) == ("DEFAULT", None)


def test_another_dtype_or_shape_is_not_answered_for(home, tmp_path):
    path = described(tmp_path / "a100")
    assert ask(path, dtype="float16")[0].basis == "DEFAULT"
    assert ask(path, heads=64)[0].basis == "DEFAULT"


def test_of_two_gpus_the_more_similar_one_answers(home, tmp_path, monkeypatch):
    other = gpu(name="NVIDIA A10", compute_capability="8.6", sm_count=72, memory_bytes=24 << 30)
    monkeypatch.setattr(transfer, "learn", lambda *known: None)  # a fit says nothing of who is near
    place = tmp_path / "home" / "machines" / f"{other.device_id}-device"
    os.makedirs(place)
    made = table(monkeypatch, other)
    few = tuple(s._replace(rows=tuple(r._replace(choice=FEW) for r in s.rows)) for s in made.sections)
    write(place, made._replace(sections=few))
    write_machine(place, machine_of(whole({}), other))
    near = {name: ask(described(tmp_path / name, **changes))[0].machines for name, changes in NEAR.items()}
    assert near["a6000"] == (os.path.basename(place),)
    assert near["h100"] == (os.path.basename(home),)


NEAR = {
    "a6000": {"name": "NVIDIA A6000", "compute_capability": "8.6", "sm_count": 84, "memory_bytes": 48 << 30},
    "h100": {"name": "NVIDIA H100", "compute_capability": "9.0", "sm_count": 132, "memory_bytes": 80 << 30},
}


def test_what_is_kept_answers_in_a_server_and_a_gpu_of_a_whole_machine_is_named(home, tmp_path):
    path = described(tmp_path / "a100")
    done = CliRunner().invoke(app, ["transfer", "--kernel", "decode", "--machine", path, "--save", "--json"])
    (kept,) = json.loads(done.stdout)["paths"]
    assert os.path.basename(os.path.dirname(kept)) == f"{gpu(**A100).device_id}-device"
    (answer,) = ask(path)
    assert (answer.basis, answer.rung) == ("TRANSFERRED", "nearest")
    assert report(A100).gpus[0].device_id == gpu(**A100).device_id
