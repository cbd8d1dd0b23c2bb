"""Variants register themselves by their header; a header that lies is refused."""

from __future__ import annotations

import json
import os
import pathlib

import kernel_fixtures as fixtures
import pytest

from advisor.errors import BadInput, UnknownName
from advisor.kernels.variant import (
    default_build,
    entry_dims,
    for_machine,
    knob_sets,
    macro_values,
    missing_isa,
    read_variant,
    run_values,
    variants,
)

SOURCE = """
#include <stdint.h>
#ifndef ADV_STEP
#define ADV_STEP 4 /* numbers at once */
#endif
int64_t scale_new_workspace(const int64_t *dims, int threads) { return 0; }
int scale_new(void *const *buffers, const int64_t *dims, void *workspace, int threads) { return 0; }
"""
HEAD = {
    "idea": "an idea",
    "language": "c",
    "symbol": "scale_new",
    "dtypes": ["float32"],
    "requires": ["avx2"],
    "macros": {},
    "build_knobs": {"ADV_STEP": [1, 2, 4]},
    "run_knobs": {"zeta": [1, 2], "alpha": [5]},
    "defaults": {"ADV_STEP": 2, "zeta": 1, "alpha": 5},
    "valid": ["width % ADV_STEP == 0", "zeta < n"],
    "reads": "n * width",
    "writes": "n * width",
    "atomics": "0",
    "mapping": "rows",
    "rank": 7,
}


def write(folder, head=None, source=SOURCE, name="new.c", **changes):
    text = json.dumps({**(HEAD if head is None else head), **changes})
    path = folder / name
    path.write_text(f"/* variant {text} */{source}")
    return str(path)


def test_reads_all(tmp_path):
    found = read_variant(write(tmp_path), "scale")
    assert (found.kernel, found.name, found.symbol, found.rank) == ("scale", "new", "scale_new", 7)
    assert found.build_knobs == (("ADV_STEP", (1, 2, 4)),)
    assert [knob for knob, _ in found.run_knobs] == ["zeta", "alpha"]  # the order of the header, not of the alphabet
    assert len(found.source_hash) == 12


def test_optional_keys(tmp_path):
    head = {key: HEAD[key] for key in ("idea", "language", "symbol", "dtypes", "reads", "writes", "mapping", "rank")}
    source = SOURCE.replace("ADV_STEP", "STEP")
    found = read_variant(write(tmp_path, head, source), "scale")
    assert (found.requires, found.build_knobs, found.defaults, found.atomics) == ((), (), (), "0")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"symbol": "scale_other"}, "symbol"),
        (
            {"build_knobs": {"ADV_STEP": [1, 2, 4], "ADV_MORE": [1]}, "defaults": {**HEAD["defaults"], "ADV_MORE": 1}},
            "ADV_MORE",
        ),
        ({"macros": {"ADV_WIDTH": "width"}}, "ADV_WIDTH"),
        ({"macros": {"WIDTH": "width"}}, "WIDTH"),
        ({"macros": {"ADV_REAL": "width"}}, "ADV_REAL"),
        ({"defaults": {"ADV_STEP": 3, "zeta": 1, "alpha": 5}}, "ADV_STEP"),
        ({"defaults": {"ADV_STEP": 2, "zeta": 1}}, "defaults"),
        ({"build_knobs": {}, "defaults": {"zeta": 1, "alpha": 5}}, "ADV_STEP"),
        ({"build_knobs": {"ADV_STEP": []}}, "ADV_STEP"),
        ({"build_knobs": {"ADV_STEP": [2, 2]}}, "ADV_STEP"),
        ({"build_knobs": {"ADV_STEP": [2, "4"]}}, "ADV_STEP"),
        ({"valid": ["import os"]}, "readable"),
        ({"reads": "n **"}, "readable"),
        ({"dtypes": ["int8"]}, "dtypes"),
        ({"dtypes": []}, "dtypes"),
        ({"requires": ["avx 2"]}, "requires"),
        ({"language": "f90"}, "language"),
        ({"rank": "1"}, "rank"),
        ({"rank": True}, "rank"),
        ({"surprise": 1}, "surprise"),
        ({"kernel": "decode"}, "kernel"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, changes, said):
    with pytest.raises(BadInput, match=said):
        read_variant(write(tmp_path, **changes), "scale")


def test_without_header_or_json(tmp_path):
    (tmp_path / "a.c").write_text("int x;\n")
    (tmp_path / "b.c").write_text("/* variant {not json} */\n")
    (tmp_path / "c.c").write_bytes(b"/* variant {} */ \xff\xfe")
    for name in "abc":
        with pytest.raises(BadInput):
            read_variant(str(tmp_path / f"{name}.c"), "scale")


def test_a_commented_guard_does_not_count(tmp_path):
    hidden = SOURCE.replace("#ifndef ADV_STEP", "/*\n#ifndef ADV_STEP").replace("#endif", "#endif\n*/")
    with pytest.raises(BadInput, match="ADV_STEP"):
        read_variant(write(tmp_path, source=hidden), "scale")


def test_headers_beside_the_source_belong_to_it(tmp_path):
    guard = SOURCE[SOURCE.index("#ifndef") : SOURCE.index("int64_t scale")]
    (tmp_path / "deep.h").write_text(guard)
    (tmp_path / "near.h").write_text('#include "deep.h"\n')
    path = write(tmp_path, source='\n#include "near.h"\n' + SOURCE.replace(guard, ""))
    before = read_variant(path, "scale")
    (tmp_path / "deep.h").write_text(guard + "\n/* changed */\n")
    assert read_variant(path, "scale").source_hash != before.source_hash


def test_knob_sets_are_all_valid_ones(tmp_path):
    found = read_variant(write(tmp_path), "scale")
    sets = knob_sets(found, fixtures.problem(2, width=6))
    assert sorted((dict(s)["ADV_STEP"], dict(s)["zeta"]) for s in sets) == [(1, 1), (2, 1)]
    assert knob_sets(found, fixtures.problem(2, "float64")) == []
    assert knob_sets(fixtures.good("plain"), fixtures.problem(2)) == [()]


def test_values_handed_to_compiler_and_entry(tmp_path):
    found = fixtures.good("rows")
    problem, knobs = fixtures.problem(9, width=8), (("ADV_STEP", 4), ("block", 64))
    assert macro_values(found, problem, knobs) == (("ADV_STEP", 4), ("ADV_WIDTH", 8))
    assert run_values(found, knobs) == (64,)
    assert entry_dims(fixtures.scale(), found, problem, knobs) == (8, 9, 64)
    with pytest.raises(BadInput, match="block"):
        run_values(found, (("ADV_STEP", 4), ("block", 65)))
    with pytest.raises(BadInput, match="ADV_STEP"):
        macro_values(found, problem, ())


def test_default_build_takes_the_lowest_rank_that_fits():
    found = variants("scale", [fixtures.KERNELS])
    machine = fixtures.here()
    assert [variant.name for variant in found] == ["rows", "plain"]
    first = default_build(found, fixtures.problem(64), machine, "gcc-12", "native")
    assert (first.variant, dict(first.knobs)) == ("rows", {"ADV_STEP": 4, "block": 8})
    odd = default_build(found, fixtures.problem(64, width=6), machine, "gcc-12", "native")
    assert odd.variant == "plain"  # the default knobs of `rows` do not exist at this width
    alone = default_build(found[:1], fixtures.problem(64, width=6), machine, "gcc-12", "native")
    assert dict(alone.knobs) == {"ADV_STEP": 1, "block": 1}


def test_default_build_without_any():
    impossible = fixtures.bad("needs_more")
    assert missing_isa(impossible, fixtures.here()) == ("avx9000",)
    with pytest.raises(UnknownName, match="avx9000"):
        default_build([impossible], fixtures.problem(64), fixtures.here(), "gcc-12", "native")


def test_kernel_dir_adds_variants_by_folder_and_by_header():
    names = {variant.name for variant in variants("scale", [fixtures.KERNELS, fixtures.BAD])}
    assert {"plain", "rows", "wrong_tail"} <= names
    assert {os.path.splitext(name)[0] for name in os.listdir(fixtures.BAD)} <= names


def test_two_files_of_one_name(tmp_path):
    write(tmp_path, name="plain.c", kernel="scale")
    with pytest.raises(BadInput, match="names of their own"):
        variants("scale", [fixtures.KERNELS, str(tmp_path)])


def test_unknown_kernel():
    with pytest.raises(UnknownName, match="scale"):
        variants("nothing", [fixtures.KERNELS])


def test_more_knob_values_than_a_search_can_list_are_refused(tmp_path):
    knobs = {f"k{i}": list(range(10)) for i in range(5)}
    with pytest.raises(BadInput, match="combinations"):
        read_variant(write(tmp_path, run_knobs=knobs, defaults={**dict.fromkeys(knobs, 1), "ADV_STEP": 2}), "scale")


def test_values_that_need_what_a_machine_lacks_are_left_out():
    narrow = fixtures.here()._replace(isa=("avx2", "fma"))
    wide = narrow._replace(isa=("avx2", "fma", "avx512f"))
    (split,) = (one for one in variants("decode") if one.name == "split")
    assert dict(for_machine([split], wide)[0].build_knobs)["ADV_V"] == (32, 64)
    assert dict(for_machine([split], narrow)[0].build_knobs)["ADV_V"] == (32,)
    (amx,) = (one for one in variants("forward") if one.name == "amx")
    kept = for_machine([amx], narrow)[0]
    assert dict(kept.build_knobs)["ADV_V"] == (64,)
    assert "avx512f" in missing_isa(kept, narrow)


def test_needs_that_name_no_value_are_refused(tmp_path):
    text = pathlib.Path(fixtures.good("rows").path).read_text()
    lying = text.replace('"defaults"', '"needs": {"ADV_STEP": {"5": ["avx512f"]}}, "defaults"')
    path = tmp_path / "rows.c"
    path.write_text(lying)
    with pytest.raises(BadInput, match="needs"):
        read_variant(str(path), "scale")
