"""Whole tuning runs with made-up times, in processes that can be killed: `python stub_tuner.py`, one JSON line a run.

Everything is real but what measures: the command's stages, log, table, resume. Each line is run in a fork of its own
and answered by one line with how that ended. Times depend on problem, choice and position of the sample alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import sys
import time
import types

from fake import FakeExecutor, decode_ns, fake_machine, fake_variant, fake_variants

from advisor import guard, tuning
from advisor.codec import digest
from advisor.search import log as log_module
from advisor.search.others import Others
from advisor.search.request import Silent
from advisor.search.space import SpaceOptions, Toolchain

SPACE = SpaceOptions((Toolchain("gcc", "libgomp"),))
CORES = 4

FULL = 77
"""Exit status of a run that ended since the disk was full; the command says 1 and a line."""


class StubPool(FakeExecutor):
    """What stands in for the WorkerPool."""

    def __init__(self, machine, spec, variants, seed=0):
        super().__init__(lambda p, c: decode_ns(p, c, CORES), statuses=fate)
        self.crew = types.SimpleNamespace(close=lambda: None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _samples(self, true_ns, ask):
        problem, choice, _ = self.asked[-1]
        noise = random.Random(digest((problem, choice)))
        for _ in range(ask.samples):
            yield true_ns * noise.gauss(1.0, 0.02)

    def check(self, problem, choice, limit_s):
        return self.measure(problem, choice, tuning_ask(limit_s))._replace(samples_ns=())


def tuning_ask(limit_s):
    from advisor.kernels.executor import Ask

    return Ask(1, limit_s)


def fate(problem, choice):
    """One choice in twelve fails, each way of failing alike."""
    number = int(digest((problem.n, choice.build)), 16)
    return ("wrong", "crashed", "timeout", "skipped")[number // 12 % 4] if number % 12 == 0 else "ok"


def dying(die_at, torn):
    """Log.append that writes `torn` bytes of record number `die_at` and is killed within that write."""
    count = 0

    def append(self, record):
        nonlocal count
        count += 1
        if count > die_at:
            line = (json.dumps(dict(record)) + "\n").encode()
            os.write(self._fd, line[: torn % len(line)])
            os.kill(os.getpid(), signal.SIGKILL)
        true_append(self, record)

    true_append = log_module.Log.append
    return append


def stopping(stop_at):
    """Log.append that sends this process what Ctrl-C sends, once record number `stop_at` is written."""
    count = 0

    def append(self, record):
        nonlocal count
        true_append(self, record)
        count += 1
        if count == stop_at:
            os.kill(os.getpid(), signal.SIGINT)

    true_append = log_module.Log.append
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return append


def run(asked):
    """One tuning as asked: home, sizes, resume, where to die or stop, disk size, CPUs, one more variant, a note."""
    if "disk_bytes" in asked:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python does it at its start
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked["disk_bytes"], asked["disk_bytes"]))
    cores = asked.get("cores", CORES)
    tuning.topology = types.SimpleNamespace(probe=lambda: fake_machine(cores=cores))
    if asked.get("one_more"):
        tuning.variants_for = lambda *_: (*fake_variants(), fake_variant("naive", 30, {}, {"one-more": (1, 2)}))
    os.environ["ADVISOR_HOME"] = asked["home"]
    if asked.get("die_at") is not None:
        log_module.Log.append = dying(asked["die_at"], asked.get("torn", 0))
    if asked.get("stop_at") is not None:
        log_module.Log.append = stopping(asked["stop_at"])
    request = tuning.TuneRequest(("decode",), tuple(asked["sizes"]), resume=asked["resume"])
    (result,) = tuning.tune(request, Silent())
    assert ("interrupted" in result.missing) == (asked.get("stop_at") is not None), result.missing
    assert result.outcome.interrupted or not result.missing, result.missing
    assert any(asked.get("note", "") in note for note in ("", *result.notes)), result.notes


def patch():
    """Put the stubs in their places."""
    import advisor.kernels.pool
    import advisor.search.pace

    advisor.kernels.pool.WorkerPool = StubPool
    advisor.search.pace.first_s = lambda *_: 0.3  # of sources that are not there
    tuning.variants_for = lambda *_: fake_variants()
    tuning.space_options = lambda *_: SPACE
    tuning.others.look = lambda: Others(None, None, None, None, (), ())


def say(word):
    """One line of answer."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def serve():
    """Run what each line of standard input asks, each in a fork; answer with its wait status."""
    patch()
    import advisor.policy.learn
    import advisor.search.tune  # noqa: F401  (once, for all forks)

    say("ready")
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                code = _forked(asked)
            os._exit(code)
        if "kill_after_s" in asked:
            time.sleep(asked["kill_after_s"])
            os.kill(pid, signal.SIGKILL)
        say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _forked(asked):
    try:
        run(asked)
    except OSError as error:
        return FULL if guard.reason(error).startswith("the system refused") else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve()
