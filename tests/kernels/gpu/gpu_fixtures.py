"""A device that is none: numpy's memory, and entries that are functions of Python. For host code of the GPU frame."""

import functools
import io

import numpy as np

from advisor.errors import BuildError
from advisor.kernels import registry
from advisor.kernels.gpu import worker
from advisor.kernels.gpu.bench import Bench
from advisor.kernels.gpu.messages import encode
from advisor.kernels.gpu.source import text
from advisor.kernels.messages import decode as read
from advisor.kernels.sixteen import narrow
from advisor.kernels.spec import STORAGE
from advisor.kernels.variant import variants
from advisor.records import Gpu

H200 = Gpu(
    0, "GPU-0", "NVIDIA H200", 143771 << 20, 132, "9.0", 0, "disabled", 700.0, cuda_index=0, device_id="0123456789ab"
)
DECODE = registry.spec("decode")


class Entries(tuple):
    """What a fake driver builds: the symbols, and the kernel whose source they are of; None for other sources."""

    kernel = None


@functools.cache
def sources():
    """Every CUDA source as a driver gets it -> its kernel."""
    found = [v for kernel in registry.kernels() for v in variants(kernel, (), ("cuda",))]
    return {text(v.path, v.source_hash): v.kernel for v in found}


def computed(kernel, geometry, arrays):
    """What every entry of a kernel computes, by its spec's reference, written to the outputs."""
    spec = registry.spec(kernel)
    known = dict(zip(spec.dims, geometry.numbers, strict=False))
    kinds = {np.dtype(kind): dtype for dtype, kind in STORAGE.items()}
    n = known.pop("n")
    problem = spec.problem(n, kinds[arrays[0].dtype], **known)
    inputs = dict(zip(spec.buffers[: len(spec.buffers) - len(spec.written)], arrays, strict=False))
    expected, types = spec.reference(problem, inputs), spec.types(problem)
    for name, array in zip(spec.buffers[len(inputs) :], arrays[len(inputs) :], strict=False):
        one, flat = expected[name], np.zeros((array.size // array.shape[-1], array.shape[-1]))
        if one.columns is not None:
            flat[:, one.columns] = one.values
        else:
            flat[slice(None) if one.rows is None else one.rows] = one.values.reshape(-1, flat.shape[-1])
        array[...] = stored(flat.reshape(array.shape), types[name])


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


def stored(values, dtype):
    """float64 numbers in the storage of a dtype."""
    return narrow(values.astype(np.float32), dtype) if dtype in ("bfloat16", "float16") else values


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
        found = Entries(symbols)
        found.kernel = sources().get(source)
        return found

    def launch(self, functions, geometry, arrays):
        if self.fails:
            raise self.fails
        self.launched.append((functions, geometry, [a.ctypes.data for a in arrays]))
        if getattr(functions, "kernel", None) not in (None, "decode"):
            return computed(functions.kernel, geometry, arrays)
        return attend(geometry, arrays, self.spoil)

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
