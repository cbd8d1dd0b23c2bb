import pytest
from fake import FakeSpec, fake_machine, fake_variant, fake_variants

from advisor.errors import BadInput, UnknownName
from advisor.records import Process, Team
from advisor.search.space import (
    SpaceOptions,
    Toolchain,
    cpu_budget,
    default_choice,
    is_default_process,
    memory_policies,
    processes,
    space,
    teams,
    thread_counts,
    thread_labels,
)
from advisor.topology.placement import UNPINNED, evaluate

GCC = Toolchain("gcc-12", "libgomp")
CLANG = Toolchain("clang-14", "libomp")
OPTIONS = SpaceOptions((GCC, CLANG))
SPEC = FakeSpec()


@pytest.mark.parametrize(
    ("machine", "counts"),
    [
        (fake_machine(cores=1), (1,)),
        (fake_machine(cores=2), (1, 2)),
        (fake_machine(cores=4, smt=2), (1, 2, 3, 4, 7, 8)),
        (fake_machine(cores=16), (1, 2, 4, 8, 15, 16)),
        (fake_machine(sockets=2, numa=2, l3=2, cores=3), (1, 2, 3, 4, 6, 8, 12, 16, 23, 24)),
        (fake_machine(cores=64, quota=7.65), (1, 2, 4, 6, 7)),
        (fake_machine(cores=8, allowed=(1, 2, 5)), (1, 2, 3)),
        (fake_machine(cores=4, quota=0.5), (1,)),
    ],
)
def test_thread_counts_are_powers_of_two_and_the_machines_own(machine, counts):
    assert thread_counts(machine) == counts


def test_thread_counts_say_what_they_are():
    labels = thread_labels(fake_machine(sockets=2, numa=2, l3=2, cores=3, smt=2))
    assert labels[3] == ("cores of one L3",)
    assert labels[6] == ("cores of one NUMA domain",)
    assert labels[12] == ("cores of one socket",)
    assert "all cores but one" in labels[23]
    assert "all hardware threads" in labels[48]


def test_oversubscription_only_when_asked_and_labelled():
    machine = fake_machine(cores=3)
    assert max(thread_counts(machine)) == 3
    labels = thread_labels(machine, oversubscribe=True)
    assert tuple(labels) == (1, 2, 3, 4, 6)
    assert [count for count, names in labels.items() if "oversubscribed" in names] == [4, 6]


def test_budget_is_the_lesser_of_mask_and_quota():
    assert cpu_budget(fake_machine(cores=8, allowed=(0, 1, 2))) == 3
    assert cpu_budget(fake_machine(cores=8, quota=2.9)) == 2
    assert cpu_budget(fake_machine(cores=8, quota=0.2)) == 1


@pytest.mark.parametrize(
    "machine",
    [
        fake_machine(cores=2),
        fake_machine(cores=4, smt=2),
        fake_machine(sockets=2, numa=4, l3=2, cores=4, smt=2),
        fake_machine(sockets=2, numa=2, cores=4, allowed=(0, 1, 5, 9)),
        fake_machine(sockets=2, cores=4, quota=3.0),
    ],
)
def test_no_two_teams_use_the_same_set_of_cpus(machine):
    found = teams(machine)
    sets = [
        (team.threads, frozenset(evaluate(team.placement, machine.array, machine.allowed_cpus, team.threads)))
        for team in found
    ]
    assert len(sets) == len(set(sets))
    assert all(len(cpus) == threads and cpus <= set(machine.allowed_cpus) for threads, cpus in sets)


def test_oversubscribed_teams_are_not_pinned():
    found = teams(fake_machine(cores=2), oversubscribe=True)
    assert [team for team in found if team.threads > 2] == [Team(4, UNPINNED)]


def test_process_parts_start_with_the_runtimes_own():
    assert processes("libgomp")[0] == Process("libgomp", "default", None, "default")
    assert {(p.wait_policy, p.spin is None) for p in processes("libgomp")} == {
        ("default", True),
        ("active", True),
        ("passive", True),
        ("default", False),
    }
    assert len(processes("libomp")) == 3


def test_a_further_memory_policy_has_few_process_parts_of_its_own():
    found = processes("libgomp", ("default", "interleave"))
    assert found[:4] == processes("libgomp")
    assert {(p.wait_policy, p.spin) for p in found if p.memory_policy == "interleave"} == {
        *(("default", None), ("passive", None))
    }
    assert [is_default_process(p) for p in found] == [True, *[False] * 5]


@pytest.mark.parametrize(
    ("nodes", "told", "offered"),
    [
        (2, {"mbind": "allowed", "set_mempolicy": "allowed"}, ("default", "interleave")),
        (2, {"mbind": "allowed", "set_mempolicy": "Operation not permitted"}, ("default",)),
        (2, None, ("default",)),
        (1, {"mbind": "allowed", "set_mempolicy": "allowed"}, ("default",)),
    ],
)
def test_n01_memory_policies_are_searched_only_where_they_differ_and_were_seen_to_work(nodes, told, offered):
    machine = fake_machine(sockets=nodes, cores=2)
    if told is not None:
        machine = machine._replace(extra=(("memory_policy", told),))
    assert memory_policies(machine) == offered
    options = OPTIONS._replace(memory_policies=memory_policies(machine))
    found = space(machine, SPEC, fake_variants(), SPEC.problem(1024), options)
    assert {choice.process.memory_policy for choice in found} == set(offered)
    single = [choice for choice in found if choice.team.threads == 1]
    assert len({(choice.build, choice.process.memory_policy) for choice in single}) == len(single)


def test_one_thread_appears_once_a_build_in_the_default_process_part():
    problem = SPEC.problem(1024)
    found = space(fake_machine(cores=4), SPEC, fake_variants(), problem, OPTIONS)
    single = [choice for choice in found if choice.team.threads == 1]
    assert all(is_default_process(choice.process) for choice in single)
    assert len({choice.build for choice in single}) == len(single)
    assert len(set(found)) == len(found)
    builds = {choice.build for choice in found}
    gcc = sum(build.compiler == "gcc-12" for build in builds)
    assert len(found) == gcc * (1 + 3 * 4) + (len(builds) - gcc) * (1 + 3 * 3)  # teams of 1; of 2, 3, 4


@pytest.mark.parametrize("machine", [fake_machine(cores=2), fake_machine(2, 4, 2, 4, 2), fake_machine(quota=1.5)])
def test_default_is_the_lowest_rank_with_default_knobs_and_in_the_space(machine):
    problem = SPEC.problem(4096)
    default = default_choice(machine, SPEC, fake_variants(), problem, OPTIONS)
    assert default.build.variant == "split"
    assert dict(default.build.knobs) == {"ADV_BLOCK": 64, "ADV_UNROLL": 1}
    assert (default.build.compiler, default.build.flags) == ("gcc-12", "native")
    assert default in space(machine, SPEC, fake_variants(), problem, OPTIONS)


def test_variants_that_need_more_than_the_machine_has_are_left_out():
    wide = fake_variant("wide", 0, {}, {}, requires=("avx512f",))
    plain = fake_variant("plain", 5, {}, {})
    problem, machine = SPEC.problem(64), fake_machine()
    assert {c.build.variant for c in space(machine, SPEC, (wide, plain), problem, OPTIONS)} == {"plain"}
    assert default_choice(machine, SPEC, (wide, plain), problem, OPTIONS).build.variant == "plain"
    with pytest.raises(UnknownName):
        default_choice(machine, SPEC, (wide,), problem, OPTIONS)


def test_knobs_that_are_not_valid_for_the_problem_are_left_out():
    picky = fake_variant("picky", 1, {"ADV_BLOCK": (64, 128)}, {}, valid=("ADV_BLOCK <= n",))
    found = space(fake_machine(), SPEC, (picky,), SPEC.problem(100), OPTIONS)
    assert {dict(choice.build.knobs)["ADV_BLOCK"] for choice in found} == {64}


def test_another_kernels_problem_and_no_compiler_are_refused():
    problem = SPEC.problem(64)
    with pytest.raises(BadInput, match="of the kernel"):
        space(fake_machine(), SPEC, fake_variants(), problem._replace(kernel="mlp"), OPTIONS)
    with pytest.raises(BadInput, match="compiler"):
        space(fake_machine(), SPEC, fake_variants(), problem, SpaceOptions(()))
