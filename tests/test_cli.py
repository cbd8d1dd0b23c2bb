"""The command as a hostile user meets it: exit statuses, streams, environments, signals."""

from __future__ import annotations

import json
import os
import random
import signal
import time

import pytest
from commanding import SCALE, Site, workers_of

TUNE = ("tune", *SCALE, "--n", "64", "--quick", "--budget", "8s")
LONG = ("tune", *SCALE, "--n", "64,128,256,512", "--budget", "60s")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def site(tmp_path, cache):
    return Site(str(tmp_path / "home"), cache)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, cache):
    """A site with one table; tests that use it change nothing."""
    found = Site(str(tmp_path_factory.mktemp("tuned")), cache)
    done = found.advisor(*TUNE)
    assert done.status == 0, done.err
    return found


def refused(done):
    """Status 1, no results, one line that is no traceback."""
    assert done.status == 1, done
    assert done.out == ""
    (line,) = [line for line in done.err.splitlines() if line.startswith("advisor: ")]
    assert "Traceback" not in done.err
    return line


# --- wrong values ---


@pytest.mark.parametrize(
    "words",
    [
        ("tune", "--n", "1..1" + "0" * 5000),
        ("tune", "--budget", ""),
        ("tune", "--budget", "9" * 400),
        ("tune", "--budget", "0"),
        ("tune", "--n", "1000000000000"),
        ("tune", "--compilers", "icc"),
        ("tune", "--kernel-dir", "/nonexistent"),
        ("recommend", "--n", "256", "--format", "xml", "--json"),
        ("recommend", "--n", "256", "--machine", "/dev/null"),
        ("verify", "--n", ""),
        ("verify", "--n", "1000000000000"),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_a_wrong_value_is_refused_in_one_line(site, words):
    refused(site.advisor(*words))


def test_wrong_usage_is_status_2(site):
    assert site.advisor("tune", "--nonsense").status == 2
    assert site.advisor("tune", "--seed", "-1").status == 2


def test_a_shell_is_never_given_several_answers(tuned):
    asked = ("recommend", "--kernel", "scale", "--format", "env", "--n")
    assert "export OMP_NUM_THREADS=" in tuned.advisor(*asked, "64").out
    assert "2 answers" in refused(tuned.advisor(*asked, "64,128"))


def test_a_kernel_is_known_by_its_table_and_by_its_folder(tuned):
    done = tuned.advisor("recommend", "--kernel", "scale", "--n", "64", "--json")
    (answer,) = json.loads(done.out)["answers"]
    assert answer["basis"] == "EXACT"
    assert "no such kernel" in refused(tuned.advisor("recommend", "--kernel", "scales", "--n", "64"))


# --- streams ---


@pytest.mark.parametrize("words", ["probe", "recommend --n 64 --json"])
@pytest.mark.parametrize("stream", ["2>/dev/full", "<&- >&- 2>&-"])
def test_closed_streams_change_no_status(tuned, words, stream):
    done = tuned.shell(f"$ADVISOR {words} {stream}")
    assert (done.status, done.err) == (0, "")


def test_a_full_disk_at_standard_output_is_one_line(tuned):
    assert "No space left" in refused(tuned.shell("$ADVISOR probe > /dev/full"))


def test_a_reader_that_leaves_sees_no_traceback(tuned):
    assert tuned.shell("$ADVISOR recommend --n 64 | true").err == ""


@pytest.mark.parametrize("stream", ["<&- >&- 2>&-", "2> >(true)"])
def test_a_run_does_not_end_because_nobody_listens(site, stream):
    line = "$ADVISOR tune --kernel scale --kernel-dir $DIR --n 64 --quick --budget 2s"
    done = site.shell(f"{line} {stream}", DIR=SCALE[-1])
    assert done.status in (0, 3)
    assert any(record["kind"] == "trial" for record in site.log())


def test_any_terminal_can_show_the_results(site):
    done = site.advisor(*TUNE, PYTHONIOENCODING="latin-1", COLUMNS="40", TERM="dumb", LC_ALL="C")
    assert done.status == 0, done.err
    assert done.out.isascii()


# --- environments ---


@pytest.mark.parametrize("place", ["/proc", "/etc/passwd"])
def test_a_home_that_cannot_be_written_to_ends_no_lookup(site, place):
    broken = site._replace(home=place)
    assert "ADVISOR_HOME" in refused(broken.advisor(*TUNE))
    assert broken.advisor("recommend", "--n", "64").status == 0
    assert "could not be kept" in broken.advisor("probe").err
    done = broken.advisor("doctor", "--json")
    assert done.status == 1
    assert any("ADVISOR_HOME" in finding["remedy"] for finding in json.loads(done.out)["findings"])


def test_a_cache_that_cannot_be_made_ends_no_lookup(site):
    broken = site._replace(cache="/dev/null/x")
    assert "ADVISOR_CACHE" in refused(broken.advisor(*TUNE))
    assert broken.advisor("recommend", "--n", "64").status == 0
    assert broken.advisor("doctor").status == 1


@pytest.mark.parametrize("limit", ["-n 8", "-f 1"])
def test_a_limit_of_the_shell_is_one_line(site, limit):
    line = f"ulimit {limit}; $ADVISOR tune --kernel scale --kernel-dir $DIR --n 64 --quick --budget 2s"
    assert refused(site.shell(line, DIR=SCALE[-1])), "which limit is met first depends on what is installed"


# --- signals ---


@pytest.mark.parametrize(("number", "after"), [(signal.SIGINT, 1.2), (signal.SIGINT, 3.5), (signal.SIGTERM, 2.5)])
def test_a_polite_signal_keeps_all_and_leaves_nobody(site, number, after):
    running = site.start(*LONG, "--json")
    time.sleep(after)
    os.killpg(running.pid, number)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 3, err
    assert "Traceback" not in err
    assert "interrupted" in err
    assert not out or json.loads(out)["interrupted"]
    assert _left(running.pid) == []


def _killed(site, seconds):
    running = site.start(*LONG, "--resume")
    time.sleep(seconds)
    running.kill()
    running.communicate(timeout=60)
    return _left(running.pid)


def _left(pid):
    """Workers that outlive their tuner: one that was just being started is ended by the kernel, moments later."""
    until = time.monotonic() + 20
    while workers_of(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return workers_of(pid)


def _resumed(site):
    """A resumed run ends well, and looks at nothing twice."""
    done = site.advisor("tune", *SCALE, "--n", "64,128,256,512", "--quick", "--budget", "3s", "--resume", "--json")
    assert done.status in (0, 3), done.err
    first = [r for r in site.log() if r.get("phase") in ("search", "nearby")]
    looks = [(r["choice_id"], r["measurement"]["problem"]["n"]) for r in first]
    assert len(set(looks)) == len(looks) > 0
    assert sum(json.loads(done.out)["trials"].values()) == len(looks)


def test_a_killed_tuner_leaves_a_log_to_go_on_from(site):
    chance = random.Random(1)
    for _ in range(5):
        assert _killed(site, chance.uniform(0.5, 2.5)) == []
    _resumed(site)


@pytest.mark.soak
def test_a_hundred_killed_tuners_leave_a_log_to_go_on_from(site):
    chance = random.Random(2)
    for _ in range(100):
        assert _killed(site, chance.uniform(0.3, 4.0)) == []
    _resumed(site)


def test_a_killed_worker_ends_one_trial_and_not_the_run(site):
    running = site.start("tune", *SCALE, "--n", "64,128", "--quick", "--budget", "3s", "--json")
    until, killed = time.monotonic() + 20, 0
    while not killed and time.monotonic() < until and running.poll() is None:
        for worker in workers_of(running.pid)[:1]:
            os.kill(worker, signal.SIGKILL)
            killed += 1
        time.sleep(0.02)
    out, err = running.communicate(timeout=60)
    assert killed
    assert running.returncode in (0, 3), err
    assert json.loads(out)["trials"]["ok"] > 0


def test_the_second_tuner_waits_and_nothing_is_lost(site):
    first = site.start(*TUNE, "--json")
    time.sleep(0.1)
    second = site.start("tune", *SCALE, "--n", "96", "--quick", "--budget", "8s", "--json")
    errors = [running.communicate(timeout=60)[1] for running in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), errors
    assert any("waiting: another tuner" in text for text in errors)
    with open(site.file("scale.table.json"), encoding="utf-8") as file:
        table = json.load(file)
    assert {n for section in table["sections"] for n in section["tuned_n"]} == {64, 96}
