"""Faults met by the whole command with real workers: crashing and wrong variants (A-01, A-03), no home (A-09)."""

from __future__ import annotations

import json
import os
import random
import shutil
import time

import pytest
from commanding import SCALE, Site

DATA = os.path.dirname(SCALE[-1])


@pytest.fixture
def site(tmp_path, tmp_path_factory):
    return Site(str(tmp_path / "home"), str(tmp_path_factory.getbasetemp() / "faults-cache"))


BROKEN = ("segfault_64", "error_code")
WRONG = ("wrong_tail", "nan_odd", "lazy")


@pytest.fixture(scope="module")
def among_broken(tmp_path_factory):
    """A tune of two right variants beside broken and wrong ones that would be faster: its log, and what it printed."""
    folder = tmp_path_factory.mktemp("among-broken")
    for name in (*BROKEN, *WRONG):
        shutil.copy(os.path.join(DATA, "variants", f"{name}.c"), folder)
    site = Site(str(folder / "home"), str(tmp_path_factory.getbasetemp() / "faults-cache"))
    done = site.advisor(
        *("tune", *SCALE, "--kernel-dir", str(folder), "--n", "33,64", "--budget", "9s", "--quick", "--json")
    )
    assert done.status in (0, 3), done.err  # 3: on a crowded machine one size may have got no race
    looks = [record["measurement"] for record in site.log() if record.get("phase") in ("search", "nearby")]
    return looks, json.loads(done.out)


def ended(looks):
    """(variant, n, status) of first looks."""
    return {(look["choice"]["build"]["variant"], look["problem"]["n"], look["status"]) for look in looks}


def test_a01_a_crash_and_a_poisoned_process_fail_alone_and_the_sound_variant_wins(among_broken):
    looks, document = among_broken
    found = ended(looks)
    assert not {one for one in found if one[1] == 33 and one[2] == "crashed"}
    failed = {name for name, n, status in found if (n, status) == (64, "crashed")}
    assert failed <= set(BROKEN)
    assert failed, "neither was looked at"
    for name in failed:
        assert any(note.startswith(f"{name}: ") and "crashed at n = 64" in note for note in document["notes"])
    if "segfault_64" in failed:
        assert any("SIGSEGV" in note for note in document["notes"])
    winners = {best["n"]: best["choice"]["build"]["variant"] for best in document["best"]}
    assert winners.get(64, "plain") in ("plain", "rows")


def test_a03_wrong_results_are_disqualified_with_their_error_and_a_right_variant_wins(among_broken):
    looks, document = among_broken
    wrong = [look for look in looks if look["choice"]["build"]["variant"] in WRONG]
    assert wrong, "none was looked at"
    for look in wrong:
        name = look["choice"]["build"]["variant"]
        assert (look["status"], look["samples_ns"]) == ("wrong", [])
        assert any(note.startswith(f"{name}: ") and " wrong at n = " in note for note in document["notes"])
        if name == "wrong_tail":
            assert look["error"] > look["tolerance"]
    assert {best["choice"]["build"]["variant"] for best in document["best"]} <= {"plain", "rows"}


@pytest.mark.parametrize("home", [None, "/"])
def test_a09_without_a_home_the_command_works_and_says_where_it_keeps_things(site, tmp_path, home):
    spare, here = tmp_path / "spare", tmp_path / "here"
    spare.mkdir()
    here.mkdir(mode=0o555)
    changes = {"HOME": home, "ADVISOR_HOME": None, "ADVISOR_CACHE": None, "TMPDIR": str(spare), "XDG_DATA_HOME": None}
    done = site.shell(f"cd {here} && $ADVISOR probe && $ADVISOR recommend --n 64", XDG_CACHE_HOME=None, **changes)
    assert done.status == 0, done.err
    assert f"results are kept in {spare}/advisor-{os.getuid()}" in done.err
    assert os.listdir(here) == []


def finals(site):
    """n -> (the winner, how each choice stood) of the last final race."""
    found = {}
    for record in site.log():
        if record["kind"] == "verdict" and record["verdict"]["purpose"] == "final":
            verdict = record["verdict"]
            stood = {json.dumps(one["choice"]): one["outcome"] for one in verdict["standings"]}
            found[verdict["problem"]["n"]] = json.dumps(verdict["winner"]), stood
    return found


@pytest.mark.soak
def test_a_real_tune_that_is_killed_and_resumed_differs_only_where_the_race_called_a_tie(site, tmp_path):
    words = ("tune", *SCALE, "--n", "64,4096", "--json")
    assert site.advisor(*words).status == 0
    other, chance = site._replace(home=str(tmp_path / "other")), random.Random(3)
    for _ in range(5):
        running = other.start(*words, "--resume")
        time.sleep(chance.uniform(1.0, 6.0))
        running.kill()
        running.communicate(timeout=60)
    assert other.advisor(*words, "--resume").status == 0
    whole, resumed = finals(site), finals(other)
    assert whole.keys() == resumed.keys() == {64, 4096}
    for n, (winner, stood) in whole.items():
        again, stood_again = resumed[n]
        assert winner == again or "tie" in (stood.get(again), stood_again.get(winner)), n
