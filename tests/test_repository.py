"""The repository's own rules: what no file may say, who may import whom, how long a function may be."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "advisor").rglob("*.py"))

FOREIGN_PATHS = tuple("/" + rest for rest in ("work/", "tmp/team", "tmp/v/", "root/"))
REGISTRIES = tuple(
    ".".join(words) for words in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("deb", "debian", "org"))
)
OTHER_PACKAGE = " ".join(("pip", "install", "advisor"))
"""The name belongs to somebody else's distribution; ours is onf-advisor."""

LAYERS = {"topology": 0, "kernels": 1, "search": 2, "policy": 3, "validate": 3, "signature": 3}
"""One direction: a package may import those below it, and none above it or beside it."""

SURFACE = {"cli", "show", "pipeline", "tuning", "lookup", "answers", "apply"}
"""Modules that no stage may import, but for the formats in policy/launch/, which are of answers."""

MOST_LINES, MOST_PARAMETERS = 60, 7
LONGER = {
    "advisor/lookup.py:choose": "named arguments are twice as fast as a dict of them",
    "advisor/counted_lookup.py:choose": "as in lookup.py",
    "advisor/lookup.py:load": "named arguments, each of its own kind and with a default",
}


def project_files() -> list[Path]:
    """Files under version control and those about to be; without git, whatever lies in the project's folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        found = [
            path for top in ("advisor", "benchmarks", "docs", "policies", "tests") for path in ROOT.glob(f"{top}/**/*")
        ]
        found += [path for path in ROOT.iterdir() if path.is_file()]
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


def texts() -> list[tuple[str, str]]:
    return [(path.relative_to(ROOT).as_posix(), path.read_text("utf-8", "replace")) for path in project_files()]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports(path: Path) -> set[str]:
    """Dotted names of all modules that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: imports are absolute"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


# --- what no file says ---


def test_the_list_of_files_is_whole():
    found = {name for name, _ in texts()}
    assert {"README.md", "Makefile", "pyproject.toml", "advisor/lookup.py", "tests/test_repository.py"} <= found


@pytest.mark.parametrize("words", [*FOREIGN_PATHS, *REGISTRIES, OTHER_PACKAGE])
def test_no_file_names_a_place_of_somebody_elses(words):
    assert [name for name, text in texts() if words in text] == []


def test_text_is_plain():
    """No tabs but in the Makefile, and no space at a line's end."""
    bad = []
    for path in project_files():
        if path.suffix in {".md", ".py", ".toml", ".yaml", ".c", ".h"}:
            lines = path.read_text("utf-8").split("\n")
            bad += [f"{name_of(path)}:{i}" for i, line in enumerate(lines, 1) if line != line.rstrip() or "\t" in line]
    assert bad == []


# --- what code does not do ---


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_what_it_is_for(path):
    assert ast.get_docstring(tree(path))


def dangers(path: Path) -> list[str]:
    """Calls and imports that run text or bytes as code, with their lines."""
    unpicklers = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
    found = [f"import {name}" for name in imports(path) if name.split(".")[0] in unpicklers]
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in {
            "eval",
            "exec",
            "builtins.eval",
            "builtins.exec",
            "os.system",
            "os.popen",
            "subprocess.getoutput",
        }:
            found.append(f"{called}, line {node.lineno}")
        if any(word.arg == "shell" and ast.unparse(word.value) != "False" for word in node.keywords):
            found.append(f"shell=, line {node.lineno}")
    return found


@pytest.mark.parametrize("path", [*MODULES, *sorted((ROOT / "benchmarks").rglob("*.py"))], ids=name_of)
def test_nothing_is_run_that_is_data(path):
    assert dangers(path) == []


def test_dangers_are_seen(tmp_path):
    code = "import pickle\nfrom os import path\neval('1')\nos.system('x')\nsubprocess.run('x', shell=True)\n"
    (tmp_path / "bad.py").write_text(code)
    assert len(dangers(tmp_path / "bad.py")) == 4


def functions(path: Path) -> list[tuple[str, int, int]]:
    """Name, lines and parameters (without self and cls) of every function."""
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            given = [name for name in names if name not in ("self", "cls")]
            taken = 0 if on_device(node) else len(given)
            found.append((node.name, (node.end_lineno or node.lineno) - node.lineno + 1, taken))
    return found


def on_device(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is a function of Triton's or of its lower language, which takes pointers and sizes one by one."""
    return any(ast.unparse(one).startswith(("triton.jit", "gluon.jit")) for one in node.decorator_list)


def has_commands(path: Path) -> bool:
    """Whether functions there are commands, whose parameters are their options."""
    return path.name == "cli.py" or path.parent.name == "commands"


@pytest.mark.parametrize("path", [path for path in MODULES if not has_commands(path)], ids=name_of)
def test_no_function_is_long(path):
    long = [
        f"{name}: {lines} lines, {parameters} parameters"
        for name, lines, parameters in functions(path)
        if (lines > MOST_LINES or parameters > MOST_PARAMETERS) and f"{name_of(path)}:{name}" not in LONGER
    ]
    assert long == []


# --- one direction ---


def package_of(path: Path) -> str:
    return path.relative_to(ROOT / "advisor").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", [path for path in MODULES if package_of(path) in LAYERS], ids=name_of)
def test_no_stage_imports_a_later_one(path):
    own = LAYERS[package_of(path)]
    inside = {
        name.split(".")[1] for name in imports(path) if name.startswith("advisor.") and name != "advisor.__version__"
    }
    others = inside - {package_of(path)}
    assert {name for name in others if LAYERS.get(name, -1) >= own} == set()
    if not name_of(path).startswith("advisor/policy/launch/"):
        assert inside & SURFACE == set()


def test_records_and_errors_import_nothing_of_ours_but_the_array():
    for name in ("errors", "records"):
        ours = {i for i in imports(ROOT / f"advisor/{name}.py") if i.startswith("advisor")}
        assert {i for i in ours if not i.startswith("advisor.topology.array")} == set()


def test_importing_the_package_has_no_effect_and_loads_the_standard_library_alone(tmp_path):
    code = (
        "import os, sys; before = (set(sys.modules), dict(os.environ), os.sched_getaffinity(0))\n"
        f"sys.path.insert(0, {str(ROOT)!r}); import advisor\n"
        "new = set(sys.modules) - before[0]\n"
        "assert (dict(os.environ), os.sched_getaffinity(0)) == before[1:]\n"
        "assert not {n.split('.')[0] for n in new} - set(sys.stdlib_module_names) - {'advisor'}, new\n"
        "print(sorted(n for n in new if n.startswith('advisor')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("['advisor']\n", "")
    assert list(tmp_path.iterdir()) == []


# --- configuration ---


def configuration() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]


def test_the_linters_are_configured():
    tool = configuration()
    assert tool["mypy"]["strict"] is True
    assert tool["mypy"]["packages"] == ["advisor"]
    assert {"E", "F", "D1", "T20"} <= set(tool["ruff"]["lint"]["select"])
    assert (ROOT / ".pre-commit-config.yaml").is_file()


def test_tests_are_strict():
    options = configuration()["pytest"]["ini_options"]
    assert options["filterwarnings"] == ["error"]
    assert "--strict-markers" in options["addopts"]


def test_every_marker_is_declared():
    declared = {line.split(":")[0] for line in configuration()["pytest"]["ini_options"]["markers"]}
    plugins = {"parametrize", "skipif", "skip", "xfail", "usefixtures", "filterwarnings"}
    used = set()
    for path in (ROOT / "tests").rglob("*.py"):
        used |= set(re.findall(r"pytest\.mark\.(\w+)", path.read_text("utf-8")))
    assert used - plugins - declared == set()


def test_no_two_test_files_have_one_name():
    """They are imported without packages around them."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", ".ci/run", "advisor/py.typed"]
)
def test_what_every_project_has_is_there(name):
    assert (ROOT / name).is_file()


def test_the_make_targets_that_are_named_exist():
    """Named as a command: in backticks, or at the start of an indented line."""
    text = "".join((ROOT / name).read_text("utf-8") for name in ("README.md", "CONTRIBUTING.md"))
    named = set(re.findall(r"(?:`|^    )make ([a-z]+)", text, re.MULTILINE))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {"demo", "test", "lint"} <= named
    assert named <= targets
