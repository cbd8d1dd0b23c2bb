"""Ctrl-C before the command has begun is one line and a status."""

from __future__ import annotations

import sys

import pytest

from advisor import guard, start


class _Interrupted:
    """Import machinery at the moment of Ctrl-C."""

    def find_spec(self, name, _path=None, _target=None):
        if name == "advisor.cli":
            raise KeyboardInterrupt


def test_ctrl_c_while_the_libraries_are_imported(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "advisor.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as end:
        start.main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (guard.PARTLY, "")
    assert err.startswith("advisor: interrupted")
    assert err.count("\n") == 1


def test_the_command_is_that_of_the_command_line(monkeypatch):
    monkeypatch.setattr("advisor.cli.main", lambda: sys.exit(17))
    with pytest.raises(SystemExit) as end:
        start.main()
    assert end.value.code == 17


@pytest.mark.parametrize(("raised", "status"), [(130, guard.PARTLY), (0, 0), (2, 2)])
def test_an_interrupt_while_words_are_read_says_so_too(raised, status, capsys):
    def app(**_options):
        sys.exit(raised)

    with pytest.raises(SystemExit) as end:
        guard.run(app)
    assert end.value.code == status
    assert ("interrupted" in capsys.readouterr().err) == (status == guard.PARTLY)
