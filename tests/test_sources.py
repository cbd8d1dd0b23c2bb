import pytest

from advisor.ranges import here_hash
from advisor.sources import parts, source_hash


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.c").write_text('#include <math.h>\n# include "one.h"\n#include "absent.h"\nint a;\n')
    (tmp_path / "one.h").write_text('#include "two.h"\n')
    (tmp_path / "two.h").write_text('#include "one.h"\n')
    (tmp_path / "other.h").write_text("int other;\n")
    return tmp_path


def test_parts_are_the_source_and_the_headers_it_reaches(folder):
    assert [p.rsplit("/", 1)[1] for p in parts(str(folder / "a.c"))] == ["a.c", "one.h", "two.h"]


def test_an_edit_to_a_header_of_a_header_is_another_source(folder):
    before = source_hash(str(folder / "a.c"))
    (folder / "other.h").write_text("int changed;\n")
    assert source_hash(str(folder / "a.c")) == before
    (folder / "two.h").write_text("int changed;\n")
    assert source_hash(str(folder / "a.c")) != before


def test_the_lookup_and_the_registry_name_a_source_alike():
    variant = pytest.importorskip("advisor.kernels.variant", reason="kernels need numpy")
    for found in variant.variants("decode"):
        assert here_hash("decode", found.name) == found.source_hash


def test_a_variant_from_elsewhere_has_no_source_here():
    assert here_hash("decode", "nobody-wrote-this") is None
    assert here_hash("../decode", "naive") is None
