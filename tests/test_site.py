"""A machine description from a file is believed only where it makes sense."""

from __future__ import annotations

import json

import pytest

from advisor import codec
from advisor.errors import BadInput
from advisor.lookup import Policy
from advisor.site import running_memory_policy
from advisor.topology import probe


@pytest.fixture(scope="module")
def document():
    return json.loads(probe.machine_json(probe.probe()))


def load(document, folder):
    path = folder / "machine.json"
    path.write_text(json.dumps(document))
    return Policy.load(machine=str(path))


def test_a_whole_description_is_read(document, tmp_path):
    answer = load(document, tmp_path).choose("decode", n=64)
    assert answer.basis == "DEFAULT"
    assert set(answer.cpus) <= set(document["allowed_cpus"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("array", {"axes": ["core"], "shape": [10**20], "cpus": [0]}),
        ("array", {"axes": ["core", "smt"], "shape": [-1, -1], "cpus": [0]}),
        ("array", {"axes": [], "shape": [1], "cpus": [0]}),
        ("array", {"axes": ["core"], "shape": [1], "cpus": ["0"]}),
        ("array", {"axes": [3], "shape": [1], "cpus": [0]}),
        ("array", [1]),
        ("allowed_cpus", [-1, 10**9]),
        ("allowed_cpus", None),
        ("hardware_id", 7),
        ("isa", [[]]),
        ("cpu_quota", "many"),
    ],
)
def test_one_that_contradicts_itself_is_refused_at_once(document, tmp_path, key, value):
    with pytest.raises(BadInput, match="machine description"):
        load({**document, key: value}, tmp_path)


def test_the_schema_is_the_one_that_is_written(document):
    assert document["schema"] == codec.schema_of("machine")


@pytest.mark.parametrize(
    ("line", "policy"),
    [
        ("55aa default file=/usr/bin/python3 mapped=2 N0=2\n", "default"),
        ("55aa interleave:0-1 file=/usr/bin/python3 mapped=2 N0=2\n", "interleave"),
        ("55aa interleave=static:0,8 file=/usr/bin/python3\n", "interleave"),
        ("55aa interleave:0 file=/usr/bin/python3\n", "default"),  # over one node it says nothing
        ("55aa bind:0 file=/usr/bin/python3\n", "default"),
        ("55aa local\n", "default"),
        ("", "default"),
        (None, "default"),
    ],
)
def test_the_memory_policy_of_the_running_process(tmp_path, line, policy):
    if line is not None:
        (tmp_path / "numa_maps").write_text(line)
    assert running_memory_policy(str(tmp_path / "numa_maps")) == policy
