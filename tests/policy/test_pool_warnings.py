"""Case N-05: what was wrong with the thread pools of a choice's process goes with its row, and with the answer."""

import os

import pytest
from tabling import FOUR, MADE, ONE, here, look, machine, race, write

from advisor import codec, gather, linked, paths, site, tablefile
from advisor.errors import BadInput
from advisor.lookup import Policy
from advisor.policy.learn import learn
from advisor.records import Table, pairs

SAID = "2 thread pools in one process compete: libgomp with 4 (libgomp.so.1), openblas with 4 (libopenblasp.so)"


def learned(said=(SAID,)):
    """FOUR wins from n = 1024 on, and its first look there was in a process with two pools."""
    finals = [race(64, {FOUR: 4e3, ONE: 1e3}), race(1024, {FOUR: 1e4, ONE: 2e4}), race(4096, {FOUR: 3e4, ONE: 6e4})]
    crowded = look(1024, FOUR, 1e4)._replace(conditions=pairs({"pool_warnings": said}))
    return learn(machine(), finals, [look(64, ONE, 1e3), crowded], MADE)


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setattr(site, "identify", lambda root: here())
    monkeypatch.setattr(site, "started_environment", lambda: {})
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(gather, "shipped_policies", lambda: str(tmp_path / "shipped"))
    folder = paths.machine_dir(machine().hardware_id, machine().limits_id)
    os.makedirs(folder)
    return folder


def test_n05_a_row_carries_them_through_its_file():
    made = learned()
    one, four = made.sections[0].rows
    assert [dict(point.extra).get("pools") for point in four.points if point.n == 1024] == [(SAID,)]
    assert not any("pools" in dict(point.extra) for point in one.points)
    document = codec.loads(codec.dumps(made, "table"))
    assert codec.from_json(Table, {name: value for name, value in document.items() if name != "schema"}) == made


def test_n05_every_answer_of_the_row_warns_and_no_other(home):
    write(home, learned())
    policy = Policy.load()
    assert policy.choose("decode", 64).warnings == ()
    assert [policy.choose("decode", n).warnings for n in (1024, 2000, 4096)] == [(SAID,)] * 3
    assert policy.choose("decode", 10**6).warnings == ()


def test_n05_a_table_with_something_else_there_is_refused(home):
    path = write(home, learned())
    document = tablefile.read_json(path)
    for point in document["sections"][0]["rows"][1]["points"]:
        point["pools"] = "many"
    with pytest.raises(BadInput, match="pools"):
        tablefile.check_table(document)


def test_an_answer_that_calls_openblas_warns_of_a_core_that_is_forced_on_it(home, monkeypatch):
    monkeypatch.setattr(linked, "version", lambda library: "0.3.21 build aa")
    blas = FOUR._replace(build=FOUR.build._replace(compiler="openblas-0.3"))
    write(home, learn(machine(), [race(64, {blas: 4e3, ONE: 1e3}), race(1024, {blas: 1e4, ONE: 2e4})], [], MADE))
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    assert [Policy.load().choose("decode", n).warnings for n in (64, 1024)] == [(), ()]
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    policy = Policy.load()
    assert policy.choose("decode", 64).warnings == ()
    (said,) = policy.choose("decode", 1024).warnings
    assert "OPENBLAS_CORETYPE is Nehalem" in said
