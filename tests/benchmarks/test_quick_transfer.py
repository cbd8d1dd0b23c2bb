"""benchmarks/quick_transfer.py on made-up spaces: which looks are compared, and what is said of them."""

import json

import pytest
import quick_transfer
from recorded import put, small


@pytest.fixture
def folder(tmp_path):
    for seed, device in enumerate(("A", "B", "C")):
        put(tmp_path / f"kernel-{device}.T4.json", small(seed, slower=1.0 + seed))
    return tmp_path


def test_every_order_begins_with_the_ladder_and_a_quick_search_has_six_looks(folder):
    case = next(quick_transfer.recorded_cases(folder, 1))
    looks = quick_transfer.looked_at(case, 0)
    assert {name: len(choices) for name, choices in looks.items() if name != quick_transfer.WAYS} == dict.fromkeys(
        (quick_transfer.UNSURE, quick_transfer.MEAN, quick_transfer.CHANCE, quick_transfer.ANY), 6
    )
    assert len({choices[0] for name, choices in looks.items() if name != quick_transfer.ANY}) == 1
    assert looks[quick_transfer.WAYS] == looks[quick_transfer.UNSURE][: len(looks[quick_transfer.WAYS])]
    logs = quick_transfer.curve(case, looks[quick_transfer.UNSURE])
    assert logs == sorted(logs, reverse=True)


def test_what_a_machine_itself_measured_is_not_among_what_is_known(folder):
    for case in quick_transfer.recorded_cases(folder, 1):
        assert len({one.name for one in case.known}) == 2
        assert case.known[0].cells[case.group][1] != case.times


def test_the_command_prints_every_order_over_the_others(folder, capsys):
    words = [str(folder), "--draws", "2", "--families", "0", "--tunes", "0"]
    assert quick_transfer.main([*words, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["order"] for one in found["orders"]] == list(quick_transfer.ORDERS)
    assert all(one["ratio"][0][0] == 1.0 for one in found["orders"][:-1])
    assert quick_transfer.main([str(folder / "nowhere"), *words[1:]]) == 1
