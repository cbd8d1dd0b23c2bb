"""The examples of docs/add-a-variant.md is read, built and right; a file dropped in a folder is a variant."""

from __future__ import annotations

import json
import os
import re

import kernel_fixtures as fixtures
import pytest
from commanding import Site

from advisor.kernels import header as module
from advisor.kernels.compilers import compilers
from advisor.kernels.executor import Ask
from advisor.kernels.pool import WorkerPool
from advisor.kernels.variant import variants

PAGE = os.path.join(os.path.dirname(fixtures.DATA), os.pardir, "docs", "add-a-variant.md")


@pytest.fixture(scope="module")
def page():
    with open(PAGE, encoding="utf-8") as file:
        return file.read()


def test_the_example_runs(page, tmp_path):
    kernel = tmp_path / "scale"
    kernel.mkdir()
    with open(os.path.join(fixtures.KERNELS, "scale", "spec.py"), encoding="utf-8") as file:
        (kernel / "spec.py").write_text(file.read())
    (tmp_path / "example.c").write_text(re.search(r"```c\n(.*?)```", page, re.S)[1])
    (example,) = variants("scale", [str(tmp_path)])
    with WorkerPool(fixtures.here(), fixtures.scale(), [example]) as pool:
        got = pool.measure(fixtures.problem(65), fixtures.choice(example), Ask(1, 60.0))
    assert got.status == "ok", got.reason


def test_the_table_has_every_key(page):
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| `"))
    for key in (*module._KINDS, "kernel"):
        assert f"`{key}`" in rows


# --- a file in a folder ---

SHAPE = ("--n", "128", "--batch", "1", "--head-dim", "320", "--causal")


@pytest.fixture(scope="module")
def dropped(tmp_path_factory):
    """A folder with one file, a forward variant of a user's own, and a site to run the command in.

    It is the tiled one for heads so wide that the packaged one leaves them to the plain ones: there it must win.
    """
    folder = tmp_path_factory.mktemp("mine")
    (own,) = [one for one in variants("forward") if one.name == "tiled"]
    with open(own.path, encoding="utf-8") as file:
        text = file.read()
    head, source = text.split("*/", 1)
    header = json.loads(head.removeprefix("/* variant"))
    header |= {"kernel": "forward", "symbol": "forward_mine", "idea": "a user's own", "valid": ["head_dim > 256"]}
    header.pop("needs", None)
    header["build_knobs"] = {knob: [value] for knob, value in header["defaults"].items()}
    (folder / "mine.c").write_text(f"/* variant {json.dumps(header)} */{source.replace(own.symbol, 'forward_mine')}")
    site = Site(str(tmp_path_factory.mktemp("home")), str(tmp_path_factory.mktemp("cache")))
    return folder, site


@pytest.fixture(scope="module")
def tuned(dropped):
    """What `advisor tune` says with the folder."""
    folder, site = dropped
    words = (*SHAPE, "--compilers", compilers()[0].name, "--quick", "--budget", "20s", "--json")
    done = site.advisor("tune", "-k", "forward", "--kernel-dir", str(folder), *words)
    assert done.status == 0, done.err
    return json.loads(done.out)


def test_a_dropped_file_is_verified(dropped):
    folder, site = dropped
    source = (folder / "mine.c").read_text()
    (folder / "mine.c").write_text(source.replace('["head_dim > 256"]', '["head_dim != 64"]'))
    words = ("--variant", "mine", "--dtype", "float64", "--kernel-dir", str(folder), "--json")
    done = site.advisor("verify", "-k", "forward", *words)
    (folder / "mine.c").write_text(source)
    assert done.status == 0, done.err
    rows = json.loads(done.out)["rows"]
    assert {(row["kernel"], row["variant"], row["status"]) for row in rows} == {("forward", "mine", "ok")}
    assert {row["draw"] for row in rows} == {"normal", "outlier"}


def test_a_dropped_file_is_tuned_in_the_race_with_the_others(dropped, tuned):
    _, site = dropped
    trials = [record["measurement"] for record in site.log() if record["kind"] == "trial"]
    tried = {trial["choice"]["build"]["variant"] for trial in trials if trial["status"] == "ok"}
    assert tried >= {"mine", "rows"}
    assert tuned["problems"][0]["shape"]["causal"] == 1
    assert tuned["best"][0]["choice"]["build"]["variant"] == "mine"


@pytest.mark.usefixtures("tuned")
def test_a_dropped_file_is_recommended(dropped):
    _, site = dropped
    done = site.advisor("recommend", "-k", "forward", *SHAPE, "--json")
    assert done.status == 0, done.err
    (answer,) = json.loads(done.out)["answers"]
    assert (answer["variant"], answer["basis"], answer["shape"]["head_dim"]) == ("mine", "EXACT", 320)
