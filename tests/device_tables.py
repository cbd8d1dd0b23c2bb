"""Makers of a GPU, its machine and its table for tests. Times are made up; no test takes them for measurements."""

import os

from tabling import MADE, look, machine, race, write, write_machine

from advisor import device
from advisor.kernels import registry
from advisor.kernels.gpu.device import machine_of
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.variant import variants
from advisor.policy.learn import learn
from advisor.records import Build, Choice, pairs
from advisor.topology.gpu import GpuReport, joined

CARD = {
    "index": 0,
    "uuid": "GPU-0",
    "name": "NVIDIA H200",
    "memory_bytes": 143771 << 20,
    "sm_count": 132,
    "compute_capability": "9.0",
    "mig": "disabled",
    "power_limit_w": 690.0,  # another than that of the shipped tables
}
DRIVER = "580.95.05"
VERSIONS = {"cupy": "14.2.0", "triton": "3.6.0", "torch": "2.11.0", "nvrtc": "13"}
SHAPE = {"batch": 1, "heads": 8, "kv_heads": 2, "head_dim": 128}
SOURCES = {variant.name: variant for variant in variants("decode", (), GPU_LANGUAGES)}


def report(*cards, driver=DRIVER):
    """What the probe finds on a machine with these cards, each with what it changes of CARD; CUDA counts as NVML."""
    rows = [{**CARD, "index": i, "uuid": f"GPU-{i}", **changes} for i, changes in enumerate(cards)]
    seen = {"devices": [{"index": i, "uuid": row["uuid"]} for i, row in enumerate(rows)]}
    return joined({"gpus": rows, "driver": driver, "cuda": "13.0"}, seen, ())


def none():
    """What it finds without a driver."""
    return GpuReport((), None, None, (), ())


def gpu(**changes):
    """One GPU as the probe describes it."""
    return report(changes).gpus[0]


def whole(*cards):
    """A machine with these cards and the tools that tests pretend."""
    found = report(*cards)
    environment = pairs({"kernel": "6.1", "driver": found.driver, "cuda": found.cuda})
    return machine(gpus=found.gpus, environment=environment)


def choice(name, tool="cupy-14.2", **knobs):
    """A choice of a shipped variant, its knobs the defaults where none are given."""
    variant = SOURCES[name]
    return Choice(
        Build(name, variant.source_hash, pairs({**dict(variant.defaults), **knobs}), tool, "none"), None, None
    )


FEW, MANY = choice("split_w1"), choice("split_w4")


def table(monkeypatch, of=None, objective="latency"):
    """One warp up to about n = 1400, four warps from there; tuned at 256, 1024, 4096 and 16384."""
    monkeypatch.setattr("advisor.kernels.gpu.device.installed", VERSIONS.get)
    monkeypatch.setattr("advisor.kernels.gpu.device.nvrtc", lambda: VERSIONS["nvrtc"])
    times = {256: (3000.0, 3300.0), 1024: (3400.0, 3600.0), 4096: (6000.0, 5000.0), 16384: (20000.0, 9000.0)}
    races = [race(n, {MANY: many, FEW: few}, **SHAPE) for n, (few, many) in times.items()]
    made = MADE._replace(depends=device.DEPENDS, objective=objective)
    return learn(machine_of(whole({}), of or gpu()), races, [look(256, choice("gated"), 9000.0, **SHAPE)], made)


def keep(folder, monkeypatch, of=None):
    """The table and the description of a GPU in a folder of its own, as a tuner leaves them. Returns its path."""
    found = of or gpu()
    place = os.path.join(folder, "machines", f"{found.device_id}-{device.LIMITS_ID}")
    os.makedirs(place)
    write(place, table(monkeypatch, found))
    write_machine(place, machine_of(whole({}), found))
    return place


def spec():
    """Decode's DNF."""
    return registry.spec("decode")
