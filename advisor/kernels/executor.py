"""The seam between deciding and running: one method. Real workers stand behind it, and a fake one in tests."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from advisor.records import Choice, Measurement, Problem


class Ask(NamedTuple):
    """How much to measure.

    Attributes:
        samples: how many samples to return.
        limit_s: wall-clock limit of the whole measurement; past it the worker is killed and the status is timeout.
        sample_s: least duration of one sample; a sample is as many calls as fill it, at least one.
        give_up_ns: stop after one sample when it is over this (None: never), so that hopeless choices cost one call.
        quiet: repeat samples in which something else held a thread off its CPU. False keeps every sample, the regime in
            which interference is what one wants to see, and ends after the time of so many samples, however many there
            are by then.
        inputs_s: limit of making inputs and reference, which is not the choice's doing; None: the executor's own.
    """

    samples: int
    limit_s: float
    sample_s: float = 0.001
    give_up_ns: float | None = None
    quiet: bool = True
    inputs_s: float | None = None


class Executor(Protocol):
    """Runs choices. Failures are Measurements with a status, never exceptions; the caller owns the executor.

    Three further methods are used where an executor has them: `prepare(problem, choices)` compiles many choices at
    once; `disturbed(cpu)` is a context manager that keeps one CPU busy, for the stolen-core regime; `joules(choice)`
    gives what the hardware that a choice runs on has used so far, None where no counter can be read.
    """

    def measure(self, problem: Problem, choice: Choice, ask: Ask) -> Measurement:
        """Build if needed, verify against the DNF if this worker has not yet, pin, warm up, sample."""
        ...

    def close(self) -> None:
        """End all workers. Idempotent."""
        ...
