"""What each kernel of a model is asked, and how several share a budget."""

from __future__ import annotations

import pytest
from test_model import GEMMA, LLAMA, MIXTRAL

from advisor import asked, model, shares
from advisor.errors import BadInput
from advisor.kernels import registry
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.variant import variants
from advisor.pipeline import served
from advisor.search.request import Silent

NAMES = ("decode", "forward", "mlp", "mlp_backward", "rmsnorm", "rmsnorm_backward")


def of(document, names=NAMES, **wanted):
    specs = [registry.spec(name) for name in names]
    owns, notes = asked.of_model(model.parse(document, {}), specs, asked.Wanted(**wanted), served(names, (), False))
    return {one.kernel: one for one in owns}, notes


def test_every_kernel_knows_what_its_n_is_and_whether_a_server_calls_it():
    specs = {name: registry.spec(name) for name in registry.kernels()}
    roles = {name: asked.role(spec) for name, spec in specs.items()}
    assert (roles["decode"], roles["forward"], roles["mlp"]) == (asked.CACHE, asked.SEQUENCE, asked.ROWS)
    training = {name for name, spec in specs.items() if asked.is_training(spec)}
    assert {"backward", "fused", "mlp_backward", "rmsnorm_backward"} <= training
    assert not training & {"decode", "forward", "mlp", "rmsnorm"}


def test_sizes_suit_the_kernel_and_the_models_context():
    found, _ = of(LLAMA)
    assert found["mlp"].sizes[0] == 1  # a step of decoding
    assert found["mlp"].sizes[-1] == found["forward"].sizes[-1] == 4096
    assert max(found["decode"].sizes) == 4096  # its context is 8192
    longer, _ = of({**LLAMA, "max_position_embeddings": 131072})
    assert max(longer["decode"].sizes) == 65536
    assert of(LLAMA, sizes=(7,))[0]["decode"].sizes == (7,)
    assert asked.default_sizes(registry.spec("decode"))[0] == 1024


def test_what_costs_least_comes_first():
    found = list(of(LLAMA)[0])
    assert found.index("rmsnorm") < found.index("mlp") < found.index("mlp_backward")


def test_kernels_without_the_models_dtype_are_named_once():
    found, notes = of(LLAMA)
    assert (found["decode"].dtype, found["mlp"].dtype) == ("bfloat16", "float32")
    (said,) = notes
    assert "bfloat16" in said
    assert "decode" not in said
    assert of(LLAMA, dtype="float64")[0]["decode"].dtype == "float64"


def test_a_kernel_left_out_is_noted_and_refused_where_it_was_named():
    found, notes = of(MIXTRAL)
    assert "mlp" not in found
    assert any("mlp is left out" in note for note in notes)
    assert any("gates its MLP" in note for note in of(GEMMA)[1])
    with pytest.raises(BadInput, match="mixture"):
        of(MIXTRAL, names=("mlp", "decode"), named=True)
    with pytest.raises(BadInput, match="mixture"):
        of(MIXTRAL, names=("mlp",))
    assert list(of(LLAMA, dtype="bfloat16")[0]) == ["decode"]  # the others are not defined for it


@pytest.mark.parametrize(
    ("share_s", "sizes"),
    [(None, (1, 8, 64, 512, 4096)), (1e9, (1, 8, 64, 512, 4096)), (0.5, (1,)), (6.5, (1, 4096)), (9.5, (1, 64, 4096))],
)
def test_a_share_has_room_for_so_many_sizes(share_s, sizes):
    assert shares.room_for((1, 8, 64, 512, 4096), share_s) == sizes


def test_what_kernels_need_comes_first_and_the_rest_is_shared_evenly():
    assert shares.share_of(100.0, (10.0, 30.0)) == 10.0 + 30.0
    assert shares.share_of(100.0, (5.0,)) == 100.0
    assert shares.share_of(20.0, (10.0, 30.0)) == 5.0  # not enough for all: in proportion


def need(name, n, **shape):
    spec = registry.spec(name)
    return shares.Need(spec, spec.problem(n, **shape), tuple(variants(name)))


def test_a_slow_machine_needs_more_and_so_does_a_larger_kernel():
    small, large = need("block", 4), need("block", 4, d_model=4096, d_ff=14336)
    assert shares.least_s(small, 1.0) < shares.least_s(large, 1.0) < shares.least_s(large, 2.0)
    assert shares.least_s(large, 2.0) == pytest.approx(2 * shares.least_s(large, 1.0))


def test_a_device_needs_less_for_the_work_and_as_much_to_start():
    spec, problem, found = need("forward", 2048, heads=32, kv_heads=8, head_dim=128)
    on_device = shares.Need(spec, problem, tuple(variants("forward", (), GPU_LANGUAGES)))
    assert shares.START_S < shares.least_s(on_device, 1.0) < shares.least_s(shares.Need(spec, problem, found), 1.0) / 3


def test_a_smaller_size_is_taken_where_the_usual_one_has_no_room():
    sizes = [(n, need("block", n, d_model=4096, d_ff=14336)) for n in (4, 16, 64)]
    takes = {n: shares.least_s(one, 1.0) / shares.FIRST_SHARE for n, one in sizes}
    assert takes[4] < takes[16] < takes[64]
    for seconds, n in ((None, 64), (1.01 * takes[64], 64), (0.99 * takes[64], 16), (0.99 * takes[16], 4), (0.1, 4)):
        assert shares.within_room(sizes, shares.Room(seconds), 64) == n


def test_a_trial_of_a_long_call_has_the_time_that_its_first_look_takes():
    one = need("block_backward", 4, d_model=4096, d_ff=14336)
    usual, slow = (shares.trial_limit(shares.Room(40.0, by), one.spec, one.problem, 20.0) for by in (0.0, 2.0))
    assert usual == shares.LEAST_LIMIT_S
    assert usual < slow <= 20.0
    assert shares.trial_limit(shares.Room(10.0, 100.0), one.spec, one.problem, 20.0) == 5.0  # half of it at most


class Heard(Silent):
    def __init__(self):
        self.stages, self.left = [], []

    def stage(self, name, total):
        self.stages.append(name)

    def seconds_left(self, seconds):
        self.left.append(seconds)


def test_progress_of_one_of_many_tells_which_and_how_long_all_take():
    heard = Heard()
    part = shares.OfMany(heard, "mlp (3 of 11)", lambda: 170.0)
    part.stage("n=8", 24)
    part.seconds_left(12.0)
    assert (heard.stages, heard.left) == (["mlp (3 of 11): n=8"], [170.0])
    shares.OfMany(heard, "mlp", lambda: None).seconds_left(None)
    assert heard.left[-1] is None
