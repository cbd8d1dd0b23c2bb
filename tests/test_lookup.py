"""The lookup: right answers inside, honest ones outside, and never an exception in a server."""

import json
import os

import pytest
import tabling
from tabling import FOUR, MADE, ONE, PASSIVE, SHAPE, SPIN, TWO, choice, here, machine, race, table, write, write_machine

from advisor import gather, paths, site, tablefile
from advisor.errors import BadInput, Missing
from advisor.lookup import Policy
from advisor.policy.learn import Beside, learn, with_heldout
from advisor.records import pairs
from advisor.topology.placement import evaluate
from advisor.tuning_result import best_section

ODD = [0, -1, 1.5, float("nan"), float("inf"), None, "4096", 10**30, True, [1], {}, object()]


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(site, "identify", lambda root: here())
    monkeypatch.setattr(site, "started_environment", lambda: {})
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(gather, "shipped_policies", lambda: str(tmp_path / "shipped"))


@pytest.fixture
def home():
    folder = paths.machine_dir(machine().hardware_id, machine().limits_id)
    os.makedirs(folder)
    return folder


def running(monkeypatch, **variables):
    monkeypatch.setattr(site, "started_environment", lambda: variables)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


# --- inside the tuned region ---


def test_a_tuned_n_is_exact_and_has_figures(home):
    write(home, table())
    policy = Policy.load()
    answer = policy.choose("decode", 64)
    assert policy.notes == ()
    assert (answer.basis, answer.threads, answer.cpus, answer.in_tuned_region) == ("EXACT", 1, (0,), True)
    assert answer.expected_ns == 1000.0 == answer.estimate(64)
    assert answer.ci95_ns == (990.0, 1010.0)
    assert answer.spread == pytest.approx(1.5)
    assert answer.gain == pytest.approx(4.0)
    assert (answer.shape, answer.dtype, answer.regime) == (SHAPE, "float32", "warm")
    assert (answer.table_id, answer.hardware_id) == (table().table_id, "hw0000000001")
    assert answer.fragility is None
    assert "n = 64" in answer.why


def test_between_tuned_n_the_row_holds_and_the_time_is_an_estimate(home):
    write(home, table())
    choose = Policy.load().choose
    answer = choose("decode", 128)
    assert (answer.basis, answer.threads, answer.expected_ns, answer.gain) == ("INTERPOLATED", 1, None, None)
    assert answer.estimate(128) == pytest.approx(2000.0)
    assert choose("decode", 900).threads == 4


@pytest.mark.parametrize("n", [1, 63, 4097, 100000, 10**30, 0, -5])
def test_outside_the_tuned_region_the_default_answers(home, n):  # case A-07
    write(home, table())
    answer = Policy.load().choose("decode", n)
    assert (answer.basis, answer.in_tuned_region, answer.expected_ns) == ("DEFAULT", False, None)
    assert (answer.variant, answer.threads) == (FOUR.build.variant, 4)
    assert "outside the tuned region 64..4096" in answer.why
    assert answer.estimate(n) is None


def test_between_keys_the_rule_is_by_ratio_and_always_the_same(home):  # case A-07
    verdicts = [race(128, {FOUR: 9.0, ONE: 1.0}), race(256, {FOUR: 9.0, ONE: 1.0}), race(512, {FOUR: 1.0, ONE: 9.0})]
    write(home, learn(machine(), verdicts, [], MADE))
    choose = Policy.load().choose
    border = round((256 * 512) ** 0.5)  # as much faster at one end as slower at the other: the geometric mean
    assert [choose("decode", n).threads for n in (300, border - 2, border + 2, 384)] == [1, 1, 4, 4]
    assert choose("decode", 300) is choose("decode", 300)
    assert {choose("decode", n).basis for n in (1, 600, 100000)} == {"DEFAULT"}


def test_numbers_as_text_are_refused(home):  # case A-07
    path = write(home, table())
    rewrite(path, lambda d: d["sections"][0].update(tuned_n=["64", "4096"]))
    policy = Policy.load()
    assert policy.choose("decode", 64).basis == "DEFAULT"
    assert "tuned_n" in policy.notes[0]


def test_every_n_answers_what_the_row_says(home):
    made = table()
    write(home, made)
    ask = Policy.load().bind("decode", **SHAPE, dtype="float32")
    for n in range(60, 4100):
        row = next((r for r in made.sections[0].rows if r.low <= n <= r.high), None)
        answer = ask(n)
        assert answer.threads == (row.choice.team.threads if row else 4)
        assert (answer.basis == "EXACT") == (n in made.sections[0].tuned_n)
        assert answer.in_tuned_region == (64 <= n <= 4096)


def test_the_regret_bound_is_the_worst_heldout(home):
    write(home, with_heldout(table(), [race(128, {ONE: 110.0, FOUR: 100.0}, "heldout")]))
    policy = Policy.load()
    assert policy.choose("decode", 128).regret_bound == pytest.approx(1.1)
    assert policy.choose("decode", 10**6).regret_bound is None


def test_answers_cannot_be_spoilt_by_a_caller(home):
    write(home, table())
    answer = Policy.load().choose("decode", 64)
    answer.shape["heads"] = 1
    answer.knobs["x"] = 1
    assert answer.shape == SHAPE
    with pytest.raises(AttributeError):
        answer.threads = 99


# --- axes ---


def two_shapes(folder):
    verdicts = [race(64, {FOUR: 4.0, ONE: 1.0}, heads=h) for h in (8, 32)]
    write(folder, learn(machine(), verdicts, [], MADE))


def test_missing_axes_must_be_unique(home):
    two_shapes(home)
    policy = Policy.load()
    assert policy.choose("decode", 64, heads=8).basis == "EXACT"
    assert policy.choose("decode", 64, heads=8, dtype="float32", regime="warm").shape["heads"] == 8
    answer = policy.choose("decode", 64)
    assert (answer.basis, answer.variant, answer.threads) == ("DEFAULT", "made_up", 4)
    assert "name more axes" in answer.why
    assert "heads=8" in answer.why


@pytest.mark.parametrize("axes", [{"heads": 7}, {"head_dims": 128}, {"dtype": "float16"}, {"heads": [1]}, {"self": 1}])
def test_axes_that_no_table_has_answer_default(home, axes):
    two_shapes(home)
    policy = Policy.load()
    for answer in (policy.choose("decode", 64, **axes), policy.bind("decode", **axes)(64)):
        assert (answer.basis, answer.variant, answer.threads, answer.cpus) == ("DEFAULT", None, 4, (0, 1, 2, 3))
        assert answer.why


def test_the_problems_can_be_listed_and_asked(home):
    two_shapes(home)
    policy = Policy.load()
    found = policy.problems("decode")
    assert [axes["heads"] for axes in found] == [8, 32]
    assert all(policy.choose(n=64, **axes).basis == "EXACT" for axes in found)
    assert policy.problems("forward") == ()


@pytest.mark.parametrize("n", ODD)
def test_no_n_raises(home, n):
    write(home, table())
    policy = Policy.load()
    for ask in (policy.bind("decode"), policy.bind("nothing"), lambda m: policy.choose("decode", m, heads=32)):
        answer = ask(n)
        assert answer.basis == "DEFAULT"
        assert set(answer.cpus) <= {0, 1, 2, 3}
    assert policy.choose(["unhashable"], n).basis == "DEFAULT"


def test_odd_callers_cannot_fill_the_memory(home):
    write(home, table())
    policy = Policy.load()
    for i in range(3000):
        policy.choose("decode", 64, heads=i)
    assert len(policy._known) <= 1100


# --- no table, another machine, a changed machine ---


def test_without_any_table_the_careful_rule_answers():
    policy = Policy.load()
    answer = policy.choose("decode", 4096)
    assert (answer.basis, answer.variant, answer.threads, answer.cpus) == ("DEFAULT", None, 4, (0, 1, 2, 3))
    assert "no table" in answer.why
    assert len(policy.notes) == 1


def test_a_machine_that_cannot_be_read_still_answers(monkeypatch):
    def fails(root):
        raise RuntimeError("odd /sys")

    monkeypatch.setattr(site, "identify", fails)
    policy = Policy.load()
    answer = policy.choose("decode", 4096)
    assert answer.basis == "DEFAULT"
    assert set(answer.cpus) <= os.sched_getaffinity(0)
    assert "odd /sys" in policy.notes[0]


def edit_cpus(m):
    return m._replace(hardware_id="hwB", array=tabling.array(16), allowed_cpus=tuple(range(16)))


def edit_isa(m):
    return m._replace(hardware_id="hwC", isa=("avx2",))


def edit_limits(m):
    return m._replace(limits_id="lmB", allowed_cpus=(0, 1))


def edit_environment(m, **changes):
    return m._replace(environment=pairs({**dict(m.environment), **changes}))


def edit_compiler(m):
    return edit_environment(m, gcc="12.3.0", kernel="6.1.9")


def edit_library(m):
    return edit_environment(m, libgomp="1.1.0")


def edit_kernel(m):
    return edit_environment(m, kernel="6.2.0")


EDITS = [
    (edit_cpus, "array socket=1 core=4 smt=1, here socket=1 core=16 smt=1"),
    (edit_isa, "avx512f"),
    (edit_limits, "4 allowed CPUs, here 2"),
    (edit_compiler, "compiler was 12.2.0, is 12.3.0"),
    (edit_library, "openmp was 1.0.0, is 1.1.0"),
    (edit_kernel, "kernel was 6.1, is 6.2"),
]


@pytest.mark.parametrize(("edit", "named"), EDITS)
def test_each_edit_of_the_machine_is_a_miss_that_names_the_field(tmp_path, edit, named):  # case A-06
    folder = tmp_path / "made"
    folder.mkdir()
    write(folder, table())
    write_machine(folder, machine())
    (tmp_path / "now").mkdir()
    now = write_machine(tmp_path / "now", edit(machine()))
    policy = Policy.load(folder, machine=now)
    answer = policy.choose("decode", 64)
    assert answer.basis == "DEFAULT"
    assert answer.expected_ns is None
    assert named in answer.why
    assert set(answer.cpus) <= set(edit(machine()).allowed_cpus)


def test_variants_are_stored_by_name_never_by_position(home):  # case A-06
    path = write(home, table())
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    for row in document["sections"][0]["rows"]:
        assert row["choice"]["build"]["variant"] == "made_up"


def test_a_changed_source_is_stale_and_can_be_used_on_demand(home, monkeypatch):
    write(home, table())
    monkeypatch.setattr("advisor.ranges.here_hash", lambda kernel, variant: "ffffffffffff")
    answer = Policy.load().choose("decode", 64)
    assert (answer.basis, answer.in_tuned_region, answer.threads) == ("DEFAULT", True, 4)
    assert "source_hash was 0123456789ab, is ffffffffffff" in answer.why
    used = Policy.load(stale="use")
    for n in (64, 128):
        assert (used.choose("decode", n).basis, used.choose("decode", n).threads) == ("STALE", 1)
        assert "source_hash" in used.choose("decode", n).why


def test_a_kernel_patch_level_is_not_stale(home, monkeypatch):
    monkeypatch.setattr(site, "identify", lambda root: here(kernel="6.1"))
    write(home, table())
    assert Policy.load().choose("decode", 64).basis == "EXACT"
    monkeypatch.setattr(site, "identify", lambda root: here(kernel="6.18"))
    assert "kernel was 6.1, is 6.18" in Policy.load().choose("decode", 64).why


def test_a_shipped_table_serves_and_an_own_one_goes_first(tmp_path, home):
    folder = tmp_path / "shipped" / "four-cores"
    folder.mkdir(parents=True)
    write(folder, table())
    write_machine(folder, machine())
    assert Policy.load().choose("decode", 64).basis == "EXACT"
    write(home, learn(machine(), [race(64, {FOUR: 1.0, ONE: 9.0})], [], MADE))
    assert Policy.load().choose("decode", 64).threads == 4


def test_no_process_part_of_a_shipped_table_answers_beside_an_own_table(tmp_path, home):
    folder = tmp_path / "shipped" / "four-cores"
    folder.mkdir(parents=True)
    passive = FOUR._replace(process=PASSIVE)
    write(folder, learn(machine(), [race(64, {passive: 1.0, ONE: 9.0})], [], MADE))
    write_machine(folder, machine())
    assert Policy.load().best("decode", 64).wait_policy == "passive"
    write(home, learn(machine(), [race(64, {TWO: 1.0, ONE: 9.0})], [], MADE))
    assert Policy.load().best("decode", 64).threads == 2


def test_a_shipped_table_for_other_limits_answers_default(tmp_path):
    folder = tmp_path / "shipped" / "four-cores"
    folder.mkdir(parents=True)
    other = machine(limits_id="lmB", cpu_quota=2.0)
    write(folder, table(limits_id="lmB"))
    write_machine(folder, other)
    answer = Policy.load().choose("decode", 64)
    assert answer.basis == "DEFAULT"
    assert "other limits" in answer.why
    assert "CPU budget 2, here 4" in answer.why


# --- broken files ---


def rewrite(path, change, sign=True):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    change(document)
    if sign:
        document["table_id"] = tablefile.content_id(document)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)


BREAKS = {
    "hand-edited": (lambda d: d["sections"][0]["rows"][0].update(high=200), False, "changed after it was written"),
    "newer major": (lambda d: d.update(schema="advisor.table/2.0"), True, "newer advisor"),
    "other artefact": (lambda d: d.update(schema="advisor.machine/1.0"), True, "advisor table"),
    "negative time": (
        lambda d: d["sections"][0]["rows"][0]["points"][0]["summary"].update(p25_ns=-1),
        True,
        "above zero",
    ),
    "overlapping rows": (lambda d: d["sections"][0]["rows"][1].update(low=70), True, "exactly one row"),
    "no rows": (lambda d: d["sections"][0].pop("rows"), True, "misshapen"),
    "a number for a section": (lambda d: d.update(sections=[1]), True, "misshapen"),
    "no threads": (lambda d: d["sections"][0]["rows"][0]["choice"]["team"].update(threads=0), True, "threads"),
    "no process in a choice": (
        lambda d: [row["choice"].pop("process") for row in d["sections"][0]["rows"]],
        True,
        "refused",
    ),
    "command for a variant": (lambda d: d["sections"][0]["rows"][0]["choice"]["build"].update(variant=7), True, "text"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_spoilt_table_answers_default_and_says_why_once(home, name):
    change, sign, reason = BREAKS[name]
    rewrite(write(home, table()), change, sign)
    policy = Policy.load()
    answer = policy.choose("decode", 64)
    assert (answer.basis, answer.threads, answer.variant) == ("DEFAULT", 4, None)
    assert len(policy.notes) == 1
    assert reason in policy.notes[0]
    assert reason in answer.why


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"NaN", b'{"schema": NaN}', b"[" * 100000])
def test_rubbish_answers_default_and_says_why_once(home, content):
    with open(os.path.join(home, "decode.table.json"), "wb") as file:
        file.write(content)
    policy = Policy.load()
    assert policy.choose("decode", 64).basis == "DEFAULT"
    assert len(policy.notes) == 1


def test_a_broken_table_does_not_hide_a_good_one(home):
    write(home, table())
    with open(os.path.join(home, "forward.table.json"), "w", encoding="utf-8") as file:
        file.write("{")
    policy = Policy.load()
    assert policy.choose("decode", 64).basis == "EXACT"
    assert "JSON" in policy.choose("forward", 64).why


def test_every_truncation_answers_default(home):
    path = write(home, table())
    with open(path, "rb") as file:
        whole = file.read()
    for i in range(20):
        with open(path, "wb") as file:
            file.write(whole[: len(whole) * i // 20])
        assert Policy.load().choose("decode", 64).basis == "DEFAULT"


# --- limits ---


def test_nothing_outside_the_live_mask_and_its_loss_is_named(home, monkeypatch):  # case C-02
    array = tabling.array(64, smt=2)
    mask = (5, 17, 40)
    found = machine(hardware_id="hwS", limits_id="lmS", array=array, allowed_cpus=mask)
    three = choice(threads=3)
    made = learn(found, [race(64, {ONE: 9.0, three: 1.0}, default=three)], [], MADE)
    folder = paths.machine_dir("hwS", "lmS")
    os.makedirs(folder)
    path = write(folder, made)
    monkeypatch.setattr(site, "identify", lambda root: here(found))
    policy = Policy.load()
    assert policy.choose("decode", 64).cpus == mask
    assert policy.choose("nothing", 64).cpus == mask
    monkeypatch.setattr(site, "identify", lambda root: here(found, allowed=(5, 40), limits_id="lmT"))
    assert set(Policy.load(path).choose("decode", 64).cpus) <= {5, 40}
    assert "limits" in Policy.load(path).choose("decode", 64).why
    monkeypatch.setattr(site, "identify", lambda root: here(found, allowed=(5, 40)))
    answer = Policy.load(path).choose("decode", 64)  # the ids agree, and still the placement finds too few CPUs
    assert (answer.basis, answer.cpus) == ("DEFAULT", (5, 40))
    assert "a CPU to every thread" in answer.why


@pytest.mark.parametrize("of", [1, 2, 3, 4])
def test_instances_get_disjoint_parts_and_never_more_threads(home, of):
    write(home, table())
    answers = [Policy.load(instance=i, of=of).choose("decode", 4096) for i in range(of)]
    used = [cpu for answer in answers for cpu in answer.cpus]
    assert len(used) == len(set(used))
    assert all(answer.threads == len(answer.cpus) for answer in answers)
    assert {answer.basis for answer in answers} == {"EXACT" if of == 1 else "TRANSFERRED"}
    if of > 1:
        assert all(answer.expected_ns is None and answer.estimate(4096) is None for answer in answers)


def test_an_instance_keeps_to_its_share_of_the_quota(home, monkeypatch):
    monkeypatch.setattr(site, "identify", lambda root: here(budget=2))
    write(home, table())
    assert Policy.load(instance=1, of=2).choose("decode", 4096).threads == 1


def test_more_instances_than_cores_share_and_say_so(home):
    write(home, table())
    policy = Policy.load(instance=5, of=8)
    answer = policy.choose("decode", 4096)
    assert (answer.threads, answer.cpus) == (1, (1,))
    assert "shares the core" in policy.notes[0]


# --- process parts ---


def with_passive(folder):
    passive, spin = choice(threads=4, process=PASSIVE), choice(threads=4, process=SPIN)
    times = {FOUR: 900.0, ONE: 5000.0, passive: 500.0, spin: 800.0}
    write(folder, learn(machine(), [race(n, times) for n in (64, 1024)], [], MADE))


def test_the_running_process_part_answers_and_a_better_one_is_named(home, monkeypatch):
    with_passive(home)
    answer = Policy.load().choose("decode", 64)
    assert (answer.expected_ns, answer.wait_policy) == (900.0, "default")
    assert "start the process with OMP_WAIT_POLICY=passive: 1.8x faster here" in answer.why
    assert "passive" in Policy.load().choose("decode", 100).why
    running(monkeypatch, OMP_WAIT_POLICY="PASSIVE")
    answer = Policy.load().choose("decode", 64)
    assert (answer.expected_ns, answer.wait_policy) == (500.0, "passive")
    assert "start the process" not in answer.why


def test_a_gain_of_a_few_percent_is_not_rounded_away(home):
    """It read `1x faster`."""
    passive = choice(threads=4, process=PASSIVE)
    made = learn(machine(), [race(n, {FOUR: 514.0, ONE: 5000.0, passive: 500.0}) for n in (64, 1024)], [], MADE)
    write(home, made)
    assert "OMP_WAIT_POLICY=passive: 1.03x faster here" in Policy.load().choose("decode", 64).why


def test_the_best_process_part_can_be_asked_for(home):
    with_passive(home)
    policy = Policy.load()
    for n in (64, 100):
        answer = policy.best("decode", n, heads=32)
        assert (answer.wait_policy, answer.estimate(n)) == ("passive", pytest.approx(500.0))
        assert answer.why.endswith("start the process with OMP_WAIT_POLICY=passive")
    assert policy.best("decode", 7) is policy.choose("decode", 7)
    assert policy.best("nothing", 64).basis == "DEFAULT"
    assert policy.best("decode", None).basis == "DEFAULT"


def test_a_process_part_of_which_little_is_known_does_not_lose_to_one_that_is_known_to_be_slow(home):
    """Between two tuned n the plain part's choices change and neither was measured at both; the passive part's one
    choice was, and is ten times as slow at both."""
    slow = choice(threads=2, process=PASSIVE)
    raced = [race(64, {TWO: 400.0, slow: 4000.0}), race(1024, {FOUR: 3000.0, slow: 30000.0})]
    made = learn(machine(), raced, [], MADE)
    write(home, made)
    for n in (65, 200, 1023):
        assert Policy.load().best("decode", n).wait_policy == "default"
        assert best_section(made, n).process.wait_policy == "default"


def test_a_choice_that_was_measured_at_both_ends_has_its_own_time_and_not_that_of_the_tuned_n(home):
    """The plain part's choices are good where they are taken and slow at the other end: both are slower at their border
    than the one of the passive part, as far as each is known."""
    steady = choice(threads=2, process=PASSIVE)
    low, high = {ONE: 100.0, FOUR: 900.0, steady: 130.0}, {ONE: 9000.0, FOUR: 1000.0, steady: 1300.0}
    made = learn(machine(), [race(64, low), race(1024, high)], [], MADE)
    write(home, made)
    assert Policy.load().best("decode", 256).wait_policy == best_section(made, 256).process.wait_policy == "passive"


def test_the_running_process_part_is_kept_when_none_is_faster(home):
    write(home, table())
    policy = Policy.load()
    assert policy.best("decode", 64) is policy.choose("decode", 64)


def test_a_spin_count_is_a_process_part(home, monkeypatch):
    with_passive(home)
    running(monkeypatch, GOMP_SPINCOUNT="10000")
    answer = Policy.load().choose("decode", 64)
    assert (answer.expected_ns, answer.spin) == (800.0, 10000)


def test_a_memory_policy_is_part_of_the_process(home, monkeypatch):
    spread = PASSIVE._replace(wait_policy="default", memory_policy="interleave")
    times = {FOUR: 900.0, choice(threads=4, process=spread): 500.0}
    write(home, learn(machine(), [race(n, times) for n in (64, 1024)], [], MADE))
    answer = Policy.load().choose("decode", 64)
    assert (answer.expected_ns, answer.memory_policy) == (900.0, "default")
    assert "memory policy interleave (numactl): 1.8x faster here" in answer.why
    assert Policy.load().best("decode", 64).memory_policy == "interleave"
    monkeypatch.setattr("advisor.lookup.running_memory_policy", lambda: "interleave")
    answer = Policy.load().choose("decode", 64)
    assert (answer.expected_ns, answer.memory_policy) == (500.0, "interleave")


def test_a_process_part_that_was_not_tuned_answers_default(home, monkeypatch):
    with_passive(home)
    running(monkeypatch, OMP_WAIT_POLICY="active")
    answer = Policy.load().choose("decode", 64)
    assert (answer.basis, answer.wait_policy, answer.threads) == ("DEFAULT", "active", 4)
    assert "not tuned for OMP_WAIT_POLICY=active" in answer.why


def test_a_variable_changed_after_the_start_is_noted(home, monkeypatch):
    with_passive(home)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    policy = Policy.load()
    assert policy.choose("decode", 64).wait_policy == "default"
    assert "OMP_WAIT_POLICY was changed after the process started" in policy.notes[0]


def test_a_thread_bound_by_the_runtime_is_noted(home, monkeypatch):
    write(home, table())
    monkeypatch.setattr(site, "identify", lambda root: here(allowed=(0,), budget=1, limits_id="lmOne"))
    running(monkeypatch, OMP_PROC_BIND="true")
    policy = Policy.load()
    assert policy.choose("decode", 64).cpus == (0,)
    assert "before the first region" in policy.notes[0]


# --- another machine's file; arguments ---


def test_answers_for_another_machine_use_its_array_and_cannot_be_applied(tmp_path):
    other = machine(hardware_id="hwX", array=tabling.array(8), allowed_cpus=tuple(range(2, 8)))
    write(tmp_path, table(hardware_id="hwX"))
    answer = Policy.load(machine=write_machine(tmp_path, other)).choose("decode", 4096)
    assert (answer.basis, answer.cpus) == ("EXACT", (2, 3, 4, 5))
    before = os.sched_getaffinity(0)
    with answer.applied() as state:
        assert os.sched_getaffinity(0) == before
    assert "not for this one" in state.note


def test_a_machine_file_that_is_none_is_refused(tmp_path):
    with pytest.raises(Missing):
        Policy.load(machine=str(tmp_path / "absent.json"))
    (tmp_path / "m.json").write_text("{}")
    with pytest.raises(BadInput, match="machine description"):
        Policy.load(machine=str(tmp_path / "m.json"))


@pytest.mark.parametrize(
    "arguments",
    [
        {"stale": "banana"},
        {"instance": 0},
        {"of": 2},
        {"instance": 2, "of": 2},
        {"instance": -1, "of": 2},
        {"instance": 0, "of": 0},
        {"instance": 0.0, "of": 2},
        {"instance": True, "of": 2},
    ],
)
def test_wrong_arguments_raise_at_load(arguments):
    with pytest.raises(BadInput):
        Policy.load(**arguments)


def test_a_path_that_is_not_there_is_no_reason_to_raise(tmp_path):
    policy = Policy.load(str(tmp_path / "absent"))
    assert policy.choose("decode", 64).basis == "DEFAULT"
    assert policy.notes


def test_stored_placements_are_expressions_evaluated_here(home):
    write(home, table())
    answer = Policy.load().choose("decode", 4096)
    assert answer.cpus == evaluate(answer.placement, here().array, here().allowed, answer.threads)


# --- what a choice is best at ---


def with_objectives(folder, objective="latency"):
    passive = choice(threads=4, process=PASSIVE)
    times = {FOUR: 100.0, ONE: 400.0, passive: 100.5}
    stolen = [tabling.look(n, c, ns) for n in (64, 1024) for c, ns in ((FOUR, 9e4), (ONE, 410.0), (passive, 200.0))]
    made = MADE._replace(objective=objective)
    write(folder, learn(machine(), [race(n, times) for n in (64, 1024)], [], made, Beside(stolen)))


def test_an_objective_is_chosen_when_tables_are_loaded(home):
    with_objectives(home)
    fast, safe = Policy.load().choose("decode", 64), Policy.load(objective="robust").choose("decode", 64)
    assert (fast.threads, fast.objective) == (4, "latency")
    assert (safe.threads, safe.objective, safe.basis) == (1, "robust", "EXACT")
    assert safe.stolen_mean_ns == pytest.approx(safe.fragility * 400.0)
    assert safe.stolen_p99_ns >= safe.stolen_mean_ns
    assert "chosen for the best mean time beside a busy neighbour" in safe.why
    assert "OMP_WAIT_POLICY=passive: 2.1x faster beside a busy neighbour" in safe.why
    assert "neighbour" not in fast.why
    with pytest.raises(BadInput, match="no such objective"):
        Policy.load(objective="speed")


def test_a_table_that_was_made_for_an_objective_answers_with_it(home):
    with_objectives(home, "robust")
    assert Policy.load().choose("decode", 64).objective == "robust"
    assert Policy.load(objective="latency").choose("decode", 64).threads == 4


def test_the_best_process_part_is_that_of_the_objective_also_between_tuned_n(home):
    with_objectives(home)
    policy = Policy.load(objective="robust")
    for n in (64, 500, 1024):
        answer = policy.best("decode", n)
        assert (answer.wait_policy, answer.threads) == ("passive", 4)
    assert policy.best("decode", 9999).basis == "DEFAULT"


def test_an_objective_without_figures_is_answered_by_time_and_says_so(home):
    write(home, table())
    answer = Policy.load(objective="robust").choose("decode", 64)
    assert (answer.basis, answer.objective, answer.threads) == ("EXACT", "latency", 1)
    assert answer.warnings == ("the table has no figures for robust: chosen for latency",)


def test_the_winner_of_a_tie_is_named_though_another_process_part_looked_faster(home):
    """The race calls these two a tie and takes the fewest threads; both commands name the same choice."""
    two_passive = choice(threads=2, process=PASSIVE)
    verdicts = [race(n, {FOUR: 100.0, two_passive: 100.5}) for n in (64, 1024)]
    verdicts = [verdict._replace(winner=two_passive) for verdict in verdicts]
    write(home, learn(machine(), verdicts, [], MADE))
    answer = Policy.load().best("decode", 64)
    assert (answer.threads, answer.wait_policy) == (2, "passive")
    assert Policy.load().choose("decode", 64).threads == 4


def test_a_contended_figure_is_said_to_be_one_and_gives_no_gain(home):
    def crowded(verdict, which):
        standings = tuple(s._replace(contended=s.choice == which) for s in verdict.standings)
        return verdict._replace(standings=standings)

    verdicts = [
        crowded(race(64, {ONE: 100.0, FOUR: 300.0}, default=FOUR), ONE),
        crowded(race(256, {ONE: 100.0, FOUR: 300.0}, default=FOUR), FOUR),
        race(1024, {ONE: 100.0, FOUR: 300.0}, default=FOUR),
    ]
    write(home, learn(machine(), verdicts, [], MADE))
    at = {n: Policy.load().choose("decode", n) for n in (64, 256, 1024)}
    assert [answer.contended for answer in at.values()] == [True, False, False]
    assert [answer.gain for answer in at.values()] == [None, None, 3.0]
    assert "contended" in at[64].warnings[-1]
    assert at[256].warnings == ()


def test_a_table_of_the_first_minor_version_answers_as_ever(home):
    path = write(home, table())
    document = tablefile.read_json(path)
    for section in document["sections"]:
        for key in ("objective", "alternatives", "wins"):
            del section[key]
    document |= {"schema": "advisor.table/1.0"}
    document["table_id"] = tablefile.content_id(document)
    new = [Policy.load().choose("decode", n) for n in (64, 100, 1024, 5000)]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)
    old = [Policy.load().choose("decode", n) for n in (64, 100, 1024, 5000)]
    assert [a._replace(table_id=None) for a in old] == [a._replace(table_id=None) for a in new]


def test_rows_of_an_objective_are_checked_like_all_others(home):
    with_objectives(home)
    path = os.path.join(home, "decode.table.json")
    document = tablefile.read_json(path)
    rows = next(a["rows"] for s in document["sections"] for a in s["alternatives"] if a["rows"])
    rows[0]["high"] += 1
    with pytest.raises(BadInput, match="one range"):
        tablefile.check_table(document)


def test_regimes_are_problems_of_their_own(home):
    verdicts = [race(n, {ONE: 100.0, FOUR: 300.0}) for n in (64, 1024)]
    cold = [v._replace(problem=v.problem._replace(regime="cold")) for v in (race(64, {FOUR: 900.0, ONE: 999.0}),)]
    write(home, learn(machine(), [*verdicts, *cold], [], MADE))
    policy = Policy.load()
    assert policy.choose("decode", 64, regime="warm").threads == 1
    assert policy.choose("decode", 64, regime="cold").threads == 4
    assert policy.choose("decode", 64).basis == "DEFAULT"
    assert "regime" in policy.problems()[0]
