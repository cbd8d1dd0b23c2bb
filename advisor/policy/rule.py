"""Learn decision rules: what to take for shapes that have no rows, from those that have. scikit-learn, offline only.

One regression tree for each regime and process part with two tuned shapes or more: from n and the shape to what every
choice of the table loses, so that a leaf takes the choice with the least geometric mean of the losses there. Each shape
is left out in turn to see what the rule is worth. `advisor.rules` walks the tree.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from advisor import codec
from advisor.policy.learn import counts_for, times
from advisor.policy.store import with_id
from advisor.records import Choice, Measurement, Section, Table, Verdict, pairs
from advisor.rules import feature, walk

if TYPE_CHECKING:
    import numpy.typing as npt
    from sklearn.tree import DecisionTreeRegressor

    from advisor.kernels.variant import Variant

    Array = npt.NDArray[np.float64]

LEAST_SHAPES = 2
"""Tuned shapes from which on there is a rule."""

VALIDATED_SHAPES = 3
"""Shapes from which on a validated regret is claimed: with one left out, two must be left to learn a rule from."""

LEAST_KNOWN = 0.5
"""Share of the rule's answers for shapes left out whose time must be known there for a regret to be claimed."""

MOST_LEAVES = 24
"""Leaves of a tree at most: a few for each kind of shape, not one for each tuned n."""

Shape = tuple[str, tuple[tuple[str, int], ...]]
"""Dtype and shape."""


class Cell(NamedTuple):
    """One tuned n of one shape, and the log of each choice's time over the best known there; None: not measured."""

    shape: Shape
    n: int
    losses: tuple[float | None, ...]


class Ground(NamedTuple):
    """What one rule is learned from: features in their order, choices, cells."""

    features: tuple[str, ...]
    choices: tuple[Choice, ...]
    cells: tuple[Cell, ...]

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The distinct shapes."""
        return tuple(dict.fromkeys(cell.shape for cell in self.cells))


def with_rules(
    table: Table, verdicts: Sequence[Verdict], trials: Sequence[Measurement], variants: Sequence[Variant] = ()
) -> Table:
    """The table with a rule for each regime and process part that was tuned at several shapes.

    Args:
        table: its measured sections say which choices there are; a rule that it had before is replaced.
        verdicts, trials: of the kernel, of all its shapes, as `learn` takes them.
        variants: those at hand: the rules carry the conditions under which each exists, so that a lookup takes none at
            a shape for which it is not made.

    Returns:
        The table, its rules in the extra field `rules`, without that field where there is none.
    """
    made = [_rule(sections, verdicts, trials) for sections in _alike(table.sections)]
    made = [{**rule, "variants": _conditions(rule, variants)} for rule in made]
    extra = {name: value for name, value in table.extra if name != "rules"}
    return with_id(table._replace(extra=pairs({**extra, "rules": made} if made else extra)))


def _alike(sections: Iterable[Section]) -> list[list[Section]]:
    """Measured sections of one regime, process part, objective and entries of the shape, where there are several."""
    found: dict[Any, list[Section]] = {}
    for section in sections:
        if not dict(section.extra).get("basis"):
            entries = tuple(name for name, _ in section.shape)
            found.setdefault((section.regime, section.process, section.objective, entries), []).append(section)
    kinds = sorted(found.items(), key=lambda kind: repr(kind[0]))
    return [own for _, own in kinds if len({(s.dtype, s.shape) for s in own}) >= LEAST_SHAPES]


# --- one rule ---


def _rule(sections: Sequence[Section], verdicts: Sequence[Verdict], trials: Sequence[Measurement]) -> dict[str, Any]:
    first, ground = sections[0], ground_of(sections, verdicts, trials)
    nodes = exported(fit(ground), ground)
    used = sorted({node["leaf"] for node in nodes if "leaf" in node})
    nodes = [{"leaf": used.index(node["leaf"])} if "leaf" in node else node for node in nodes]
    shapes = [dict(section.shape) for section in sections]
    regret = validated(ground)
    return {
        "regime": first.regime,
        "process": codec.to_json(first.process),
        "objective": first.objective,
        "dtypes": sorted({section.dtype for section in sections}),
        "axes": {name: [min(s[name] for s in shapes), max(s[name] for s in shapes)] for name in shapes[0]},
        "low": min(section.tuned_n[0] for section in sections),
        "high": max(section.tuned_n[-1] for section in sections),
        "features": list(ground.features),
        "choices": [codec.to_json(ground.choices[index]) for index in used],
        "nodes": nodes,
        "default": codec.to_json(first.default),
        "depends": list(first.rows[0].depends),
        "shapes": len(ground.shapes),
        "wins": sum(len(dict(section.wins).get(section.objective, ())) for section in sections),
        "validated_regret": None if regret is None else round(regret, 4),
    }


def _conditions(rule: Mapping[str, Any], variants: Sequence[Variant]) -> list[dict[str, Any]]:
    """What the headers of a rule's variants say of where they exist, those at hand in the version that was tuned."""
    used = {(c["build"]["variant"], c["build"]["source_hash"]) for c in (*rule["choices"], rule["default"])}
    return [
        {"variant": one.name, "source_hash": one.source_hash, "dtypes": list(one.dtypes), "valid": list(one.valid)}
        for one in variants
        if (one.name, one.source_hash) in used
    ]


def ground_of(sections: Sequence[Section], verdicts: Sequence[Verdict], trials: Sequence[Measurement]) -> Ground:
    """What the rule of some sections is learned from."""
    listed = [row.choice for section in sections for row in section.rows]
    listed += [section.default for section in sections if counts_for(section.default, section.process)]
    choices = tuple(dict.fromkeys(listed))
    found = []
    for section in sections:
        for n, known in times(section, verdicts, trials).items():
            if known:
                least = min(known.values())
                losses = tuple(math.log(known[c] / least) if c in known else None for c in choices)
                found.append(Cell((section.dtype, section.shape), n, losses))
    entries = tuple(name for name, _ in sections[0].shape)
    return Ground(_features(entries), choices, tuple(cell for cell in found if set(cell.losses) != {None}))


def _features(entries: Sequence[str]) -> tuple[str, ...]:
    """What a tree may ask of a shape with these entries."""
    more = ["tasks"] if {"batch", "heads"} <= set(entries) else []
    more += ["group"] if {"heads", "kv_heads"} <= set(entries) else []
    return ("n", "volume", *more, "dtype_bytes", *entries)


def inputs(ground: Ground, cells: Sequence[Cell]) -> Array:
    """The features of some cells, a row each."""
    rows = [[feature(name, dict(c.shape[1]), c.shape[0], c.n) for name in ground.features] for c in cells]
    return np.array(rows)


def fit(ground: Ground, without: Shape | None = None) -> DecisionTreeRegressor:
    """A tree from features to what every choice loses; every shape counts the same, however many n it has.

    What was not measured at a cell counts as the middle of what was: a choice that no search looked at twice.
    """
    from sklearn.tree import DecisionTreeRegressor

    cells = [cell for cell in ground.cells if cell.shape != without]
    middles = [statistics.median(loss for loss in cell.losses if loss is not None) for cell in cells]
    losses = [[m if x is None else x for x in cell.losses] for cell, m in zip(cells, middles, strict=True)]
    counts: Mapping[Shape, int] = {shape: sum(c.shape == shape for c in cells) for shape in ground.shapes}
    tree = DecisionTreeRegressor(max_leaf_nodes=MOST_LEAVES, random_state=0)
    tree.fit(inputs(ground, cells), np.array(losses), [1 / counts[cell.shape] for cell in cells])
    return tree


def exported(tree: DecisionTreeRegressor, ground: Ground) -> list[dict[str, Any]]:
    """The tree as plain nodes, the root first and children after their parent; a leaf has the index of a choice.

    A node whose leaves all take one choice is a leaf itself.
    """
    whole, nodes = tree.tree_, list[dict[str, Any]]()

    def leaf(at: int) -> int:
        return int(np.argmin(whole.value[at][:, 0] if len(ground.choices) > 1 else whole.value[at].reshape(1)))

    def leaves(at: int) -> set[int]:
        left, right = whole.children_left[at], whole.children_right[at]
        return {leaf(at)} if left == right else leaves(left) | leaves(right)

    def add(at: int) -> int:
        place, kinds = len(nodes), leaves(at)
        nodes.append({"leaf": min(kinds)})
        if len(kinds) > 1:
            asked = {"feature": int(whole.feature[at]), "threshold": float(whole.threshold[at])}
            left, right = add(whole.children_left[at]), add(whole.children_right[at])
            nodes[place] = {**asked, "left": left, "right": right}
        return place

    add(0)
    return nodes


def validated(ground: Ground) -> float | None:
    """Geometric mean of time over the best known, of rules that were learned without the shape that they answer for.

    Returns:
        None below three shapes, and where the time of what they took is known of too few.
    """
    if len(ground.shapes) < VALIDATED_SHAPES:
        return None
    taken: list[float | None] = []
    for shape in ground.shapes:
        rule = {"features": ground.features, "nodes": exported(fit(ground, shape), ground)}
        own = [cell for cell in ground.cells if cell.shape == shape]
        taken += [cell.losses[walk(rule, dict(shape[1]), shape[0], cell.n)] for cell in own]
    known = [loss for loss in taken if loss is not None]
    return math.exp(statistics.fmean(known)) if len(known) >= max(1.0, LEAST_KNOWN * len(taken)) else None
