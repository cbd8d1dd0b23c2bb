"""The recorded machines that lie beside the checkout."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path

import pytest

MACHINES = Path(__file__).parents[3] / "shared" / "machines"
IDS = sorted(file.name.removesuffix(".json") for file in MACHINES.glob("expected/*.json"))


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """Unpacks a recorded machine, once: name -> (root folder, expected answers)."""
    folder = tmp_path_factory.mktemp("machines")

    @functools.cache
    def unpack(name):
        # the program, since tarfile takes seconds for the thousands of small files of one tree
        archive = MACHINES / "dumps" / f"{name}.tar.gz"
        subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
        return folder / name, json.loads((MACHINES / "expected" / f"{name}.json").read_text())

    return unpack


def pytest_generate_tests(metafunc):
    """One test a recorded machine; one that skips with the reason where there are none."""
    if "recorded_id" in metafunc.fixturenames:
        absent = pytest.param("", marks=pytest.mark.skip(reason="../shared/machines is not beside this checkout"))
        metafunc.parametrize("recorded_id", IDS or [absent])
