"""Makes the modules beside this file importable from every test folder; the tests' tuners wait for no others."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_lock(tmp_path_factory):
    """Tuners of this run of the tests wait for each other, and for nobody else on the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADVISOR_LOCK", str(tmp_path_factory.mktemp("lock")))
        yield


@pytest.fixture(scope="session")
def compiled_once(tmp_path_factory):
    """A cache of the run's own for all of its processes: what one of them has compiled, none compiles again."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    cache = folder / "compiled-once"
    cache.mkdir(mode=0o700, exist_ok=True)
    return str(cache)
