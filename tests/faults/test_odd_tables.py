"""Tables that nobody should have written: a server gets an answer from each of them, and one sentence on what is wrong.

The cases A-06 to A-08, C-01 and C-02 on tables, through `Policy.load`, where the machine is one of fake /proc and /sys.
Their other halves: test_lookup.py (edits of a machine.json, keys), test_store.py (writers), test_limits.py (budgets),
test_device_lookup.py (a GPU's power limit).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tabling
from tabling import MADE, ONE, choice, race
from trees import Shape, affinity, cgroup1, cgroup2, machine

from advisor import gather, identity, tablefile
from advisor.lookup import Policy
from advisor.policy.learn import learn
from advisor.policy.store import save_table

HERE = Path(__file__).resolve()
SHIPPED = HERE.parents[2] / "policies"


@pytest.mark.parametrize(
    "table", ["intel-xeon-16cpu-vm/fused", "ncsa-delta-cpu/decode", "purdue-anvil-cpu/decode", "nvidia-h200/decode"]
)
def test_a_spoilt_table_never_raises_in_a_server(table, tmp_path):
    path = SHIPPED / f"{table}.table.json"
    words = [
        str(HERE.with_name("odd_tables.py")),
        "7",
        "24",
        str(path.parent / "machine.json"),
        str(path),
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2]), "ADVISOR_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, check=False, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert (found["raised"], found["doubled"], found["silent"]) == ([], [], [])
    assert found["seen"]["DEFAULT"] == found["count"]
    assert len(found["seen"]) > 1  # some were spoilt where it does no harm, and still answer


# --- a table made on one fake machine, applied on others ---


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Make a machine under some limits; `tuned` makes a table of one in its own folder."""
    monkeypatch.setattr(gather, "shipped_policies", lambda: str(tmp_path / "shipped"))
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))

    def make(name, shape=None, cpus=None, group=None):
        root = machine(tmp_path / name, shape or Shape(cores=8))
        if cpus:
            affinity(root, cpus)
        if group:
            make_group, files = group
            make_group(root, "/a", files)
        return str(root)

    return make


def tuned(root, folder, threads=4, placement=""):
    """A table of a fake machine: `threads` threads at every n from 64 to 4096. Returns its path."""
    many = choice(threads=threads)
    many = many._replace(team=many.team._replace(placement=placement))
    verdicts = [race(n, {many: 1000.0, ONE: 2000.0}, default=ONE) for n in (64, 4096)]
    here = identity.here(root)
    found = tabling.machine(hardware_id=here.hardware_id, limits_id=here.limits_id)
    path = os.path.join(folder, "decode.table.json")
    save_table(path, learn(found, verdicts, [], MADE._replace(depends=("compiler",))))
    return path


ALL = Shape(cores=64)
QUOTAS = {
    "v2": (cgroup2, {"a/cpu.max": "150000 100000"}, 1),
    "v1": (cgroup1, {"cpu,cpuacct/a/cpu.cfs_quota_us": "765000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"}, 7),
}
NONE = {"v1": (cgroup1, {"cpu,cpuacct/a/cpu.cfs_quota_us": "-1"}), "v2": (cgroup2, {"a/cpu.max": "max 100000"})}


@pytest.mark.parametrize("name", QUOTAS)
def test_c01_a_table_made_without_a_quota_is_not_used_under_one(fake, tmp_path, name):
    path = tuned(fake("free", ALL), tmp_path, threads=64)
    make, files, budget = QUOTAS[name]
    policy = Policy.load(path, root=fake("bound", ALL, group=(make, files)))
    answer = policy.choose("decode", 64)
    assert (answer.basis, answer.expected_ns) == ("DEFAULT", None)
    assert answer.threads <= budget
    assert "limits" in answer.why
    assert sum("limits" in note for note in policy.notes) == 1
    assert policy.site.budget == budget


@pytest.mark.parametrize("name", NONE)
def test_c01_an_unlimited_group_is_no_other_limit(fake, tmp_path, name):
    path = tuned(fake("free", ALL), tmp_path, threads=64)
    answer = Policy.load(path, root=fake("grouped", ALL, group=NONE[name])).choose("decode", 64)
    assert (answer.basis, answer.threads) == ("EXACT", 64)


def test_c02_a_sparse_mask_is_kept_to_and_the_loss_of_a_cpu_refuses_the_table(fake, tmp_path):
    shape = Shape(cores=32, smt=2)  # 17 and 49 are one core
    path = tuned(fake("three", shape, "5,17,40"), tmp_path, threads=3, placement="take smt 1")
    answer = Policy.load(path, root=fake("again", shape, "5,17,40")).choose("decode", 64)
    assert (answer.basis, set(answer.cpus)) == ("EXACT", {5, 17, 40})
    policy = Policy.load(path, root=fake("two", shape, "5,40"))
    answer = policy.choose("decode", 64)
    assert answer.basis == "DEFAULT"
    assert set(answer.cpus) <= {5, 40}
    assert "limits" in answer.why
    assert len(policy.notes) == 1


@pytest.mark.parametrize("changed", [Shape(cores=2), Shape(cores=4, smt=2), Shape(sockets=2, cores=4)])
def test_a06_another_array_is_a_miss_that_names_the_hardware(fake, tmp_path, changed):
    path = tuned(fake("made"), tmp_path)
    policy = Policy.load(path, root=fake("other", changed))
    answer = policy.choose("decode", 64)
    assert (answer.basis, answer.variant) == ("DEFAULT", None)
    assert "other hardware" in answer.why
    assert set(answer.cpus) <= set(range(changed.cpus))
    assert len(policy.notes) == 1


def test_a06_a_removed_instruction_set_is_a_miss(fake, tmp_path):
    path, root = tuned(fake("made"), tmp_path), fake("older")
    info = Path(root) / "proc/cpuinfo"
    info.write_text(info.read_text().replace(" avx2", ""))
    assert "other hardware" in Policy.load(path, root=root).choose("decode", 64).why


def test_a07_phases_never_share_an_entry_and_beyond_the_region_is_said(fake, tmp_path):
    root = fake("made")
    policy = Policy.load(tuned(root, tmp_path), root=root)
    assert policy.choose("forward", 64).basis == "DEFAULT"
    for n in (1, 63, 4097, 100000):
        answer = policy.choose("decode", n)
        assert (answer.basis, answer.in_tuned_region, answer.threads) == ("DEFAULT", False, 1)
        assert "outside the tuned region 64..4096" in answer.why
    assert {policy.choose("decode", n).threads for n in (65, 300, 384, 4095)} == {4}


def test_a08_a_table_cut_anywhere_answers_default_and_is_named_once(fake, tmp_path):
    root = fake("made")
    path = tuned(root, tmp_path)
    whole = Path(path).read_bytes()
    for i in range(20):
        Path(path).write_bytes(whole[: len(whole) * i // 20])
        policy = Policy.load(path, root=root)
        assert policy.choose("decode", 64).basis == "DEFAULT"
        assert len(policy.notes) == 1
        assert path in policy.notes[0]


ODD_PLACEMENTS = ("take socket 9", "group nowhere", "prefer class", "leave 64", "banana", "take", "transpose core", "|")


@pytest.mark.parametrize("placement", ODD_PLACEMENTS)
def test_a_placement_that_cannot_be_evaluated_answers_default_and_is_told_once(fake, tmp_path, placement):
    root = fake("made")
    path = tuned(root, tmp_path)
    document = json.loads(Path(path).read_text("utf-8"))
    for section in document["sections"]:
        for row in section["rows"]:
            row["choice"]["team"]["placement"] = placement
    document["table_id"] = tablefile.content_id(document)
    Path(path).write_text(json.dumps(document), "utf-8")
    policy = Policy.load(path, root=root)
    answers = [policy.choose("decode", n) for n in (64, 100, 4096)]
    assert {answer.basis for answer in answers} == {"DEFAULT"}
    assert all("placement cannot be used here" in answer.why for answer in answers)
    assert sum("placement cannot be used here" in note for note in policy.notes) == 1
