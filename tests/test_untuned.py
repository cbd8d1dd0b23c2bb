"""recommend and transfer for a machine without tables: the shipped machines answer for a made-up one."""

import json
import os

import pytest
from tabling import SHAPE, here, table, write, write_machine
from tabling import machine as described
from typer.testing import CliRunner

from advisor import paths, pipeline, site, tablefile, untuned
from advisor.cli import app
from advisor.lookup import Policy
from advisor.records import pairs

FOUND = described()._replace(environment=pairs({"compilers": ("gcc 13.2.0", "nvcc 13.0"), "torch": "2.11.0+cpu"}))
SHIPPED = "intel-xeon-16cpu-vm"


@pytest.fixture(autouse=True)
def path(monkeypatch, tmp_path):
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(site, "identify", lambda root: here())
    os.makedirs(tmp_path / "elsewhere")
    return write_machine(tmp_path / "elsewhere", FOUND)


def recommended(path, kernel="decode", **axes):
    return [answer for answer, _ in pipeline.recommend(kernel, [4096], axes, pipeline.Where(machine=path))[1]]


def test_a_machine_without_tables_answers_with_what_another_measured(path):
    (answer,) = recommended(path, heads=1)
    assert (answer.basis, answer.rung, answer.machines) == ("TRANSFERRED", "nearest", (SHIPPED,))
    assert (answer.threads, answer.compiler, answer.expected_ns, answer.validated_regret) == (4, "gcc-13", None, None)
    assert answer.hardware_id == FOUND.hardware_id
    assert SHIPPED in answer.why


def test_where_no_shape_is_named_the_default_one_is_meant_alone(path, monkeypatch):
    """Other machines measured more shapes, and formats that start something are of one answer."""
    (answer,) = recommended(path)
    assert answer.shape == {"batch": 2, "head_dim": 64, "heads": 1, "kv_heads": 1}
    (answer,) = recommended(path, heads=32)
    assert answer.shape["head_dim"] == 128
    words = ["recommend", "--kernel", "decode", "--n", "4096", "--format", "env", "--machine", path]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "export OMP_NUM_THREADS=4\n" in done.stdout


def test_what_was_measured_here_is_meant_before_what_others_measured(path):
    kept = CliRunner().invoke(app, ["transfer", "--kernel", "decode", "--machine", path, "--save", "--json"])
    assert len({answer.shape_pairs for answer in recommended(path)}) == 1
    (file,) = json.loads(kept.stdout)["paths"]
    write(os.path.dirname(file), table())
    (answer,) = recommended(path)
    assert (answer.basis, answer.shape) == ("EXACT", SHAPE)


def test_what_the_machine_cannot_run_is_not_recommended(tmp_path):
    bare = write_machine(tmp_path, FOUND._replace(isa=("avx2", "fma")))
    for answer in recommended(bare, "decode,forward"):
        assert answer.basis == "TRANSFERRED"
        assert answer.knobs.get("ADV_V", 32) <= 32


def test_a_kernel_that_nobody_tuned_keeps_the_careful_rule(path):
    (answer,) = recommended(path, "rmsnorm")
    assert (answer.basis, answer.variant) == ("DEFAULT", None)


def test_no_data_makes_it_raise(path, tmp_path):
    odd = FOUND._replace(extra=pairs({"signature": {"odd": 1}}), environment=pairs({"compilers": (1, "?")}))
    assert recommended(write_machine(tmp_path, odd), heads=1)[0].basis == "TRANSFERRED"
    table = untuned.table_of("decode", odd, False, [64], {"heads": 3, "kv_heads": 2})
    assert table is None  # a shape that makes no sense


def test_what_is_kept_a_server_answers_from(path):
    done = CliRunner().invoke(app, ["transfer", "--kernel", "decode", "--machine", path, "--save", "--json"])
    assert done.exit_code == 0, done.output
    (kept,) = json.loads(done.stdout)["paths"]
    folder = paths.machine_dir(FOUND.hardware_id, FOUND.limits_id)
    assert os.path.dirname(kept) == folder
    tablefile.read_table(kept)
    answer = Policy.load(machine=path).choose("decode", 4096, **SHAPE, dtype="float32")
    assert (answer.basis, answer.rung, answer.machines) == ("TRANSFERRED", "nearest", (SHIPPED,))
    assert answer.in_tuned_region is False


def test_the_ladder_is_said_in_words(path):
    done = CliRunner().invoke(app, ["transfer", "--kernel", "decode,rmsnorm", "--machine", path])
    assert done.exit_code == 0
    assert f"what the nearest machine, {SHIPPED}, measured to be best" in done.stdout
    assert "no validated regret: 1 of 3 models known" in done.stdout
    assert "nothing is known of rmsnorm" in done.stderr


def test_a_machine_of_which_nothing_is_known_says_so(path):
    done = CliRunner().invoke(app, ["transfer", "--kernel", "rmsnorm", "--machine", path])
    assert done.exit_code == 1
    assert "advisor probe --bench" in done.stderr


def test_what_of_a_long_log_was_passed_over_is_said(path, monkeypatch):
    known = untuned.machines("decode", FOUND)
    monkeypatch.setattr(untuned, "machines", lambda *_: [one._replace(unread=7_000_000) for one in known])
    words = f"the newest 32 MB of the log of {SHIPPED} were read, 7 MB before them were not"
    made = untuned.table_of("decode", FOUND, False, [64])
    monkeypatch.setattr(untuned, "table_of", lambda *_: made)
    assert untuned.told(("decode",), path, [64], False).notes == (words,)
    policy, _ = pipeline.recommend("decode", [4096], {"heads": 1}, pipeline.Where(machine=path))
    assert words in policy.notes
