"""Tables of a device: one section a shape without a process part, its borders, objectives and held-out regret."""

import json
import os

import pytest
from device_tables import FEW, MANY, SHAPE, choice, gpu, keep, table, whole
from jsonschema import Draft202012Validator
from tabling import MADE, look, race
from tabling import choice as host_choice

from advisor import codec, tablefile
from advisor.device import DEPENDS
from advisor.kernels.gpu.device import machine_of
from advisor.policy import store
from advisor.policy.learn import Beside, choose, learn, with_heldout
from advisor.records import Measurement, pairs

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture
def made(monkeypatch):
    return table(monkeypatch)


def test_choices_without_a_process_part_make_a_section(made):
    (section,) = made.sections
    assert section.process is None
    assert section.tuned_n == (256, 1024, 4096, 16384)
    assert [row.choice for row in section.rows] == [FEW, MANY]
    assert {row.depends for row in section.rows} == {DEPENDS}
    assert dict(section.wins) == {"latency": (256, 1024, 4096, 16384)}
    assert section.default == MANY
    assert [point.n for point in section.default_points] == [256, 1024, 4096, 16384]


def test_the_border_between_one_and_four_warps_is_where_the_times_cross(made):
    (section,) = made.sections
    few, many = section.rows
    assert few.high + 1 == many.low
    assert 1024 < many.low < 4096


def test_the_table_is_that_of_the_device(made):
    assert (made.hardware_id, made.limits_id) == (gpu().device_id, "device")
    known = dict(made.environment)
    assert (known["sm_count"], known["driver"], known["cupy"]) == (132, "580.95.05", "14.2.0")
    assert "kernel" not in known


def test_equal_devices_of_different_hosts_share_a_table_and_others_do_not():
    first, second = gpu(), gpu(uuid="GPU-x", pci="0000:01:00.0")
    assert first.device_id == second.device_id
    different = [gpu(power_limit_w=350.0), gpu(mig="3g.71gb"), gpu(name="NVIDIA H100"), gpu(compute_capability="8.0")]
    assert len({first.device_id, *(one.device_id for one in different)}) == 5


def test_it_is_written_and_read_back_and_fits_its_schema(tmp_path, monkeypatch):
    place = keep(tmp_path, monkeypatch)
    path = os.path.join(place, "decode.table.json")
    back = store.load_table(path)
    assert back.sections == table(monkeypatch).sections
    with open(os.path.join(ROOT, "docs", "schema", "table.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    assert not list(Draft202012Validator(schema).iter_errors(tablefile.read_json(path)))
    assert store.save_table(path, back).table.sections == back.sections


def test_a_choice_of_the_host_counts_for_no_device():
    verdicts = [race(256, {MANY: 3000.0, host_choice(threads=1): 2000.0}, **SHAPE)]
    sections = learn(machine_of(whole({}), gpu()), verdicts, [], MADE).sections
    assert sorted(section.process is None for section in sections) == [False, True]
    own = next(section for section in sections if section.process is None)
    assert choose(own, 256) == MANY


def metered(n, what, watts):
    looked = look(n, what, 3000.0, **SHAPE)
    return Measurement(*looked[:4], conditions=pairs({"joules": watts, "metered_s": 1.0}))


def test_efficiency_is_joules_or_nothing():
    races = [race(256, {MANY: 3000.0, FEW: 3050.0}, **SHAPE)]
    where = machine_of(whole({}), gpu())
    (section,) = learn(where, races, [], MADE).sections
    assert section.alternatives == ()
    energy = [metered(256, MANY, 600.0), metered(256, FEW, 300.0)]
    (section,) = learn(where, races, [], MADE, Beside(energy=energy)).sections
    assert [one.objective for one in section.alternatives] == ["efficiency"]
    assert choose(section, 256, "efficiency") == FEW
    assert choose(section, 256) == MANY


def test_held_out_races_bound_the_regret(made):
    (section,) = with_heldout(made, [race(2048, {MANY: 4400.0, FEW: 4000.0}, "heldout", **SHAPE)]).sections
    assert section.heldout.n == (2048,)
    assert section.heldout.worst == pytest.approx(1.1)


def test_records_of_a_device_survive_the_trip_through_json(made):
    assert codec.from_json(type(made), codec.to_json(made)) == made
    assert codec.digest(choice("gated")) == codec.digest(codec.from_json(type(MANY), codec.to_json(choice("gated"))))
