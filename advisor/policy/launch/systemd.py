"""A drop-in for a unit: `--format systemd`."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.answers import Answer
from advisor.policy.launch.values import cpus, memory_policy, nodes_of, of_host, variables
from advisor.records import NumaNode
from advisor.topology.files import span

HEAD = "# save as /etc/systemd/system/NAME.service.d/advisor.conf, then: systemctl daemon-reload"


def systemd(answer: Answer, nodes: Sequence[NumaNode] | None = None) -> str:
    """CPUAffinity, NUMAPolicy with NUMAMask, and the environment, for a service that exists.

    Lists of several files are joined, so CPUAffinity is emptied first. No value holds a space, a quote, a backslash
    or a per cent sign, so none is quoted. Source: systemd.exec(5).

    Args:
        answer: what a policy said.
        nodes: as of `numactl`.

    Raises:
        BadInput: a memory policy of another machine, or a GPU's answer.
    """
    of_host(answer, "systemd")
    found = cpus(answer)
    lines = [HEAD, "[Service]"]
    if found is not None:
        lines += ["CPUAffinity=", f"CPUAffinity={' '.join(map(str, found))}"]
    policy = memory_policy(answer)
    if policy != "default":
        lines.append(f"NUMAPolicy={policy}")
    if policy in ("bind", "interleave"):
        lines.append(f"NUMAMask={span(nodes_of(answer, nodes))}")
    wanted = variables(answer)
    lines += [f"Environment={name}={value}" for name, value in wanted.items() if value is not None]
    return "\n".join([*lines, f"UnsetEnvironment={' '.join(name for name, value in wanted.items() if value is None)}"])
