"""The tuner's benchmark on made-up rows and a made-up executor: peers, exhaustive pass, judging, printing, parts."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import pytest
import tune
import tune_kernel_tuner as kernel_tuner
import tune_rows
from fake import FakeExecutor, FakeSpec, decode_ns, fake_machine, fake_variants, recorded_noise

from advisor.kernels.registry import spec
from advisor.kernels.variant import for_machine, variants
from advisor.records import Build, Choice, Process, Team
from advisor.search.look import Place
from advisor.search.request import Options, Request
from advisor.search.space import SpaceOptions, Toolchain, default_choice, is_default_process, space

SPACE = SpaceOptions((Toolchain("gcc", "libgomp"),))


def made(n=4096):
    machine, known, dnf = fake_machine(), fake_variants(), FakeSpec()
    problem = dnf.problem(n)
    where = (machine, dnf, known, problem, SPACE)
    wanted = Request(machine, dnf, known, (problem,), Options(SPACE), "s")
    return wanted, Place(problem, space(*where), default_choice(*where), ())


def executor(noise=None, **other):
    return FakeExecutor(lambda p, c: decode_ns(p, c, 2), noise or recorded_noise(0), **other)


def row(kernel="decode", n=1024, ours=(1.01, 0.99, 1.03), share=0.15, whole=True, peer=(1.2, 1.1, 1.3)):
    spent = {
        "ours": {"choice": None, "trials": 20, "seconds": 1.5, "why": "more search cannot pay for itself"},
        "TPE": {"choice": None, "trials": 30, "seconds": 1.5, "why": ""},
    }
    return {
        "kernel": kernel, "n": n, "space": 400, "share": share, "rounds": 60, "spent": spent,
        "exhaustive": {"looked": 400 if whole else 100, "seconds": 10.0, "whole": whole},
        "regret": {"ours": list(ours) if ours else None, "TPE": list(peer), "exhaustive": [1.0, 0.99, 1.0]},
    }  # fmt: skip


# --- measuring ---


def test_the_exhaustive_pass_looks_at_everything_once_and_finds_the_best():
    wanted, place = made()
    fake = executor()
    found = tune_rows.exhaustive(fake, wanted, place, time.monotonic() + 60)
    looks = [choice for _, choice, ask in fake.asked if ask.samples > 1]
    assert found.whole
    assert found.looked == len(looks) == len(set(looks)) == len(place.choices)
    times = [decode_ns(place.problem, choice, 2) for choice in place.choices]
    assert decode_ns(place.problem, found.best[0], 2) <= 1.03 * min(times)


def test_a_pass_without_time_says_so():
    wanted, place = made()
    found = tune_rows.exhaustive(executor(), wanted, place, time.monotonic() - 1)
    assert (found.looked, found.whole, found.best) == (0, False, ())


@pytest.mark.parametrize("name", tune_rows.PEERS)
def test_a_peer_takes_the_best_it_looked_at_and_looks_at_nothing_twice(name):
    wanted, place = made()
    fake = executor()
    found = tune_rows.peer(fake, wanted, place, name, 0.5)
    looked = [choice for _, choice, _ in fake.asked]
    assert len(looked) == len(set(looked)) == found.trials > 3
    best = min(looked, key=lambda c: decode_ns(place.problem, c, 2))
    assert decode_ns(place.problem, found.choice, 2) <= 1.2 * decode_ns(place.problem, best, 2)


def test_a_peer_whose_every_choice_fails_has_none():
    wanted, place = made()
    found = tune_rows.peer(executor(statuses=lambda *_: "wrong"), wanted, place, "random", 0.1)
    assert found.choice is None
    assert found.trials > 0


def test_the_fresh_race_drops_nobody_but_failures_and_judges_by_true_times():
    _, place = made()
    order = sorted(place.choices, key=lambda c: decode_ns(place.problem, c, 2))
    fast, slow, broken = order[0], order[-1], order[5]
    fake = executor(statuses=lambda _, c: "crashed" if c == broken else "ok")
    samples = tune_rows.fresh_race(fake, place.problem, (fast, slow, broken), time.monotonic() - 1)
    assert {choice: len(taken) for choice, taken in samples.items()} == dict.fromkeys(
        (fast, slow), tune_rows.LEAST_FRESH
    )
    found = tune_rows.regrets(samples, {"ours": fast, "TPE": slow, "random": broken, "nobody": None})
    assert found["random"] is None
    assert found["nobody"] is None
    assert found["ours"][0] == pytest.approx(1.0, abs=0.05)
    true = decode_ns(place.problem, slow, 2) / decode_ns(place.problem, fast, 2)
    assert found["TPE"][1] < true < found["TPE"][2] or found["TPE"][0] == pytest.approx(true, rel=0.2)


# --- Kernel Tuner ---


def job(machine=None, n=256):
    from advisor.kernels.compilers import compilers

    machine, dnf = machine or fake_machine(cores=2), spec("decode")
    known = [v for v in for_machine(variants("decode"), machine) if not v.requires]
    tools = compilers()
    if not tools:
        pytest.skip("no C compiler with OpenMP")
    problem = dnf.problem(n)
    options = SpaceOptions((Toolchain(tools[0].name, tools[0].runtime),))
    choices = space(machine, dnf, known, problem, options)
    return machine, dnf, problem, choices, kernel_tuner.job(machine, dnf, known, problem, choices)


def test_every_setting_is_one_choice_of_the_default_process_part():
    _, _, _, choices, found = job()
    able = [choice for choice in choices if is_default_process(choice.process)]
    assert sorted(found.valid.values()) == sorted(able)
    for setting in found.valid:
        assert all(value in found.parameters[name] for name, value in zip(found.parameters, setting, strict=True))


def test_the_generated_file_compiles_and_times_a_setting(tmp_path):
    import ctypes

    import numpy as np

    _, dnf, problem, _, found = job(n=64)
    kernel_tuner._write(str(tmp_path), found, dnf, problem, ("genetic_algorithm", 1.0))
    asked = json.loads((tmp_path / "job.json").read_text())
    setting = next(s for s, choice in found.valid.items() if choice.team.threads == 1)
    defines = [f"-D{name}={value}" for name, value in zip(found.parameters, setting, strict=True)]
    library = tmp_path / "call.so"
    options = asked["options"]
    subprocess.run([asked["compiler"], *options[:-2], *defines, "-shared", asked["source"], *options[-2:], "-o", library], check=True)  # fmt: skip # noqa: E501
    call = ctypes.CDLL(str(library)).kt_call
    call.restype = ctypes.c_float
    arrays = [np.load(tmp_path / f"{name}.npy") for name in asked["arrays"]]
    taken = call(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))
    want = dnf.reference(problem, dict(zip(dnf.buffers, arrays, strict=True)))["out"].values
    assert 0 < taken < 1e6
    assert np.allclose(arrays[-1], want, atol=1e-4)


@pytest.mark.slow
def test_kernel_tuner_itself_or_why_it_is_left_out():
    reason = kernel_tuner.absent(sys.executable)
    if reason:
        assert "kernel_tuner" in reason
        pytest.skip(f"Kernel Tuner is not here: {reason}")
    _, dnf, problem, _, found = job()
    got = kernel_tuner.run(found, dnf, problem, "genetic_algorithm", 2.0, sys.executable)
    assert got["choice"] in found.valid.values(), got["reason"]


def test_an_interpreter_that_does_not_exist_is_a_reason():
    assert "/nowhere/python" in kernel_tuner.absent("/nowhere/python")


# --- judging and printing ---


def rows(*listed):
    return {f"{one['kernel']} {one['n']}": one for one in listed}


def test_bars_are_missed_and_met_where_they_should_be():
    good = tune.judge(rows(row(), row(n=16384, share=0.09)))
    assert all(met for _, met in good)
    assert len(good) == 4
    bad = dict(tune.judge(rows(row(ours=(1.06, 1.0, 1.1)), row(n=16384, share=0.15), row("forward", 512, share=0.21))))
    assert [text for text, met in bad.items() if not met] == [
        "decode: worst regret 1.060, bar 1.05",
        "decode: geometric mean 1.035, bar 1.02",
        "decode n=16384: 0.150 of the exhaustive time, bar 0.1",
        "forward n=512: 0.210 of the exhaustive time, bar 0.2",
    ]


def test_a_pass_cut_short_gives_an_upper_bound_of_the_share():
    (text, met) = next(one for one in tune.judge(rows(row(whole=False))) if "exhaustive" in one[0])
    assert "at most 0.150" in text
    assert met


def test_the_table_has_a_line_a_contender_and_averages_over_what_raced(capsys):
    listed = rows(row(), row(n=4096, ours=None))
    tune.show(listed, ["Kernel Tuner left out: it is not here", "Kernel Tuner left out: it is not here"])
    out = capsys.readouterr().out
    assert len([line for line in out.splitlines() if line.startswith("decode  ")]) == 6
    assert "1.010 [0.990, 1.030]" in out
    assert "not raced" in out
    assert out.count("left out") == 1
    assert tune.averages(listed)["ours"] == (pytest.approx(1.01), 1.01, 1)
    assert tune.averages(listed)["TPE"][2] == 2


# --- parts ---


def test_rows_are_kept_and_not_made_again(tmp_path, monkeypatch):
    path = str(tmp_path / "t.json")
    tune.write(path, rows(row()))
    assert tune.read(path) == rows(row())
    assert tune.read(str(tmp_path / "none.json")) == {}
    asked = argparse.Namespace(n="1024", json=path)
    monkeypatch.setattr(tune, "request", lambda *_: pytest.fail("there was nothing to do"))
    assert tune.measure("decode", tune.read(path), asked, time.monotonic() + 60, lambda: None) == []


def test_without_time_nothing_is_begun_and_it_says_how_to_go_on(tmp_path, monkeypatch):
    wanted, _ = made()
    monkeypatch.setattr(tune, "request", lambda *_: wanted)
    asked = argparse.Namespace(n="4096", json=str(tmp_path / "t.json"), seed=0, kernel_tuner="/nowhere/python")
    monkeypatch.setattr(tune, "WorkerPool", lambda *_: tune.contextlib.nullcontext())
    notes = tune.measure("decode", {}, asked, time.monotonic() + 1, lambda: None)
    assert "no time for decode from n = 4096 on" in notes[-1]
    assert "Kernel Tuner left out" in notes[0]


def test_ctrl_c_shows_what_is_done(tmp_path, monkeypatch, capsys):
    path = str(tmp_path / "t.json")
    tune.write(path, rows(row()))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "measure", interrupted)
    monkeypatch.setattr(sys, "argv", ["tune.py", "--json", path])
    tune.main()
    assert "1.010 [0.990, 1.030]" in capsys.readouterr().out


def test_a_choice_survives_the_row():
    choice = Choice(Build("split", "0" * 12, (("ADV_R", 4),), "gcc", "native"), Team(2, ""), Process("libgomp", "default", None, "default"))  # fmt: skip # noqa: E501
    plain = tune_rows._plain(tune_rows.Spent(choice, 3, 1.0))
    assert json.loads(json.dumps(plain))["choice"]["build"]["knobs"] == {"ADV_R": 4}
