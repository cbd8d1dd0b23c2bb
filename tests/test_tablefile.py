"""Whatever lies in a table's place, reading ends, and says what it found."""

from __future__ import annotations

import os

import pytest

from advisor.errors import BadInput
from advisor.tablefile import LARGEST, read_json


def test_a_pipe_a_folder_and_a_device_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises(BadInput, match="a folder, a pipe or a device"):
            read_json(str(path))


def test_a_file_that_no_table_needs_is_not_read(tmp_path):
    path = tmp_path / "x.table.json"
    path.touch()
    os.truncate(path, LARGEST + 1)
    with pytest.raises(BadInput, match="too large"):
        read_json(str(path))


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"a": NaN}', "[]", "\x00"])
def test_text_that_is_no_object_is_refused(tmp_path, text):
    path = tmp_path / "x.table.json"
    path.write_text(text)
    with pytest.raises(BadInput):
        read_json(str(path))
