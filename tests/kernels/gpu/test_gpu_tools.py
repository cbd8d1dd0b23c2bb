"""Which of the installed packages reach a GPU."""

import pytest

from advisor.kernels.gpu import tools

CUPY, TRITON = {"cupy": "14.2.0"}, {"triton": "3.6.0"}


@pytest.mark.parametrize(
    ("installed", "names"),
    [
        ({**CUPY, **TRITON, "torch": "2.11.0+cu130"}, ["cupy-14.2", "triton-3.6", "torch-2.11"]),
        ({**CUPY, **TRITON, "torch": "2.11.0"}, ["cupy-14.2", "triton-3.6", "torch-2.11"]),
        ({**CUPY, **TRITON, "torch": "2.13.0+cpu"}, ["cupy-14.2"]),
        ({**CUPY, **TRITON}, ["cupy-14.2"]),
        ({"torch": "2.11.0"}, []),
    ],
)
def test_pytorch_counts_where_its_build_knows_cuda_and_triton_where_pytorch_does(monkeypatch, installed, names):
    monkeypatch.setattr(tools, "installed", installed.get)
    assert [tool.name for tool in tools.gpu_tools()] == names
    reason = tools.left_out()
    assert bool(reason) == ("+cpu" in installed.get("torch", ""))
    assert not reason or ("2.13.0+cpu" in reason and "for CUDA" in reason)
