from __future__ import annotations

import json
import os
import subprocess
import sys

import kernels
import pytest
from bench_fixtures import AMD, row
from fake import fake_machine
from kernel_race import Deadline

SCRIPT = os.path.abspath(kernels.__file__)


def run_of(**given):
    arguments = kernels.parse(["--json", str(given["path"])] if "path" in given else [])
    return kernels.Run(arguments, AMD, {"hardware_id": AMD.hardware_id, "limits_id": AMD.limits_id})


# --- the command line ---


def test_what_is_asked_for():
    found = kernels.parse(["--kernel", "fused,decode", "--n", "64..256", "--heads", "40:8", "--budget", "2m"])
    assert (found.kernel, found.n, found.heads, found.budget) == (["fused", "decode"], (64, 128, 256), (40, 8), 120.0)


@pytest.mark.parametrize("words", ["--kernel softmax", "--dtype float8", "--rounds 5", "--shape tiny"])
def test_what_does_not_exist_is_refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        kernels.parse(words.split())
    assert ended.value.code == 2


def test_rows_come_by_n_in_the_shape_asked_for():
    asked = kernels.parse(["--shape", "served-causal", "--n", "128,64", "--heads", "28:4"])
    found = [key.problem for key in kernels.keys("forward", asked)]
    assert [(one.n, one.dtype) for one in found] == [
        (64, "float32"),
        (64, "float64"),
        (128, "float32"),
        (128, "float64"),
    ]
    assert dict(found[0].shape) == {"batch": 1, "heads": 28, "kv_heads": 4, "head_dim": 128, "causal": 1}
    assert "causal" not in dict(next(kernels.keys("decode", asked)).problem.shape)


def test_a_dtype_that_a_kernel_lacks_gives_no_row():
    asked = kernels.parse(["--dtype", "float16", "--n", "64"])
    assert not list(kernels.keys("forward", asked))
    assert len(list(kernels.keys("decode", asked))) == 1


def test_the_sizes_of_the_shapes():
    found = {kernel: [key.problem.n for key in kernels.keys(kernel, kernels.parse([]))] for kernel in kernels.KERNELS}
    assert (min(found["fused"]), max(found["fused"])) == (64, 8192)
    assert (min(found["decode"]), max(found["decode"])) == (1024, 1 << 20)


def test_layers_are_all_kernels_around_attention():
    asked = kernels.parse(["--kernel", "decode,layers"])
    assert asked.kernel == ["decode", *kernels.LAYERS]
    assert kernels.parse([]).kernel == list(kernels.ATTENTION)


@pytest.mark.parametrize(
    ("shape", "n", "rows"),
    [("paper", (64, 256, 1024, 4096), {"batch": 2, "d_model": 64, "d_ff": 256}), ("served-1b", (1, 16, 256), None)],
)
def test_sizes_and_shapes_around_attention(shape, n, rows):
    found = [key.problem for key in kernels.keys("mlp", kernels.parse(["--shape", shape, "--dtype", "float32"]))]
    assert tuple(one.n for one in found) == n
    assert dict(found[0].shape) == (rows or {"batch": 1, "d_model": 2048, "d_ff": 5632})


@pytest.mark.parametrize("shape", ["paper", "served", "served-1b"])
def test_a_projection_has_the_outputs_of_all_heads(shape):
    of = kernels.SHAPES[shape]
    assert of["d_out"] == (of["heads"] + 2 * of["kv_heads"]) * of["head_dim"]


# --- resuming ---


def test_a_killed_run_keeps_its_rows_and_the_next_does_not_repeat_them(tmp_path, capsys):
    path = tmp_path / "rows.json"
    made = row("forward", {"choice": 1e5, "native": 2e5}, {})
    run_of(path=path).add(made)
    again = run_of(path=path)
    assert again.rows == [made]
    assert again.done(made.key, made.sources)
    assert not again.done(made.key._replace(threads=1), made.sources)


def test_rows_of_older_sources_are_measured_again(tmp_path, capsys):
    path = tmp_path / "rows.json"
    made = row("forward", {"choice": 1e5, "native": 2e5}, {})
    run_of(path=path).add(made)
    again = run_of(path=path)
    assert not again.done(made.key, (("native", "newer"),))
    assert again.rows == []


def test_a_row_that_does_not_fit_the_budget_is_left_out_aloud(tmp_path, capsys, monkeypatch):
    run, looks = run_of(path=tmp_path / "rows.json"), []
    with kernels.opened("forward", fake_machine(cores=2), None, 1e6) as bench:
        key = next(kernels.keys("forward", kernels.parse(["--n", "8192"])))
        monkeypatch.setattr(kernels, "measure", lambda *_: pytest.fail("it was measured"))
        monkeypatch.setattr(kernels, "look_at", lambda bench, key, rival: looks.append(key.problem.n))
        run.attempt(bench._replace(deadline=Deadline(3.0)), key)
    assert looks == [kernels.PILOT_N]  # what it would take is judged by a small n
    assert "left out: it needs about" in capsys.readouterr().out
    assert list(json.loads((tmp_path / "rows.json").read_text())["left_out"]) == ["forward paper float32 n=8192"]


def test_where_time_is_short_fewer_rounds_are_run(capsys, monkeypatch):
    run, asked = run_of(), []
    with kernels.opened("forward", fake_machine(cores=2), None, 1e6) as bench:
        key = next(kernels.keys("forward", kernels.parse(["--n", "64"])))
        monkeypatch.setattr(kernels, "estimate_s", lambda problem, flops, rival, rates, rounds: 10.0 * rounds)

        def measure(bench, key, rival, rounds):
            asked.append(rounds)
            raise kernels.Refused("as told")

        monkeypatch.setattr(kernels, "measure", measure)
        for budget_s in (1000.0, 100.0, 50.0):
            run.attempt(bench._replace(deadline=Deadline(budget_s)), key)
    assert asked == [15, kernels.LEAST_ROUNDS]


# --- for real ---


@pytest.mark.slow
def test_a_real_run(tmp_path):
    """Small rows of two kernels, in a process of its own as a user would call it."""
    path = tmp_path / "rows.json"
    asked = ["--kernel", "fused,decode", "--n", "64", "--dtype", "float32", "--rounds", "9", "--quick"]
    command = [sys.executable, SCRIPT, *asked, "--threads", "2", "--budget", "10m", "--json", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    fused, decode = json.loads(path.read_text())["rows"]
    assert [entry["role"] for entry in fused["entries"]] == ["choice", "native", "fused", "naive"]
    assert all(entry["source"] == "look" for entry in fused["entries"] + decode["entries"])
    assert "floor" in {peer["kind"] for peer in decode["peers"]}
    assert ("fused", "naive") in {(ratio["over"], ratio["under"]) for ratio in fused["ratios"]}
    assert "naive at the largest n run (paper, float32, n=64)" in found.stdout
