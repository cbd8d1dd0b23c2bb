"""Workloads: histograms from a file or out of a log, and what is refused."""

import json

import pytest

from advisor.errors import BadInput, Missing
from advisor.policy import workload


def write(folder, document):
    path = folder / "load.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")
    return str(path)


def test_one_histogram_counts_for_every_kernel(tmp_path):
    found = workload.load(write(tmp_path, {"4096": 3, "64": 1}))
    assert found.weights("decode") == found.weights("forward") == {64: 0.25, 4096: 0.75}


def test_kernels_have_their_own(tmp_path):
    found = workload.load(write(tmp_path, {"decode": {"64": 1, "128": 0}, "forward": {"512": 2.5}}))
    assert found.weights("decode") == {64: 1.0}
    assert found.weights("forward") == {512: 1.0}
    assert found.weights("fused") == {}


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        "{",
        '{"64": NaN}',
        {"64": -1},
        {"64": 0},
        {"64": "many"},
        {"64": True},
        {"0": 1},
        {"-4": 1},
        {"many": 1},
        {"1e3": 1},
        {"decode": {"64": 1}, "128": 2},
        {"decode": {}},
        {str(1 << 50): 1},
    ],
)
def test_what_is_no_histogram_is_refused(tmp_path, document):
    with pytest.raises(BadInput, match=r"load\.json|JSON|finite"):
        workload.load(write(tmp_path, document))


def test_a_file_that_is_not_there_is_missing(tmp_path):
    with pytest.raises(Missing):
        workload.load(str(tmp_path / "none.json"))
    with pytest.raises(Missing):
        workload.from_log(str(tmp_path / "none.log"), r"n=(\d+)")


def test_n_is_counted_out_of_a_log(tmp_path):
    log = tmp_path / "server.log"
    log.write_bytes(b"start\n" + b"GET n=64 ok\n" * 3 + b"\xff\xfe n=128 \x00\n" + b"n=0 n=5\nn=99999999999999999\n")
    found = workload.from_log(str(log), r"n=(\d+)")
    assert found.weights("anything") == {64: 0.75, 128: 0.25}


EDGE = workload.LONGEST_LINE


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"n=32 " + b"x" * EDGE + b" n=64\n", [32, 128]),
        (b"x" * (1 << 20) + b" n=64\n", [128]),
        *[(b"x" * (EDGE - 2 - digits) + b"n=409677\n", [128]) for digits in (1, 2, 5)],
        (b"x" * (EDGE - 8) + b"n=409677\n", [128]),
        (b"x" * (EDGE - 9) + b"n=409677\n", [128, 409677]),
        (b"x" * (EDGE - 1) + b"\n", [128]),
        (b"x" * EDGE + b"\n", [128]),
        (b"x" * 2 * EDGE + b"\n", [128]),
    ],
    ids=range(10),
)
def test_of_a_long_line_only_its_beginning_counts(tmp_path, line, expected):
    log = tmp_path / "one.log"
    log.write_bytes(line + b"n=128\n")
    assert [n for n, _ in workload._count(str(log), r"n=(\d+)")["counts"]] == expected


def test_a_kernel_that_there_is_not_is_refused(tmp_path):
    path = write(tmp_path, {"decod": {"64": 1}, "forward": {"64": 1}})
    with pytest.raises(BadInput, match="decod"):
        workload.load(path, ("decode", "forward"))
    with pytest.raises(BadInput, match=r"kernels that there are: decode, forward"):
        workload.asked(path, None, None, ("decode", "forward"))
    assert workload.asked(write(tmp_path, {"64": 1}), None, None, ("decode",)).weights("decode") == {64: 1.0}


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"n=\d+", "group"),
        ("n=(\\d+)\0", "zero byte"),
        ("n=(", "regular"),
        ("", "group"),
        (r"m=(\d+)", "some line"),
        (r"(n)=", "some line"),
    ],
)
def test_an_expression_that_finds_no_n_is_refused(tmp_path, pattern, why):
    log = tmp_path / "server.log"
    log.write_text("n=64\n", "utf-8")
    with pytest.raises(BadInput, match=why):
        workload.from_log(str(log), pattern)


def test_an_expression_that_would_try_for_ever_is_stopped(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("n" * 64 + "!\n", "utf-8")
    with pytest.raises(BadInput, match=r"must end within 1\.5 s"):
        workload.from_log(str(log), r"(n+)+$", limit_s=1.5)


def test_every_n_counts_for_the_nearest_tuned_one_by_ratio():
    found, outside = workload.spread({64: 0.2, 90: 0.2, 92: 0.2, 128: 0.2, 129: 0.1, 1: 0.1}, (64, 128))
    assert found == {64: pytest.approx(0.4), 128: pytest.approx(0.4)}
    assert outside == pytest.approx(0.2)


def test_options_that_do_not_fit_are_refused(tmp_path):
    path = write(tmp_path, {"64": 1})
    for wrong in ((path, "log", "n"), (None, "log", None), (None, None, "n")):
        with pytest.raises(BadInput, match=r"one workload|go together"):
            workload.asked(*wrong)
    assert workload.asked(None, None, None) is None
    assert workload.asked(path, None, None).weights("decode") == {64: 1.0}


def test_what_is_asked_for_counts_as_the_workload_says(tmp_path):
    found = workload.load(write(tmp_path, {"decode": {"4000": 3}, "forward": {"70": 1}}))
    assert workload.shares(found, [4096, 64]) == {64: 0.25, 4096: 0.75}
    assert workload.shares(None, [64, 4096]) == {64: 1.0, 4096: 1.0}
    with pytest.raises(BadInput, match="among those asked"):
        workload.shares(found, [8192, 16384])


def test_calls_that_count_for_nothing_are_told():
    assert workload.outside({1000: 0.75, 2000: 0.25}, [4096, 1024]) == (
        "75% of the workload's calls lie outside n = 1024..4096 and count for nothing"
    )
    assert (
        workload.outside({2000: 1.0}, [1024, 4096])
        == workload.outside({}, [64])
        == workload.outside({64: 1.0}, [])
        == ""
    )
