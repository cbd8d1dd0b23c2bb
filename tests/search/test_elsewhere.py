"""Seeds from other machines' tables: read through the records, fitted to this machine."""

import json

import pytest
from fake import FakeSpec, fake_machine, fake_variants

from advisor import codec
from advisor.records import Build, Choice, Point, Process, Row, Section, Summary, Table, Team
from advisor.search.elsewhere import MOST, Foreign, foreign, taken_over
from advisor.search.space import SpaceOptions, Toolchain, is_default_process, space

SPEC = FakeSpec()
HERE = fake_machine(cores=4)
PROBLEM = SPEC.problem(4096)
CHOICES = space(HERE, SPEC, fake_variants(), PROBLEM, SpaceOptions((Toolchain("gcc", "libgomp"),)))
GOMP = Process("libgomp", "default", None, "default")


def choice(variant="split", threads=16, **knobs):
    build = Build(
        variant, "f" * 12, tuple(sorted((knobs or {"ADV_BLOCK": 32, "ADV_UNROLL": 4}).items())), "gcc-13", "native"
    )
    return Choice(build, Team(threads, "smt core"), GOMP)


def section(made, low=1024, high=65536, ns=1000.0, wait="default", shape=PROBLEM.shape, dtype="float32"):
    process = GOMP._replace(wait_policy=wait)
    made = made._replace(process=process)
    point = Point(low, Summary(ns, ns, ns, ns, (ns, ns), 40), True, None)
    return Section(
        dtype, shape, "warm", process, (low, high), (Row(low, high, made, (point,), ()),), made, (), None, ""
    )


def table(*sections, hardware="other"):
    return Table("decode", hardware, "limits", (), tuple(sections), ())


def found(*sections, cpus=16):
    return taken_over((Foreign(table(*sections), cpus),), HERE, PROBLEM, CHOICES)


def test_a_choice_is_taken_over_by_variant_knobs_and_share_of_the_machine():
    (one,) = found(section(choice(threads=8)))
    assert (one.build.variant, dict(one.build.knobs)) == ("split", {"ADV_BLOCK": 32, "ADV_UNROLL": 4})
    assert one.build.source_hash != "f" * 12
    assert one.team.threads == 2
    assert is_default_process(one.process)


@pytest.mark.parametrize(("threads", "cpus", "here"), [(1, 64, 1), (16, 16, 4), (15, 16, 4), (12, 16, 3), (2, 2, 4)])
def test_threads_become_the_same_share(threads, cpus, here):
    (one,) = found(section(choice(threads=threads)), cpus=cpus)
    assert one.team.threads == here


def test_what_does_not_exist_here_is_left_out():
    assert found(section(choice("grouped", ADV_BLOCK=999))) == ()
    assert found(section(choice("amx"))) == ()
    assert found(section(choice(), dtype="float64")) == ()
    assert found() == ()


def test_the_fastest_process_part_comes_first_and_no_more_than_a_few_are_taken():
    knobs = [{"ADV_BLOCK": block, "ADV_UNROLL": 2} for block in (16, 32, 64)]
    many = [section(choice(**one), ns=ns, wait=w) for one, ns, w in zip(knobs, (900, 700, 800), ("default", "active", "passive"), strict=True)]  # fmt: skip # noqa: E501
    assert [dict(c.build.knobs)["ADV_BLOCK"] for c in found(*many)] == [32, 64]
    assert len(found(*many)) == MOST


def test_the_row_that_holds_n_counts_else_the_nearest_and_this_shape_before_another():
    other = tuple((key, 8 if key == "heads" else value) for key, value in PROBLEM.shape)
    wide = section(choice(ADV_BLOCK=16, ADV_UNROLL=2), shape=other, ns=1.0)
    assert [dict(c.build.knobs)["ADV_BLOCK"] for c in found(wide, section(choice()))] == [32]
    assert [dict(c.build.knobs)["ADV_BLOCK"] for c in found(wide)] == [16]
    assert [dict(c.build.knobs)["ADV_BLOCK"] for c in found(section(choice(), low=8192))] == [32]


def test_tables_are_read_through_the_records_and_those_of_this_machine_or_torn_ones_left_out(tmp_path):
    for name, hardware in (("a", "other"), ("b", HERE.hardware_id), ("c", "torn")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "machine.json").write_text(codec.dumps(fake_machine(cores=16), "machine"))
        text = codec.dumps(table(section(choice()), hardware=hardware), "table")
        (tmp_path / name / "decode.table.json").write_text(text[: 200 if hardware == "torn" else None])
    (one,) = foreign("decode", HERE.hardware_id, str(tmp_path))
    assert (one.table.hardware_id, one.cpus) == ("other", 16)
    assert foreign("forward", HERE.hardware_id, str(tmp_path)) == ()
    assert foreign("decode", HERE.hardware_id, str(tmp_path / "none")) == ()


def test_the_shipped_tables_can_be_read():
    read = foreign("decode", "no such machine")
    assert read
    assert all(one.cpus >= 1 and one.table.sections for one in read)
    json.dumps([one.table.kernel for one in read])
