"""Fixtures of the signature's tests."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest


@pytest.fixture
def machine_schema():
    """A validator of machine.json."""
    path = Path(__file__).parents[2] / "docs" / "schema" / "machine.schema.json"
    return jsonschema.Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))
