"""What is proposed to who got several answers and wanted one."""

from advisor.answers import Answer
from advisor.commands.common import naming


def answer(**changed):
    base = dict.fromkeys(Answer._fields)
    shape = (("causal", 1), ("heads", 32))
    known = {**base, "kernel": "decode", "dtype": "float32", "regime": "warm", "shape_pairs": shape}
    return Answer(**{**known, **changed})


def test_only_what_differs_is_named_with_a_value_that_was_answered():
    """Two types got `--heads 1`, which answered silently for a shape that nobody had tuned."""
    assert naming([(answer(), 64), (answer(dtype="bfloat16"), 64)]) == "--dtype float32"


def test_shapes_flags_and_sizes_are_named_as_options():
    other = answer(shape_pairs=(("causal", 0), ("heads", 8)))
    assert naming([(answer(), 64), (other, 128)]) == "--causal --heads 32 --n 64"
