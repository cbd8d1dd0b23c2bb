"""On a GPU: variants of the chain are timed, and what counters say of atomics is what their headers say."""

import importlib.util

import pytest

from advisor.errors import BadInput
from advisor.kernels.gpu.device import find
from advisor.search.request import Silent
from advisor.validate.device_report import device_report
from advisor.validate.request import Request

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


@pytest.fixture(scope="module")
def measured():
    from advisor.topology.probe import probe

    machine = probe()
    try:
        gpu = find(machine, "cuda:0")
    except BadInput as error:
        pytest.skip(f"no NVIDIA GPU: {error}")
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("no CuPy")
    from advisor.validate.device_lab import lab_of
    from advisor.validate.device_measure import measure_device

    asked = Request(kernels=("backward", "fused"), sizes=(256, 512), budget_s=120.0, device="cuda:0")
    return measure_device(asked, machine._replace(gpus=(gpu,)), Silent(), lab_of(gpu))


def test_every_mapping_is_timed_and_the_cold_start_too(measured):
    ran = {s.variant for s in measured.series if s.samples_ns}
    assert {"gk_atomic_packed", "gk_atomic_one_lane", "fused_two_atomics_lane", "pair_packed"} <= ran
    assert [s for s in measured.series if s.status != "ok"] == []
    assert len(measured.cold_start_s) == 3


def test_fused_with_two_atomics_has_twice_the_atomics_of_backward(measured):
    if measured.uncounted:
        pytest.skip(f"no counters: {measured.uncounted}")
    found = {f.finding: f for f in device_report(Request(kernels=("backward", "fused")), measured).findings}
    one = found["fused has 2.0000x backward's atomics (packed, A kept)"]
    assert one.verdict == "reproduced", one
