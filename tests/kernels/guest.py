"""Runs inside the guest as its first process: does what trials.json asks and prints a line of JSON for each answer.

Imports what a bench worker imports and calls it in this process; there is no compiler, pool or shell in the guest.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import traceback

MARK = "ANSWER "


def mount() -> None:
    """The kernel's file systems; already there when the script is only imported to list its files."""
    libc = ctypes.CDLL(None)
    for kind, place in ((b"proc", b"/proc"), (b"sysfs", b"/sys"), (b"devtmpfs", b"/dev")):
        os.makedirs(place, exist_ok=True)
        libc.mount(kind, place, kind, 0, None)


def say(name: str, found: object) -> None:
    sys.stdout.write(f"\n{MARK}{json.dumps([name, found])}\n")
    sys.stdout.flush()


def trials(folder: str) -> None:
    from advisor import identity
    from advisor.codec import from_json, to_json
    from advisor.kernels import numa
    from advisor.kernels.bench import Bench
    from advisor.kernels.messages import Trial
    from advisor.kernels.registry import load_spec
    from advisor.kernels.shelf import Shelf
    from advisor.site import running_memory_policy
    from advisor.topology.placement import evaluate
    from advisor.topology.probe import topology

    machine = topology("/")
    say("nodes", [[node.id, list(node.cpus)] for node in machine.numa_nodes])
    say("axes", [list(machine.array.axes), list(machine.array.shape)])
    allowed = identity.memory_policy_allowed()
    say("policies", numa.policies(machine.numa_nodes, allowed, machine.allowed_mems))
    with open(os.path.join(folder, "trials.json"), encoding="utf-8") as file:
        asked = json.load(file)
    for name, policy, placement, plain in asked["trials"]:
        trial = from_json(Trial, plain)
        cpus = evaluate(placement, machine.array, machine.allowed_cpus, trial.threads)
        where = numa.where(policy, machine.numa_nodes, cpus, machine.allowed_mems)
        trial = trial._replace(cpus=cpus, mask=machine.allowed_cpus, memory=where)
        bench = Bench(load_spec(asked["spec"]), 0, Shelf(""))
        bench.prepare(trial)
        say(name, {"cpus": cpus, **to_json(bench.trial(trial))})
        say(f"{name}: the process", running_memory_policy())
        numa.set_policy(numa.Where("default", ()))


if __name__ == "__main__":
    mount()
    try:
        trials(os.path.dirname(os.path.abspath(__file__)))
    except BaseException:  # the guest has no other way to say what went wrong
        say("error", traceback.format_exc())
    say("done", None)
    os.sync()
    ctypes.CDLL(None).reboot(0x4321FEDC)  # RB_POWER_OFF
