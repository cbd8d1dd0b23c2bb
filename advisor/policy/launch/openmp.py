"""The value of OMP_PLACES alone: `--format omp-places`."""

from __future__ import annotations

from advisor.answers import Answer
from advisor.errors import BadInput
from advisor.policy.launch.values import cpus, of_host, runs
from advisor.words import many


def omp_places(answer: Answer) -> str:
    """One place a worker, evenly spaced ones as an interval: `{0}:8:2` is {0},{2} and so on up to {14}.

    Source: OpenMP 5.0, section 6.5: `{cpu}:length:stride`.

    Raises:
        BadInput: the threads are not to be pinned, which no value of OMP_PLACES says; or it is a GPU's answer.
    """
    of_host(answer, "omp-places")
    found = cpus(answer)
    if found is None:
        raise BadInput(
            "OMP_PLACES says where threads run, and these are not to be pinned",
            got=f"{many(answer.threads, 'thread')}, not pinned",
            next_step="--format env sets OMP_PROC_BIND=false",
        )
    return ",".join(
        f"{{{first}}}" if length == 1 else f"{{{first}}}:{length}:{step}" for first, length, step in runs(found)
    )
