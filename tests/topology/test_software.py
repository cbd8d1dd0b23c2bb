import os
import platform
import stat

import pytest

from advisor import identity
from advisor.installed import COMPILERS, compiler_is_absent
from advisor.topology import software


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """A PATH that holds only the scripts that a test writes."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(name, body):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)

    return write


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("gcc (Debian 12.2.0-14+deb12u1) 12.2.0", "12.2.0"),
        ("gcc-13 (GCC) 13.3.1 20240611 (Red Hat 13.3.1-2)", "13.3.1"),
        ("Debian clang version 14.0.6", "14.0.6"),
        ("GNU Fortran (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", "11.4.0"),
        ("AMD clang version 17.0.6 (CLANG: AOCC_5.0.0-Build#1377)", "17.0.6"),
        ("Cuda compilation tools, release 13.0, V13.0.88", "13.0"),
        ("a compiler without a number", "a compiler without a number"),
    ],
)
def test_versions_of_many_compilers(on_path, line, version):
    on_path("gcc", f"echo '{line}'")
    assert software.compiler_version("gcc") == version


def test_flang_counts_under_its_former_name(on_path):
    """For a probe and a lookup alike, as it does where Fortran is compiled."""
    assert compiler_is_absent("flang-17")
    on_path("flang-new", "echo 'flang-new version 17.0.6'")
    assert not compiler_is_absent("flang-17")
    assert dict(software.environment())["flang"] == "17.0.6"


def test_a_versioned_program_of_a_former_name_counts(on_path):
    on_path("flang-new-17", "exit 0")
    assert not compiler_is_absent("flang-17")
    assert compiler_is_absent("flang-18")


def test_every_compiler_that_a_lookup_can_miss_is_probed():
    assert set(COMPILERS) < set(software.COMPILERS)


def test_a_compiler_that_is_missing_or_broken_is_left_out(on_path):
    on_path("clang", "exit 1")
    found = dict(software.environment())
    assert "gcc" not in found
    assert "clang" not in found
    assert found["compilers"] == ()
    assert found["kernel"] == identity.here().kernel
    assert found["kernel_release"] == os.uname().release
    assert found["python"] == platform.python_version()


def test_the_openmp_library_is_followed_to_its_real_name(on_path, tmp_path):
    (tmp_path / "libgomp.so.1.0.0").touch()
    (tmp_path / "libgomp.so.1").symlink_to("libgomp.so.1.0.0")
    on_path("gcc", f"case $1 in --version) echo 'gcc (x) 12.2.0';; *) echo {tmp_path}/libgomp.so.1;; esac")
    found = dict(software.environment())
    assert found["libgomp"] == "1.0.0"
    assert found["openmp"] == ("libgomp 1.0.0",)


def test_a_library_that_the_compiler_does_not_find_is_none(on_path):
    on_path("gcc", "echo libgomp.so.1")  # gcc repeats the name when it finds nothing
    assert software.runtime_version("gcc", ("libgomp.so.1",)) is None


def test_an_older_core_forced_on_openblas_is_told(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert "Haswell" in software.warnings()[0]
    monkeypatch.delenv("OPENBLAS_CORETYPE")
    assert software.warnings() == ()
