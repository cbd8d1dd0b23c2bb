"""P-03: lscpu as every version of it writes, and as programs of that name that are broken or absent."""

import json
import os
import stat

import pytest
from trees import build, put

from advisor.topology import lscpu, witness
from advisor.topology.probe import probe, topology

TABLE = """# The following is the parsable format, which can be fed to other
# programs. Each different item in every column has an unique ID
# starting usually from zero.
# CPU,Core,Socket,Node,,L1d,L1i,L2,L3
0,0,0,0,,0,0,0,0
1,1,0,0,,1,1,1,0
2,2,1,1,,2,2,2,1
3,3,1,1,,3,3,3,1
4,0,0,0,,0,0,0,0
5,1,0,0,,1,1,1,0
6,2,1,1,,2,2,2,1
7,3,1,1,,3,3,3,1
"""
COLONS = TABLE.replace(",,L1d,L1i,L2,L3", ",L1d:L1i:L2:L3").replace(",,", ",")
COLONS = "\n".join(
    line if line.startswith("#") else ",".join([*line.split(",")[:4], ":".join(line.split(",")[4:])])
    for line in COLONS.splitlines()
)
FLAT = [
    {"field": "CPU(s):", "data": "8"},
    {"field": "On-line CPU(s) list:", "data": "0-7"},
    {"field": "Thread(s) per core:", "data": "2"},
    {"field": "Core(s) per socket:", "data": "2"},
    {"field": "Socket(s):", "data": "2"},
    {"field": "L3 cache:", "data": "33554432 (2 instances)"},
]
NESTED = [
    {"field": "CPU(s)", "data": "8", "children": [{"field": "On-line CPU(s) list", "data": "0,1,2,3,4,5,6,7"}]},
    {
        "field": "Vendor ID",
        "data": "GenuineIntel",
        "children": [
            {
                "field": "Model name",
                "data": "Fake(R) CPU   @ 2.00GHz",
                "children": [
                    {"field": "Thread(s) per core", "data": "2"},
                    {"field": "Core(s) per socket", "data": "2"},
                    {"field": "Socket(s)", "data": "2"},
                ],
            }
        ],
    },
    {"field": "Caches (sum of all)", "data": None, "children": [{"field": "L3", "data": "32 MiB"}]},
]
DASH = '{"lscpu": [{"field": "CPU(s):", "data": -}]}'
PLAIN = "CPU(s):  8\nOn-line CPU(s) list: 0-7\nThread(s) per core: 2\nCore(s) per socket: 2\nSocket(s): 2\n"


def summary(fields):
    return json.dumps({"lscpu": fields})


@pytest.fixture
def eight(tmp_path):
    """Two sockets of two cores of two threads, L3 and node a socket."""
    return topology(str(build(tmp_path, "2s1n1l2c2t")))


def program(answers):
    """Something that answers as an lscpu program does: options -> text; others are unknown to it."""
    return lambda options: answers.get(tuple(options))


FAKES = {
    "nested": {lscpu.TABLE: TABLE, lscpu.SUMMARY: summary(NESTED)},
    "flat": {lscpu.TABLE: TABLE, lscpu.SUMMARY: summary(FLAT)},
    "colons between caches": {lscpu.TABLE: COLONS, lscpu.SUMMARY: summary(FLAT)},
    "knows no column list and no bytes": {lscpu.TABLE_OLD: TABLE, lscpu.SUMMARY_OLD: summary(FLAT)},
    "knows no JSON": {lscpu.TABLE: TABLE, lscpu.SUMMARY_PLAIN: PLAIN},
    "knows no table": {lscpu.SUMMARY: summary(NESTED)},
}


@pytest.mark.parametrize("name", FAKES)
def test_p03_every_format_says_the_same_topology(eight, name):
    said = lscpu.listen(program(FAKES[name]))
    assert lscpu.online(said) == tuple(range(8))
    assert lscpu.count(said, "thread(s) per core") == 2
    assert witness.lscpu_notes(said, eight) == ()


@pytest.mark.parametrize("table", [TABLE, COLONS], ids=["commas", "colons"])
def test_p03_both_separators_give_the_groups(table):
    said = lscpu.listen(program({lscpu.TABLE: table}))
    assert said.groups["core"] == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert said.groups["l3"] == said.groups["socket"] == said.groups["node"] == ((0, 1, 4, 5), (2, 3, 6, 7))


def test_p03_a_bare_dash_in_json_is_a_note(eight):
    said = lscpu.listen(program({lscpu.TABLE: TABLE, lscpu.SUMMARY: DASH, lscpu.SUMMARY_PLAIN: PLAIN}))
    assert lscpu.count(said, "socket(s)") == 2
    assert [note for note in witness.lscpu_notes(said, eight) if "no JSON" in note]


def test_p03_no_lscpu_at_all_is_no_witness(eight, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert lscpu.listen() is None
    assert witness.lscpu_notes(None, eight) == ()


@pytest.mark.parametrize("text", ["", "\n", "# CPU,Core\n", "rubbish", "-,-,-,-\n"])
def test_an_empty_table_is_not_believed(text):
    said = lscpu.listen(program({lscpu.TABLE: text, lscpu.SUMMARY_PLAIN: PLAIN}))
    assert said.cpus is None
    assert lscpu.online(said) == tuple(range(8))


def test_unknown_columns_and_dashes_say_nothing(eight):
    text = "# CPU,Core,Socket,Node,Drawer\n" + "".join(f"{cpu},,-,,x\n" for cpu in range(8))
    said = lscpu.listen(program({lscpu.TABLE: text}))
    assert said.groups == {}
    assert witness.lscpu_notes(said, eight) == ()


def test_the_real_program_runs_in_the_c_locale(tmp_path, monkeypatch, eight):
    """A German lscpu, unless it is told otherwise; one that does not know -J."""
    script = tmp_path / "bin" / "lscpu"
    put(tmp_path, "bin/table", TABLE)
    text = PLAIN.replace("\n", "\\n")
    script.write_text(
        "#!/bin/sh\n"
        f'case "$*" in -p=*) cat {tmp_path}/bin/table; exit 0;; *J*) echo "unknown" >&2; exit 1;; esac\n'
        f'if [ "$LC_ALL" = C ]; then printf "{text}"; else echo "Sockel: 7"; fi\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    said = lscpu.listen()
    assert said.groups["core"] == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert lscpu.count(said, "socket(s)") == 2
    assert witness.lscpu_notes(said, eight) == ()


# --- one that lies ---


def lying(**changes):
    """The table with CPU -> (core, socket, node, l3) changed."""
    rows = [line for line in TABLE.splitlines() if not line.startswith("#")]
    fixed = [changes.get(f"cpu{row.split(',')[0]}", row) for row in rows]
    return program({lscpu.TABLE: "\n".join(["# CPU,Core,Socket,Node,,L1d,L1i,L2,L3", *(row for row in fixed if row)])})


def test_a_lie_about_cores_names_the_cpus_and_whom_the_probe_believed(eight):
    said = lscpu.listen(lying(cpu4="4,9,0,0,,0,0,0,0"))
    (note,) = witness.lscpu_notes(said, eight)
    assert "5 core groups" in note
    assert "CPUs 0" in note
    assert "believed: the kernel's sibling lists" in note


def test_lies_about_sockets_nodes_and_caches_are_told_one_by_one(eight):
    said = lscpu.listen(lying(cpu7="7,3,0,0,,3,3,3,0"))
    notes = witness.lscpu_notes(said, eight)
    assert [word for word in ("socket", "numa", "l3") if any(f" {word} groups" in note for note in notes)]
    assert len(notes) == 3
    assert all("believed" in note for note in notes)


def test_a_missing_cpu_is_told(eight):
    (note,) = witness.lscpu_notes(lscpu.listen(lying(cpu7="")), eight)
    assert "7 online CPUs (0-6)" in note
    assert "the kernel's online list" in note


def test_a_summary_whose_figures_do_not_multiply_is_not_used(tmp_path):
    """Hybrid: 6 cores of 2 threads and 8 of 1 are not 14 x 2."""
    machine = topology(str(build(tmp_path, "1s20c")))
    fields = [
        {"field": "Thread(s) per core", "data": "2"},
        {"field": "Core(s) per socket", "data": "14"},
        {"field": "Socket(s)", "data": "1"},
    ]
    notes = witness.lscpu_notes(lscpu.listen(program({lscpu.SUMMARY: summary(fields)})), machine)
    (note,) = [note for note in notes if "28" in note]
    assert "20 are online" in note


def test_an_l3_of_another_size_is_told(eight):
    fields = [*FLAT[:-1], {"field": "L3 cache:", "data": "2097152 (2 instances)"}]
    (note,) = witness.lscpu_notes(lscpu.listen(program({lscpu.SUMMARY: summary(fields)})), eight)
    assert "1048576 bytes" in note


def test_without_a_table_the_counts_are_compared(eight):
    fields = [dict(field) for field in FLAT]
    fields[2]["data"], fields[4]["data"] = "1", "4"
    notes = witness.lscpu_notes(lscpu.listen(program({lscpu.SUMMARY: summary(fields)})), eight)
    assert len(notes) == 2


# --- recorded ---


def test_another_machines_lscpu_counts_only_where_it_was_recorded(tmp_path):
    root = build(tmp_path, "2s1n1l2c2t")
    assert probe(str(root)).warnings == ()
    put(root, f"{lscpu.WITNESS}/lscpu.csv", TABLE)
    assert probe(str(root)).warnings == ()
    put(root, f"{lscpu.WITNESS}/lscpu.csv", TABLE.replace("4,0,0,0", "4,9,0,0"))
    (note,) = probe(str(root)).warnings
    assert note.startswith("lscpu has 5 core groups")


def test_overlapping_nodes_are_no_reason_to_complain_twice(tmp_path):
    root = build(tmp_path, "2s1n1l2c2t")
    put(root, "sys/devices/system/node/node1/cpulist", "0-7\n")
    put(root, f"{lscpu.WITNESS}/lscpu.csv", TABLE)
    assert not [note for note in probe(str(root)).warnings if note.startswith("lscpu")]
