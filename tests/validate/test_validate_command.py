"""The command as it is called: a small real run and its document; wrong values in one line."""

from __future__ import annotations

import json
import os
import signal
import time

import fake_ncu
import pytest
from commanding import Site, workers_of
from devices import variables

SMALL = ("validate", "--kernel", "forward,decode", "--n", "64,128", "--threads", "1,2", "--budget", "15s")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return Site(str(tmp_path_factory.mktemp("home")), str(tmp_path_factory.mktemp("cache")))


@pytest.mark.slow
def test_a_small_run_has_figures_verdicts_and_says_what_is_missing(site):
    done = site.advisor(*SMALL, "--json")
    assert done.status in (0, 3), done.err
    found = json.loads(done.out)
    assert found["schema"] == "advisor.validation/1.0"
    assert done.status == (3 if found["missing"] or found["failed"] else 0)
    assert [words for words in found["missing"] if f"partly done: {words}" not in done.err] == []
    forward = [s for s in found["series"] if s["problem"]["kernel"] == "forward" and s["problem"]["n"] == 64]
    assert {s["variant"] for s in forward} >= {"naive", "tiled"}
    assert all(min(s["samples_ns"]) > 0 for s in forward if s["status"] == "ok")
    assert found["formulas"][0]["ours"] == 75_497_472
    assert len(found["findings"]) >= 14
    assert {f["verdict"] for f in found["findings"]} <= {"reproduced", "not reproduced", "not testable here"}
    (gpu,) = [f for f in found["findings"] if f["finding"].startswith("atomics")]
    assert gpu["verdict"] == "not testable here"


@pytest.mark.slow
def test_an_ended_run_prints_what_it_has(site):
    running = site.start("validate", "--kernel", "forward", "--n", "64..4096", "--budget", "100s")
    heard = []
    for line in running.stderr:
        heard.append(line)
        if line.startswith("forward: "):
            break
    time.sleep(1)
    running.send_signal(signal.SIGTERM)
    out, rest = running.communicate(timeout=60)
    assert running.returncode == 3, "".join(heard) + rest
    assert "interrupted" in rest
    assert "Findings of the paper" in out
    assert workers_of(running.pid) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--kernel", "mlp_backward"), "forward, backward, fused, decode, rmsnorm"),
        (("--kernel", "forward", "--d-ff", "64"), "d_ff=64"),
        (("--threads", "99999"), "twice the CPUs"),
        (("--dtype", "int8"), "forward is not defined for this dtype"),
        (("--n", "1000000000"), "memory"),
        (("--device", "cuda:99"), "a device must be one of this machine"),
        (("--device", "gpu"), "a device must be one of this machine"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_a_wrong_value_is_refused_in_one_line(site, words, said):
    done = site.advisor("validate", *words)
    assert (done.status, done.out) == (1, "")
    (line,) = [line for line in done.err.splitlines() if line.startswith("advisor: ")]
    assert said in line


@pytest.mark.slow
def test_a_made_up_gpu_is_validated_by_the_command(site, tmp_path):
    asked = ("validate", "--device", "cuda:0", "--kernel", "decode", "--n", "64,128", "--budget", "40s", "--json")
    done = site.advisor(*asked, **variables(tmp_path))
    found = json.loads(done.out)
    assert found["schema"] == "advisor.device_validation/1.0"
    assert found["device"]["name"] == "NVIDIA H200"
    assert {s["problem"]["n"] for s in found["series"]} == {64, 128}
    assert all(min(s["samples_ns"]) > 0 for s in found["series"])
    (decode,) = [f for f in found["findings"] if f["finding"] == "decode's time grows with n"]
    assert decode["verdict"] == "not testable here"
    assert done.status == (3 if found["missing"] else 0), done.err


@pytest.mark.slow
def test_a_made_up_gpu_is_counted_by_one_program_for_all_kernels(site, tmp_path):
    """All of it is real but the device and ncu, which runs the program that it is given and tells its launches."""
    folder, calls = fake_ncu.install(tmp_path / "bin", fake_ncu.running())
    made_up = variables(tmp_path)
    noted = fake_ncu.profiler(tmp_path / "made-up-14.2.0")
    path = f"{folder}:{os.environ['PATH']}"
    asked = ("validate", "--device", "cuda:0", "--kernel", "forward,backward", "--n", "16", "--json")
    done = site.advisor(*asked, "--budget", "40s", **made_up, **noted, PATH=path)
    found = json.loads(done.out)
    counted = [c for c in found["counts"] if c["call"]]
    assert {c["kernel"] for c in counted} == {"forward", "backward"}, done.err
    assert all(c["call"]["dram_read_bytes"] > 0 for c in counted)
    told = [json.loads(line) for line in calls.read_text().splitlines()]
    assert len([words for words in told if words != ["--version"]]) == 2, "the attempt and one program"
    assert [(one["what"], one["asked"]) for one in found["programs"]] == [("tried", 0), ("counted", len(counted))]
    assert all(0 < one["start"]["start_s"] < one["seconds"] for one in found["programs"])
    names = {c["variant"]: [k["name"] for k in c["kernels"]] for c in counted}
    assert names["packed"] == ["forward_packed"]
    assert len(names["gk_atomic_packed"]) > 1
