"""The lookup needs the standard library alone, and little of it. Fresh interpreters: this one has loaded everything."""

import json
import os
import subprocess
import sys

import pytest
from tabling import machine, table, write, write_machine

import advisor

PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(advisor.__file__)))
HEAVY = {"typing", "dataclasses", "re", "ctypes", "pathlib", "enum", "subprocess", "json", "inspect", "threading"}

LIST_MODULES = """
import sys
before = set(sys.modules)
sys.path.insert(0, {parent!r})
import {module}
print("\\n".join(sorted(set(sys.modules) - before)))
"""

ANSWER = """
import sys
sys.path.insert(0, {link!r})
from advisor.lookup import Policy
policy = Policy.load({folder!r}, machine={machine!r})
answer = policy.choose("decode", n=64)
print(answer.basis, answer.threads, answer.variant, *policy.notes)
with answer.applied() as state:
    print(state.note)
print(sorted(name for name in sys.modules if "site-packages" in (getattr(sys.modules[name], "__file__", "") or "")))
"""


def fresh(code: str, **environment: str) -> str:
    """Run code in an interpreter without site-packages and without the user's settings."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["advisor", "advisor.lookup", "advisor.apply", "advisor.identity"])
def test_importing_the_hot_path_loads_little(module):
    loaded = set(fresh(LIST_MODULES.format(parent=PACKAGE_PARENT, module=module)).split())
    assert module in loaded
    assert not loaded & HEAVY
    outside = {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"advisor"}
    assert not outside


def test_loading_a_table_loads_no_third_party_module(tmp_path):
    write(tmp_path, table())
    link = tmp_path / "only"
    link.mkdir()
    (link / "advisor").symlink_to(os.path.dirname(os.path.abspath(advisor.__file__)))  # the package and nothing else
    code = ANSWER.format(link=str(link), folder=str(tmp_path), machine=write_machine(tmp_path, machine()))
    answer, note, others = fresh(code).splitlines()
    assert answer == "EXACT 1 made_up"
    assert "not for this one" in note
    assert others == "[]"


def test_importing_has_no_effect_on_the_folder_of_tables(tmp_path):
    home = tmp_path / "home"
    fresh(LIST_MODULES.format(parent=PACKAGE_PARENT, module="advisor.lookup"), ADVISOR_HOME=str(home))
    assert not home.exists()


def test_the_process_part_is_read_as_the_process_was_started(tmp_path):
    code = (
        f"import sys, json; sys.path.insert(0, {PACKAGE_PARENT!r}); import os\n"
        "from advisor.site import running_process\n"
        "notes = []; os.environ['OMP_WAIT_POLICY'] = 'active'\n"
        "print(json.dumps([*running_process(notes), len(notes)]))"
    )
    started = {"OMP_WAIT_POLICY": "Passive", "GOMP_SPINCOUNT": "300"}
    assert json.loads(fresh(code, **started)) == ["passive", 300, 1]
