"""The stolen-core regime: the same choice beside one busy neighbour.

A choice that wins on an idle machine can be a thousand times slower when somebody else takes one core: its other
threads spin until the scheduler gives the core back (docs/traps/spinning-and-a-stolen-core.md). Percentiles hide it, as
most calls are fast and a few stalls take most of the time; so here no sample is rejected and the mean counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.kernels.executor import Ask
from advisor.records import Choice, Machine, Problem, Process, Verdict
from advisor.search.run import Run
from advisor.topology.array import live, ravel

WINDOW_S, QUICK_WINDOW_S = 1.0, 0.3
"""Time in the kernel of one measurement. Shorter than some time slices of the scheduler, and no stall would be seen."""

SAMPLE_S = 0.02
"""One sample: several time slices, so that its mean holds stalls in proportion."""


def neighbour_cpu(machine: Machine) -> int:
    """The CPU that the neighbour takes: the last one in reach, which a choice of all cores but one leaves free."""
    return ravel(live(machine.array, machine.allowed_cpus))[-1]


def window(quick: bool, limit_s: float) -> Ask:
    """How much to measure: windows over a second (a third of one when quick), nothing rejected."""
    seconds = QUICK_WINDOW_S if quick else WINDOW_S
    return Ask(round(seconds / SAMPLE_S), limit_s, SAMPLE_S, quiet=False)


def beside_neighbour(run: Run) -> None:
    """Measure the winners beside one busy neighbour, then the DEFAULTs, then the best of each process part.

    Those that time does not allow have no such figure. An executor without `disturbed` cannot measure this at all.
    """
    disturbed = getattr(run.executor, "disturbed", None)
    wanted = _wanted(run.verdicts, run.request.options.quick)
    if disturbed is None or not wanted:
        return
    run.progress.stage("beside a busy neighbour", len(wanted))
    ask = window(run.request.options.quick, run.request.options.trial_limit_s)
    with disturbed(neighbour_cpu(run.request.machine)):
        for problem, choice in wanted:
            if run.out_of_time():
                run.notes.append("no time to measure every winner beside a busy neighbour")
                break
            run.beside(problem, choice, ask)
            run.progress.advance(f"n={problem.n}")
    run.log.sync()


def _wanted(verdicts: Sequence[Verdict], quick: bool) -> list[tuple[Problem, Choice]]:
    """(problem, choice) pairs, those first that matter most, each once."""
    finals = [verdict for verdict in verdicts if verdict.purpose == "final"]
    ranks = [[(v.problem, v.winner) for v in finals], [(v.problem, v.default) for v in finals if _ran(v, v.default)]]
    if not quick:
        ranks.append([(v.problem, choice) for v in finals for choice in _best_of_each(v)])
    return list(dict.fromkeys(pair for rank in ranks for pair in rank))


def _ran(verdict: Verdict, choice: Choice) -> bool:
    return any(s.choice == choice and s.summary is not None for s in verdict.standings)


def _best_of_each(verdict: Verdict) -> list[Choice]:
    """The best standing of each process part."""
    best: dict[Process | None, Choice] = {}
    for standing in verdict.standings:
        if standing.summary is not None:
            best.setdefault(standing.choice.process, standing.choice)
    return list(best.values())
