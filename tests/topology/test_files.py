import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import mask, put

from advisor.topology import files


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("0,1", (0, 1)),
        ("0-1\n", (0, 1)),
        ("", ()),
        ("\n", ()),
        ("7", (7,)),
        ("3,1-2", (1, 2, 3)),
        ("abc", None),
        ("1-", None),
        ("-1", None),
        ("0-99999999999", None),
        ("²", None),
    ],
)
def test_lists_in_every_spelling(text, ids):
    assert files.parse_list(text) == ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("3", (0, 1)),
        ("0000ff00,00000001", (0, *range(40, 48))),
        ("00000000,00000000", ()),
        ("ff\n\n", tuple(range(8))),
        ("no mask", None),
        ("", None),
    ],
)
def test_masks(text, ids):
    assert files.parse_mask(text) == ids


@given(st.sets(st.integers(0, 600)))
def test_span_and_parse_are_inverse(cpus):
    assert files.parse_list(files.span(cpus)) == tuple(sorted(cpus))


@given(st.sets(st.integers(0, 600)))
def test_masks_say_what_lists_say(cpus):
    assert files.parse_mask(mask(cpus)) == tuple(sorted(cpus))


def test_nul_bytes_and_blank_lines_are_dropped(tmp_path):
    (tmp_path / "f").write_bytes(b"0-3\n\0")
    (tmp_path / "m").write_bytes(b"0000000f\n\n")
    assert files.cpu_set(str(tmp_path / "f")) == (0, 1, 2, 3)
    assert files.cpu_set(str(tmp_path / "none"), str(tmp_path / "m")) == (0, 1, 2, 3)


def test_a_broken_list_gives_way_to_the_mask(tmp_path):
    put(tmp_path, "list", "0-?")
    put(tmp_path, "mask", "5")
    assert files.cpu_set(str(tmp_path / "list"), str(tmp_path / "mask")) == (0, 2)


def test_what_is_missing_is_none(tmp_path):
    assert files.text(str(tmp_path / "no")) is None
    assert files.text(str(tmp_path)) is None
    assert files.number(str(tmp_path / "no")) is None
    assert files.names(str(tmp_path / "no")) == []
    assert files.cpu_set(str(tmp_path / "no"), str(tmp_path / "no")) is None


def test_numbered_ignores_other_names(tmp_path):
    for name in ("cpu0", "cpu10", "cpu2", "cpufreq", "cpuidle", "cpu", "cpu1x"):
        (tmp_path / name).mkdir()
    assert files.numbered(str(tmp_path), "cpu") == [0, 2, 10]
