"""The seam between the bench of a device and the device: what CuPy does in a worker, and a stand-in in tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from advisor.kernels.gpu.geometry import Geometry

Call = Callable[[], Any]


class DeviceError(Exception):
    """A call of the driver failed. `sticky`: the context is lost, whatever comes after fails too."""

    def __init__(self, text: str, sticky: bool) -> None:
        super().__init__(text)
        self.sticky = sticky


class Replay(Protocol):
    """A recorded graph; calling it runs it once more.

    Attributes:
        result: what the last of its calls returned, in memory of the graph that each replay fills anew; None: nothing.
    """

    result: Any

    def __call__(self) -> Any:
        """Replay it once, on the stream that it was recorded on."""


class Driver(Protocol):
    """One device. Methods raise DeviceError, and MemoryError where its memory is full.

    Attributes:
        xp: the array module of its memory, numpy's interface.
    """

    xp: Any

    def room_bytes(self) -> int:
        """Free memory, what this process keeps unused included."""

    def conditions(self) -> dict[str, Any]:
        """Clocks, power limit, throttle reasons now; what cannot be asked is absent."""

    def build(self, source: str, options: Sequence[str], symbols: Sequence[str]) -> Any:
        """Compile CUDA source once and load it: what `launch` takes for these entries. Raises BuildError."""

    def launch(self, functions: Any, geometry: Geometry, arrays: Sequence[Any]) -> None:
        """Launch every entry in order on the current stream: pointers of the arrays, then the geometry's numbers."""

    def tensor(self, array: Any, dtype: str) -> Any:
        """The same memory as a tensor of PyTorch."""

    def record(self, calls: Sequence[Call], by_torch: bool) -> Replay:
        """The calls as one graph; the result replays it on the stream that `time_ns` measures."""

    def time_ns(self, replay: Replay, times: int) -> float:
        """Nanoseconds between two events around so many replays."""

    def release(self) -> None:
        """Give back memory that is kept unused, so that each of two allocators can have what the other had."""

    def finish(self) -> None:
        """Wait for everything. Errors of earlier launches show here."""
