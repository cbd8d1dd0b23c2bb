"""Counted words, and that no count is printed beside a plural that is written out."""

import ast
import glob
import os
import re

import pytest

from advisor.words import many

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOUNS = (
    "threads|CPUs|cores|sizes|rounds|trials|choices|cells|kernels|rows|samples|looks|records|figures|tables|shapes|"
    "machines|multiprocessors|configurations|results|lines|holes|groups|measurements"
)
COUNTED = re.compile(rf"\{{\}} ({NOUNS})\b(?! for| \{{)")
"""A value and a plural; not `looks for`, and not `CPUs 0-3`, which names them."""

ELSEWHERE = ("kernels", "validate")
"""Folders that print no counts for users, or name them in errors where one cannot be."""


@pytest.mark.parametrize(
    ("count", "said"),
    [(1, "1 row"), (0, "0 rows"), (2, "2 rows"), (1000000, "1000000 rows"), (1.0, "1 row"), (1.5, "1.5 rows")],
)
def test_one_is_singular_and_all_else_plural(count, said):
    assert many(count, "row") == said


def test_a_plural_that_no_s_makes():
    assert [many(count, "entry", "entries") for count in (1, 3)] == ["1 entry", "3 entries"]


def texts(path):
    """The formatted strings of a module, each value in them as braces."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
            yield node.lineno, "".join(parts)


def test_counts_are_printed_by_the_one_function():
    written_out = []
    for path in sorted(glob.glob(os.path.join(ROOT, "advisor", "**", "*.py"), recursive=True)):
        if os.path.relpath(path, os.path.join(ROOT, "advisor")).split(os.sep)[0] in ELSEWHERE:
            continue
        found = texts(path)
        written_out += [f"{path}:{line}: {text}" for line, text in found if COUNTED.search(text)]
    assert written_out == []
