"""The wheel: what is in it, that it answers without dependencies, and that its shipped tables and kernels are found."""

import email
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tabling import machine, table, write, write_machine

from advisor import paths

ROOT = Path(__file__).resolve().parent.parent
BARE = [sys.executable, "-I", "-S", "-c"]

ANSWER = """
import sys
sys.path[:] = [{target!r}] + [p for p in sys.path if "site-packages" not in p and p != {root!r}]
from advisor.lookup import Policy
import advisor
policy = Policy.load({folder!r}, machine={machine!r})
print(advisor.__file__)
print(policy.choose("decode", n=64).basis, policy.bind("decode")(2048).threads, *policy.notes)
"""

SHIPPED = """
import os, sys
sys.path.insert(0, {target!r})
from advisor import paths
print(paths.shipped_policies())
"""

KERNELS = """
import importlib.metadata, json, sys
sys.path.insert(0, {target!r})
sys.path[:] = [p for p in sys.path if p != {root!r}]
from advisor.kernels import registry
from advisor.kernels.variant import variants
points = [p for d in importlib.metadata.distributions(path=[{target!r}]) for p in d.entry_points]
print(json.dumps({{
    "file": registry.__file__,
    "points": {{p.name: p.value for p in points if p.group == registry.GROUP}},
    "commands": {{p.name: p.value for p in points if p.group == "console_scripts"}},
    "kernels": registry.kernels(),
    "folders": registry.folders()["decode"],
    "variants": [v.name for v in variants("decode")],
}}))
"""


def pip(*words: object) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of this tree, built without network by the hatchling of the dev extra."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def target(wheel, tmp_path_factory):
    """The wheel installed alone, with no dependency, into an empty folder."""
    folder = tmp_path_factory.mktemp("target")
    pip("install", "--no-index", "--no-deps", "--target", folder, wheel)
    return folder


@pytest.fixture(scope="module")
def content(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def run(command: list[str], folder: Path, **environment: str) -> str:
    """A command's output, run far from the checkout."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def below(folder: str, *endings: str) -> set[str]:
    files = [path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix in endings]
    return {path.relative_to(ROOT).as_posix() for path in files}


# --- what is in it ---


def test_sources_and_headers_of_every_kernel_and_the_frame_are_in_the_wheel(content):
    wanted = below("advisor", ".c", ".h", ".py")
    assert {"advisor/kernels/frame/frame.c", "advisor/kernels/frame/advisor.h"} <= wanted
    assert any(name.startswith("advisor/kernels/decode/") and name.endswith(".c") for name in wanted)
    assert wanted <= set(content)
    assert "advisor/py.typed" in content


def test_shipped_policies_are_in_the_wheel(content):
    shipped = {path.relative_to(ROOT / "policies").as_posix() for path in (ROOT / "policies").rglob("*")}
    files = {f"advisor/_policies/{name}" for name in shipped if (ROOT / "policies" / name).is_file()}
    assert files
    assert files <= set(content)


def test_nothing_else_is_in_the_wheel(content):
    outside = {name.split("/")[0] for name in content} - {"advisor"}
    assert len(outside) == 1
    assert outside.pop().endswith(".dist-info")
    assert not [name for name in content if "test" in Path(name).name or "__pycache__" in name or name.endswith(".so")]


def test_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        data = email.message_from_bytes(archive.read(name))
    assert (data["Name"], data["License-Expression"], data["Requires-Python"]) == (
        "onf-advisor",
        "Apache-2.0",
        ">=3.11",
    )
    assert set(data.get_all("Provides-Extra")) == {"torch", "cuda", "bench", "service", "dev"}
    plain = [word for word in data.get_all("Requires-Dist") if "extra ==" not in word]
    names = [re.match(r"[\w-]+", word).group().lower() for word in plain]
    assert len(names) == len(set(names))
    assert {"optuna", "numpy", "typer"} <= set(names)
    assert not {"torch", "fastapi", "sqlalchemy"} & set(names)


# --- what it does ---


def test_the_lookup_answers_from_the_wheel_alone(target, tmp_path):
    write(tmp_path, table())
    code = ANSWER.format(
        target=str(target), root=str(ROOT), folder=str(tmp_path), machine=write_machine(tmp_path, machine())
    )
    file, answer = run([*BARE, code], tmp_path).splitlines()
    assert file.startswith(str(target))
    assert answer == "EXACT 4"


def test_shipped_policies_are_found_in_a_wheel_and_in_a_checkout(target, tmp_path):
    found = run([*BARE, SHIPPED.format(target=str(target))], tmp_path).strip()
    assert Path(found) == target / "advisor/_policies"
    assert (Path(found) / "README.md").is_file()
    assert Path(paths.shipped_policies()) == ROOT / "policies"


def test_kernels_and_the_command_are_found_in_the_wheel(target, tmp_path):
    code = KERNELS.format(target=str(target), root=str(ROOT))
    found = json.loads(run([sys.executable, "-c", code], tmp_path))
    assert found["file"].startswith(str(target))
    assert found["points"] == {"decode": "advisor.kernels.decode"}
    assert found["commands"] == {"advisor": "advisor.start:main"}
    rows = ["mlp", "mlp_backward", "norm_linear", "rmsnorm", "rmsnorm_backward"]
    attention = ["backward", "decode", "forward", "fused"]
    assert found["kernels"] == sorted([*attention, *rows, "block", "block_backward"])
    assert all((target / f"advisor/kernels/{kernel}/fortran.f90").is_file() for kernel in rows)
    assert found["folders"] == [os.path.realpath(target / "advisor/kernels/decode")]
    sources = [path for kind in ("*.c", "*.f90", "torch_*.py") for path in (ROOT / "advisor/kernels/decode").glob(kind)]
    assert set(found["variants"]) == {path.stem for path in sources}


def test_the_command_runs_from_the_wheel(target, tmp_path):
    said = run([sys.executable, "-m", "advisor.cli", "--version"], tmp_path, PYTHONPATH=str(target))
    assert re.fullmatch(r"advisor \d+\.\d+\.\d+\n", said)
