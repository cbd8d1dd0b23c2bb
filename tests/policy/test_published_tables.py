"""Published machines: their tables come out of the CSV files, and say what was published where it was published."""

import csv
import shutil
from pathlib import Path

import pytest

from advisor import paths
from advisor.errors import BadInput, Missing
from advisor.lookup import Policy
from advisor.policy import published, store
from advisor.policy.learn import choose

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT.parent / "shared" / "paper"
DELTA, ANVIL = (ROOT / "policies" / name for name in ("ncsa-delta-cpu", "purdue-anvil-cpu"))


@pytest.fixture(scope="module")
def delta():
    return Policy.load(machine=str(DELTA / "machine.json"))


@pytest.fixture(scope="module")
def anvil():
    return Policy.load(machine=str(ANVIL / "machine.json"))


@pytest.fixture
def paper():
    if not PAPER.is_dir():
        pytest.skip("the published figures do not lie beside this checkout")
    return PAPER


def rows(name):
    lines = (DELTA / name).read_text("utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@pytest.mark.parametrize("folder", [DELTA, ANVIL], ids=lambda path: path.name)
def test_the_shipped_tables_are_those_that_the_learner_makes_of_the_files(folder, tmp_path):
    own = tmp_path / folder.name
    shutil.copytree(folder, own)
    for path in own.glob("*.table.json"):
        path.unlink()
    made = published.write_tables(str(own))
    assert sorted(Path(path).name for path in made) == sorted(path.name for path in folder.glob("*.table.json"))
    for path in made:
        assert Path(path).read_bytes() == (folder / Path(path).name).read_bytes()


def test_the_figures_are_those_that_were_handed_down(paper):
    for path in DELTA.glob("*.csv"):
        assert path.read_bytes() == (paper / path.name).read_bytes()
        assert path.read_text("utf-8").startswith("# seed 000, section")


def test_another_figure_makes_another_table(tmp_path):
    own = tmp_path / "delta"
    shutil.copytree(DELTA, own)
    file = own / "decode_cpu_64_vs_128_delta.csv"
    file.write_text(file.read_text("utf-8").replace("65536,0.001128,", "65536,0.000128,"), "utf-8")
    (section,) = next(t for t in published.tables_of(str(own)) if t.kernel == "decode").sections
    assert choose(section, 65536).team.threads == 64


def test_forward_takes_the_threads_of_table_1(delta):
    for row in rows("forward_cpu_best_threads_delta.csv"):
        answer = delta.choose("forward", int(row["n"]))
        assert (answer.basis, answer.threads) == ("PUBLISHED", int(row["best_threads"]))
        best_s = float(row["seconds_1_thread"]) / float(row["speedup_at_best_vs_1_thread"])
        assert answer.expected_ns == pytest.approx(best_s * 1e9)
        assert answer.ci95_ns is None


def test_decode_takes_one_socket_but_where_both_were_faster(delta):
    for row in rows("decode_cpu_64_vs_128_delta.csv"):
        n = int(row["n"])
        threads = 128 if n == 65536 else 64
        answer = delta.choose("decode", n)
        assert (answer.basis, answer.threads, answer.in_tuned_region) == ("PUBLISHED", threads, True)
        assert answer.expected_ns == pytest.approx(float(row[f"seconds_{threads}_threads"]) * 1e9)


def test_fused_or_naive_is_told_by_threads(delta):
    for row in rows("fused_vs_naive_cpu_n4096_delta.csv"):
        faster = min(("naive", "fused"), key=lambda name: float(row[f"{name}_seconds"]))
        answer = delta.choose("fused", 4096, threads=int(row["threads"]))
        assert (answer.basis, answer.variant, answer.threads) == ("PUBLISHED", faster, int(row["threads"]))
    best = delta.choose("fused", 4096)
    assert (best.variant, best.threads, best.expected_ns) == ("fused", 128, 2.4362e9)
    assert delta.choose("fused", 4096, threads=128).expected_ns == best.expected_ns  # one call, printed twice
    for row in rows("fused_vs_naive_cpu_128threads_delta.csv"):
        faster = min(("naive", "fused"), key=lambda name: float(row[f"{name}_seconds"]))
        assert delta.choose("fused", int(row["n"]), threads=128).variant == faster


@pytest.mark.parametrize(
    ("n", "near"), [(1023, "1024"), (3000, "2048 and 4096"), (60546, "32768 and"), (1 << 21, "1048576")]
)
def test_elsewhere_the_careful_rule_answers_and_names_the_nearest_published_n(delta, n, near):
    answer = delta.choose("decode", n)
    assert (answer.basis, answer.threads, answer.expected_ns) == ("DEFAULT", 16, None)
    assert f"published n {'are' if ' ' in near else 'is'} {near}" in answer.why


def test_anvil_takes_its_cores_and_from_16384_twice_as_many_threads_without_times(anvil):
    for n in (1024, 2048, 8192, 12000, 16383, 16384, 20000, 65536, 1048576):
        answer = anvil.choose("decode", n)
        assert (answer.basis, answer.threads) == ("PUBLISHED", 32 if n < 16384 else 64)
        assert answer.expected_ns is None
        assert answer.estimate(n) is None
    assert anvil.choose("decode", 1023).basis == anvil.choose("decode", 1 << 21).basis == "DEFAULT"


def test_nothing_published_can_be_applied_here(delta):
    assert delta.choose("decode", 1024).refusal
    assert delta.notes == ()


@pytest.mark.parametrize("folder", [DELTA, ANVIL], ids=lambda path: path.name)
def test_no_table_of_a_published_machine_claims_statistics(folder):
    for found in store.tables(str(folder)):
        assert found.note == ""
        for section in found.table.sections:
            assert dict(section.extra)["basis"] == "PUBLISHED"
            assert [point for row in section.rows for point in row.points] == []
            assert section.default_points == ()


def test_the_list_of_shipped_policies_names_every_folder():
    text = (Path(paths.shipped_policies()) / "README.md").read_text("utf-8")
    for folder in Path(paths.shipped_policies()).iterdir():
        if folder.is_dir():
            assert f"| `{folder.name}` |" in text
            assert (folder / "machine.json").is_file()


RANGES = "n_low,n_high,better_threads,other_threads\n"
ONE = "n,seconds_64_threads\n64,1\n"


@pytest.fixture
def odd(tmp_path):
    """Write files of figures into a published machine's folder. Returns the folder."""
    shutil.copy(DELTA / "machine.json", tmp_path)

    def write(**files):
        for name, content in files.items():
            (tmp_path / f"{name}.csv").write_text(f"# nowhere\n{content}", "utf-8")
        return str(tmp_path)

    return write


@pytest.mark.parametrize(
    "content",
    [
        *(
            "n,seconds_64_threads\n1,fast\n",
            "n,banana\n1,2\n",
            "what\nis this\n",
            "",
            "n\n64\n",
            "n,seconds_64_threads\n",
        ),
        *(f"n,seconds_64_threads\n64,{seconds}\n" for seconds in ("nan", "inf", "-1", "0", "1e-400", "")),
        *(f"n,seconds_64_threads\n{n},1\n" for n in ("0", "-4", "1.5", str(1 << 50), "")),
        *(f"n,seconds_{threads}_threads\n64,1\n" for threads in ("0", "99999999", "-1")),
        *(
            "n,seconds_64_threads\n64,1,2\n",
            "n,seconds_64_threads,seconds_128_threads\n64,1\n",
            "n,seconds_64_threads,note\n64,1,x\n",
        ),
        *(
            f"{RANGES}{rows}\n"
            for rows in ("100,10,32,64", "1,10,32,64\n20,30,64,32", "1,10,32,32", "5,9,1,2\n1,4,2,1", "0,9,1,2")
        ),
        "n,best_threads,speedup_at_best_vs_1_thread,slowdown_of_128_threads_vs_best,seconds_1_thread\n64,4,0,1,1\n",
        "n,best_threads,speedup_at_best_vs_1_thread,slowdown_of_128_threads_vs_best,seconds_1_thread\n64,4,-1,1,1\n",
    ],
)
def test_a_file_of_figures_that_makes_no_sense_is_refused_and_nothing_written(odd, content):
    folder = odd(decode_odd=content)
    with pytest.raises(BadInput, match=r"decode_odd\.csv must"):
        published.write_tables(folder)
    assert list(Path(folder).glob("*.table.json")) == []


@pytest.mark.parametrize("name", ["_x", "decod_x", "a b_h", "decodes", "x_decode", ".."])
def test_a_file_of_figures_begins_with_a_kernel(odd, name):
    with pytest.raises(BadInput, match="name of its kernel"):
        published.write_tables(odd(**{name: ONE}))


def test_a_kernel_s_file_may_be_its_name_alone_and_a_longer_name_counts(odd):
    made = published.write_tables(odd(decode=ONE, mlp_x=ONE, mlp_backward_x=ONE))
    assert [Path(path).name.partition(".")[0] for path in made] == ["decode", "mlp", "mlp_backward"]


def test_ranges_stand_alone_for_their_kernel(odd):
    with pytest.raises(BadInput, match="only one of its kernel"):
        published.write_tables(odd(decode_a=f"{RANGES}1,9,1,2\n", decode_b=ONE))


def test_a_folder_without_figures_is_refused(tmp_path):
    shutil.copy(DELTA / "machine.json", tmp_path)
    with pytest.raises(Missing, match="CSV files"):
        published.tables_of(str(tmp_path))
