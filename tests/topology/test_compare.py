"""What differs between two machines, and what follows for stored tables."""

import pytest
from tabling import table
from trees import X86_HEAD, affinity, build, node, put, quota

from advisor.records import pairs
from advisor.topology.compare import EXACT, NEVER, STALE, compare, follows, lines
from advisor.topology.probe import topology


@pytest.fixture
def plain(tmp_path):
    return build(tmp_path / "plain", "2s1n4c2t")


@pytest.fixture
def other(tmp_path):
    """The same machine again, to be changed."""
    return build(tmp_path / "other", "2s1n4c2t")


def found(old, new):
    """Field -> what follows."""
    result = compare(topology(str(old)), topology(str(new)))
    return {difference.field: difference.follows for difference in result.differences}, result.verdict


def test_a_machine_does_not_differ_from_itself(plain):
    assert found(plain, plain) == ({}, EXACT)
    assert lines(compare(topology(str(plain)), topology(str(plain)))) == f"{EXACT}: nothing differs"


def test_memory_that_grew_and_another_numbering_stay_exact(tmp_path, plain):
    other = build(tmp_path / "other", "2s1n4c2t", adjacent=True)
    node(other, 0, range(8), memory_kb=999999)
    node(other, 1, range(8, 16), memory_kb=999999)
    put(other, "proc/meminfo", "MemTotal: 4096 kB\n")
    put(plain, "proc/meminfo", "MemTotal: 2048 kB\n")
    fields, verdict = found(plain, other)
    assert verdict == EXACT
    assert set(fields) == {"numa_nodes", "memory_total_bytes"}


@pytest.mark.parametrize(
    ("path", "text", "field"),
    [
        ("proc/cpuinfo", X86_HEAD.replace("Fake", "Other"), "model_name"),
        ("proc/cpuinfo", X86_HEAD.replace(" avx2", ""), "isa"),
        ("sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n", "caches"),
    ],
)
def test_other_hardware_is_never_exact(plain, other, path, text, field):
    put(other, path, text)
    fields, verdict = found(plain, other)
    assert (fields[field], verdict) == (NEVER, NEVER)


def test_another_array_is_named_with_both_shapes(tmp_path, plain):
    result = compare(topology(str(plain)), topology(str(build(tmp_path / "more", "2s1n8c2t"))))
    (array,) = [difference for difference in result.differences if difference.field == "array"]
    assert ("4 core" in array.was, "8 core" in array.is_now, array.follows) == (True, True, NEVER)
    assert "2 socket x 1 numa x 8 core x 2 smt" in lines(result)


def test_holes_elsewhere_in_an_array_of_the_same_shape(tmp_path):
    one = build(tmp_path / "one", "2s2c2t", offline=(0, 2))
    two = build(tmp_path / "two", "2s2c2t", offline=(0, 5))
    fields, verdict = found(one, two)
    assert verdict == NEVER
    assert fields["array.cpus"] == NEVER


def test_a_mask_that_leaves_an_equal_part_is_exact(plain, other):
    affinity(plain, "0-3,8-11")
    affinity(other, "4-7,12-15")
    assert found(plain, other) == ({"allowed_cpus": EXACT}, EXACT)


def test_a_mask_that_leaves_another_part_never_is(plain, other):
    affinity(other, "0-3")
    fields, verdict = found(plain, other)
    assert (fields["allowed_cpus"], verdict) == (NEVER, NEVER)


@pytest.mark.parametrize(("cpus", "verdict"), [(2.9, EXACT), (3.1, NEVER), (None, NEVER)])
def test_only_the_floor_of_the_quota_counts(plain, other, cpus, verdict):
    quota(plain, 2.1)
    quota(other, cpus)
    assert found(plain, other) == ({"cpu_quota": verdict}, verdict)


def test_a_refused_memory_policy_counts_where_there_are_several_nodes(tmp_path, plain):
    allowed = {"memory_policy": {"mbind": "allowed", "set_mempolicy": "allowed"}}
    refused = {"memory_policy": {"mbind": "allowed", "set_mempolicy": "refused (EPERM)"}}
    two, one = topology(str(plain)), topology(str(build(tmp_path / "one", "1s1n4c")))
    for machine, limits_id, verdict in ((two, "other", NEVER), (one, one.limits_id, EXACT)):
        old = machine._replace(extra=pairs(allowed))
        new = machine._replace(extra=pairs(refused), limits_id=limits_id)
        (difference,) = compare(old, new).differences
        assert (difference.field, difference.follows) == ("memory_policy", verdict)


def test_an_id_that_differs_for_a_reason_no_file_keeps_is_still_told(plain):
    old = topology(str(plain))
    for name in ("hardware_id", "limits_id"):
        (difference,) = compare(old, old._replace(**{name: "x"})).differences
        assert (difference.field, difference.follows) == (name, NEVER)


def versions(plain, **changed):
    old = topology(str(plain))._replace(
        environment=pairs({"gcc": "12.2.0", "kernel": "6.1", "python": "3.11.7", "libgomp": "1.0.0"})
    )
    now = pairs({**dict(old.environment), **changed})
    return compare(old, old._replace(environment=now))


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [({"gcc": "13"}, STALE), ({"kernel": "6.8"}, STALE), ({"python": "3.12"}, EXACT), ({"clang": "14"}, EXACT)],
)
def test_versions_make_stale_what_depends_on_them(plain, changed, verdict):
    result = versions(plain, **changed)
    (name,) = changed
    assert [(d.field, d.follows) for d in result.differences] == [(name, verdict)]
    assert result.verdict == verdict


def test_the_gravest_stands_first(plain):
    result = versions(plain, gcc="13", python="3.12")
    assert [difference.follows for difference in result.differences] == [STALE, EXACT]
    assert lines(result).startswith(STALE)


def test_rows_of_stored_tables_are_counted(plain):
    stored = table()
    rows = [row for section in stored.sections for row in section.rows]
    assert {row.choice.build.compiler for row in rows} == {"gcc-12"}
    (said,) = follows(versions(plain, gcc="13"), [("decode", stored)]).tables
    assert said == f"decode: {len(rows)} of {len(rows)} rows are STALE (gcc)"
    (said,) = follows(versions(plain, python="3.12"), [("decode", stored)]).tables
    assert "stay EXACT" in said
    old = topology(str(plain))
    (said,) = follows(compare(old, old._replace(hardware_id="x")), [("decode", stored)]).tables
    assert f"none of its {len(rows)} rows" in said


def test_what_an_older_description_does_not_have_is_no_difference(plain):
    new = topology(str(plain))._replace(extra=pairs({"numa_balancing": 0, "load_1min": 3.0}))
    old = new._replace(extra=pairs({"load_1min": 1.0}))
    assert compare(old, new).differences == ()
