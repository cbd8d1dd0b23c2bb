"""What a row depends on is compared with this machine: each field alone makes it stale, both its values are named."""

import os

import pytest
import tabling
from device_tables import VERSIONS, gpu, keep, whole
from tabling import MADE, PASSIVE, here, machine, race, write, write_machine

from advisor import checking, device, gather, paths, ranges, site
from advisor.checking import GONE, CheckRequest, compared, site_of, tables
from advisor.errors import Missing
from advisor.kernels.gpu.device import machine_of
from advisor.lookup import Policy
from advisor.policy.cells import cells
from advisor.policy.learn import DEPENDS, learn
from advisor.records import Build, pairs

ENVIRONMENT = {
    "kernel": "6.1.0",
    "libgomp": "1.0.0",
    "gcc": "12.2.0",
    "torch": "2.13.0",
    "openblas": "0.3.21 build 8c759e09",
}
TOOLS = {"gcc-12": "gcc", "torch-2.13": "torch", "openblas-0.3": "openblas"}
SOURCE = "0123456789ab"


@pytest.fixture(autouse=True)
def _home(monkeypatch, tmp_path):
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(gather, "shipped_policies", lambda: str(tmp_path / "shipped"))
    monkeypatch.setattr(site, "identify", lambda root: here())
    monkeypatch.setattr(site, "started_environment", lambda: {})
    monkeypatch.setattr(ranges, "compiler_is_absent", lambda tool: False)


def kept(tool="gcc-12", environment=ENVIRONMENT):
    """A table of choices made with one tool, in this machine's folder. Returns the machine."""
    found = machine(environment=pairs(environment))
    made = [tabling.choice(threads=t)._replace(build=Build("made_up", SOURCE, (), tool, "none")) for t in (4, 1)]
    races = [race(n, {made[0]: 4000.0, made[1]: 1000.0}) for n in (64, 1024)]
    folder = paths.machine_dir(found.hardware_id, found.limits_id)
    write(folder, learn(found, races, [], MADE))
    write_machine(folder, found)
    return found


def stale(found, hashes=()):
    """What a check finds to have changed, as {(field, then, now), ...}, and the n that are left to measure."""
    known = tables(CheckRequest(), found)
    rows, fresh = compared(site_of(found, dict(hashes)), known._replace(hashes=dict(hashes)))
    left = [cell.problem.n for key, sections in fresh.items() for cell in cells(key[0], sections)]
    return {change for one in rows for change in one.changes}, left


def changed(**fields):
    return machine(environment=pairs({**ENVIRONMENT, **fields}))


def test_nothing_changed_nothing_stale():
    found = kept()
    assert stale(found, {("decode", "made_up"): SOURCE}.items()) == (set(), [64, 1024])


CPU = [
    ("gcc-12", {"gcc": "12.3.0"}, ("compiler", "12.2.0", "12.3.0")),
    ("gcc-12", {"libgomp": "1.1.0"}, ("openmp", "1.0.0", "1.1.0")),
    ("gcc-12", {"kernel": "6.2.0"}, ("kernel", "6.1", "6.2")),
    ("torch-2.13", {"torch": "2.13.1"}, ("compiler", "2.13.0", "2.13.1")),
    (
        "openblas-0.3",
        {"openblas": "0.3.22 build 1"},
        ("compiler", "0.3.21 build 8c759e09", "0.3.22 build 1"),
    ),
    ("openblas-0.3", {"libgomp": "1.1.0"}, ("openmp", "1.0.0", "1.1.0")),
]


@pytest.mark.parametrize(("tool", "edit", "named"), CPU)
def test_each_version_alone_makes_a_row_stale(tool, edit, named):
    kept(tool)
    assert stale(changed(**edit)) == ({named}, [])


@pytest.mark.parametrize(("tool", "edit", "named"), CPU)
def test_the_lookup_for_a_described_machine_sees_the_same(tool, edit, named):
    found = kept(tool)
    folder = paths.machine_dir(found.hardware_id, found.limits_id)
    answer = Policy.load(machine=write_machine(folder, changed(**edit))).choose("decode", 64)
    assert answer.basis == "DEFAULT"
    assert "{} was {}, is {}".format(*named) in answer.why


@pytest.mark.parametrize(
    ("tool", "edit"),
    [
        ("gcc-12", {"torch": "9", "openblas": "9", "clang": "15.0.0", "python": "3.13"}),
        ("torch-2.13", {"gcc": "13.1.0", "libgomp": "2.0.0", "openblas": "9"}),
        ("openblas-0.3", {"gcc": "13.1.0", "torch": "9"}),
        ("gcc-12", {"kernel": "6.1.99"}),
    ],
)
def test_what_a_row_does_not_depend_on_makes_nothing_stale(tool, edit):
    kept(tool)
    assert stale(changed(**edit)) == (set(), [64, 1024])


def test_the_fields_tested_are_all_that_rows_depend_on():
    assert {named[0] for _, _, named in CPU} | {"source_hash"} == set(DEPENDS)
    assert {named[0] for _, named in GPU} | {"source_hash"} == set(device.DEPENDS)


def test_a_source_that_is_another_or_gone_is_named():
    found = kept()
    assert stale(found, {("decode", "made_up"): "ffff"}.items()) == ({("source_hash", SOURCE, "ffff")}, [])
    assert stale(found, {("decode", "other"): "ffff"}.items()) == ({("source_hash", SOURCE, GONE)}, [])
    assert stale(found, {("forward", "other"): "ffff"}.items()) == (set(), [64, 1024])  # its folder was not named


def test_the_lookup_at_load_sees_a_source_a_library_and_the_kernel(monkeypatch):
    kept("torch-2.13")
    monkeypatch.setattr(ranges, "installed", {"torch": "2.14.0"}.get)
    monkeypatch.setattr(ranges, "here_hash", lambda kernel, variant: "ffff")
    monkeypatch.setattr(site, "identify", lambda root: here(kernel="6.2"))
    why = Policy.load().choose("decode", 64).why
    for words in ("source_hash was 0123456789ab, is ffff", "compiler was 2.13.0, is 2.14.0", "kernel was 6.1, is 6.2"):
        assert words in why


GPU = [
    ({"cupy": "14.3.0"}, ("compiler", "14.2.0", "14.3.0")),
    ({"nvrtc": "12"}, ("nvrtc", "13", "12")),
    ({"driver": "590.10.01"}, ("driver", "580", "590")),
    ({"sm_count": 114}, ("sm_count", 132, 114)),
]


@pytest.mark.parametrize(("edit", "named"), GPU)
def test_each_field_of_a_gpu_alone_makes_a_row_stale(edit, named, tmp_path, monkeypatch):
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path))
    keep(tmp_path, monkeypatch)
    monkeypatch.setattr("advisor.kernels.gpu.device.installed", VERSIONS.get)
    found = machine_of(whole({}), gpu())
    assert stale(found)[0] == set()
    now = found._replace(environment=pairs({**dict(found.environment), **edit}))
    assert stale(now) == ({named}, [])


# --- which tables ---


def test_without_a_table_there_is_nothing_to_check():
    with pytest.raises(Missing) as caught:
        tables(CheckRequest(), machine())
    assert "make one: advisor tune" in str(caught.value)
    assert not {"allowed", "none"} & set(str(caught.value).replace("'", " ").split())
    with pytest.raises(Missing) as caught:
        tables(CheckRequest(device="cuda:1"), machine())
    assert "advisor tune --device cuda:1" in str(caught.value)
    found = kept()
    with pytest.raises(Missing) as caught:
        tables(CheckRequest(("forward",)), found)
    assert "allowed: decode" in str(caught.value)


def test_what_nobody_measured_here_is_not_checked():
    found = kept()
    path = os.path.join(paths.machine_dir(found.hardware_id, found.limits_id), "decode.table.json")
    os.unlink(path)
    made = tabling.table(environment=found.environment)
    origin = {"rung": "common", "machines": ["a"], "validated_regret": None, "why": "x", "models": 1, "ladder": []}
    carried = tuple(s._replace(extra=pairs({"basis": "TRANSFERRED", "origin": origin})) for s in made.sections)
    write(os.path.dirname(path), made._replace(sections=carried))
    with pytest.raises(Missing):
        tables(CheckRequest(), found)


def test_a_table_that_cannot_be_trusted_is_refused_and_once():
    found = kept()
    path = os.path.join(paths.machine_dir(found.hardware_id, found.limits_id), "forward.table.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{")
    known = tables(CheckRequest(), found)
    assert [name for name, _ in known.refused] == [path]
    assert not [note for note in known.notes if path in note]
    assert tables(CheckRequest(("decode",)), found).refused == ()
    whole_result = checking.Checked(("decode",), (), (), known.refused, 0, (), 0.0)
    assert whole_result.broken


def test_rows_of_all_process_parts_are_compared_and_told_together():
    found = machine(environment=pairs(ENVIRONMENT))
    one, four = tabling.choice(threads=1), tabling.choice(threads=4)
    passive = tabling.choice(threads=4, process=PASSIVE)
    made = learn(found, [race(n, {four: 4.0, one: 1.0, passive: 5.0}) for n in (64, 1024)], [], MADE)
    folder = paths.machine_dir(found.hardware_id, found.limits_id)
    write(folder, made)
    known = tables(CheckRequest(), found)
    rows, _ = compared(site_of(changed(libgomp="1.1.0"), {}), known)
    (told,) = rows
    assert (told.kernel, told.low, told.high, told.rows) == ("decode", 64, 1024, len(made.sections))
