"""The searches of benchmarks/spaces.py: our sampler, Kernel Tuner's strategies, Optuna's TPE, random; on one account.

Each takes an account and a seed and evaluates until nothing is left. All know what our search knows: which
configurations are in the space, and whether one failed.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from optuna.distributions import CategoricalDistribution

from advisor.search.portfolio import elsewhere_log
from advisor.search.replay import Account, Recorded, Spent
from advisor.search.sampler import Batches, ListSampler

KERNEL_TUNER = {
    "genetic": "kernel_tuner.strategies.genetic_algorithm",
    "greywolf": "kernel_tuner.strategies.gen_adaptive_tabu_greywolf",
    "hybrid_vndx": "kernel_tuner.strategies.gen_hybrid_vndx",
}
"""Our name -> its module. Options stay at Kernel Tuner's defaults, which its authors tuned on these kernels."""

ASKS = 10
"""Optuna's samplers propose what they know already and what is not in the space; after so many in a row they are given
a new configuration at random. Without that help 9 of 20 searches by TPE hung on a few configurations."""

PLAIN = (int, float, str, type(None))
"""What Optuna takes as the value of a category without a warning; a truth value is an int."""

Search = Callable[[Account, int, Sequence[Recorded]], None]
"""Evaluates until nothing is left. Takes an account, a seed, and the same kernel's spaces on other devices."""


def values(space: Recorded) -> dict[str, list[Any]]:
    """Each parameter's values, numbers ascending, anything else in the order of the file."""
    columns = {name: [row[k] for row in space.configurations] for k, name in enumerate(space.names)}
    return {name: _ordered(list(dict.fromkeys(column))) for name, column in columns.items()}


def _ordered(found: list[Any]) -> list[Any]:
    return sorted(found) if all(isinstance(value, int | float) for value in found) else found


def random_search(account: Account, seed: int, known: Sequence[Recorded] = ()) -> None:
    """Every configuration in an order drawn at random."""
    order = np.random.default_rng(seed).permutation(len(account.space.configurations))
    for index in order[: account.left]:
        account.evaluate(int(index))


# --- ours ---


def rows_of(space: Recorded) -> list[dict[str, Any]]:
    """Each configuration as name -> number, truth value, text or None; anything else, such as a list, as its text."""
    return [
        {name: value if isinstance(value, PLAIN) else str(value) for name, value in zip(space.names, row, strict=True)}
        for row in space.configurations
    ]


def _times(space: Recorded) -> list[tuple[dict[str, Any], float | None]]:
    times = [None if failed else float(ms) for ms, failed in zip(space.time_ms, space.failed, strict=True)]
    return list(zip(rows_of(space), times, strict=True))


def ours(account: Account, seed: int, known: Sequence[Recorded] = ()) -> None:
    """The tuner's sampler over plain configurations, one proposal at a time: each knows every trial before it."""
    import optuna
    from optuna.trial import TrialState

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rows = rows_of(account.space)
    others = elsewhere_log(rows, [_times(other) for other in known]) if known else None
    sampler = ListSampler(rows, seed=seed, batches=Batches(1), others=others)
    study = optuna.create_study(sampler=sampler)
    while account.left > 0:
        trial = study.ask(sampler.dimensions.distributions)
        index = sampler.dimensions.index(trial.params)
        value = None if index is None else account.evaluate(index)
        if value is None:
            study.tell(trial, state=TrialState.FAIL)
        else:
            study.tell(trial, value)


# --- Kernel Tuner ---


class _Runner:
    """Stands where Kernel Tuner's simulation runner stands: results come from the account.

    As there, a configuration counts towards the budget the first time only, and the batch that uses the budget up ends
    with results that are missing.
    """

    def __init__(self, account: Account, positions: dict[tuple[Any, ...], int]) -> None:
        from kernel_tuner.util import RuntimeFailedConfig

        self._account, self._positions, self._error = account, positions, RuntimeFailedConfig()

    def add_strategy_time(self, seconds: float) -> None:
        """Nobody asks for it here."""

    def run(self, batch: list[Any], options: Any) -> list[dict[str, Any] | None]:
        """Results of a batch, None from where the budget is used up."""
        results: list[dict[str, Any] | None] = []
        for configuration in batch:
            if options.budget.is_done():
                results.append(None)
                continue
            index = self._positions[tuple(configuration)]
            if index not in self._account.told:
                options.budget.add_evaluations(1)
            value = self._account.evaluate(index)
            row = dict(zip(self._account.space.names, configuration, strict=True))
            results.append({**row, "__error__": self._error} if value is None else {**row, "time": value})
        return results


def _searchspace(space: Recorded) -> Any:
    """Kernel Tuner's index of a space, fresh for each search: it learns neighbours, so a shared one ties seeds."""
    from kernel_tuner.searchspace import Searchspace

    rows = {str(k): dict(zip(space.names, row, strict=True)) for k, row in enumerate(space.configurations)}
    return Searchspace(None, None, None, from_cache={"tune_params": values(space), "cache": rows})


def kernel_tuner(name: str) -> Search:
    """One of its strategies, on the space as `tune_kernel` would build it, `max_fevals` as the budget."""

    def search(account: Account, seed: int, known: Sequence[Recorded] = ()) -> None:
        from kernel_tuner.interface import Options
        from kernel_tuner.util import TuningBudget

        module = importlib.import_module(KERNEL_TUNER[name])
        random.seed(seed)
        np.random.seed(seed)
        limit = account.left
        options = Options(
            objective=["time"],
            objective_higher_is_better=[False],
            strategy_options=Options(max_fevals=limit),
            max_fevals=limit,
            budget=TuningBudget(None, limit),
            verbose=False,
        )
        positions = {row: k for k, row in enumerate(account.space.configurations)}
        space = _searchspace(account.space)
        try:
            module.tune(space, _Runner(account, positions), options)
        except Spent:
            return

    return search


# --- Optuna ---


def optuna_search(make: Callable[[int], Any]) -> Search:
    """One of Optuna's samplers, the parameters categorical; `make`: the sampler of a seed.

    What is not in the space and what failed is told as failed; the former is not counted. What was known is told again
    and not counted. See `ASKS` for the help it is given.
    """

    def search(account: Account, seed: int, known: Sequence[Recorded] = ()) -> None:
        import optuna
        from optuna.trial import TrialState

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        lists = {name: listed for name, listed in values(account.space).items() if len(listed) > 1}
        positions = _codes(account.space, lists)
        codes = list(positions)
        distributions: Any = {name: CategoricalDistribution(range(len(lists[name]))) for name in lists}
        study = optuna.create_study(sampler=make(seed))
        chance, idle = random.Random(seed), 0
        while account.left > 0:
            if idle >= ASKS:
                new = [index for index in range(len(codes)) if index not in account.told]
                study.enqueue_trial(dict(zip(lists, codes[chance.choice(new)], strict=True)))
            trial = study.ask(distributions)
            index = positions.get(tuple(trial.params[name] for name in lists))
            idle = idle + 1 if index is None or index in account.told else 0
            value = None if index is None else account.evaluate(index)
            if value is None:
                study.tell(trial, state=TrialState.FAIL)
            else:
                study.tell(trial, value)

    return search


def tpe(account: Account, seed: int, known: Sequence[Recorded] = ()) -> None:
    """Optuna's TPE with its defaults."""
    from optuna.samplers import TPESampler

    optuna_search(lambda number: TPESampler(seed=number))(account, seed, known)


def _codes(space: Recorded, lists: dict[str, list[Any]]) -> dict[tuple[int, ...], int]:
    """Where each parameter's value stands in its list, for every configuration -> its index."""
    columns = [(space.names.index(name), {value: k for k, value in enumerate(lists[name])}) for name in lists]
    return {tuple(place[row[c]] for c, place in columns): k for k, row in enumerate(space.configurations)}


# --- what others know ---


def portfolio(account: Account, seed: int, known: Sequence[Recorded] = ()) -> None:
    """What was best on the other devices: by mean log time over each one's optimum, failures as the slowest there."""
    scores = np.zeros(len(account.space.configurations))
    for other in known:
        slowest = float(np.nanmax(other.time_ms))
        places = {row: k for k, row in enumerate(other.configurations)}
        at = [places.get(row) for row in account.space.configurations]
        times = np.array([slowest if k is None or other.failed[k] else float(other.time_ms[k]) for k in at])
        scores += np.log(times / other.optimum_ms)
    ties = np.random.default_rng(seed).random(len(scores))
    for index in np.lexsort((ties, scores))[: account.left]:
        account.evaluate(int(index))


def strategies(prior: bool) -> dict[str, Search]:
    """Ours and the peers that are installed, by name; the portfolio only where there is something to know."""
    there = importlib.util.find_spec("kernel_tuner") is not None
    theirs = {name: kernel_tuner(name) for name in KERNEL_TUNER} if there else {}
    informed: dict[str, Search] = {"portfolio": portfolio} if prior else {}
    return {"ours": ours, **informed, **theirs, "tpe": tpe, "random": random_search}


def absent() -> tuple[str, ...]:
    """A line for the peers that are left out."""
    if importlib.util.find_spec("kernel_tuner") is not None:
        return ()
    return (f"{', '.join(KERNEL_TUNER)} left out: Kernel Tuner is not installed; pip install -e '.[bench]'",)
