"""On a GPU: `advisor tune --device cuda:0` for real, in half a minute, and what it leaves answers."""

import importlib.util
import json
import os

import pytest
from commanding import Site

from advisor.errors import BadInput
from advisor.kernels.gpu.device import find
from advisor.kernels.gpu.tools import gpu_tools
from advisor.policy.store import load_table
from advisor.topology.probe import probe

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

SHAPE = ("--dtype", "float16", "--batch", "1", "--heads", "40", "--kv-heads", "8", "--head-dim", "128")


@pytest.fixture(scope="module")
def gpu():
    try:
        found = find(probe(), "cuda:0")
    except BadInput as error:
        pytest.skip(f"no NVIDIA GPU: {error}")
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("no CuPy")
    return found


def test_decode_is_tuned_asked_for_and_stale_under_another_power_limit(gpu, tmp_path):
    site = Site(str(tmp_path / "home"), os.environ.get("ADVISOR_CACHE") or str(tmp_path / "cache"))
    tool = gpu_tools()[0].name  # Triton and PyTorch take longer to import than all of this
    asked = (*SHAPE, "--n", "1024,16384", "--budget", "40s", "--compilers", tool)
    done = site.advisor("tune", "--device", "cuda:0", *asked, "--json")
    assert done.status == 0, done.err
    told = json.loads(done.out)
    assert (told["trials"]["wrong"], told["trials"]["crashed"], told["trials"]["timeout"]) == (0, 0, 0)
    times = {best["n"]: best["p25_ns"] for best in told["best"]}
    assert 0 < times[1024] < times[16384]
    (section,) = load_table(told["table_path"]).sections
    assert section.process is None
    # the shape is named: shipped tables answer for others where this is the GPU that they were made on
    ask = ("recommend", "--kernel", "decode", "--n", "1024", "--regime", "warm", *SHAPE, "--json")
    for where in (("--device", "cuda:0"), ("--machine", site.file("machine.json"))):
        (answer,) = json.loads(site.advisor(*ask, *where).out)["answers"]
        assert (answer["basis"], answer["expected_ns"], answer["device"]) == ("EXACT", times[1024], gpu.name)
    with open(site.file("machine.json"), encoding="utf-8") as file:
        machine = json.load(file)
    assert machine["gpus"][0]["uuid"] == gpu.uuid
    assert machine["environment"]["sm_count"] == gpu.sm_count
