"""Libraries that variants link: read by their files, the build that counts found wherever it lies, nothing loaded."""

import _ctypes
import os
import shutil
import struct
import subprocess

import pytest

from advisor import installed, linked
from advisor.kernels.compilers import compilers

needs_gcc = pytest.mark.skipif(
    not any(one.runtime == "libgomp" for one in compilers()), reason="no compiler here links libgomp"
)


def made(folder, name, *options):
    """A shared library of that name, with its build id where the linker is told to write one."""
    compiler = next(one for one in compilers() if one.runtime == "libgomp")
    folder.mkdir(parents=True, exist_ok=True)
    source, path = folder / "empty.c", folder / name
    source.write_text("#include <omp.h>\nint threads(void) { return omp_get_max_threads(); }\n")
    subprocess.run([compiler.path, "-shared", "-fPIC", *options, str(source), "-o", str(path)], check=True, timeout=60)
    return path


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No OpenBLAS is here but what a test puts into a folder that LIBRARY_PATH names."""
    monkeypatch.setattr(linked, "ROOT", str(tmp_path / "none"))
    monkeypatch.setattr(linked, "PLAIN", ())
    for name in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LIBRARY_PATH", str(tmp_path / "lib"))
    return tmp_path / "lib"


@needs_gcc
def test_the_build_that_counts_is_the_one_on_libgomp(alone):
    assert installed.installed("openblas") is None
    plain = made(alone, "libopenblas.so", "-Wl,--unresolved-symbols=ignore-all")
    assert [one.path for one in linked.candidates()] == [str(plain)]
    assert linked.openblas() is None
    plain.unlink()
    made(alone, "libopenblasp-r0.3.99.so", "-fopenmp", "-Wl,--build-id=0xabcdef0123456789")
    os.symlink("libopenblasp-r0.3.99.so", alone / "libopenblas.so.0")
    found = linked.openblas()
    assert any(name.startswith("libgomp.so") for name in found.needed)
    assert installed.installed("openblas") == "0.3.99 build abcdef01"
    assert installed.package_of("openblas-0.3") == "openblas"
    assert installed.library_of("openblas-0.3") == "", "it is linked, not imported"


@needs_gcc
def test_without_a_build_id_and_a_version_in_the_name_the_size_tells_builds_apart(alone):
    path = made(alone, "libopenblas.so", "-fopenmp", "-Wl,--build-id=none")
    assert installed.installed("openblas") == f"unknown build of {path.stat().st_size} bytes"


@needs_gcc
@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CONDA_PREFIX"])
def test_folders_that_modules_and_conda_set_are_looked_at(alone, monkeypatch, tmp_path, variable):
    made(tmp_path / "there" / "lib", "libopenblas.so", "-fopenmp")
    value = {"LD_LIBRARY_PATH": "there/lib", "PKG_CONFIG_PATH": "there/lib/pkgconfig", "CONDA_PREFIX": "there"}[
        variable
    ]
    assert linked.openblas() is None
    monkeypatch.setenv(variable, str(tmp_path / value))
    assert linked.openblas() is not None


def test_what_is_no_library_is_passed_over(alone):
    alone.mkdir()
    (alone / "libopenblas.so").write_text("INPUT ( -lsomething )\n")
    assert list(linked.candidates()) == []
    (alone / "libopenblas.so").write_bytes(b"\x7fELF\x02\x01" + bytes(10))
    assert list(linked.candidates()) == []
    head = b"\x7fELF\x02\x01" + bytes(26) + struct.pack("<QQIHHHHHH", 1 << 62, 0, 0, 64, 56, 3, 0, 0, 0)
    with open("/proc/self/exe", "rb") as file:
        machine = file.read(20)[18:]
    (alone / "libopenblas.so").write_bytes(head[:18] + machine + head[20:])
    assert list(linked.candidates()) == []


def test_a_file_for_another_machine_or_a_damaged_one_does_not_hide_the_right_one(alone, monkeypatch, tmp_path):
    """A copy of a real library with the machine of another architecture, then with a table of 2^50 bytes."""
    with open(_ctypes.__file__, "rb") as file:
        right = file.read()
    later, path = tmp_path / "later", alone / "libopenblas.so"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(later))
    for folder in (alone, later):
        folder.mkdir()
        (folder / path.name).write_bytes(right)
    assert [one.path for one in linked.candidates()] == [str(path), str(later / path.name)]
    (start,), (count,) = struct.unpack_from("=Q", right, 32), struct.unpack_from("=H", right, 56)
    heads = [start + 56 * index for index in range(count)]
    (dynamic,) = [at for at in heads if struct.unpack_from("=I", right, at) == (2,)]
    huge = right[: dynamic + 32] + struct.pack("=Q", 1 << 50) + right[dynamic + 40 :]
    for wrong in (right[:18] + struct.pack("=H", 0xFEED) + right[20:], huge):
        path.write_bytes(wrong)
        assert [one.path for one in linked.candidates()] == [str(later / path.name)]


@needs_gcc
def test_of_builds_that_count_the_first_with_headers_is_taken(alone, monkeypatch, tmp_path):
    """Whatever is beside the first: nothing, a pkg-config file that cannot be read, one that names another folder."""
    first = made(alone, "libopenblas.so", "-fopenmp")
    other = tmp_path / "other" / "lib" / "libopenblas.so"
    other.parent.mkdir(parents=True)
    shutil.copy(first, other)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(other.parent))
    assert linked.openblas().path == str(first), "none has any"
    (tmp_path / "other" / "include").mkdir()
    (tmp_path / "other" / "include" / "cblas.h").touch()
    (alone / "pkgconfig" / "openblas.pc").mkdir(parents=True)  # opening a folder fails for root too
    assert linked.openblas().path == str(other)
    (alone / "pkgconfig" / "openblas-openmp.pc").write_text(f"x=1\nincludedir = {tmp_path}/other/include\n")
    assert linked.openblas().path == str(first)


def test_it_reads_what_objdump_reads():
    if shutil.which("objdump") is None:
        pytest.skip("needs objdump")
    path = _ctypes.__file__
    text = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
    wanted = [line.split()[1] for line in text.splitlines() if line.split()[:1] == ["NEEDED"]]
    assert list(linked.read(path).needed) == wanted != []
