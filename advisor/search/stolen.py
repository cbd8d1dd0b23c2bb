"""The stolen-core regime: the same choice beside one busy neighbour.

A choice that wins on an idle machine can be a thousand times slower when somebody else takes one core: its other
threads spin until the scheduler gives the core back (docs/traps/spinning-and-a-stolen-core.md). Percentiles hide it, as
most calls are fast and a few stalls take most of the time; so here no sample is rejected and the mean counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.records import Choice, Machine, Problem, Process, Standing, Team, Verdict
from advisor.search import protocol
from advisor.search.run import Run
from advisor.topology.array import live, ravel


def neighbour_cpu(machine: Machine) -> int:
    """The CPU that the neighbour takes: the last one in reach, which a choice of all cores but one leaves free."""
    return ravel(live(machine.array, machine.allowed_cpus))[-1]


def beside_neighbour(run: Run) -> None:
    """Measure the finalists beside one busy neighbour: winners, DEFAULTs, the best of each process part, all others.

    Those that time does not allow have no such figure. An executor without `disturbed` cannot measure this at all.
    """
    disturbed = getattr(run.executor, "disturbed", None)
    options = run.request.options
    wanted = _wanted(run.verdicts, options.quick and options.objective != "robust")
    if disturbed is None or not wanted:
        return
    run.progress.stage("beside a busy neighbour", len(wanted))
    ask = protocol.window(options.quick, options.trial_limit_s)
    with disturbed(neighbour_cpu(run.request.machine)):
        for done, (problem, choice) in enumerate(wanted):
            if run.out_of_time(run.deadline - ask.samples * ask.sample_s):
                run.notes.append(f"no time for {len(wanted) - done} of {len(wanted)} finalists beside a neighbour")
                break
            run.beside(problem, choice, ask)
            run.progress.advance(f"n={problem.n}")
    run.log.sync()


def _wanted(verdicts: Sequence[Verdict], few: bool) -> list[tuple[Problem, Choice]]:
    """(problem, choice) pairs, those first that matter most, each once. `few`: winners and DEFAULTs alone."""
    finals = [verdict for verdict in verdicts if verdict.purpose == "final"]
    ran = {verdict.problem: [s for s in verdict.standings if s.summary and s.outcome != "failed"] for verdict in finals}
    ranks = [[(v.problem, v.winner) for v in finals]]
    ranks.append([(v.problem, v.default) for v in finals if any(s.choice == v.default for s in ran[v.problem])])
    if not few:
        ranks.append([(v.problem, choice) for v in finals for choice in _best_of_each(ran[v.problem])])
        ranks.append([(v.problem, s.choice) for v in finals for s in ran[v.problem]])
    return list(dict.fromkeys(pair for rank in ranks for pair in rank))


def _best_of_each(standings: Sequence[Standing]) -> list[Choice]:
    """The best standing of each team and process part: what a neighbour costs depends on those, not on the build."""
    best: dict[tuple[Team | None, Process | None], Choice] = {}
    for standing in standings:
        best.setdefault((standing.choice.team, standing.choice.process), standing.choice)
    return list(best.values())
