import os
import stat

import pytest

from advisor import paths
from advisor.errors import BadInput


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    """No variable of the developer's own, and a temporary folder that the test owns."""
    for name in ("ADVISOR_HOME", "ADVISOR_CACHE", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()


def test_below_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.state_dir() == str(tmp_path / ".local/share/advisor")
    assert paths.cache_dir() == str(tmp_path / ".cache/advisor")
    assert paths.home_note() == ""
    assert not (tmp_path / ".local").exists()


def test_own_variables_go_before_the_desktops(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert paths.state_dir() == str(tmp_path / "data/advisor")
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "own"))
    assert paths.state_dir() == str(tmp_path / "own")


@pytest.mark.parametrize("home", ["/", "", None, "//"])
def test_without_a_home_the_temporary_folder_serves_and_says_so(monkeypatch, tmp_path, home):
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
    else:
        monkeypatch.setenv("HOME", home)
    assert paths.state_dir() == str(tmp_path / f"tmp/advisor-{os.getuid()}/state")
    assert paths.cache_dir() == str(tmp_path / f"tmp/advisor-{os.getuid()}/cache")
    assert "ADVISOR_HOME" in paths.home_note()


@pytest.mark.parametrize("below", ["", "/state", "/cache", "-more", "/state-more"])
def test_a_folder_that_was_asked_for_is_no_makeshift(monkeypatch, tmp_path, below):
    folder = f"{tmp_path}/tmp/advisor-{os.getuid()}{below}"
    monkeypatch.setenv("ADVISOR_HOME", folder)
    monkeypatch.setenv("ADVISOR_CACHE", folder)
    assert (paths.state_dir(), paths.cache_dir()) == (folder, folder)
    assert (paths.home_note(), paths.cache_note()) == ("", "")


def test_a_home_folder_whose_name_begins_like_the_temporary_one_is_no_makeshift(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", f"{tmp_path}/tmp/advisor-{os.getuid()}-home")
    assert (paths.home_note(), paths.cache_note()) == ("", "")


def test_a_home_that_cannot_be_written(monkeypatch, tmp_path):
    """The superuser may write everywhere, so the answer of the kernel is made up."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "/home" not in str(path) and real(path, mode))
    assert paths.state_dir().startswith(str(tmp_path / "tmp"))


def test_a_cache_folder_of_another_user_is_left_alone_and_the_temporary_one_serves(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home/.cache/advisor").mkdir(parents=True)
    assert paths.cache_dir() == str(tmp_path / "home/.cache/advisor")
    assert paths.cache_note() == ""
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert paths.cache_dir() == str(tmp_path / "tmp/advisor-4242/cache")
    assert "ADVISOR_CACHE" in paths.cache_note()
    assert paths.home_note() == ""


def test_a_relative_desktop_variable_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert os.path.isabs(paths.cache_dir())


def test_a_private_folder_is_made_for_this_user_alone(tmp_path):
    folder = paths.private(str(tmp_path / "a/cache"))
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert paths.private(folder) == folder


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_others_may_write_is_refused(tmp_path, mode):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(BadInput, match="ADVISOR_CACHE"):
        paths.private(str(folder))


def test_a_link_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "cache").symlink_to(tmp_path / "real")
    with pytest.raises(BadInput):
        paths.private(str(tmp_path / "cache"))


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    folder = paths.private(str(tmp_path / "cache"))
    monkeypatch.setattr(os, "getuid", lambda: os.stat(folder).st_uid + 1)
    with pytest.raises(BadInput):
        paths.private(folder)


def test_a_temporary_folder_that_somebody_else_prepared_is_refused(monkeypatch):
    monkeypatch.setenv("HOME", "/")
    os.makedirs(os.path.dirname(paths.cache_dir()))
    os.chmod(os.path.dirname(paths.cache_dir()), 0o777)
    with pytest.raises(BadInput):
        paths.private(paths.cache_dir())


def test_the_shipped_tables_are_found():
    assert os.path.isdir(paths.shipped_policies())
