"""fused/device.py with numpy in the place of a device: what spec.py says, in every dtype."""

import numpy as np
import pytest

from advisor.kernels.fused import device
from advisor.kernels.fused.spec import SPEC
from advisor.kernels.spec import STORAGE

SHARED = {"batch": 1, "heads": 4, "kv_heads": 2, "head_dim": 16, "causal": 1}


@pytest.mark.parametrize("draw", SPEC.draws)
@pytest.mark.parametrize("dtype", SPEC.dtypes)
def test_a_device_makes_the_reference_of_the_host_from_inputs_in_their_storage(dtype, draw):
    problem = SPEC.problem(150, dtype, **SHARED)
    inputs, drawn = device.inputs(np, problem, 3, draw), SPEC.inputs(problem, 3, draw)
    for name, one in drawn.items():
        assert (inputs[name].shape, inputs[name].dtype) == (one.shape, STORAGE[dtype]), name
    mine, wanted = device.reference(np, problem, inputs), SPEC.reference(problem, inputs)
    assert sorted(mine) == sorted(wanted) == sorted(SPEC.written)
    for name, one in wanted.items():
        assert np.abs(mine[name].values - one.values).max() <= 1e-11 * max(1, np.abs(one.values).max()), name
        assert mine[name].tolerance == pytest.approx(one.tolerance)
        assert mine[name].cache_tolerance == pytest.approx(one.cache_tolerance)
