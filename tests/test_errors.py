"""Every error of advisor says the rule, the value, what is allowed, the next step; and is the fitting builtin."""

import inspect

import pytest

from advisor import errors
from advisor.errors import AdvisorError

CHILDREN = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, AdvisorError)]
BUILTINS = {
    "BadInput": ValueError,
    "SchemaError": ValueError,
    "PlacementError": ValueError,
    "UnknownName": KeyError,
    "BuildError": RuntimeError,
    "WorkerDied": RuntimeError,
    "Busy": TimeoutError,
    "OutOfTime": TimeoutError,
    "Missing": FileNotFoundError,
}


@pytest.mark.parametrize("kind", CHILDREN)
def test_a_message_has_all_four_parts(kind):
    error = kind("the rule", got="value", allowed="this", next_step="do that")
    assert str(error) == "the rule; got 'value'; allowed: this; do that"
    assert (error.rule, error.allowed, error.next_step) == ("the rule", "this", "do that")


@pytest.mark.parametrize("kind", CHILDREN)
def test_parts_that_are_not_given_are_left_out(kind):
    assert str(kind("the rule")) == "the rule"


def test_none_is_a_value_that_can_be_got():
    assert "got None" in str(AdvisorError("the rule", got=None))


def test_children_are_also_the_fitting_builtin():
    assert {c.__name__ for c in CHILDREN} == {"AdvisorError", *BUILTINS}
    for name, builtin in BUILTINS.items():
        assert issubclass(getattr(errors, name), builtin)
