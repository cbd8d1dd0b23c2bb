"""Expressions of variant headers: the grammar, and nothing beyond it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import BadInput
from advisor.kernels.expressions import evaluate, names_in

NAMES = {"n": 65, "heads": 32, "kv_heads": 8}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("heads // kv_heads", 4),
        ("n % 16 == 1", 1),
        ("-(n - 70) * 2", 10),
        ("min(n, 64) + max(1, 2, 3)", 67),
        ("min(n)", 65),
        ("1 < n <= 65", 1),
        ("1 < n < 65", 0),
        ("n > 64 and heads > 64", 0),
        ("n > 64 or 1 // 0", 1),
        ("not n == 65", 0),
        ("n - -1", 66),
    ],
)
def test_value(expression, value):
    assert evaluate(expression, NAMES) == value


@given(a=st.integers(-50, 50), b=st.integers(-50, 50).filter(bool))
def test_agrees_with_python(a, b):
    for operator in ("+", "-", "*", "//", "%", "<", "<=", ">", ">=", "==", "!="):
        expression = f"a {operator} b"
        assert evaluate(expression, {"a": a, "b": b}) == int(eval(expression, {}, {"a": a, "b": b}))


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "   ",
        "n +",
        "n / 2",
        "n ** 9",
        "n.real",
        "__import__('os')",
        "abs(n)",
        "min(n, key=n)",
        "min(*n)",
        "[n]",
        "lambda: n",
        "n if n else 1",
        "'text'",
        "1.5",
        "n << 2",
        "(" * 300 + "n" + ")" * 300,
        "n + " * 200 + "n",
    ],
)
def test_outside_the_grammar(expression):
    with pytest.raises(BadInput):
        names_in(expression)
    with pytest.raises(BadInput):
        evaluate(expression, NAMES)


def test_unknown_name_is_named():
    with pytest.raises(BadInput, match=r"'m'.*heads"):
        evaluate("m + 1", NAMES)


def test_zero_division():
    with pytest.raises(BadInput, match="divide by zero"):
        evaluate("n // (heads - 32)", NAMES)


def test_names_without_calls():
    assert names_in("min(n, heads) + 3 > kv_heads") == {"n", "heads", "kv_heads"}
