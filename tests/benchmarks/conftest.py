"""The benchmarks are scripts, not a package: their folder is put on the path, as Python does when one is run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
sys.path.append(str(Path(__file__).parents[1] / "kernels" / "gpu"))  # a device that is none: gpu_fixtures


@pytest.fixture(scope="session", autouse=True)
def own_places(compiled_once, tmp_path_factory):
    """A cache and a state folder of the test run's own: no table of this machine counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADVISOR_CACHE", compiled_once)
        patch.setenv("ADVISOR_HOME", str(tmp_path_factory.mktemp("home")))
        yield
