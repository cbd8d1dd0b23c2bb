"""The Gluon variant's splits of keys: who has which, and that they are joined where some have none or were not written.

Triton's interpreter runs what joins them; sums of a split are made here, as a block leaves them.
"""

import importlib.util

import numpy as np
import pytest

from advisor.kernels.forward.spec import SPEC
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.judge import relative_error
from advisor.kernels.variant import is_valid, variants

(GLUON,) = (one for one in variants("forward", (), GPU_LANGUAGES) if one.name == "tiled_gluon")
SHAPE = {"batch": 2, "heads": 1, "kv_heads": 1, "head_dim": 64}
LOG2E = np.log2(np.e)


@pytest.fixture(scope="module")
def gluon():
    """The variant's module, its kernels of Triton's interpreted."""
    pytest.importorskip("triton", reason="Triton is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        made = importlib.util.spec_from_file_location(GLUON.name, GLUON.path)
        module = importlib.util.module_from_spec(made)
        made.loader.exec_module(module)
        yield module


@pytest.mark.parametrize("n", [256, 259, 515, 1025])
def test_splits_have_all_tiles_and_none_is_without(gluon, n):
    for splits in (1, 2, 4):
        tiles = -(-n // 128)
        if splits <= tiles:
            share, filled = gluon.shares(n, 128, splits)
            assert filled <= splits
            assert (filled - 1) * share < tiles <= filled * share
    assert gluon.shares(515, 128, 4) == (2, 3)


def partials(q, k, v, causal, share, filled):
    """[split,head,n,..] sums, largest scores and totals, NaN where no block of _forward's writes."""
    heads, n, d = q.shape
    sums, most, total = (np.full((filled, heads, n, *more), np.nan, "f4") for more in ((d,), (), ()))
    scores = np.einsum("hid,hjd->hij", q, k) * LOG2E / np.sqrt(d)
    if causal:
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    for split in range(filled):
        keys = slice(split * share * 128, (split + 1) * share * 128)
        rows = slice(keys.start if causal else 0, n)
        some = scores[:, rows, keys]
        largest = some.max(axis=2)
        weights = np.exp2(some - largest[..., None])
        most[split, :, rows], total[split, :, rows] = largest, weights.sum(axis=2)
        sums[split, :, rows] = weights @ v[:, keys]
    return sums, most, total


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize(("n", "splits"), [(259, 2), (515, 4)])
def test_sums_of_splits_are_joined_to_the_dnf_and_what_nobody_wrote_is_not_read(gluon, n, splits, causal):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    problem = SPEC.problem(n, "float16", **SHAPE, causal=causal)
    assert is_valid(GLUON, problem, (("keys", 128), ("splits", splits), ("turns", 0)))
    inputs = SPEC.inputs(problem, 1, "outlier")
    q, k, v = (one.astype("f8").reshape(-1, n, 64) for one in SPEC.widened(problem, inputs).values())
    share, filled = gluon.shares(n, 128, splits)
    parts = [torch.from_numpy(one) for one in partials(q, k, v, causal, share, filled)]
    out = torch.full((2, 1, n, 64), float("nan"), dtype=torch.float16)
    grid = -(-n // gluon.JOINED), 2
    gluon._join[grid](out, *parts, n, share * 128, 64, gluon.JOINED, filled, bool(causal))
    wanted = SPEC.reference(problem, inputs)["out"]
    assert relative_error(out.double().numpy(), wanted.values) < wanted.cache_tolerance
