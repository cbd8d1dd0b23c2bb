"""Compilers are found by building and loading something, and remembered."""

from __future__ import annotations

import os
import stat

import kernel_fixtures as fixtures
import pytest

from advisor.errors import UnknownName
from advisor.kernels import compilers as module
from advisor.kernels.compilers import FLAG_SETS, compilers, find_compiler, flag_sets, flags


def test_this_machine_has_one():
    found = compilers()
    assert found, "the tests of the kernel frame need a C compiler with OpenMP"
    assert len({one.name for one in found}) == len(found)
    for one in found:
        family, major = one.name.split("-")
        assert family in ("gcc", "clang")
        assert major in one.version
        assert one.runtime in ("libgomp", "libomp")
        assert os.path.isabs(one.path)
    assert find_compiler(found[0].name) == found[0]


def test_unknown_names():
    with pytest.raises(UnknownName, match=compilers()[0].name):
        find_compiler("gcc-1")
    with pytest.raises(UnknownName, match="native"):
        flags("fastest")


def program(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_cc_is_an_addition_and_is_tried_once(tmp_path, monkeypatch):
    real = compilers()[0].path
    count = tmp_path / "count"
    wrapper = program(tmp_path / "mycc", f'#!/bin/sh\necho x >> {count}\nexec {real} "$@"\n')
    monkeypatch.setenv("CC", wrapper)
    monkeypatch.setenv("ADVISOR_CACHE", str(tmp_path / "cache"))
    assert compilers()[0].name == find_compiler(compilers()[0].name).name
    calls = len(count.read_text().split())
    assert calls > 0
    module._compilers.cache_clear()
    compilers()
    assert len(count.read_text().split()) == calls


def test_one_that_cannot_build_is_left_out(tmp_path, monkeypatch):
    broken = program(
        tmp_path / "cc", "#!/bin/sh\ncase $1 in -*version) echo 99.1 Free Software Foundation;; *) exit 1;; esac\n"
    )
    monkeypatch.setenv("CC", broken)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ADVISOR_CACHE", str(tmp_path / "cache"))
    assert compilers() == ()


def test_flag_sets_follow_the_instruction_sets():
    machine = fixtures.here()
    assert flag_sets(machine._replace(isa=("avx2",))) == ("native", "o2")
    assert flag_sets(machine._replace(isa=("avx512f",))) == ("native", "o2", "wide")


def test_flags_never_need_infinities_to_be_lost_by_fast_math():
    assert all("-ffast-math" not in flags(name) for name in FLAG_SETS)
    assert all("-fopenmp" in flags(name) for name in FLAG_SETS)


def test_flang_spells_what_it_has():
    """19 and 22 refuse the others: errno and traps they have not; infinities and NaN have other names."""
    for name in FLAG_SETS:
        found = flags(name, compiler="flang-19")
        assert not {"-fno-math-errno", "-fno-trapping-math", "-ffinite-math-only"} & set(found)
        assert not [flag for flag in found if flag.startswith("-mprefer")]
        assert "-fopenmp" in found
    assert {"-fno-honor-nans", "-fno-honor-infinities", "-O3"} <= set(flags("native", compiler="flang"))
    assert "-prefer-256-bit" in flags("wide", compiler="flang-22")
    assert flags("native", compiler="gfortran-12") == flags("native") == flags("native", compiler="clang-14")


def test_arm_spells_native_otherwise():
    assert "-mcpu=native" in flags("native", "aarch64")
    assert "-march=native" not in flags("native", "aarch64")
