"""The driver that really is one: CuPy for memory, compiling, launches and graphs, PyTorch for its own calls.

Imported by the bench worker alone. CUDA_VISIBLE_DEVICES shows it one device.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cupy
import numpy as np

from advisor.errors import BuildError
from advisor.kernels.gpu.driver import Call, DeviceError, Replay
from advisor.kernels.gpu.geometry import Geometry
from advisor.kernels.gpu.source import as_text

HARMLESS = frozenset({1, 2, 9, 200, 209, 301, 500, 701, 900, 901, 903, 904, 905, 906})
"""Error codes after which a context goes on: refused values, configurations, resources, images, captures.

Source: CUDA Runtime API, cudaError_t; all that an executing kernel raises (700, 702, 710 to 720) end the context."""

FRESH_S = 5.0
"""How long the state of a device is taken to hold: asking a driver for it takes milliseconds."""

STATIC_SHARED = 48 << 10
"""A block gets more dynamic shared memory only after its function's limit was raised."""


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Errors of CuPy's as the frame's."""
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise MemoryError(str(error)) from error
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        raise DeviceError(str(error), getattr(error, "status", None) not in HARMLESS) from error


class CudaDriver:
    """The device that this process sees. `uuid` names it to NVML."""

    xp = cupy

    def __init__(self, uuid: str) -> None:
        with _told():
            cupy.cuda.Device(0).use()
            self._stream = cupy.cuda.Stream(non_blocking=True)
            cupy.zeros(1).sum()
        self._nvml = _nvml(uuid)

    def room_bytes(self) -> int:
        """Free memory, CuPy's own unused blocks included."""
        with _told():
            free = cupy.cuda.runtime.memGetInfo()[0]
        return int(free + cupy.get_default_memory_pool().free_bytes())

    def conditions(self) -> dict[str, Any]:
        """Clocks in MHz, power limit and draw in W, throttle reasons, temperature."""
        return self._nvml()

    def build(self, source: str, options: Sequence[str], symbols: Sequence[str]) -> Any:
        """Compile by NVRTC, from CuPy's cache where the same text and options lie there; from any thread."""
        cupy.cuda.Device(0).use()  # a thread that never called CUDA has no context to load into
        code, few = as_text(source, options)
        try:
            module = cupy.RawModule(code=code, options=few, backend="nvrtc")
            return tuple(module.get_function(symbol) for symbol in symbols)
        except cupy.cuda.compiler.CompileException as error:
            raise BuildError("a CUDA variant must compile", got=str(error)[:600]) from error
        except cupy.cuda.driver.CUDADriverError as error:
            raise BuildError("a compiled CUDA variant must load", got=str(error)) from error

    def launch(self, functions: Any, geometry: Geometry, arrays: Sequence[Any]) -> None:
        """Launch on CuPy's current stream, which keeps the order."""
        numbers = tuple(np.int32(number) for number in geometry.numbers)
        for function, (grid, block, shared_bytes) in zip(functions, geometry.extents, strict=True):
            with _told():
                if shared_bytes > STATIC_SHARED:
                    function.max_dynamic_shared_size_bytes = shared_bytes
                function(grid, (block,), (*arrays, *numbers), shared_mem=shared_bytes)

    def tensor(self, array: Any, dtype: str) -> Any:
        """A tensor over the same memory; bfloat16 lies in unsigned integers, which no tensor exchange takes."""
        import torch

        if dtype == "bfloat16":
            return torch.as_tensor(array.view(np.int16), device="cuda").view(torch.bfloat16)
        return torch.as_tensor(array, device="cuda")

    def record(self, calls: Sequence[Call], by_torch: bool) -> Replay:
        """A graph of the calls."""
        return _torch_graph(calls) if by_torch else self._graph(calls)

    def _graph(self, calls: Sequence[Call]) -> _Replay:
        with _told(), self._stream:
            self._stream.begin_capture()
            try:
                for call in calls:
                    call()
            finally:
                graph = self._stream.end_capture()
            graph.upload(self._stream)
            self._stream.synchronize()
        return _Replay(graph, self._stream)

    def time_ns(self, replay: Any, times: int) -> float:
        """Time between two events on the stream that the graph runs on."""
        stream = replay.stream
        with _told(), stream:
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record(stream)
            for _ in range(times):
                replay()
            end.record(stream)
            end.synchronize()
            return float(cupy.cuda.get_elapsed_time(start, end)) * 1e6

    def release(self) -> None:
        """Give back what CuPy keeps unused, and PyTorch where it was imported."""
        with _told():
            cupy.get_default_memory_pool().free_all_blocks()
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()

    def finish(self) -> None:
        """Wait for the device."""
        with _told():
            cupy.cuda.runtime.deviceSynchronize()


class _Replay:
    """Replays a graph of CuPy's on the stream that it was recorded on."""

    result = None

    def __init__(self, graph: Any, stream: Any) -> None:
        self._graph, self.stream = graph, stream

    def __call__(self) -> None:
        self._graph.launch(self.stream)


class _TorchReplay:
    """Replays a graph of PyTorch's on the stream that is its own."""

    def __init__(self, graph: Any, stream: Any, result: Any) -> None:
        self._graph, self._torch, self.result = graph, stream, result
        self.stream = cupy.cuda.ExternalStream(stream.cuda_stream)

    def __call__(self) -> None:
        import torch

        with torch.cuda.stream(self._torch):
            self._graph.replay()


def _torch_graph(calls: Sequence[Call]) -> _TorchReplay:
    import torch

    cuda: Any = torch.cuda  # its stream is not typed; where torch is absent, nothing is
    stream, graph = cuda.Stream(), cuda.CUDAGraph()
    result = None
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            result = call()
    torch.cuda.synchronize()
    return _TorchReplay(graph, stream, result)


def _nvml(uuid: str) -> Callable[[], dict[str, Any]]:
    """A function that asks NVML for the state of the device; what it refuses is absent."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except Exception:  # no NVML, or a device that it does not name so: nothing is told
        return dict
    asked: dict[str, tuple[str, tuple[int, ...], float]] = {
        "sm_mhz": ("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_SM,), 1),
        "memory_mhz": ("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_MEM,), 1),
        "power_limit_w": ("nvmlDeviceGetEnforcedPowerLimit", (), 1e-3),
        "power_w": ("nvmlDeviceGetPowerUsage", (), 1e-3),
        "throttle": ("nvmlDeviceGetCurrentClocksThrottleReasons", (), 1),
        "celsius": ("nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,), 1),
    }

    kept: dict[str, Any] = {}
    until = 0.0

    def state() -> dict[str, Any]:
        nonlocal kept, until
        if time.monotonic() < until:
            return kept
        found = {}
        for name, (function, arguments, factor) in asked.items():
            with contextlib.suppress(Exception):  # dozens of error classes, and old drivers lack symbols
                value = getattr(pynvml, function)(handle, *arguments) * factor
                if math.isfinite(value):
                    found[name] = round(value, 3)
        kept, until = found, time.monotonic() + FRESH_S
        return found

    return state
