"""25 recorded machines with known answers, read where they lie. Right means: the expected value, or one accepted."""

from __future__ import annotations

import json

from advisor import identity
from advisor.topology.array import ABSENT, live, size
from advisor.topology.candidates import candidates
from advisor.topology.draw import picture
from advisor.topology.facts import WIDTH
from advisor.topology.placement import default_team, evaluate
from advisor.topology.probe import machine_json, probe

PLAIN = (
    "architecture",
    "online_cpus",
    "offline_cpus",
    "allowed_cpus",
    "sockets",
    "cores",
    "threads_per_core",
    "vendor",
)
GROUPED = ("l3_groups", "socket_groups", "core_groups", "core_types")


def answers(document):
    """The probe's JSON in the words of the expected files."""
    groupings = document["groupings"]
    return {
        **{name: document[name] for name in PLAIN},
        "l3_groups": document["l3_groups"],
        "socket_groups": groupings.get("socket", []),
        "core_groups": groupings.get("core", []),
        "core_types": [kind["cpus"] for kind in document["core_classes"]],
        "numa_nodes": [{k: node[k] for k in ("id", "cpus", "memory_bytes")} for node in document["numa_nodes"]],
        "numa_distances": {"matrix": [node["distances"] for node in document["numa_nodes"]]},
    }


def plain(name, value):
    """A value in a form that compares: groups sorted, types as groups, names with single spaces."""
    if value is None:
        return None
    if name in GROUPED:
        return sorted(sorted(group["cpus"] if isinstance(group, dict) else group) for group in value)
    if name == "numa_distances":
        return value["matrix"]
    return " ".join(value.split()) if name == "model_name" else value


def same_nodes(want, got):
    """Equal but for memory sizes that the recording does not tell."""
    untold = {node["id"] for node in want if node["memory_bytes"] is None}
    known = [{**node, "memory_bytes": None} if node["id"] in untold else node for node in got]
    return sorted(want, key=lambda node: node["id"]) == known


def right(name, found, wanted):
    accepted = [wanted["expected"][name], *wanted.get("accept", {}).get(name, ())]
    if name == "numa_nodes":
        return any(same_nodes(want, found) for want in accepted)
    return plain(name, found) in [plain(name, want) for want in accepted]


def skipped(name, wanted):
    """Facts that the recording cannot tell."""
    return name not in wanted["expected"] or (
        wanted["expected"][name] is None and name in ("numa_distances", "vendor", "model_name")
    )


def unknown_sockets(wanted):
    return None in [wanted["expected"]["sockets"], *wanted.get("accept", {}).get("sockets", ())]


def test_what_the_probe_says_is_right(recorded, recorded_id):
    root, wanted = recorded(recorded_id)
    found = answers(json.loads(machine_json(probe(str(root)))))
    if found["sockets"] is None and unknown_sockets(wanted):
        del found["socket_groups"]
    wrong = {n: v for n, v in found.items() if not skipped(n, wanted) and not right(n, v, wanted)}
    assert wrong == {}
    joint = wanted.get("joint")
    assert not joint or [found[name] for name in joint["fields"]] in joint["ok"]


def test_the_array_and_every_placement_hold_together(recorded, recorded_id):
    root, _ = recorded(recorded_id)
    here = identity.here(str(root))
    machine = probe(str(root))
    present = [cpu for cpu in machine.array.cpus if cpu != ABSENT]
    assert sorted(present) == list(machine.online_cpus)
    assert len(machine.array.cpus) == size(machine.array.shape)
    assert (machine.hardware_id, machine.limits_id) == (here.hardware_id, here.limits_id)
    part = live(here.array, here.allowed)
    for expression in candidates(part):
        assert sorted(evaluate(expression, here.array, here.allowed)) == sorted(here.allowed)
    threads, placement = default_team(here.array, here.allowed, here.budget, here.groupings)
    cpus = evaluate(placement, here.array, here.allowed, threads, here.groupings)
    if len(machine.core_classes) < 2:
        assert (threads, placement) == default_team(here.array, here.allowed, here.budget)
    assert 1 <= threads <= here.budget
    assert cpus is None or len(set(cpus)) == threads


def test_the_picture_fits_the_page(recorded, recorded_id):
    root, _ = recorded(recorded_id)
    lines = picture(probe(str(root))).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) <= 60
