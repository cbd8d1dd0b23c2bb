"""Which placements are worth measuring, on machines of all kinds."""

from __future__ import annotations

import pytest
from fake import fake_machine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trees import affinity, build, group, hybrid

from advisor.search.space import teams, thread_labels
from advisor.topology import placement
from advisor.topology.array import live, ravel
from advisor.topology.candidates import candidates, classes, describe, groupings
from advisor.topology.placement import core_rows
from advisor.topology.probe import topology


def evaluate(expression, machine, threads=None):
    return placement.evaluate(expression, machine.array, machine.allowed_cpus, threads, groupings(machine))


def named(machine):
    """Words for people -> expression."""
    part = live(machine.array, machine.allowed_cpus)
    return {describe(text, part): text for text in candidates(part, groupings(machine))}


def touched(cpus, groups):
    return [count for count in (len(set(cpus) & set(group)) for group in groups) if count]


# --- N-03 ---


@pytest.fixture(scope="module")
def dies(tmp_path_factory):
    """node0 "0-31,64-95", node1 "32-63,96-127", L3 groups of 8 cores."""
    root = build(tmp_path_factory.mktemp("dies"), "1s2n4l8c2t")
    affinity(root, "0-127", "0-1")
    return topology(str(root))


def test_n03_the_machine_is_the_cases(dies):
    assert [node.cpus for node in dies.numa_nodes] == [
        (*range(32), *range(64, 96)),
        (*range(32, 64), *range(96, 128)),
    ]
    assert len(dies.l3_groups) == 8


@pytest.mark.parametrize("threads", [6, 24, 42, 48])
def test_n03_compact_uses_the_fewest_l3_groups(dies, threads):
    cpus = evaluate(named(dies)["compact, one thread a core first"], dies, threads)
    assert len(set(cpus)) == threads
    assert len(touched(cpus, dies.l3_groups)) == -(-threads // 8)


@pytest.mark.parametrize("threads", [6, 24, 42, 48])
def test_n03_spread_over_l3_uses_the_most(dies, threads):
    cpus = evaluate(named(dies)["spread over l3"], dies, threads)
    shares = touched(cpus, dies.l3_groups)
    assert len(set(cpus)) == threads
    assert len(shares) == min(8, threads)
    assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize("threads", [6, 24, 42, 48])
def test_n03_nodes_have_equal_shares_and_never_more_than_their_cores(dies, threads):
    shares = touched(evaluate(named(dies)["spread over numa"], dies, threads), [n.cpus for n in dies.numa_nodes])
    assert shares == [threads // 2] * 2
    for expression in named(dies).values():
        if expression:  # siblings side by side use a core's two threads on purpose
            cpus = evaluate(expression, dies, threads)
            assert len({cpu % 64 for cpu in cpus}) == threads


def test_n03_a_node_with_few_cpus_in_reach_gets_no_more_than_it_has(dies):
    part = dies._replace(allowed_cpus=(*range(3), *range(32, 64)))
    shares = touched(evaluate(named(part)["spread over numa"], part, 35), [n.cpus for n in dies.numa_nodes])
    assert shares == [3, 32]


def compact_and_spread(machine, threads):
    """The CPUs of both, by the names that people are shown."""
    found = {
        describe(text, machine.array): set(one.cpus)
        for one in classes(machine, threads)
        for text in (one.expression, *one.equals)
    }
    return found["compact, one thread a core first"], found["spread over l3"]


@pytest.mark.parametrize("threads", [6, 8, 16, 24, 32, 42, 48])
def test_n03_the_space_holds_compact_and_spread_of_what_the_quota_pays_for(dies, threads):
    """The space's own counts are powers of two and the machine's groups; a job that is given 42 CPUs has 42, too."""
    machine = dies._replace(cpu_quota=float(threads))
    compact, spread = compact_and_spread(machine, threads)
    measured = [set(evaluate(team.placement, machine, threads)) for team in teams(machine) if team.threads == threads]
    assert compact != spread
    assert compact in measured
    assert spread in measured
    assert {8, 16, 32} <= {team.threads for team in teams(dies)}


def test_n03_the_fullest_l3_is_filled_first(dies):
    """A cpuset left two cores of the first L3 and eight of the third: eight threads fit into one."""
    part = dies._replace(allowed_cpus=(0, 1, *range(16, 24)))
    cpus = evaluate(candidates(live(part.array, part.allowed_cpus), groupings(part))[0], part, 8)
    assert cpus == tuple(range(16, 24))


# --- hybrid machines ---


@pytest.fixture
def phone(tmp_path):
    """Little cores have the low ids, as on ARM."""
    root = hybrid(build(tmp_path, "1s8c1t"), (6, 7), (3, 4, 5), (0, 1, 2), by="capacity")
    affinity(root, "0-7")
    return topology(str(root))


def test_strong_cores_come_first(phone):
    assert evaluate("prefer class", phone) == (6, 7, 3, 4, 5, 0, 1, 2)
    assert evaluate("group class | take class 1", phone) == (6, 7)
    assert evaluate("group class | take class -1", phone) == (0, 1, 2)
    assert named(phone)["compact, strongest cores first"] == "prefer class"
    assert "cores of one kind" in thread_labels(phone)[2]


def test_siblings_of_strong_cores_wait_for_the_weak_ones_first_threads(tmp_path):
    root = hybrid(build(tmp_path, "1s4c2t"), (0, 4, 1, 5), (2, 3, 6, 7))
    affinity(root, "0-7")
    laptop = topology(str(root))
    best, together = named(laptop)["compact, one thread a core first, strongest cores first"], "prefer class"
    assert evaluate(best, laptop) == (0, 1, 2, 3, 4, 5, 6, 7)
    assert evaluate(together, laptop) == (0, 4, 1, 5, 2, 6, 3, 7)


def test_where_cores_are_alike_there_are_no_classes():
    machine = fake_machine(cores=4)
    with pytest.raises(placement.PlacementError, match="cores are of one kind"):
        evaluate("prefer class", machine)
    assert not [text for text in candidates(machine.array, groupings(machine)) if "class" in text]


# --- groupings that are no axis ---


@pytest.fixture
def crossed(tmp_path):
    """L3 groups that cut across the nodes."""
    root = build(tmp_path, "2n4c")
    group(root, "l3", [[0, 1, 4, 5], [2, 3, 6, 7]])
    affinity(root, "0-7", "0-1")
    return topology(str(root))


def test_a_grouping_that_does_not_nest_has_placements(crossed):
    if "l3" in crossed.array.axes:
        other = next(name for name in ("numa", "l3") if name not in crossed.array.axes)
    else:
        other = "l3"
    members = dict(crossed.groupings)[other]
    compact, spread = named(crossed)[f"compact in {other}"], named(crossed)[f"spread over {other}"]
    assert len(touched(evaluate(compact, crossed, 4), members)) == 1
    assert touched(evaluate(spread, crossed, 4), members) == [2, 2]
    assert evaluate(f"group {other} | take {other} 1", crossed) == tuple(members[0])


def test_groups_that_overlap_or_leave_cpus_out_are_refused():
    machine = fake_machine(cores=4)
    for groups, words in (([(0, 1), (1, 2, 3)], "overlap"), ([(0, 1)], "belong to no group")):
        for verb in ("group", "prefer"):
            with pytest.raises(placement.PlacementError, match=words):
                placement.evaluate(f"{verb} odd", machine.array, machine.allowed_cpus, None, {"odd": groups})
        assert all("odd" not in text for text in candidates(machine.array, {"odd": groups}))


def test_no_machine_is_asked_for_groupings_that_no_step_names():
    machine = fake_machine(cores=2)
    placement.evaluate("take core 1", machine.array, (0, 1), 1, lambda: pytest.fail("asked"))
    assert placement.evaluate("prefer odd", machine.array, (0, 1), 1, lambda: {"odd": [(1,), (0,)]}) == (1,)


# --- leaving cores free ---


@pytest.mark.parametrize(
    ("expression", "cpus"),
    [
        ("leave 1", (1, 5, 2, 6, 3, 7)),
        ("transpose smt core | leave 2", (2, 3, 6, 7)),
        ("leave 1 | leave 1", (2, 6, 3, 7)),
        ("leave 3", (3, 7)),
    ],
)
def test_cores_left_free_are_whole(tmp_path, expression, cpus):
    affinity(build(tmp_path, "4c2t"), "0-7")
    assert evaluate(expression, topology(str(tmp_path))) == cpus


@pytest.mark.parametrize("expression", ["leave 0", "leave 4", "leave -1", "leave", "leave x", "leave 1 2", "pack 1"])
def test_leaving_all_or_nothing_makes_no_sense(expression):
    with pytest.raises(placement.PlacementError):
        evaluate(expression, fake_machine(cores=4))


# --- machines of all kinds ---


@st.composite
def machines(draw):
    """A fake machine with some CPUs in reach, sometimes of two kinds of cores."""
    sockets, numa, l3 = (draw(st.integers(1, 2)) for _ in range(3))
    shape = {"sockets": sockets, "numa": sockets * numa, "l3": l3, "cores": draw(st.integers(1, 4))}
    whole = fake_machine(**shape, smt=draw(st.integers(1, 2)))
    allowed = tuple(sorted(draw(st.sets(st.sampled_from(whole.online_cpus), min_size=1))))
    rows = core_rows(whole.array)
    cut = draw(st.integers(0, len(rows)))
    kinds = [[cpu for row in part for cpu in row] for part in (rows[cut:], rows[:cut])]
    known = (*whole.groupings, ("class", tuple(map(tuple, kinds)))) if all(kinds) else whole.groupings
    return whole._replace(allowed_cpus=allowed, groupings=known)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(machines())
def test_each_candidate_is_another_order_of_the_cpus_in_reach(machine):
    part, known = live(machine.array, machine.allowed_cpus), groupings(machine)
    orders = [evaluate(text, machine) for text in candidates(part, known)]
    assert all(sorted(order) == sorted(machine.allowed_cpus) for order in orders)
    assert len(set(orders)) == len(orders)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(machines(), st.data())
def test_classes_are_the_different_cpu_sets_and_every_candidate_is_in_one(machine, data):
    threads = data.draw(st.integers(1, len(machine.allowed_cpus)))
    found = classes(machine, threads)
    sets = [frozenset(one.cpus) for one in found]
    assert len(set(sets)) == len(sets)
    known = {text: one for one in found for text in (one.expression, *one.equals)}
    for text in candidates(live(machine.array, machine.allowed_cpus), groupings(machine)):
        assert set(known[text].cpus) == set(evaluate(text, machine, threads))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(machines())
def test_no_two_teams_are_one_set_of_cpus(machine):
    found = [(team.threads, frozenset(evaluate(team.placement, machine, team.threads))) for team in teams(machine)]
    assert len(set(found)) == len(found)
    assert all(len(cpus) == threads for threads, cpus in found)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(machines(), st.data())
def test_an_expression_means_the_same_on_a_machine_with_other_numbers(machine, data):
    """Renumber all CPUs: the expression's value is renumbered and nothing else."""
    ids = data.draw(st.permutations(range(100, 100 + len(machine.online_cpus))))
    new = dict(zip(machine.online_cpus, ids, strict=True))
    moved = machine._replace(
        array=machine.array._replace(cpus=tuple(new.get(cpu, -1) for cpu in machine.array.cpus)),
        allowed_cpus=tuple(sorted(new[cpu] for cpu in machine.allowed_cpus)),
        groupings=tuple((n, tuple(tuple(new[cpu] for cpu in g) for g in groups)) for n, groups in machine.groupings),
    )
    for text in candidates(live(machine.array, machine.allowed_cpus), groupings(machine)):
        assert evaluate(text, moved) == tuple(new[cpu] for cpu in evaluate(text, machine))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(machines(), st.integers(1, 8))
def test_leaving_cores_free_takes_whole_cores_from_the_front(machine, count):
    cores = core_rows(live(machine.array, machine.allowed_cpus))
    if count >= len(cores):
        with pytest.raises(placement.PlacementError):
            evaluate(f"leave {count}", machine)
        return
    assert set(evaluate(f"leave {count}", machine)) == {cpu for row in cores[count:] for cpu in row}


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(machines())
def test_packing_puts_the_fullest_outer_group_first(machine):
    order = evaluate("pack", machine)
    assert sorted(order) == sorted(machine.allowed_cpus)
    groups = [set(g) & set(order) for g in dict(machine.groupings)["socket"]]
    assert len(next(g for g in groups if order[0] in g)) == max(map(len, groups))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(machines(), st.sampled_from(["socket", "numa", "l3"]), st.integers(1, 3))
def test_on_another_machine_an_expression_holds_or_is_refused_with_the_reason(machine, axis, count):
    part = live(machine.array, machine.allowed_cpus)
    if axis in part.axes and count <= part.shape[part.axes.index(axis)]:
        assert set(evaluate(f"take {axis} {count}", machine)) <= set(ravel(part))
    else:
        with pytest.raises(placement.PlacementError, match=axis):
            evaluate(f"take {axis} {count}", machine)
