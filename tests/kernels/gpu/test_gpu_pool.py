"""The pool of a device whose worker cannot be had."""

import os

from gpu_fixtures import DECODE, H200

from advisor.kernels.child import Program
from advisor.kernels.executor import Ask
from advisor.kernels.gpu import child
from advisor.kernels.gpu.messages import encode
from advisor.kernels.gpu.pool import GpuPool
from advisor.kernels.gpu.space import gpu_default
from advisor.kernels.header import GPU_LANGUAGES
from advisor.kernels.variant import variants

CUDA = (("cupy-14.2", "cuda"),)


def test_without_a_worker_nothing_is_prepared_and_measurements_are_skipped_with_the_reason(monkeypatch):
    gone = Program("advisor.no_such_worker", dict(os.environ), encode, parked=False)
    monkeypatch.setattr(child, "gpu_program", lambda uuid: gone)
    found, problem = variants("decode", (), GPU_LANGUAGES), DECODE.problem(100, "float16")
    choice = gpu_default(H200, DECODE, found, problem, CUDA)
    with GpuPool(H200, DECODE, found) as pool:
        prepared = pool.prepare(problem, [choice])
        assert (prepared.ready, prepared.failed) == (0, 1)
        measured = pool.measure(problem, choice, Ask(1, 10.0))
        assert measured.status == "skipped"
        assert "no_such_worker" in measured.reason
        again = pool.measure(problem, choice, Ask(1, 10.0))
        assert not again.reason.startswith("not run again")
