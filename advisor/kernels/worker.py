"""The bench worker, `python -m advisor.kernels.worker`: a process that loads variants, checks and times them.

It talks over the pipes it was started with (see messages.py). What a variant prints must not get between the lines:
before anything is loaded the pipes move to other descriptors, and standard output becomes standard error.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import signal
import sys
from typing import BinaryIO

from advisor.errors import AdvisorError
from advisor.kernels.bench import Bench, Refused
from advisor.kernels.library import KernelFailed
from advisor.kernels.messages import Hello, Phase, Reply, Trial, decode, encode
from advisor.kernels.numa import PolicyRefused
from advisor.kernels.pycall import CallFailed
from advisor.kernels.registry import load_spec
from advisor.kernels.shelf import Shelf

PR_SET_PDEATHSIG = 1
"""Source: prctl(2)."""

STDERR_BYTES = 1 << 20
"""A file this process writes to grows no longer: a variant that prints in its loop must not fill the disk."""


def main(parent: int) -> int:
    """Serve trials until the pool closes the pipe.

    Args:
        parent: the pool's process id; when that is not this process's parent any more, the pool is gone already.
    """
    if not die_with(parent):
        return 1
    source, sink = _pipes()
    _limits()
    hello = decode(source.readline())
    if not isinstance(hello, Hello):
        return 1
    if hello.library:
        importlib.import_module(hello.library)
    bench = Bench(load_spec(hello.spec_path), hello.seed, Shelf(hello.shelf))
    _say(sink, Phase("ready"))
    for line in source:
        _serve(bench, decode(line), sink)
    return 0


def die_with(parent: int) -> bool:
    """Ask the kernel to kill this process when the thread that started it ends; False when it has ended already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """Streams to and from the pool on descriptors of their own."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink


def _limits() -> None:
    """No core dumps of crashing variants, and no endless output."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = STDERR_BYTES if most == resource.RLIM_INFINITY else min(STDERR_BYTES, most)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))  # the shelf lifts the soft limit for its own files
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writes past the limit fail instead of killing


def _say(sink: BinaryIO, message: Phase | Reply) -> None:
    sink.write(encode(message))


def _serve(bench: Bench, trial: Trial, sink: BinaryIO) -> None:
    try:
        if bench.needs_inputs(trial):
            _say(sink, Phase("inputs"))
            bench.prepare(trial)
        _say(sink, Phase("run"))
        reply = bench.trial(trial)
    except Refused as refused:
        reply = refused.reply
    except PolicyRefused as refused_policy:
        reply = Reply("skipped", str(refused_policy))
    except KernelFailed as failed:
        reply = Reply("crashed", f"{trial.binary.symbol}: {failed}", sound=False)
    except CallFailed as failed:
        reply = Reply("crashed", f"{trial.binary.symbol}: {failed}")
    except MemoryError as error:
        reply = Reply("crashed", f"out of memory: {error}", sound=False)
    except AdvisorError as error:
        reply = Reply("skipped", str(error))
    _say(sink, reply)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
