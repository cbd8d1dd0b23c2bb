import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import PlacementError
from advisor.topology.array import CpuArray, build, flat, live, ravel
from advisor.topology.candidates import candidates, describe
from advisor.topology.placement import default_team, evaluate


@st.composite
def machines(draw):
    """Nested machines with ids dealt at random, and a mask that has at least one of them."""
    sockets, l3, cores, smt = (draw(st.integers(1, 3)) for _ in range(4))
    count = sockets * l3 * cores * smt
    ids = draw(st.permutations(range(count)))
    cut = {"socket": count // sockets, "l3": count // sockets // l3, "core": smt}
    groups = {name: [ids[i : i + step] for i in range(0, count, step)] for name, step in cut.items()}
    mask = draw(st.sets(st.integers(0, count - 1), min_size=1))
    return build(groups, range(count)), mask


@given(machines(), st.data())
def test_no_cpu_outside_the_mask_is_ever_returned(case, data):
    array, mask = case
    part = live(array, mask)
    for expression in candidates(part):
        cpus = evaluate(expression, array, mask)
        assert sorted(cpus) == sorted(mask)
        threads = data.draw(st.integers(1, len(mask)))
        assert evaluate(expression, array, mask, threads) == cpus[:threads]


@given(machines(), st.integers(1, 20))
def test_the_careful_team_stays_within_mask_and_budget(case, budget):
    array, mask = case
    threads, expression = default_team(array, mask, budget)
    cpus = evaluate(expression, array, mask, threads)
    assert 1 <= threads <= budget
    assert set(cpus) <= mask
    assert len(set(cpus)) == threads


@given(machines())
def test_the_careful_team_has_one_thread_a_core(case):
    array, mask = case
    threads, expression = default_team(array, mask, 100)
    smt = array.shape[-1]
    core_of = {cpu: i // smt for i, cpu in enumerate(array.cpus)}
    cores = [core_of[cpu] for cpu in evaluate(expression, array, mask, threads)]
    assert len(set(cores)) == len(cores)


@given(machines())
def test_cores_come_before_siblings_in_the_first_candidate(case):
    array, mask = case
    part = live(array, mask)
    smt = part.shape[-1]
    cores = sum(any(c in mask for c in part.cpus[i : i + smt]) for i in range(0, len(part.cpus), smt))
    core_of = {cpu: i // smt for i, cpu in enumerate(part.cpus)}
    first = evaluate(candidates(part)[0], array, mask, cores)
    assert len({core_of[cpu] for cpu in first}) == cores


DUAL = build({"socket": [[0, 1, 4, 5], [2, 3, 6, 7]], "core": [[0, 4], [1, 5], [2, 6], [3, 7]]}, range(8))


@pytest.mark.parametrize(
    ("expression", "cpus"),
    [
        ("", (0, 4, 1, 5, 2, 6, 3, 7)),
        ("transpose smt socket core", (0, 1, 2, 3, 4, 5, 6, 7)),
        ("transpose smt core socket", (0, 2, 1, 3, 4, 6, 5, 7)),
        ("take smt 1", (0, 1, 2, 3)),
        ("take smt 1 | take socket 1", (0, 1)),
        ("take socket -1 | take core 1", (2, 6)),
    ],
)
def test_expressions_mean_what_they_say(expression, cpus):
    assert evaluate(expression, DUAL, range(8)) == cpus


def test_unpinned_is_none():
    assert evaluate("none", DUAL, range(8), 3) is None


@pytest.mark.parametrize(
    "expression",
    [
        "take",
        "take core",
        "take core x",
        "take core 1 2",
        "shuffle core",
        "take smt 1 |",
        "| take smt 1",
        "take numa 1",
        None,
    ],
)
def test_nonsense_is_refused(expression):
    with pytest.raises(PlacementError):
        evaluate(expression, DUAL, range(8))


@pytest.mark.parametrize("threads", [0, -1, 9])
def test_more_threads_than_cpus_are_refused(threads):
    with pytest.raises(PlacementError):
        evaluate("", DUAL, range(8), threads)


def test_where_nothing_is_known_threads_are_not_pinned():
    array = flat((3, 5, 9))
    assert candidates(array) == ("none",)
    assert default_team(array, (3, 5, 9), 2) == (2, "none")


def test_one_thread_of_a_core_left_is_that_cores_first():
    """17 and 49 are siblings and only 49 is in reach: it stands for its core."""
    array = CpuArray(("core", "smt"), (2, 2), (17, 49, 18, 50))
    assert evaluate("take smt 1", array, (49, 18, 50)) == (49, 18)


def test_descriptions_are_words_for_people():
    part = live(DUAL, range(8))
    texts = [describe(expression, part) for expression in candidates(part)]
    assert texts[0] == "compact, one thread a core first"
    assert len(set(texts)) == len(texts)
    assert describe("none", part) == "not pinned"
    assert sorted(ravel(part)) == list(range(8))
