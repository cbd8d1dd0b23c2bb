"""More searches for benchmarks/spaces.py, run when `--strategies` names them: what ours was compared with once.

`tpe-apart`, `nsga2` and `gp` are Optuna's; CMA-ES takes no categories, and its quasi-random sampler draws them at
random. `trees` is our own search with extra trees in place of the process.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
from spaces_peers import Search, optuna_search, rows_of

from advisor.search.features import Array
from advisor.search.replay import Account, Recorded
from advisor.search.strategy import CAP_QUANTILE, Strategy
from advisor.search.surrogate import Belief, improvement

TREES = 30
"""Trees of the ensemble; their spread is the deviation."""


def _tpe_apart(seed: int) -> Any:
    from optuna.samplers import TPESampler

    return TPESampler(seed=seed, multivariate=False)


def _nsga2(seed: int) -> Any:
    from optuna.samplers import NSGAIISampler

    return NSGAIISampler(seed=seed, population_size=20)


def _gp(seed: int) -> Any:
    from optuna.samplers import GPSampler

    return GPSampler(seed=seed)


def trees(account: Account, seed: int, known: Sequence[Recorded] = ()) -> None:
    """Our start and columns, then expected improvement under extra trees, grown anew each time."""
    from sklearn.ensemble import ExtraTreesRegressor

    start = Strategy(rows_of(account.space), seed=seed)
    if start.points is None:
        return
    matrix = start.points.matrix.astype(np.float32)
    for index in start.propose(start.start_points):
        if account.left > 0:
            start.tell(index, account.evaluate(index))
    while account.left > 0:
        y = _capped(start.told)
        forest = ExtraTreesRegressor(TREES, min_samples_leaf=1, random_state=seed)
        forest.fit(matrix[list(start.told)], y)
        each = np.stack([tree.predict(matrix) for tree in forest.estimators_])
        wanted = improvement(Belief(each.mean(0), np.maximum(each.std(0), 1e-6)), float(y.min()))
        wanted[list(start.told)] = -1.0
        index = int(np.argmax(wanted))
        start.tell(index, account.evaluate(index))


def _capped(told: dict[int, float | None]) -> Array:
    """Log times as our process is told them: the worst capped, failures as bad as those."""
    good = [value for value in told.values() if value is not None]
    worst = float(np.quantile(good, CAP_QUANTILE)) if good else 0.0
    return np.array([worst if value is None else min(worst, value) for value in told.values()])


def more() -> dict[str, Search]:
    """Name -> search, of those whose libraries are installed."""
    found = {"tpe-apart": optuna_search(_tpe_apart), "nsga2": optuna_search(_nsga2)}
    if all(importlib.util.find_spec(name) for name in ("torch", "scipy")):
        found["gp"] = optuna_search(_gp)
    if importlib.util.find_spec("sklearn"):
        found["trees"] = trees
    return found
