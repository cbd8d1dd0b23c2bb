"""Drift of clock and heat: seen when it is there, not when it is noise, and cheap."""

from __future__ import annotations

import itertools

import pytest
from fake import FakeExecutor, FakeSpec, decode_ns, fake_machine, fake_variants, recorded_noise, synthetic_noise

from advisor.codec import from_json
from advisor.records import Measurement, pairs
from advisor.search.drift import SHARE, Watch, correction, drift
from advisor.search.known import known, past
from advisor.search.log import Log, read
from advisor.search.request import Options, Request, Silent
from advisor.search.run import Run, value_of
from advisor.search.space import SpaceOptions, Toolchain, space

SPEC = FakeSpec()


def factors(readings):
    """What is said after each reading."""
    return [drift(readings[:count]) for count in range(1, len(readings) + 1)]


def test_a_clock_that_falls_is_seen_by_how_much():
    readings = [100.0, 101.0, 100.0, 101.0, 100.0, 101.0, 125.0, 126.0, 125.0, 126.0]
    found = factors(readings)
    assert found[:7] == [1.0] * 7
    assert found[-1] == pytest.approx(1.25, rel=0.02)


def test_too_few_readings_say_nothing():
    assert factors([100.0, 100.0, 100.0, 200.0, 200.0]) == [1.0] * 5


@pytest.mark.parametrize("noise", [synthetic_noise(1), synthetic_noise(2, 0.15)])
def test_noise_is_hardly_ever_taken_for_drift(noise):
    readings = [100.0 * noise(index) for index in range(400)]
    said = [drift(readings[start : start + 20]) for start in range(0, 380, 4)]
    assert sum(factor != 1.0 for factor in said) <= 0.05 * len(said)


def test_readings_keep_to_their_share_of_the_time():
    problem, now = SPEC.problem(64), 0.0
    watch = Watch(problem, now)
    watch.refer_to("anybody", 0.01)
    for _ in range(5000):
        now += 0.006
        if watch.is_due(now):
            watch.read(1.0, 0.008)
            now += 0.008
    assert 0.5 * SHARE * now < 0.008 * len(watch.readings) <= SHARE * now


class Warming(FakeExecutor):
    """Everything takes `factor` as long from a moment on."""

    factor, after_s = 1.0, float("inf")

    def measure(self, problem, choice, ask):
        found = super().measure(problem, choice, ask)
        if self.clock() < self.after_s:
            return found
        return found._replace(samples_ns=tuple(sample * self.factor for sample in found.samples_ns))


def go(path, factor=1.0, after_s=float("inf")):
    """First looks at a whole space, eight at a time, as a search takes them; the clock falls after some seconds."""
    options = Options(SpaceOptions((Toolchain("gcc", "libgomp"),)))
    machine, problem = fake_machine(), SPEC.problem(4096)
    request = Request(machine, SPEC, fake_variants(), (problem,), options, "s1")
    choices = space(machine, SPEC, request.variants, problem, options.space)[:400]
    fake = Warming(lambda p, c: decode_ns(p, c, 2), build_s=0.01)
    fake.factor, fake.after_s = factor, fake.clock() + after_s
    with Log(str(path / "m.jsonl")) as log:
        run = Run(request, fake, log, Silent(), fake.clock)
        run.open_session()
        for batch in (choices[i : i + 8] for i in range(0, len(choices), 8)):
            run.prepare(problem, batch)
            for choice in batch:
                run.look(problem, choice)
        return run.outcome(False), request


def readings(path):
    records = read(str(path / "m.jsonl")).records
    return [from_json(Measurement, r["measurement"]) for r in records if r.get("phase") == "drift"]


def test_looks_of_a_slower_clock_are_marked_and_judged_by_their_time_over_it(tmp_path):
    outcome, _ = go(tmp_path, 1.3, 1.5)
    marked = [look for look in outcome.trials if correction(look) != 1.0]
    assert marked
    for look in marked:
        true_ns = decode_ns(look.problem, look.choice, 2)
        assert look.samples_ns[0] == pytest.approx(1.3 * true_ns)
        assert value_of(look) == pytest.approx(true_ns)
    (note,) = [note for note in outcome.notes if "drift" in note]
    assert "up to 30% slower" in note
    assert f"{len(marked)} first looks" in note


def test_without_drift_nothing_is_marked_and_the_readings_are_cheap(tmp_path):
    outcome, _ = go(tmp_path)
    assert all(correction(look) == 1.0 for look in outcome.trials)
    assert not any("drift" in note for note in outcome.notes)
    taken = readings(tmp_path)
    assert len(taken) >= 6
    assert len({m.choice for m in taken}) == 1
    assert sum(m.seconds for m in taken) <= SHARE * dict(outcome.seconds)["total"]


def test_readings_are_no_first_looks(tmp_path):
    _, request = go(tmp_path)
    path = str(tmp_path / "m.jsonl")
    reference = {(m.choice, m.samples_ns) for m in readings(tmp_path)}
    earlier, again = past(path, request), known(path, request)
    looks = list(itertools.chain(*again.trials.values(), *again.rest.values()))
    assert len(looks) > 200
    assert not reference & {(m.choice, m.samples_ns) for m in (*looks, *earlier.trials)}


def test_a_mark_survives_the_log():
    look = Measurement(SPEC.problem(64), None, "ok", (130.0,) * 5, conditions=pairs({"drift": 1.3}))
    assert value_of(look) == pytest.approx(100.0)
    assert value_of(look._replace(conditions=())) == 130.0


def test_recorded_noise_of_a_shared_machine_is_rarely_corrected():
    noise = recorded_noise(0)
    said = [drift([noise(start + 5 * k) for k in range(20)]) for start in range(0, 400, 7)]
    assert sum(factor != 1.0 for factor in said) <= 0.25 * len(said)
