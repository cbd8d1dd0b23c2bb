"""The recorded machines that lie beside the checkout."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

MACHINES = Path(__file__).parents[3] / "shared" / "machines"
IDS = sorted(file.name.removesuffix(".json") for file in MACHINES.glob("expected/*.json"))


@pytest.fixture
def recorded(tmp_path):
    """Unpacks one recorded machine: name -> (root folder, expected answers)."""

    def unpack(name):
        with tarfile.open(MACHINES / "dumps" / f"{name}.tar.gz") as archive:
            archive.extractall(tmp_path, filter="tar")
        return tmp_path / name, json.loads((MACHINES / "expected" / f"{name}.json").read_text())

    return unpack


def pytest_generate_tests(metafunc):
    """One test a recorded machine; one that skips with the reason where there are none."""
    if "recorded_id" in metafunc.fixturenames:
        absent = pytest.param("", marks=pytest.mark.skip(reason="../shared/machines is not beside this checkout"))
        metafunc.parametrize("recorded_id", IDS or [absent])
