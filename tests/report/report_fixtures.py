"""A folder to report on: a machine, a table and a log of made-up times, with names that nobody should trust."""

from __future__ import annotations

import gzip
import json

from tabling import MADE, choice, look, machine, race, write, write_machine

from advisor import codec
from advisor.policy.learn import learn
from advisor.records import HeldOut, Summary
from advisor.search import log
from advisor.signature.keep import with_signature
from advisor.signature.records import Quiet, Read, Signature

NASTY = '<img src=x onerror="document.title=1">&"</script>'
"""What a log could hold in the place of a reason, a variant or a compiler."""

ONE, TWO, FOUR = (choice("split", threads=threads) for threads in (1, 2, 4))
SIZES = (1024, 4096, 16384)


def times(n):
    """Made-up times: one thread is best at the smallest n, four at the largest."""
    return {ONE: 10.0 * n, TWO: 6.0 * n + 10e3, FOUR: 4.0 * n + 40e3}


def signature():
    """A signature with two rates; its other parts are empty."""
    time = Summary(1.0, 1.0, 1.0, 1.0, (1.0, 1.0), 9)
    reads = (
        Read("memory", 1 << 30, 4, "", 0, time, 20.0, (19.0, 21.0)),
        Read("l3", 1 << 20, 4, "", 0, time, 90.0, (80.0, 95.0)),
    )
    return Signature("2026-01-02", "hw", "lm", "gcc-12", 20.0, reads, (), (), Quiet(True, 0.0, 0.0, 0.0, 0.1, ()), ())


def verdicts():
    """Final races at every n, and one held out."""
    final = [race(n, times(n), default=FOUR) for n in SIZES]
    final = [one._replace(standings=tuple(s._replace(regret=1.02) for s in one.standings)) for one in final]
    held = race(8192, times(8192), "heldout")
    return [*final, held]


def trials():
    """Looks, one beside a neighbour, and failures of two kinds with a reason that is markup."""
    good = [("search", look(n, what, ns)) for n in SIZES for what, ns in times(n).items()]
    bad = choice(NASTY, threads=2)
    failed = [
        ("search", look(n, bad, 1.0, status)._replace(reason=f"{status} {NASTY}"))
        for n, status in ((1024, "crashed"), (4096, "crashed"), (4096, "wrong"))
    ]
    return [*good, ("stolen", look(1024, ONE, 9e9)), *failed]


def records():
    """The lines of the log."""
    head = {"kind": "session", "schema": log.SCHEMA, "session": "s1", "time": "2026-01-02T03:04:05Z", "advisor": NASTY}
    found = [{**head, "protocol": 3, "others": {"reasons": ["a build runs"]}}]
    found += [
        {"kind": "trial", "session": "s1", "choice_id": "c", "phase": phase, "measurement": codec.to_json(one)}
        for phase, one in trials()
    ]
    return found + [
        {"kind": "verdict", "session": "s1", "race": "r", "verdict": codec.to_json(one)} for one in verdicts()
    ]


def busy(point):
    """A point that was also measured beside a neighbour: five times slower."""
    slow = 5 * point.summary.p25_ns
    return point._replace(stolen=Summary(slow, slow, slow, 2 * slow, (slow, slow), 50), extra=(("fragility", 5.0),))


def folder(path, packed=False):
    """Write it all. Returns the path as text."""
    here = with_signature(machine(model_name=f"Test {NASTY}"), signature())
    table = learn(here, verdicts(), [one for _, one in trials()], MADE)
    point = table.sections[0].rows[0].points[0]
    held = HeldOut((8192,), (1.05,), 1.05, 1.05)
    section = table.sections[0]
    rows = (section.rows[0]._replace(points=(busy(point), *section.rows[0].points[1:])), *section.rows[1:])
    table = table._replace(sections=(section._replace(heldout=held, rows=rows), *table.sections[1:]))
    write(path, table)
    write_machine(path, here)
    text = "".join(json.dumps(one) + "\n" for one in records()).encode()
    name = "measurements.jsonl.gz" if packed else "measurements.jsonl"
    (path / name).write_bytes(gzip.compress(text) if packed else text)
    return str(path)
