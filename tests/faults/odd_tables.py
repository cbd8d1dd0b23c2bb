"""Spoil a table in many ways and ask each for answers, as a server does: writes one JSON document of what happened.

    python odd_tables.py SEED COUNT MACHINE.json TABLE.json FOLDER

Run in a fresh process, so that nothing of a test's own is loaded and a crash or a hang is seen as such.
"""

import contextlib
import copy
import json
import os
import random
import sys
import traceback

from advisor import tablefile
from advisor.answers import Answer
from advisor.lookup import Policy

ODD = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2**70,
        -0.5,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "none",
        "take cpu 1 | ",
        "\0",
        "../x",
    ),
    *([], [1], [[]], {}, {"a": 1}, [None], ["x"] * 3, "9" * 50, "take socket 99", "group nowhere", "transpose x y"),
)
N = (-1, 0, 1, 63, 64, 65, 100, 1000, 4096, 10**12, 0.5, float("nan"), None, "64")
AXES = ({}, {"heads": 1}, {"dtype": "float32"}, {"regime": "cold"}, {"heads": "x"}, {"nothing": []})


def places(node, path=()):
    """Every place of a document, as keys to go through."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def spoil(document, chance):
    """One to three places deleted, doubled, replaced by something odd or by what lies elsewhere."""
    every = list(places(document))
    for _ in range(chance.choice((1, 1, 2, 3))):
        path = chance.choice(every)
        holder = document
        try:
            for key in path[:-1]:
                holder = holder[key]
            act = chance.randrange(4)
            if act == 0:
                del holder[path[-1]]
            elif act == 1 and isinstance(holder, list):
                holder.append(copy.deepcopy(holder[path[-1]]))
            elif act == 2:
                holder[path[-1]] = copy.deepcopy(chance.choice(ODD))
            else:
                other = document
                for key in chance.choice(every):
                    other = other[key]
                holder[path[-1]] = copy.deepcopy(other)
        except (LookupError, TypeError):
            continue  # an earlier step has taken the place away
    return document


def text_of(document, chance):
    """The file: whole, cut or with a byte turned; most are signed again, as somebody would who knows how."""
    if chance.random() < 0.8:
        with contextlib.suppress(ValueError, TypeError):
            document["table_id"] = tablefile.content_id(document)
    whole = json.dumps(document).encode()
    kind = chance.random()
    if kind < 0.05:
        return whole[: chance.randrange(len(whole))]
    if kind < 0.1:
        where = chance.randrange(len(whole))
        return whole[:where] + bytes([chance.randrange(256)]) + whole[where + 1 :]
    return whole


def ask(kernel, folder, machine, **more):
    """Everything that a server may ask. Returns the bases seen and the notes."""
    policy = Policy.load(folder, machine=machine, **more)
    bases = set()
    for axes in AXES:
        bound = policy.bind(kernel, **axes)
        for n in N:
            for answer in (policy.choose(kernel, n, **axes), bound(n)):
                if not isinstance(answer, Answer) or not isinstance(answer.threads, int) or not answer.why:
                    raise TypeError(f"no answer: {answer!r}")
                answer.estimate(n)
                bases.add(answer.basis)
        policy.best(kernel, 64, **axes)
    policy.problems()
    policy.sections(kernel)
    return bases, policy.notes


def main(seed, count, machine, table, folder):
    """Spoil and ask, `count` times."""
    with open(table, encoding="utf-8") as file:
        whole = json.load(file)
    kernel, chance = whole["kernel"], random.Random(seed)
    path = os.path.join(folder, f"{kernel}.table.json")
    on_device = whole["limits_id"] == "device"
    raised, doubled, silent, seen = [], [], [], {}
    for number in range(count):
        spoilt = text_of(spoil(copy.deepcopy(whole), chance), chance)
        with open(path, "wb") as file:
            file.write(spoilt)
        try:
            more = chance.choice(({}, {"stale": "use"}, {"objective": "robust"}, {"instance": 0, "of": 2}))
            more = {} if "of" in more and on_device else more  # a wrong argument
            bases, notes = ask(kernel, folder, machine, **more)
        except Exception:
            raised.append([number, traceback.format_exc()[-1500:]])
            continue
        if len(set(notes)) != len(notes):
            doubled.append([number, notes])
        if bases == {"DEFAULT"} and not notes and os.path.getsize(path) < len(json.dumps(whole)) // 4:
            silent.append(number)
        for basis in bases:
            seen[basis] = seen.get(basis, 0) + 1
    return {"raised": raised, "doubled": doubled, "silent": silent, "seen": seen, "count": count}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])))
