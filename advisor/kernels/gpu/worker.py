"""The bench worker of a device, `python -m advisor.kernels.gpu.worker`; in the ways of advisor.kernels.worker.

An error that ends the CUDA context ends the worker too: its reply is unsound, and the pool starts another one.
"""

from __future__ import annotations

import resource
import sys
from typing import Any, BinaryIO

from advisor.errors import AdvisorError
from advisor.kernels.gpu.bench import Bench, Refused
from advisor.kernels.gpu.driver import DeviceError
from advisor.kernels.gpu.messages import Compile, Hello, Trial, decode
from advisor.kernels.messages import Phase, Reply, encode
from advisor.kernels.pycall import CallFailed
from advisor.kernels.registry import load_spec
from advisor.kernels.worker import _pipes, die_with


def main(parent: int) -> int:
    """Serve trials until the pool closes the pipe; the context is made before the first."""
    if not die_with(parent):
        return 1
    source, sink = _pipes()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hello = decode(source.readline())
    if not isinstance(hello, Hello):
        return 1
    from advisor.kernels.gpu.cuda import CudaDriver

    bench = Bench(CudaDriver(hello.uuid), load_spec(hello.spec_path), hello.seed)
    sink.write(encode(Phase("ready")))
    serve(bench, source, sink)
    return 0


def serve(bench: Bench, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer every line of `source` on `sink`."""
    for line in source:
        message = decode(line)
        sink.write(encode(Phase("inputs")))
        sink.write(encode(_answer(bench, message, sink)))


def _answer(bench: Bench, message: Any, sink: BinaryIO) -> Reply:
    try:
        if isinstance(message, Compile):
            return bench.compile(message)
        if not isinstance(message, Trial):
            return Reply("skipped", "a worker of a device takes trials")
        bench.prepare(message)
        sink.write(encode(Phase("run")))
        return bench.trial(message)
    except Refused as refused:
        return refused.reply
    except DeviceError as error:
        status = "crashed" if error.sticky else "skipped"
        return Reply(status, f"{_name(message)}: {error}", sound=not error.sticky)
    except CallFailed as error:
        fatal = "CUDA error" in str(error) or "AcceleratorError" in str(error)
        return Reply("crashed", f"{_name(message)}: {error}", sound=not fatal)
    except MemoryError as error:
        return Reply("skipped", f"out of device memory: {error}", sound=False)
    except AdvisorError as error:
        return Reply("skipped", str(error))


def _name(message: Any) -> str:
    return message.program.symbol if isinstance(message, Trial) else "compiling"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
