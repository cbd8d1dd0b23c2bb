"""advisor recommend for who starts something: which of several tuned answers is meant, and what is said of it."""

import os

import pytest
from tabling import FOUR, MADE, ONE, here, machine, race, write
from typer.testing import CliRunner

from advisor import gather, paths, site
from advisor.cli import app
from advisor.policy.learn import learn
from advisor.policy.store import save_table


@pytest.fixture
def tuned(monkeypatch, tmp_path):
    """Two shapes of decode on the machine at hand, the grouped one tuned last. Returns the path of their table."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(site, "identify", lambda root: here())
    monkeypatch.setattr(gather, "shipped_policies", lambda: str(tmp_path / "shipped"))
    path = os.path.join(paths.machine_dir(machine().hardware_id, machine().limits_id), "decode.table.json")
    save_table(path, of(FOUR, "2026-01-03T00:00:00Z"))
    save_table(path, of(ONE, "2026-01-02T00:00:00Z", heads=1, kv_heads=1))
    return path


def of(best, created, **shape):
    """A table of one shape with one choice."""
    times = {FOUR: 2000.0, ONE: 2000.0, best: 1000.0}
    return learn(machine(), [race(n, times, **shape) for n in (64, 4096)], [], MADE._replace(created=created))


def recommend(*words):
    done = CliRunner().invoke(app, ["recommend", *words])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("words", [("--kernel", "decode"), ()])
def test_what_starts_a_server_is_of_the_shape_tuned_last_and_says_so(tuned, words):
    """As the README has it: `eval` of two answers ended in an error as soon as a second shape was tuned."""
    status, out, said = recommend(*words, "--n", "4096", "--format", "env")
    assert (status, "export OMP_NUM_THREADS=4" in out) == (0, True), said
    assert "heads=32 kv_heads=8, tuned last of 2 shapes; the others: decode heads=1 kv_heads=1" in said
    status, out, said = recommend(*words, "--n", "4096", "--heads", "1", "--format", "env")
    assert (status, "export OMP_NUM_THREADS=1" in out, "tuned last" in said) == (0, True, False)


def test_text_and_data_still_have_all(tuned):
    for form in ("text", "csv", "json"):
        status, out, said = recommend("--kernel", "decode", "--n", "4096", "--format", form)
        assert (status, out.count("INTERPOLATED") + out.count("EXACT"), "tuned last" in said) == (0, 2, False)


def test_several_sizes_and_shapes_tuned_together_are_refused(tuned):
    status, _, said = recommend("--kernel", "decode", "--n", "64,4096", "--format", "env")
    assert (status, "name one" in said) == (1, True)
    save_table(tuned, of(ONE, "2026-01-03T00:00:00Z", heads=1, kv_heads=1))
    status, _, said = recommend("--kernel", "decode", "--n", "4096", "--format", "env")
    assert (status, "--heads" in said) == (1, True)


def test_several_kernels_are_refused_with_an_example(tuned):
    other = of(ONE, "2026-01-04T00:00:00Z")._replace(kernel="made_up")
    write(os.path.dirname(tuned), other, "made_up")
    status, _, said = recommend("--n", "4096", "--format", "env")
    assert (status, "--kernel decode" in said) == (1, True)
