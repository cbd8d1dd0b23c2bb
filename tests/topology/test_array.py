import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import PlacementError
from advisor.topology import array as algebra
from advisor.topology.array import ABSENT, CpuArray, live, part, pattern, ravel, take, transpose

AXES = ("socket", "numa", "core", "smt")


@st.composite
def arrays(draw):
    """Arrays of one to four axes with holes anywhere and CPU ids in any order, at least one thread."""
    axes = AXES[-draw(st.integers(1, 4)) :]
    shape = tuple(draw(st.integers(1, 4)) for _ in axes)
    count = algebra.size(shape)
    ids = draw(st.permutations(range(count)))
    holes = draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    return CpuArray(axes, shape, tuple(ABSENT if cpu in holes else cpu for cpu in ids))


@st.composite
def arrays_and_orders(draw):
    array = draw(arrays())
    return array, tuple(draw(st.permutations(array.axes)))


def threads(array):
    return sorted(cpu for cpu in array.cpus if cpu != ABSENT)


@given(arrays_and_orders())
def test_transposing_back_is_the_identity(case):
    array, order = case
    assert transpose(transpose(array, order), array.axes) == array


@given(arrays_and_orders())
def test_ravel_is_a_permutation_of_the_present_threads(case):
    array, order = case
    assert sorted(ravel(transpose(array, order))) == threads(array)
    assert ABSENT not in ravel(array)


@given(arrays_and_orders(), st.data())
def test_take_and_transpose_commute(case, data):
    array, order = case
    axis = data.draw(st.sampled_from(array.axes))
    extent = array.shape[array.axes.index(axis)]
    count = data.draw(st.integers(1, extent)) * data.draw(st.sampled_from([1, -1]))
    assert take(transpose(array, order), axis, count) == transpose(take(array, axis, count), order)


@given(arrays(), st.data())
def test_takes_along_two_axes_commute(array, data):
    one, other = (data.draw(st.sampled_from(array.axes)) for _ in range(2))
    counts = {axis: data.draw(st.integers(1, array.shape[array.axes.index(axis)])) for axis in (one, other)}
    there = take(take(array, one, counts[one]), other, counts[other])
    back = take(take(array, other, counts[other]), one, counts[one])
    assert one == other or there == back


@given(arrays(), st.data())
def test_first_and_last_positions_are_all_of_them(array, data):
    axis = data.draw(st.sampled_from(array.axes))
    extent = array.shape[array.axes.index(axis)]
    count = data.draw(st.integers(1, extent))
    kept = threads(take(array, axis, count))
    rest = threads(take(array, axis, count - extent)) if count < extent else []
    assert sorted(kept + rest) == threads(array)


@given(arrays(), st.sets(st.integers(0, 300)))
def test_the_live_part_is_the_intersection_packed(array, mask):
    part_of = live(array, mask)
    assert threads(part_of) == sorted(set(threads(array)) & mask)
    assert live(part_of, mask) == part_of
    assert algebra.size(part_of.shape) == len(part_of.cpus)
    assert all(new <= old for new, old in zip(part_of.shape, array.shape, strict=True))


@given(arrays(), st.data())
def test_no_chain_of_verbs_makes_an_id_or_leaks_a_hole(array, data):
    """take, transpose and live in any order: what comes out are threads that went in, each once."""
    value = array
    for _ in range(data.draw(st.integers(1, 5))):
        verb = data.draw(st.sampled_from(["take", "transpose", "live"]))
        if verb == "take":
            axis = data.draw(st.sampled_from(value.axes))
            extent = value.shape[value.axes.index(axis)]
            value = take(value, axis, data.draw(st.integers(1, extent)) * data.draw(st.sampled_from([1, -1])))
        elif verb == "transpose":
            value = transpose(value, tuple(data.draw(st.permutations(value.axes))))
        else:
            value = live(value, data.draw(st.sets(st.sampled_from(range(256)))))
        assert len(value.cpus) == algebra.size(value.shape)
    found = ravel(value)
    assert ABSENT not in found
    assert len(set(found)) == len(found)
    assert set(found) <= set(threads(array))


@given(arrays_and_orders(), st.sets(st.integers(0, 300)))
def test_live_and_transpose_commute_on_what_is_left(case, mask):
    """Packing depends on the order of the axes, the threads that are left do not."""
    array, order = case
    assert threads(live(transpose(array, order), mask)) == threads(transpose(live(array, mask), order))


@given(arrays(), st.data())
def test_two_transposes_are_the_second_alone(array, data):
    one, two = (tuple(data.draw(st.permutations(array.axes))) for _ in range(2))
    assert transpose(transpose(array, one), two) == transpose(array, two)


@given(arrays(), st.data())
def test_taking_everything_is_the_identity_and_takes_nest(array, data):
    axis = data.draw(st.sampled_from(array.axes))
    extent = array.shape[array.axes.index(axis)]
    assert take(array, axis, extent) == take(array, axis, -extent) == array
    more = data.draw(st.integers(1, extent))
    fewer = data.draw(st.integers(1, more))
    assert take(take(array, axis, more), axis, fewer) == take(array, axis, fewer)
    assert take(take(array, axis, -more), axis, -fewer) == take(array, axis, -fewer)


@given(st.data())
def test_whatever_the_kernel_groups_the_array_has_every_cpu_once(data):
    """Groupings that nest or not, overlap, or leave CPUs out: axes nest, holes are holes, the rest is labelled."""
    cpus = sorted(data.draw(st.sets(st.integers(0, 2000), min_size=1, max_size=12)))
    names = data.draw(st.sets(st.sampled_from(algebra.AXIS_ORDER[:-1])))
    groups = {name: data.draw(st.lists(st.lists(st.sampled_from(cpus), unique=True), max_size=4)) for name in names}
    array = algebra.build(groups, cpus)
    assert sorted(ravel(array)) == cpus
    assert array.axes[-1] == "smt"
    assert len(array.cpus) == algebra.size(array.shape)
    assert all(extent > 0 for extent in array.shape)


@given(arrays())
def test_packing_keeps_the_order_of_threads(array):
    assert ravel(live(array, threads(array))) == ravel(array)


@given(arrays(), st.data())
def test_parts_are_disjoint_and_complete(array, data):
    step = array.shape[-1]
    cores = sum(any(c != ABSENT for c in array.cpus[i : i + step]) for i in range(0, len(array.cpus), step))
    of = data.draw(st.integers(1, cores))
    parts = [threads(part(array, index, of)) for index in range(of)]
    assert sorted(cpu for listed in parts for cpu in listed) == threads(array)
    assert all(parts)


@given(arrays(), st.randoms())
def test_the_pattern_does_not_see_numbers(array, random):
    ids = threads(array)
    renamed = dict(zip(ids, random.sample(range(1000), len(ids)), strict=True))
    other = array._replace(cpus=tuple(renamed.get(cpu, ABSENT) for cpu in array.cpus))
    assert pattern(other) == pattern(array)


def test_the_pattern_sees_which_threads_are_there():
    one = CpuArray(("core", "smt"), (2, 2), (0, 1, 2, ABSENT))
    assert pattern(one) == pattern(one._replace(cpus=(0, ABSENT, 1, 2)))
    assert pattern(one) != pattern(one._replace(cpus=(0, 1, 2, 3)))


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.randoms())
def test_building_finds_the_groups_again(sockets, nodes, cores, smt, random):
    """Ids dealt at random: every group of every level is found whole, outermost first."""
    count = sockets * nodes * cores * smt
    ids = random.sample(range(count * 3), count)
    cut = {"socket": count // sockets, "numa": count // sockets // nodes, "core": smt}
    groups = {name: [sorted(ids[i : i + step]) for i in range(0, count, step)] for name, step in cut.items()}
    array = algebra.build(groups, ids)
    assert array.axes == ("socket", "numa", "core", "smt")
    assert array.shape == (sockets, nodes, cores, smt)
    for name, step in cut.items():
        found = [sorted(array.cpus[i : i + step]) for i in range(0, count, step)]
        assert sorted(found) == sorted(groups[name])


def test_l3_lies_where_this_machine_has_it():
    inside = {"numa": [[0, 1, 2, 3]], "l3": [[0, 1], [2, 3]]}
    outside = {"numa": [[0, 1], [2, 3]], "l3": [[0, 1, 2, 3]]}
    assert algebra.build(inside, range(4)).axes == ("numa", "l3", "core", "smt")
    assert algebra.build(outside, range(4)).axes == ("l3", "numa", "core", "smt")


def test_a_grouping_that_crosses_stays_a_label():
    groups = {"socket": [[0, 1], [2, 3]], "numa": [[0, 2], [1, 3]]}
    assert algebra.build(groups, range(4)).axes == ("socket", "core", "smt")


def test_a_flat_machine_divides_by_cpus():
    array = algebra.flat((3, 5, 9, 12))
    assert algebra.is_flat(array)
    assert [ravel(part(array, index, 2)) for index in range(2)] == [(3, 5), (9, 12)]


@pytest.mark.parametrize(("axis", "count"), [("core", 0), ("core", 3), ("core", -3), ("nowhere", 1)])
def test_takes_that_make_no_sense_are_refused(axis, count):
    with pytest.raises(PlacementError):
        take(CpuArray(("core", "smt"), (2, 1), (0, 1)), axis, count)


@pytest.mark.parametrize("axes", [("core",), ("core", "core"), ("core", "l3"), ()])
def test_transposes_that_name_not_every_axis_are_refused(axes):
    with pytest.raises(PlacementError):
        transpose(CpuArray(("core", "smt"), (2, 1), (0, 1)), axes)


@pytest.mark.parametrize(("index", "of"), [(-1, 2), (2, 2), (0, 3)])
def test_parts_that_do_not_exist_are_refused(index, of):
    with pytest.raises(PlacementError):
        part(CpuArray(("core", "smt"), (2, 1), (0, 1)), index, of)
