"""The short way must accept and write what the `json` package does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import fastjson
from advisor.errors import BadInput

ROOT = Path(__file__).resolve().parent.parent

DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(DATA)
def test_text_and_data_are_those_of_the_package(data):
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    assert fastjson.dumps(data) == text
    assert fastjson.loads(text) == data
    assert fastjson.loads(json.dumps(data, indent=2, ensure_ascii=False)) == data


@pytest.mark.parametrize(
    "text", ["", " ", "{", "[1,]", "{} x", "nul", '{"a":1,}', "'a'", "[1 2]", "\x00", "01", '"\n"']
)
def test_what_the_package_refuses_is_refused(text):
    with pytest.raises(ValueError):
        json.loads(text)
    with pytest.raises(ValueError):
        fastjson.loads(text)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_numbers_are_finite_on_the_way_in(text):
    with pytest.raises(BadInput, match="finite"):
        fastjson.loads(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_are_finite_on_the_way_out(value):
    with pytest.raises(ValueError):
        fastjson.dumps([value])


def test_without_the_c_code_the_package_serves(monkeypatch):
    monkeypatch.setitem(sys.modules, "_json", None)
    assert fastjson.loads('{"a": [1, 2.5]}') == {"a": [1, 2.5]}
    assert fastjson.dumps({"b": 1, "a": [1.5]}) == '{"a":[1.5],"b":1}'
    with pytest.raises(BadInput, match="finite"):
        fastjson.loads("NaN")


@pytest.mark.parametrize("text", ["[1,", '{"a', '{"a": [1, 2', "[1 2]"])
def test_broken_text_is_a_value_error_where_nobody_has_loaded_the_package(text):
    """A server that imported no `json` got a SystemError, of Python 3.11's scanner, for a table that was cut short."""
    code = (
        "import sys; from advisor import fastjson\n"
        f"assert 'json' not in sys.modules\ntry: fastjson.loads({text!r})\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_the_package_is_not_loaded():
    code = (
        "from advisor import fastjson; import sys; fastjson.dumps(fastjson.loads('[1]')); print('json' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
