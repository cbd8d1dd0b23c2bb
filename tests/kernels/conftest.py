"""A cache folder of the test run's own: nothing is taken from, or left in, the user's."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(compiled_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADVISOR_CACHE", compiled_once)
        yield
