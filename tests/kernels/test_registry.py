"""Kernels are found in the package, in --kernel-dir and by entry points."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys

import kernel_fixtures as fixtures
import pytest

from advisor.errors import BadInput, UnknownName
from advisor.kernels import registry
from advisor.kernels.variant import variants


def test_a_kernel_is_a_folder():
    assert "scale" in registry.kernels([fixtures.KERNELS])
    assert "scale" not in registry.kernels()
    assert registry.spec("scale", [fixtures.KERNELS]).name == "scale"


def test_unknown_kernel_names_the_known():
    with pytest.raises(UnknownName, match="scale"):
        registry.spec("nothing", [fixtures.KERNELS])


def test_missing_folder():
    with pytest.raises(BadInput, match="existing folder"):
        registry.kernels(["/nowhere/at/all"])


def test_origin_leads_back():
    spec = fixtures.scale()
    assert registry.load_spec(registry.origin(spec)).name == "scale"


def test_a_spec_must_define_spec(tmp_path):
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "spec.py").write_text("SPEC = 3\n")
    with pytest.raises(BadInput, match="SPEC"):
        registry.spec("odd", [str(tmp_path)])


def test_a_spec_carries_its_folders_name(tmp_path):
    shutil.copytree(f"{fixtures.KERNELS}/scale", tmp_path / "other")
    with pytest.raises(BadInput, match="folder"):
        registry.spec("other", [str(tmp_path)])


def points(monkeypatch, *values):
    found = [importlib.metadata.EntryPoint(name, value, registry.GROUP) for name, value in values]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found if group == registry.GROUP else [])


def test_entry_points_add_kernels(tmp_path, monkeypatch):
    package = tmp_path / "somebodys_kernels"
    shutil.copytree(f"{fixtures.KERNELS}/scale", package)
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    points(monkeypatch, ("scale", "somebodys_kernels"))
    assert "scale" in registry.kernels()
    assert [variant.name for variant in variants("scale")] == ["rows", "plain"]
    assert registry.spec("scale").name == "scale"
    assert "somebodys_kernels" not in sys.modules  # found, not run


def test_a_broken_plug_in_is_left_out_with_a_warning(monkeypatch):
    points(monkeypatch, ("scale", "no_such_package_anywhere"))
    with pytest.warns(UserWarning, match="no_such_package_anywhere"):
        assert "scale" not in registry.kernels()


@pytest.mark.parametrize(
    "text", ["raise RuntimeError('boo')", "def (", "import sys; sys.exit(5)", "import no_such_module"]
)
def test_a_spec_that_does_not_run_is_refused_by_name(tmp_path, text):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "spec.py").write_text(text)
    with pytest.raises(BadInput, match=r"other/spec\.py must run as Python"):
        registry.spec("other", [str(tmp_path)])


@pytest.mark.parametrize(
    ("header", "match"),
    [
        (None, "must hold a variant"),
        ("void nothing(void);", "names no kernel"),
        ('/* variant {"idea": "no kernel named"} */', "names no kernel"),
        ('/* variant {"kernel": "sacle"} */', "'sacle'; allowed: .*scale"),
    ],
)
def test_a_kernel_dir_that_adds_nothing_is_refused(tmp_path, header, match):
    if header is not None:
        (tmp_path / "mine.c").write_text(header)
    with pytest.raises(BadInput, match=match):
        variants("scale", [fixtures.KERNELS, str(tmp_path)])


def test_a_variant_may_lie_beside_other_sources(tmp_path):
    shutil.copytree(f"{fixtures.KERNELS}/scale", tmp_path / "scale")
    (tmp_path / "notes.c").write_text("int main(void) { return 0; }")
    assert variants("scale", [str(tmp_path)])
