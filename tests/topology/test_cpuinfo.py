import pytest
from trees import X86_HEAD, put

from advisor.topology import cpuinfo

ARM = "processor\t: 0\nFeatures\t: fp asimd fphp sve\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: 0xd40\n"
CASES = {
    "x86": (X86_HEAD, "x86_64", "GenuineIntel", "Fake(R) CPU @ 2.00GHz", ("avx", "avx2", "f16c", "fma", "sse4_2")),
    "x86-32": (X86_HEAD.replace(" lm", ""), "i686", "GenuineIntel", "Fake(R) CPU @ 2.00GHz", None),
    "arm": (ARM, "aarch64", "ARM", "ARM part 0xd40 variant 0x1", ("asimd", "fphp", "sve")),
    "riscv": (
        "processor : 0\nisa : rv64imafdcv_zba\nmvendorid : 0x5b7\n",
        "riscv64",
        "0x5b7",
        "rv64imafdcv_zba",
        ("rvv",),
    ),
    "power": (
        "processor : 0\ncpu : POWER9, altivec supported\nrevision : 2.1 (pvr 004e 1201)\n",
        "ppc64",
        None,
        "POWER9, altivec supported",
        ("altivec",),
    ),
    "s390": (
        "vendor_id : IBM/S390\nfeatures : esan3 zarch vx\nprocessor 0: version = 00, machine = 2964\n",
        "s390x",
        "IBM/S390",
        "IBM/S390 machine 2964",
        ("vx",),
    ),
    "loongarch": (
        "system type : generic\n\nprocessor : 0\nCPU Family : Loongson-64bit\nModel Name : Loongson-3A5000\n",
        "loongarch64",
        None,
        "Loongson-3A5000",
        (),
    ),
    "empty": ("", None, None, None, ()),
}


@pytest.mark.parametrize("name", CASES)
def test_each_architecture_is_told_from_its_own_file(tmp_path, name):
    head, architecture, vendor, model, isa = CASES[name]
    put(tmp_path, "proc/cpuinfo", head)
    found = cpuinfo.read(str(tmp_path))
    assert (found.architecture, found.vendor, found.model) == (architecture, vendor, model)
    assert isa is None or found.isa == isa


def test_unknown_is_none_and_not_a_word(tmp_path):
    put(tmp_path, "proc/cpuinfo", "processor: 0\nvendor_id: GenuineIntel\nmodel name: unknown\nflags: lm\n")
    assert cpuinfo.read(str(tmp_path)).model is None


def test_no_cpuinfo_at_all(tmp_path):
    found = cpuinfo.read(str(tmp_path))
    assert not found.readable
    assert found.architecture is None


def test_byte_order_tells_power_apart(tmp_path):
    put(tmp_path, "proc/cpuinfo", CASES["power"][0])
    put(tmp_path, "sys/kernel/cpu_byteorder", "little\n")
    assert cpuinfo.read(str(tmp_path)).architecture == "ppc64le"


def test_only_the_head_is_read(tmp_path):
    put(tmp_path, "proc/cpuinfo", X86_HEAD + "x" * cpuinfo.HEAD_BYTES + "\nflags2: no\nmodel name: later\n")
    assert cpuinfo.read(str(tmp_path)).model == "Fake(R) CPU @ 2.00GHz"
