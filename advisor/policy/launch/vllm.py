"""Environment of vLLM's CPU backend: `--format vllm`."""

from __future__ import annotations

from advisor.answers import Answer
from advisor.policy.launch.values import cpus, exports, of_host, variables
from advisor.topology.files import span

BIND = "VLLM_CPU_OMP_THREADS_BIND"


def vllm(answer: Answer) -> str:
    """Lines for `eval`: which CPUs vLLM binds its threads to (`nobind`: none), and how they wait.

    With `nobind` OMP_NUM_THREADS counts. vLLM binds by itself, so OMP_PLACES and OMP_PROC_BIND are unset: both would
    bind twice. Source: vLLM documentation, "CPU", "Related runtime environment variables".

    Raises:
        BadInput: a GPU's answer.
    """
    of_host(answer, "vllm")
    found = cpus(answer)
    bind = "nobind" if found is None else span(sorted(found))
    return exports({BIND: bind, **variables(answer), "OMP_PLACES": None, "OMP_PROC_BIND": None})
