"""Makes the modules beside this file importable from every test folder; the tests' tuners wait for no others."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_lock(tmp_path_factory):
    """Tuners of this run of the tests wait for each other, and for nobody else on the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADVISOR_LOCK", str(tmp_path_factory.mktemp("lock")))
        yield
