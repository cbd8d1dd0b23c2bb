"""The drawing: every thread is in it, boxes lie inside boxes, and no text becomes markup."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trees import affinity, build, hybrid, memory_only

from advisor.topology.boxes import team
from advisor.topology.probe import topology
from advisor.topology.svg import OUT, REACH, WORKER, Piece, grid, svg

NAME = "{http://www.w3.org/2000/svg}"


def rectangles(element, x=0.0, y=0.0):
    """Every rectangle with its place on the page: (x, y, width, height, fill, title)."""
    move = element.get("transform", "translate(0 0)")
    dx, dy = (float(word) for word in move.removeprefix("translate(").removesuffix(")").split())
    for child in element:
        if child.tag == f"{NAME}rect":
            title = child.find(f"{NAME}title")
            size = float(child.get("width")), float(child.get("height"))
            yield x + dx, y + dy, *size, child.get("fill"), "" if title is None else title.text
        yield from rectangles(child, x + dx, y + dy)


def drawn(machine, chosen=()):
    return ET.fromstring(svg(machine, chosen))


def titled(root, start):
    return [found for found in rectangles(root) if found[5].startswith(start)]


def inside(inner, outer):
    return (
        outer[0] <= inner[0]
        and outer[1] <= inner[1]
        and inner[0] + inner[2] <= outer[0] + outer[2]
        and inner[1] + inner[3] <= outer[1] + outer[3]
    )


@pytest.fixture(scope="module")
def dual(tmp_path_factory):
    return topology(str(build(tmp_path_factory.mktemp("dual"), "2s2n4c2t")))


def test_every_thread_is_drawn_once(dual):
    numbers = [int(found[5].split()[1]) for found in titled(drawn(dual), "CPU ")]
    assert sorted(numbers) == list(dual.online_cpus)


def test_boxes_lie_inside_boxes(dual):
    root = drawn(dual)
    sockets, nodes = titled(root, "socket "), titled(root, "numa ")
    assert (len(sockets), len(nodes)) == (2, 4)
    assert all(sum(inside(node, socket) for socket in sockets) == 1 for node in nodes)
    assert all(sum(inside(cpu, node) for node in nodes) == 1 for cpu in titled(root, "CPU "))


def test_nothing_lies_outside_the_page(dual):
    root = drawn(dual, team(dual, "", 7))
    page = (0.0, 0.0, float(root.get("width")), float(root.get("height")))
    assert all(inside(found, page) for found in rectangles(root))


def test_chosen_threads_are_green_and_numbered_in_order(dual):
    chosen = team(dual, "transpose smt core numa socket", 6)
    root = drawn(dual, chosen)
    found = {found[5]: found[4] for found in titled(root, "CPU ")}
    for worker, cpu in enumerate(chosen):
        assert found[f"CPU {cpu}, worker {worker}"] == WORKER
    assert list(found.values()).count(WORKER) == 6
    texts = [element.text for element in root.iter(f"{NAME}text")]
    assert sorted(text for text in texts if text.startswith("#")) == [f"#{worker}" for worker in range(6)]
    assert "team     6 threads on CPUs " + ",".join(map(str, chosen)) in texts


def test_limits_and_holes_are_seen(tmp_path):
    root = build(tmp_path, "1s4c2t", offline=(4, 3, 7))
    affinity(root, "1-2")
    page = drawn(topology(str(root)))
    fills = {found[5].split(",")[0]: found[4] for found in titled(page, "CPU ")}
    assert fills == {"CPU 0": OUT, "CPU 1": REACH, "CPU 2": REACH, "CPU 5": OUT, "CPU 6": OUT}
    assert len(titled(page, "hole")) == 1
    texts = " ".join(element.text for element in page.iter(f"{NAME}text"))
    assert "red: out of reach" in texts
    assert "dashed: hole" in texts


def test_kinds_of_cores_and_memory_only_nodes_are_named(tmp_path):
    page = drawn(topology(str(hybrid(memory_only(build(tmp_path, "1s1n4c"), 5), (0, 1), (2, 3)))))
    texts = [element.text for element in page.iter(f"{NAME}text")]
    assert texts.count("cpu_core") == texts.count("cpu_atom") == 2
    assert any(text.startswith("node 5, no CPUs") for text in texts)


def test_names_are_text_and_never_markup(dual):
    evil = dual._replace(model_name='<script>alert("x")</script> & "friends"', warnings=("</svg><a href='x'>",))
    root = drawn(evil)
    assert {element.tag.removeprefix(NAME) for element in root.iter()} == {"svg", "title", "style", "rect", "text", "g"}
    assert root.find(f"{NAME}title").text.startswith("<script>")
    assert "http" not in svg(evil).replace("http://www.w3.org/2000/svg", "")


def test_a_flat_machine_and_a_machine_of_one_cpu_are_drawn(tmp_path):
    affinity(tmp_path, "3,5")
    assert len(titled(drawn(topology(str(tmp_path))), "CPU ")) == 2


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.floats(5, 300), st.floats(5, 300)), min_size=1, max_size=40))
def test_pieces_of_a_grid_never_overlap(sizes):
    whole = grid([Piece(width, height, ()) for width, height in sizes])
    places = [(x, y, piece.width, piece.height) for x, y, piece in whole.parts]
    assert len(places) == len(sizes)
    for i, one in enumerate(places):
        assert inside(one, (-0.01, -0.01, whole.width + 0.02, whole.height + 0.02))
        for other in places[i + 1 :]:
            assert (
                one[0] + one[2] <= other[0]
                or other[0] + other[2] <= one[0]
                or one[1] + one[3] <= other[1]
                or (other[1] + other[3] <= one[1])
            )


def test_recorded_machines_are_drawn_whole(recorded, recorded_id):
    root, _ = recorded(recorded_id)
    machine = topology(str(root))
    numbers = [int(found[5].split(",")[0].split()[1]) for found in titled(drawn(machine), "CPU ")]
    assert sorted(numbers) == list(machine.online_cpus)
