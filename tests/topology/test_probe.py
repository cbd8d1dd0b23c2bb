import json

import pytest
from trees import Shape, affinity, cgroup2, machine, put

from advisor import identity
from advisor.errors import BadInput, Missing, SchemaError
from advisor.topology.probe import machine_json, probe, read_machine, topology

KEYS = {
    *("schema", "hardware_id", "limits_id", "architecture", "vendor", "model_name"),
    *("online_cpus", "offline_cpus", "allowed_cpus", "cpu_quota", "memory_limit_bytes"),
    *("sockets", "cores", "threads_per_core", "array", "groupings", "numa_nodes", "l3_groups", "caches"),
    *("core_classes", "gpus", "environment", "warnings"),
}


@pytest.fixture
def confined(tmp_path):
    """Two sockets, two threads a core, one core offline by half, a mask and a quota."""
    root = machine(tmp_path / "confined", Shape(sockets=2, cores=4, smt=2), online=range(15))
    affinity(root, "0-3,8-15", mems="0-1")
    cgroup2(root, "/job", {"job/cpu.max": "250000 100000", "job/memory.max": "1073741824"})
    put(root, "proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n")
    put(root, "proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
    return str(root)


def test_all_fields_of_a_confined_machine(confined):
    found = probe(confined)
    assert (found.sockets, found.cores, found.threads_per_core) == (2, 8, 2)
    assert found.offline_cpus == (15,)
    assert found.allowed_cpus == (0, 1, 2, 3, *range(8, 15))
    assert (found.cpu_quota, found.memory_limit_bytes) == (2.5, 1 << 30)
    assert found.allowed_mems == (0, 1)
    assert found.array.axes == ("socket", "numa", "l3", "core", "smt")
    assert found.array.cpus.count(-1) == 1
    assert set(found.array.cpus) - {-1} == set(found.online_cpus)
    assert dict(found.environment) == {"kernel": "6.8"}
    assert dict(found.extra) == {"memory_total_bytes": 2048 * 1024}


def test_the_json_has_the_keys_of_the_design_and_comes_back_equal(confined, tmp_path):
    found = probe(confined)
    text = machine_json(found)
    document = json.loads(text)
    assert set(document) >= KEYS
    assert document["schema"].startswith("advisor.machine/1.")
    assert set(document["array"]) == {"axes", "shape", "cpus"}
    assert "NaN" not in text
    (tmp_path / "machine.json").write_text(text)
    assert read_machine(str(tmp_path / "machine.json")) == found


def test_the_machine_at_hand_has_the_ids_that_a_lookup_computes():
    found, here = probe("/"), identity.here("/")
    assert (found.hardware_id, found.limits_id) == (here.hardware_id, here.limits_id)
    assert found.array == here.array
    assert found.allowed_cpus == here.allowed
    assert json.loads(machine_json(found))["environment"]["python"]


def test_a_tree_has_the_ids_that_a_lookup_computes(confined):
    found, here = topology(confined), identity.here(confined)
    assert (found.hardware_id, found.limits_id) == (here.hardware_id, here.limits_id)


def test_an_empty_folder_is_a_machine_of_one_unknown_cpu(tmp_path):
    found = probe(str(tmp_path))
    assert found.online_cpus == (0,)
    assert (found.sockets, found.architecture, found.caches.l3) == (None, None, None)
    assert found.warnings
    assert json.loads(machine_json(found))["sockets"] is None


def test_files_that_are_no_machine_are_refused(tmp_path):
    with pytest.raises(Missing):
        read_machine(str(tmp_path / "none.json"))
    (tmp_path / "text.json").write_text("hello")
    with pytest.raises(BadInput):
        read_machine(str(tmp_path / "text.json"))
    (tmp_path / "other.json").write_text('{"schema": "advisor.table/1.0"}')
    with pytest.raises(SchemaError):
        read_machine(str(tmp_path / "other.json"))
    (tmp_path / "newer.json").write_text('{"schema": "advisor.machine/2.0"}')
    with pytest.raises(SchemaError):
        read_machine(str(tmp_path / "newer.json"))


@pytest.mark.parametrize("place", ["file/machine.json", "folder"])
def test_a_place_that_cannot_hold_a_description_has_none(tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(Missing):
        read_machine(str(tmp_path / place))


def test_an_archive_is_no_description(tmp_path):
    (tmp_path / "odd.tar.gz").write_bytes(b"\x1f\x8b\xff\xfe")
    with pytest.raises(BadInput, match="is text"):
        read_machine(str(tmp_path / "odd.tar.gz"))


def test_a_newer_minors_fields_are_kept(confined, tmp_path):
    document = {
        **json.loads(machine_json(probe(confined))),
        "schema": "advisor.machine/1.9",
        "brand_new": [1, {"a": 2}],
    }
    (tmp_path / "machine.json").write_text(json.dumps(document))
    again = json.loads(machine_json(read_machine(str(tmp_path / "machine.json"))))
    assert again["brand_new"] == [1, {"a": 2}]
