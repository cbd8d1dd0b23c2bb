"""Expressions over dimensions and knobs, as variant headers write them: evaluated by walking the tree, never by eval.

Grammar: whole numbers, names, + - * // %, comparisons, and/or/not, min(...), max(...), parentheses. True is 1.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping

from advisor.errors import BadInput

LONGEST = 500
"""Longest expression in characters: a header needs a tenth of it, and the tree walk stays shallow."""

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_CALLS: dict[str, Callable[..., int]] = {"min": min, "max": max}
_ALLOWED = "numbers, names, + - * // %, comparisons, and/or/not, min, max, parentheses"


def evaluate(expression: str, names: Mapping[str, int]) -> int:
    """The value of an expression.

    Args:
        expression: see the grammar above.
        names: the dimensions and knobs it may use.

    Returns:
        A whole number; comparisons and `not` give 0 or 1, and/or give the deciding operand as in Python.

    Raises:
        BadInput: it cannot be read, uses an unknown name, or divides by zero.
    """
    try:
        return int(_value(_parse(expression), names))
    except ZeroDivisionError:
        raise BadInput("an expression must not divide by zero", got=expression) from None


def names_in(expression: str) -> frozenset[str]:
    """The names that an expression uses.

    Raises:
        BadInput: the expression is outside the grammar.
    """
    tree = _parse(expression)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called)


@functools.lru_cache(maxsize=4096)
def _parse(expression: str) -> ast.expr:
    if not isinstance(expression, str) or not expression.strip() or len(expression) > LONGEST:
        raise BadInput(f"an expression is text of 1 to {LONGEST} characters", got=str(expression)[:60])
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
        _check(tree, expression)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput("an expression must be readable", got=expression, allowed=_ALLOWED) from error
    return tree


def _check(node: ast.expr, expression: str) -> None:
    """Refuse everything outside the grammar, once, so that a header that lies fails when it is read."""
    for part in _parts(node, expression):
        _check(part, expression)


def _parts(node: ast.expr, expression: str) -> list[ast.expr]:
    match node:
        case ast.Constant(value=int()) | ast.Name():
            return []
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return [left, right]
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            return [operand]
        case ast.BoolOp(values=values):
            return values
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARE for op in ops):
            return [left, *others]
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as args, keywords=[]) if name in _CALLS:
            return args
    raise BadInput("an expression uses something outside its grammar", got=expression, allowed=_ALLOWED)


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return _look_up(name, names)
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_value(left, names), _value(right, names))
        case ast.UnaryOp(op=op, operand=operand):
            value = _value(operand, names)
            return int(not value) if isinstance(op, ast.Not) else -value
        case ast.BoolOp(op=op, values=values):
            return _boolean(isinstance(op, ast.Or), values, names)
        case ast.Compare():
            return _compare(node, names)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _CALLS[name](*[_value(arg, names) for arg in args]) if len(args) > 1 else _value(args[0], names)
    raise BadInput("an expression uses something outside its grammar", got=ast.dump(node), allowed=_ALLOWED)


def _look_up(name: str, names: Mapping[str, int]) -> int:
    if name not in names:
        raise BadInput("an expression uses an unknown name", got=name, allowed=", ".join(sorted(names)))
    return names[name]


def _boolean(stop: bool, values: list[ast.expr], names: Mapping[str, int]) -> int:
    """`or` stops at the first true value, `and` at the first false one."""
    value = 0
    for node in values:
        value = _value(node, names)
        if bool(value) == stop:
            break
    return value


def _compare(node: ast.Compare, names: Mapping[str, int]) -> int:
    left = _value(node.left, names)
    for op, other in zip(node.ops, node.comparators, strict=True):
        right = _value(other, names)
        if not _COMPARE[type(op)](left, right):
            return 0
        left = right
    return 1
