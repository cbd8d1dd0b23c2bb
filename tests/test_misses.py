"""Lookup misses: counted only where asked for, bounded, written off the request path, and never in a request's way."""

import fcntl
import json
import os
import subprocess
import sys
import threading

import pytest
import tabling
from tabling import FOUR, MADE, ONE, SHAPE, here, machine, race, table, write, write_machine

import advisor
from advisor import gather, misses, paths, site
from advisor.lookup import Policy
from advisor.policy.learn import learn
from advisor.records import pairs

PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(advisor.__file__)))


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(site, "identify", lambda root: here())
    monkeypatch.setattr(site, "started_environment", lambda: {})
    monkeypatch.setattr(misses.Misses, "_start", lambda self: None)  # the tests write when they say so
    monkeypatch.delenv("ADVISOR_COUNT_MISSES", raising=False)
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(gather, "shipped_policies", lambda: str(tmp_path / "shipped"))


@pytest.fixture
def folder():
    found = paths.machine_dir(machine().hardware_id, machine().limits_id)
    os.makedirs(found)
    return found


def load(**asked):
    return Policy.load(count_misses=True, **asked)


def kept(folder):
    """What the file has: (kernel, why, dtype, shape) -> [(count, low, high), ...], ascending n."""
    counts, _ = misses.read(folder)
    found = {}
    for (kernel, dtype, _, shape, why, _), one in sorted(counts.items(), key=lambda item: item[1][misses.LOW]):
        found.setdefault((kernel, why, dtype, shape), []).append(tuple(one[:3]))
    return found


# --- what is counted ---


def test_n_outside_the_tuned_region_is_counted_by_powers_of_two(folder):
    write(folder, table())
    policy = load()
    for n in (64, 100, 4096, 32, 5000, 6000, 6000, 100_000):
        policy.choose("decode", n)
    assert policy.flush()
    key = ("decode", "n", "float32", pairs(SHAPE))
    assert kept(folder) == {key: [(1, 32, 32), (3, 5000, 6000), (1, 100_000, 100_000)]}


def test_kernels_and_shapes_without_a_table_are_counted_as_asked(folder):
    write(folder, table())
    policy = load()
    policy.choose("forward", 512, heads=4, dtype="float64")
    policy.choose("decode", 512, heads=7)
    policy.bind("mlp", d_model=64)(16)
    policy.choose("mlp", 17, d_model=64)
    policy.flush()
    assert kept(folder) == {
        ("forward", "kernel", "float64", (("heads", 4),)): [(1, 512, 512)],
        ("decode", "shape", None, (("heads", 7),)): [(1, 512, 512)],
        ("mlp", "kernel", None, (("d_model", 64),)): [(2, 16, 17)],
    }


@pytest.mark.parametrize("how", ["default", "use"])
def test_stale_rows_are_counted(folder, monkeypatch, how):
    write(folder, table())
    monkeypatch.setattr(site, "identify", lambda root: here(kernel="9.9"))
    policy = load(stale=how)
    assert policy.choose("decode", 100).basis == ("DEFAULT" if how == "default" else "STALE")
    policy.flush()
    assert [key[1] for key in kept(folder)] == ["stale"]


def test_what_other_machines_answer_is_counted(folder):
    origin = {"rung": "common", "machines": ["a"], "validated_regret": None, "why": "x", "models": 1, "ladder": []}
    made = table()
    sections = tuple(s._replace(extra=pairs({"basis": "TRANSFERRED", "origin": origin})) for s in made.sections)
    write(folder, made._replace(sections=sections))
    policy = load()
    assert policy.choose("decode", 100).basis == "TRANSFERRED"
    policy.flush()
    assert [key[1] for key in kept(folder)] == ["elsewhere"]


def test_a_part_of_the_machine_misses_what_the_whole_does_not_have(folder):
    write(folder, table())
    policy = load(instance=0, of=2)
    assert policy.choose("decode", 100).basis == "TRANSFERRED"
    policy.choose("decode", 100_000)
    policy.flush()
    assert [key[1] for key in kept(folder)] == ["n"]


@pytest.mark.parametrize("n", [0, -1, 1.5, float("nan"), float("inf"), None, "4096", 10**30, [1], {}, object()])
def test_what_is_no_n_is_no_miss_and_raises_nothing(folder, n):
    write(folder, table())
    policy = load()
    for ask in (policy.bind("decode"), policy.bind("no"), lambda m: policy.choose("decode", m)):
        assert ask(n).basis == "DEFAULT"
    policy.flush()
    assert kept(folder) == {}


def test_questions_that_no_tuning_could_answer_are_not_counted(folder):
    verdicts = [race(64, {FOUR: 4.0, ONE: 1.0}, heads=h) for h in (8, 32)]
    write(folder, learn(machine(), verdicts, [], MADE))
    policy = load()
    policy.choose("decode", 64)  # several tables fit
    policy.choose("../etc", 64)
    policy.choose("x" * 100, 64)
    policy.choose(["unhashable"], 64)
    policy.choose("decode", 64, heads="many")
    policy.choose("decode", 64, heads=10**30)
    policy.choose("decode", 64, **{f"a{i}": 1 for i in range(50)})
    policy.flush()
    assert kept(folder) == {}


def test_answers_are_the_same_with_and_without_counting(folder):
    write(folder, table())
    plain, counting = Policy.load(), load()
    bound = [one.bind("decode", **SHAPE) for one in (plain, counting)]
    for n in (0, 1, 63, 64, 65, 300, 4096, 4097, 10**9, "x", None, 1.5):
        assert plain.choose("decode", n) == counting.choose("decode", n) == bound[0](n) == bound[1](n)
        assert plain.best("decode", n) == counting.best("decode", n)
    assert plain.choose("decode", 64, causal=1) == counting.choose("decode", 64, causal=1)
    assert plain.notes == counting.notes


# --- bounds ---


def test_memory_and_file_are_bounded_and_the_rest_is_counted_together(folder):
    policy = load()
    for i in range(400):
        policy.choose("decode", 64, heads=i + 1)
    own = misses.of(folder)
    assert sum(map(len, own.counts.values())) == misses.MOST_KEYS == len(own.counts)
    policy.flush()
    ask = policy.bind("fused")
    for i in range(400):
        ask(64)
        policy.choose("forward", 64, heads=i + 1)
    policy.flush()
    counts, other = misses.read(folder)
    assert len(counts) == misses.MOST_KEYS
    assert sum(one[misses.COUNT] for one in counts.values()) + other == 1200
    assert max(one[misses.COUNT] for one in counts.values()) == 400  # what is asked most stays
    assert os.path.getsize(os.path.join(folder, misses.NAME)) < misses.MOST_BYTES


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": "advisor.misses/2.0"}', b"\xff" * 99, b"{}"])
def test_a_damaged_file_is_begun_anew(folder, content):
    path = os.path.join(folder, misses.NAME)
    with open(path, "wb") as file:
        file.write(content)
    policy = load()
    policy.choose("decode", 64)
    assert policy.flush()
    assert kept(folder) == {("decode", "kernel", None, ()): [(1, 64, 64)]}


def test_an_entry_that_makes_no_sense_is_not_believed(folder):
    one = {"kernel": "decode", "dtype": None, "regime": None, "shape": {}, "why": "n"}
    for figures in ({"count": -1, "low": 1, "high": 1}, {"count": 1, "low": 9, "high": 1}, {"count": 1, "low": "1"}):
        entry = {**one, "first": 0, "last": 0, "high": 1, **figures}
        with open(os.path.join(folder, misses.NAME), "w", encoding="utf-8") as file:
            json.dump({"schema": misses.SCHEMA, "misses": [entry], "other": 0}, file)
        assert misses.read(folder) == ({}, 0)


# --- nobody waits, nothing raises ---


def test_where_nothing_can_be_written_the_counts_stay(tmp_path):
    (tmp_path / "home").write_text("a file where the folder should be")
    policy = load()
    policy.choose("decode", 64)
    assert not policy.flush()
    policy.choose("decode", 65)
    (tmp_path / "home").unlink()
    assert policy.flush()
    folder = paths.machine_dir(machine().hardware_id, machine().limits_id)
    assert kept(folder) == {("decode", "kernel", None, ()): [(2, 64, 65)]}


def test_a_lock_that_another_process_holds_is_not_waited_for_long(folder):
    policy = load()
    with open(os.path.join(folder, f"{misses.NAME}.lock"), "w", encoding="utf-8") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert policy.choose("decode", 64).basis == "DEFAULT"
        assert not misses.of(folder).flush(0.05)
        policy.choose("decode", 64)
    assert policy.flush()
    assert kept(folder) == {("decode", "kernel", None, ()): [(2, 64, 64)]}


def test_many_threads_at_once(folder):
    policy, failed = load(), []

    def ask():
        try:
            for i in range(500):
                policy.choose("decode", 64 + i % 3)
                policy.bind("forward", heads=i % 7 + 1)(128)
                if i % 50 == 0:
                    policy.flush()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    policy.flush()
    assert failed == []
    counts, other = misses.read(folder)
    total = sum(one[misses.COUNT] for one in counts.values())
    assert 0.9 * 8000 <= total <= 8000  # two that count at one moment may count once
    assert other == 0


# --- only where it was asked for ---


def test_nothing_is_counted_unless_asked(folder, monkeypatch):
    assert type(Policy.load()) is Policy
    assert type(Policy.load(count_misses=False)) is Policy
    for value, counts in (("", False), ("0", False), ("1", True)):
        monkeypatch.setenv("ADVISOR_COUNT_MISSES", value)
        assert (type(Policy.load()) is not Policy) == counts
    assert type(Policy.load(count_misses=False)) is Policy
    assert Policy.load(count_misses=False).flush()
    assert type(load(machine=write_machine(folder, machine()))) is Policy  # of another machine there is nothing to tune


def test_a_machine_that_cannot_be_told_counts_nothing(monkeypatch):
    def fails(root):
        raise RuntimeError("odd /sys")

    monkeypatch.setattr(site, "identify", fails)
    assert type(load()) is Policy


# --- real processes ---

ASK = """
import os, sys, time
sys.path.insert(0, {parent!r})
from advisor.lookup import Policy
policy = Policy.load({asked})
for _ in range(10):
    policy.choose("decode", n=64)
"""


def ran(code, home, asked="count_misses=True"):
    environment = {**os.environ, "ADVISOR_HOME": str(home)}
    environment.pop("ADVISOR_COUNT_MISSES", None)
    text = ASK.format(parent=PACKAGE_PARENT, asked=asked) + code
    words = [sys.executable, "-I", "-S", "-c", text]
    done = subprocess.run(words, capture_output=True, env=environment, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def counted(home):
    """Lookups in the only machine's file."""
    (folder,) = (home / "machines").iterdir()
    counts, other = misses.read(str(folder))
    return sum(one[misses.COUNT] for one in counts.values()) + other


def test_a_process_that_was_not_asked_has_no_thread_no_file_and_loads_nothing(tmp_path):
    code = "print(len(os.listdir('/proc/self/task')), 'advisor.misses' in sys.modules)"
    assert ran(code, tmp_path / "h", asked="").split() == ["1", "False"]
    assert not (tmp_path / "h").exists()


WAIT = """
until = time.monotonic() + 20
while not os.path.exists({path!r}) and time.monotonic() < until:
    time.sleep(0.05)
os._exit(0)
"""


def test_the_end_of_a_process_writes_and_a_thread_does_before(tmp_path):
    ran("", tmp_path / "h")
    assert counted(tmp_path / "h") == 10
    (folder,) = (tmp_path / "h" / "machines").iterdir()
    path = tmp_path / "other" / "machines" / folder.name / misses.NAME
    ran(WAIT.format(path=str(path)), tmp_path / "other")
    assert counted(tmp_path / "other") == 10


FORKS = """
children = []
for _ in range(64):
    pid = os.fork()
    if not pid:
        for _ in range(100):
            policy.choose("decode", n=64)
        os._exit(0 if policy.flush() else 1)
    children.append(pid)
print(sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
"""


def test_sixty_four_forked_processes_at_once_lose_nothing_and_count_nothing_twice(tmp_path):
    assert ran(FORKS, tmp_path / "h").split() == ["0"]
    assert counted(tmp_path / "h") == 10 + 64 * 100


def test_a_child_of_a_fork_has_a_writer_of_its_own(tmp_path):
    code = """
policy.flush()
if not os.fork():
    before = len(os.listdir('/proc/self/task'))
    policy.choose("decode", n=64)
    print(before, len(os.listdir('/proc/self/task')), flush=True)
    os._exit(0)
os.wait()
"""
    assert ran(code, tmp_path / "h").split() == ["1", "2"]


def test_counted_lookups_load_no_third_party_module(tmp_path):
    code = "print(sorted(n for n in sys.modules if 'site-packages' in (getattr(sys.modules[n], '__file__', '') or '')))"
    assert ran(code, tmp_path / "h").strip() == "[]"


def test_the_made_up_table_is_the_one_that_answers(folder):
    """So that the misses above are misses of something."""
    write(folder, tabling.table())
    assert load().choose("decode", 64).basis == "EXACT"


def test_a_shape_that_a_rule_answers_is_no_miss(folder):
    shapes = [{**SHAPE, "heads": heads} for heads in (8, 16, 32)]
    races = [race(n, {FOUR: 4.0, ONE: 1.0}, **shape) for n in (64, 1024) for shape in shapes]
    write(folder, learn(machine(), races, [], MADE))
    policy = load()
    for heads, n in ((24, 100), (24, 5000), (64, 100)):
        policy.choose("decode", n, **{**SHAPE, "heads": heads})
    by_rule = policy.choose("decode", 100, **{**SHAPE, "heads": 24})
    policy.flush()
    missed = {(dict(key[3])["heads"], low) for key, found in kept(folder).items() for _, low, _ in found}
    assert missed == {(24, 5000), (64, 100)} | (set() if by_rule.basis == "INTERPOLATED" else {(24, 100)})
