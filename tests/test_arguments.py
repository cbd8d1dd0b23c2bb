import pytest

from advisor.arguments import seconds, sizes
from advisor.errors import BadInput


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096", (4096,)),
        ("1024,4096,16k", (1024, 4096, 16384)),
        ("64..512", (64, 128, 256, 512)),
        ("100..500", (100, 200, 400, 500)),
        ("1m,4096,4096", (4096, 1048576)),
        ("7..7", (7,)),
    ],
)
def test_sizes_are_read(text, expected):
    assert sizes(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-4", "4.5", "abc", "512..64", "64..", "1e3", "4096;rm"])
def test_bad_sizes_are_refused_with_what_is_allowed(text):
    with pytest.raises(BadInput, match="allowed: "):
        sizes(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("120", 120.0), ("90s", 90.0), ("2m", 120.0), ("1.5min", 90.0), ("1h", 3600.0)]
)
def test_durations_are_read(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-3s", "2 days", "s", "nan", "inf"])
def test_bad_durations_are_refused(text):
    with pytest.raises(BadInput, match="duration"):
        seconds(text)
