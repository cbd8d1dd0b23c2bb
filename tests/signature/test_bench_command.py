"""`advisor probe --bench` from end to end."""

from __future__ import annotations

import json

import pytest
from commanding import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return Site(str(tmp_path_factory.mktemp("home")), str(tmp_path_factory.mktemp("cache")))


@pytest.mark.parametrize("words", [("--sysroot", "."), ("--record", "x.tar.gz"), ("--compare", "machine.json")])
def test_only_the_machine_at_hand_is_measured(site, words):
    ran = site.advisor("probe", "--bench", *words)
    assert ran.status == 1
    assert "--bench measures the machine at hand" in ran.err


@pytest.mark.slow
@pytest.mark.serial
def test_the_signature_is_measured_kept_and_survives_a_plain_probe(site, machine_schema):
    ran = site.advisor("probe", "--bench", "--json")
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    machine_schema.validate(document)
    found = document["signature"]
    assert found["fork_join"] or found["missing"]
    assert found["hardware_id"] == document["hardware_id"]
    for one in (*found["fork_join"], *found["read"], *found["peak"]):
        low, high = one["time"]["ci95_ns"]
        assert 0 < low <= one["time"]["p25_ns"] <= high
        assert one["time"]["samples"] == 15
    plain = json.loads(site.advisor("probe", "--json").out)
    assert "signature" not in plain  # what was probed now
    folder = f"{site.home}/machines/{document['hardware_id']}-{document['limits_id']}"
    with open(f"{folder}/machine.json", encoding="utf-8") as file:
        assert json.load(file)["signature"] == found
