"""A machine with GPUs that are none, for the whole command: NVML, CuPy and the worker's driver are stand-ins, in real
processes. What is timed is numpy on the host under a made-up clock: `device_driver.py`."""

import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
SITE = """import sys, types
def CudaDriver(uuid):
    sys.path.extend([{here!r}, {gpu!r}])
    from device_driver import MadeUpDriver
    return MadeUpDriver()
sys.modules["advisor.kernels.gpu.cuda"] = types.ModuleType("advisor.kernels.gpu.cuda")
sys.modules["advisor.kernels.gpu.cuda"].CudaDriver = CudaDriver
"""
NVML = """import json, os, sys
sys.path.append({here!r})
from gpus import Card, FakeNvml
_told = FakeNvml([Card(**card) for card in json.loads(os.environ["MADE_UP_GPUS"])], os.environ["MADE_UP_DRIVER"])
def __getattr__(name):
    return getattr(_told, name)
"""
H200 = {
    "uuid": "GPU-1",
    "name": "NVIDIA H200",
    "memory": 143771 << 20,
    "power_w": 690.0,
}  # not the limit of the shipped tables
TUNE = ("tune", "--device", "cuda:0", "--compilers", "cupy-14.2", "--heads", "2", "--kv-heads", "1", "--head-dim", "64")


def variables(folder, cards=(H200,), driver="580.95.05", cupy="14.2.0", **more):
    """The variables of a command on a machine with these cards, this driver and this CuPy.

    Args:
        folder: where the stand-ins are written; one for each version of CuPy.
        cards: fields of `gpus.Card`.
        driver, cupy: versions.
        more: further variables.
    """
    made = folder / f"made-up-{cupy}"
    (made / f"cupy_cuda13x-{cupy}.dist-info").mkdir(parents=True, exist_ok=True)
    (made / "sitecustomize.py").write_text(SITE.format(here=HERE, gpu=os.path.join(HERE, "kernels", "gpu")))
    (made / "pynvml.py").write_text(NVML.format(here=HERE))
    own = {"MADE_UP_GPUS": json.dumps(list(cards)), "MADE_UP_DRIVER": driver, "PYTHONPATH": str(made)}
    return {**own, "CUDA_VISIBLE_DEVICES": None, **more}
