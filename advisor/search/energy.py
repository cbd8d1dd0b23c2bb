"""Energy of the finalists, where a counter can be read: windows of a second on the quiet machine, metered.

What is read is all that the packages use, also for others and for idling; so it is a figure to compare choices by that
take nearly the same time, and only those are metered.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.records import Choice, Problem, Verdict
from advisor.search import protocol
from advisor.search.objective import WITHIN
from advisor.search.run import Run


def meter_finalists(run: Run) -> None:
    """Meter every finalist that is nearly as fast as the best, one window each, as far as the time goes.

    An executor without `joules`, or one that has no counter, cannot do this at all.
    """
    read = getattr(run.executor, "joules", None)
    wanted = _wanted(run.verdicts)
    if read is None or not wanted or read(wanted[0][1]) is None:
        return
    run.progress.stage("energy", len(wanted))
    ask = protocol.window(run.request.options.quick, run.request.options.trial_limit_s)
    for problem, choice in wanted:
        if run.out_of_time(run.deadline - ask.samples * ask.sample_s):
            run.notes.append("no time to meter the energy of every finalist")
            break
        run.metered(problem, choice, ask, read)
        run.progress.advance(f"n={problem.n}")
    run.log.sync()


def _wanted(verdicts: Sequence[Verdict]) -> list[tuple[Problem, Choice]]:
    """The finalists that efficiency may choose; none where only one is near, as there is nothing to compare."""
    wanted = []
    for verdict in verdicts:
        times = {s.choice: s.summary.p25_ns for s in verdict.standings if s.summary and s.outcome != "failed"}
        near = [choice for choice, time in times.items() if time <= WITHIN * min(times.values())]
        if verdict.purpose == "final" and len(near) > 1:
            wanted += [(verdict.problem, choice) for choice in near]
    return wanted
