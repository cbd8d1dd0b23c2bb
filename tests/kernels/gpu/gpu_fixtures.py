"""A device that is none: numpy's memory, and entries that are functions of Python. For host code of the GPU frame."""

import io

import numpy as np

from advisor.errors import BuildError
from advisor.kernels.gpu import worker
from advisor.kernels.gpu.bench import Bench
from advisor.kernels.gpu.messages import encode
from advisor.kernels.messages import decode as read
from advisor.kernels.registry import spec
from advisor.records import Gpu

H200 = Gpu(
    0, "GPU-0", "NVIDIA H200", 143771 << 20, 132, "9.0", 0, "disabled", 700.0, cuda_index=0, device_id="0123456789ab"
)
DECODE = spec("decode")


def attend(geometry, arrays, spoil=None):
    """What every decode entry computes, in float64, written to the output."""
    q, k, v, out, _ = arrays
    b, h, g, d, _ = geometry.numbers[:5]
    for i in range(b):
        for j in range(h):
            keys, values = (_wide(a[i, j // (h // g)]) for a in (k, v))
            s = keys @ q[i, j].astype(np.float64) / np.sqrt(d)
            w = np.exp(s - s.max())
            out[i, j] = w @ values / w.sum()
    if spoil:
        spoil(arrays)


def _wide(a):
    return (a.astype(np.uint32) << 16).view(np.float32) if a.dtype == np.uint16 else a.astype(np.float64)


class FakeGraph:
    """Runs each of its calls once, hundreds as they may be, and says how many they are."""

    def __init__(self, calls):
        self.calls, self.result = calls, None

    def __call__(self):
        for call in dict.fromkeys(self.calls):
            self.result = call()
        return len(self.calls)


class FakeDriver:
    """Counts what is compiled, launched and timed; every call takes `call_ns`."""

    xp = np

    def __init__(self, call_ns=10_000.0, spoil=None, fails=None):
        self.call_ns, self.spoil, self.fails = call_ns, spoil, fails
        self.built, self.launched, self.timed, self.graphs, self.released = [], [], [], 0, 0

    def room_bytes(self):
        return 1 << 40

    def conditions(self):
        return {"sm_mhz": 1980}

    def build(self, source, options, symbols):
        if "broken" in source:
            raise BuildError("must compile", got=symbols)
        self.built.append((*symbols, options))
        return tuple(symbols)

    def launch(self, functions, geometry, arrays):
        if self.fails:
            raise self.fails
        self.launched.append((functions, geometry, [a.ctypes.data for a in arrays]))
        attend(geometry, arrays, self.spoil)

    def tensor(self, array, dtype):
        return array

    def record(self, calls, by_torch):
        self.graphs += 1

        return FakeGraph(calls)

    def time_ns(self, replay, times):
        self.timed.append(times)
        return self.call_ns * times * replay()

    def release(self):
        self.released += 1

    def finish(self):
        pass


def answers(driver, *messages):
    """What a worker says to these lines."""
    sink = io.BytesIO()
    worker.serve(Bench(driver, DECODE, 0), [encode(one) for one in messages], sink)
    return [read(line) for line in sink.getvalue().splitlines()]
