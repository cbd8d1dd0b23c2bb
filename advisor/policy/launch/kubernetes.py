"""Resources and environment of a container: `--format kubernetes`."""

from __future__ import annotations

from advisor.answers import Answer
from advisor.policy.launch.values import of_host, threads, variables


def kubernetes(answer: Answer) -> str:
    """The `resources` and `env` of a container in YAML; the CPUs that it gets are the node's choice.

    Requests equal limits and are whole, as the static CPU manager wants for CPUs of one's own; threads are not bound,
    since without that manager every container of a node would bind to the same CPUs.
    Source: Kubernetes documentation, "Control CPU Management Policies on the Node"; API reference, Container.

    Raises:
        BadInput: a GPU's answer.
    """
    of_host(answer, "kubernetes")
    count = threads(answer)
    wanted = {**variables(answer), "OMP_PLACES": None, "OMP_PROC_BIND": "false"}
    lines = ["resources:", "  requests:", f'    cpu: "{count}"', "  limits:", f'    cpu: "{count}"', "env:"]
    for name, value in wanted.items():
        lines += [] if value is None else [f"- name: {name}", f'  value: "{value}"']
    return "\n".join(lines)
