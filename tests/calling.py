"""A library of the tests' own: a module named torch that does next to nothing, with the metadata of an installed one.

With it in front of sys.path all that does not depend on PyTorch itself can be tested in a tenth of the time, and where
there is no PyTorch.
"""

from __future__ import annotations

import textwrap

from advisor.kernels.libraries import libraries
from advisor.kernels.variant import read_variant
from advisor.records import Build, Choice, Process, Team, pairs

HEADER = """{
  "idea": "a call of a library", "language": "python", "symbol": "prepare", "dtypes": ["float32", "float64"],
  "reads": "n * width", "writes": "n * width", "mapping": "the library's", "rank": 95
}"""

RIGHT = """
import numpy as np


def prepare(buffers, dims, threads):
    x, y = buffers
    return lambda: 3 * x + 1


def prepare_workspace(buffers, dims, threads):
    return buffers[1].nbytes
"""


RUNTIME = "import ctypes\nctypes.CDLL('libgomp.so.1')\n"
"""What the library does when it is imported: bring its OpenMP runtime along."""


def install(folder, version="9.9.1", code=RUNTIME):
    """Put the library into a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "torch.py").write_text(textwrap.dedent(code))
    for old in folder.glob("torch-*.dist-info"):
        (old / "METADATA").unlink()
        old.rmdir()
    info = folder / f"torch-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    return folder


def write(path, code=RIGHT, header=HEADER):
    """A source of a variant."""
    path.write_text(f'"""variant {header}\n\nMore words.\n"""\n{textwrap.dedent(code)}')
    return path


def variant(folder, code=RIGHT, name="called", header=HEADER):
    """A variant of the test kernel in Python, written now."""
    return read_variant(str(write(folder / f"{name}.py", code, header)), "scale")


def choice(one, threads=1, wait="default", placement="", **knobs):
    """A choice of a library call."""
    (tool,) = libraries()
    chosen = pairs({**dict(one.defaults), **knobs})
    made = Build(one.name, one.source_hash, chosen, tool.name, "none")
    return Choice(made, Team(threads, placement), Process(tool.runtime, wait, None, "default"))


def body(call, before="", workspace="0"):
    """A source whose call is these lines."""
    return f"""
import numpy as np
import os
import time
{textwrap.dedent(before)}

def prepare(buffers, dims, threads):
    x, y = buffers
    def call():
{textwrap.indent(textwrap.dedent(call), "        ")}
    return call


def prepare_workspace(buffers, dims, threads):
    return {workspace}
"""
