"""Messages between pool and worker survive the wire; what is no message is refused."""

from __future__ import annotations

import kernel_fixtures as fixtures
import pytest

from advisor.errors import BadInput
from advisor.kernels.messages import Binary, Edge, Hello, Phase, Reply, Trial, decode, encode

BINARY = Binary("/a/b.so", "entry", "0123", (4, 8), (4, 2))
TRIAL = Trial(
    problem=fixtures.problem(64),
    dims=(16, 64),
    binary=BINARY,
    threads=2,
    cpus=(0, 1),
    mask=(0, 1),
    edges=(Edge(fixtures.problem(1), (16, 1)),),
    samples=9,
    sample_s=0.001,
    give_up_ns=None,
    quiet=True,
    sets=1,
    own_pages=False,
    scratch_bytes=None,
)


@pytest.mark.parametrize(
    "message",
    [
        Hello("/spec.py", 3),
        TRIAL,
        TRIAL._replace(cpus=None, give_up_ns=5.0, scratch_bytes=10),
        TRIAL._replace(draw="outlier", edges=(Edge(fixtures.problem(1), (16, 1), "outlier"),)),
        Reply("ok", samples_ns=(1.0, 2.5), error=0.0, conditions=(("cpus_observed", (0, 1)), ("steal_ticks", None))),
        Reply("wrong", "why", sound=False),
        Phase("run"),
    ],
)
def test_there_and_back(message):
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode(line) == message


@pytest.mark.parametrize("line", [b"hello\n", b"{}\n", b"[1]\n", b'{"reply": 3}\n', b'{"other": {}}\n', b"\xff\xfe\n"])
def test_no_message(line):
    with pytest.raises(BadInput):
        decode(line)


def test_not_finite_is_refused():
    with pytest.raises((BadInput, ValueError)):
        encode(Reply("ok", samples_ns=(float("nan"),)))
