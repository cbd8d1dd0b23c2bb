import pytest

from advisor.topology.visible import BY_BUS, Known, bus_key, visible

ALIKE = (Known("GPU-8932f937", "00000000:81:00.0", "A"), Known("GPU-89aa", "00000000:01:00.0", "A"))
MIXED = (ALIKE[0], ALIKE[1]._replace(name="B"))
CUT = (Known("MIG-11", "p", "A", True, "GPU-77"), Known("MIG-12", "p", "A", True, "GPU-77"))


@pytest.mark.parametrize(  # each was tried with the CUDA driver itself on two GPUs
    ("spelled", "positions"),
    [
        (None, (1, 0)),  # by bus: the second one lies before the first
        ("", ()),
        ("0", (1,)),
        ("1,0", (0, 1)),
        (" 1 , 0", (0, 1)),
        ("-1", ()),
        ("0,-1,1", (1,)),
        ("0,2,1", (1,)),
        ("0,none,1", (1,)),
        ("0,0", ()),
        ("GPU-8932f937", (0,)),
        ("GPU-8932F9", (0,)),
        ("gpu-8932", ()),
        ("8932f937", ()),
        ("GPU-8932f937z", (0,)),
        ("GPU-8932,0", (0,)),
        ("0,GPU-8932", (1,)),
        ("0,GPU-89aa", (1,)),
        ("1abc,0", (0, 1)),
        ("0x1", (1,)),
        ("+1", (0,)),
        ("00", (1,)),
        (",0", ()),
        ("0,,1", (1,)),
        ("0 1", (1,)),
        ("GPU-89", ()),
        ("GPU-8932,GPU-zz,GPU-89aa", (0,)),
        ("GPU-8932,GPU-8932f937", ()),
        ("GPU-89aa,GPU-8932", (1, 0)),
        ("NoDevFiles", ()),
    ],
)
def test_spellings(spelled, positions):
    assert visible(spelled, ALIKE) == positions


def test_the_order_of_different_gpus_is_known_by_bus_only():
    assert visible("0", MIXED) is None
    assert visible(None, MIXED) is None
    assert visible("0", MIXED, BY_BUS) == (1,)
    assert visible("GPU-89aa", MIXED) == (1,)


def test_slices_are_named_by_their_own_uuid():
    assert visible("MIG-12", CUT) == (1,)
    assert visible("MIG-1", CUT) == ()
    assert visible("MIG-12,MIG-11", CUT) == (1, 0)


@pytest.mark.parametrize("spelled", [None, "0", "GPU-77", "MIG-GPU-77/1/0"])
def test_which_slice_cuda_takes_is_not_guessed(spelled):
    assert visible(spelled, CUT) is None


def test_one_gpu_needs_no_order():
    assert visible("0", (ALIKE[0]._replace(name=None, pci=None),)) == (0,)


def test_no_gpus():
    assert visible(None, ()) == ()
    assert visible("0", ()) == ()


def test_bus_addresses_of_two_spellings_are_equal():
    assert bus_key("00000000:7F:00.0") == bus_key("0000:7f:00.0")
