"""The documents speak of everything there is, name nothing there is not, and their examples run."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from tabling import SHAPE, choice, race

from advisor import codec, paths, records
from advisor.cli import app
from advisor.policy import launch, store
from advisor.policy.learn import Made, learn
from advisor.records import pairs
from advisor.sources import source_hash
from advisor.topology import probe
from advisor.topology.array import CpuArray

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLANS = {"design.md"}
"""Pages that name commands which are not built yet."""

SAFE = {"probe", "doctor", "recommend"}
"""Commands that measure nothing and write no table."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


# --- commands and options ---

COMMANDS = typer.main.get_command(app).commands
OPTIONS = [
    (command, option)
    for command, found in COMMANDS.items()
    for part in (found, *getattr(found, "commands", {}).values())
    for parameter in part.params
    for option in (*parameter.opts, *parameter.secondary_opts)
    if option.startswith("-") and option != "--help"
]


def chapter(page: str, title: str) -> str:
    """What stands under a heading, up to the next one of its depth or above."""
    lines = text(page).splitlines()
    start = next(i for i, line in enumerate(lines) if re.fullmatch(rf"#+ {re.escape(title)}", line))
    depth = len(lines[start].split(" ")[0])
    end = (i for i in range(start + 1, len(lines)) if re.match(rf"#{{1,{depth}}} ", lines[i]))
    return "\n".join(lines[start + 1 : next(end, len(lines))])


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_every_option_is_in_the_docs(command, option):
    named = set(re.findall(r"`(-[\w-]+)", chapter("docs/commands.md", f"advisor {command}")))
    assert option in named


@pytest.mark.parametrize("command", COMMANDS)
def test_the_docs_name_no_option_that_is_not_there(command):
    named = set(re.findall(r"`(--[\w-]+)", chapter("docs/commands.md", f"advisor {command}")))
    assert named <= {option for known, option in OPTIONS if known == command} | {"--help"}


def test_every_command_is_in_the_readme_or_the_walk():
    both = text("README.md") + text("docs/walk.md")
    assert [command for command in COMMANDS if f"advisor {command}" not in both] == []


def test_exit_statuses_are_those_of_the_command_line():
    from advisor import cli

    rows = re.findall(r"^\| (\d) \|", text("docs/commands.md"), re.MULTILINE)
    assert [int(row) for row in rows] == [0, 1, 2, 3]
    assert (cli.DONE, cli.FAILED, cli.PARTLY) == (0, 1, 3)  # 2 is what the parser of arguments gives


def test_every_format_is_in_the_docs():
    said = chapter("docs/commands.md", "advisor recommend")
    assert [name for name in launch.FORMATS if f"`{name}`" not in said] == []


def indented(page: Path) -> list[str]:
    """Lines of the indented blocks, without their comments, continued lines joined."""
    lines = re.sub(r"\\\n\s*", "", page.read_text("utf-8")).splitlines()
    return [re.split(r"\s{2,}", line[4:].rstrip())[0] for line in lines if re.match(r"    \S", line)]


def advisor_lines() -> list[tuple[str, str]]:
    """Page and text of every example that calls advisor."""
    return [
        (name_of(page), line)
        for page in PAGES
        if page.name not in PLANS
        for line in indented(page)
        if re.match(r"advisor |eval .*advisor ", line)
    ]


def parsed(line: str) -> tuple[str, list[str]]:
    words = re.sub(r'^eval "\$\((.*)\)"$', r"\1", line).split()
    return words[1], words[2:]


@pytest.mark.parametrize(("page", "line"), advisor_lines())
def test_every_example_is_a_command_that_exists(page, line):
    name, arguments = parsed(line)
    assert name in COMMANDS
    COMMANDS[name].make_context(name, arguments)  # refuses unknown options and wrong values


def test_there_are_examples():
    pages = {page for page, _ in advisor_lines()}
    assert {"README.md", "docs/walk.md"} <= pages


# --- fields ---

RECORDS = {
    "machine.json": records.Machine,
    "Problem": records.Problem,
    "Choice": records.Choice,
    "Measurement": records.Measurement,
    "Verdict": records.Verdict,
    "Table": records.Table,
    "Section": records.Section,
    "Row": records.Row,
    "Point": records.Point,
    "Summary": records.Summary,
    "HeldOut": records.HeldOut,
}
PARTS = {
    "machine.json": (records.NumaNode, records.Caches, records.CoreClass, records.Gpu, CpuArray),
    "Choice": (records.Build, records.Team, records.Process),
    "Verdict": (records.Standing,),
}
"""Records that are explained in the row of the field that holds them."""


def explained(title: str) -> set[str]:
    """Names in backticks in the table rows under a heading of the fields page."""
    rows = [line for line in chapter("docs/tables.md", title).splitlines() if line.startswith("| ")]
    return set(re.findall(r"`(\w+)`", "\n".join(rows)))


@pytest.mark.parametrize("title", RECORDS)
def test_every_field_of_a_record_is_explained(title):
    fields = {name for kind in (RECORDS[title], *PARTS.get(title, ())) for name in kind._fields} - {"extra"}
    assert fields - explained(title) == set()


def test_every_key_of_an_answer_is_explained():
    assert {*launch.JSON_KEYS, "n", "estimate_ns"} - explained("An answer") == set()


def test_every_key_of_a_log_line_is_explained():
    schema = json.loads(text("docs/schema/measurements.schema.json"))
    kinds = ("session", "trial", "race", "verdict", "counters")
    keys = {key for kind in kinds for key in schema["$defs"][kind]["properties"]} - {"kind", "session"}
    assert keys - explained("measurements.jsonl") == set()


def test_every_status_and_basis_is_explained():
    page = text("docs/tables.md")
    assert [word for word in (*records.STATUSES, *records.BASES, *records.REGIMES) if f"`{word}`" not in page] == []


def test_schemas_named_are_those_written():
    page = text("docs/tables.md")
    for artefact in codec.SCHEMAS:
        assert f"schema/{artefact}.schema.json" in page


# --- links ---


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as they are made from their text."""
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in PLANS], ids=name_of)
def test_files_named_in_backticks_exist(page):
    named = re.findall(r"`((?:advisor|docs|tests|benchmarks|policies)/[\w./-]+)`", page.read_text("utf-8"))
    absent = [name for name in named if not (ROOT / name).exists() and not name.startswith("advisor/_policies")]
    assert absent == []


def test_every_page_can_be_reached_from_the_readme():
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or not page.exists():
            continue
        seen.add(page)
        links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8"))]
        found = [(page.parent / link).resolve() for link in links if link and "://" not in link]
        waiting += [path for path in found if path.suffix == ".md"]
        waiting += [path for folder in found if folder.is_dir() for path in folder.glob("*.md")]
    assert set(PAGES) - seen == set()


# --- examples that run ---


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home folder with a small table of this machine for the shape of the examples. Its times are made up."""
    folder = tmp_path_factory.mktemp("home")
    here = probe.probe()
    split = choice("split", threads=1)
    build = split.build._replace(source_hash=source_hash(str(ROOT / "advisor/kernels/decode/split.c")))
    split = split._replace(build=build)
    verdicts = [race(n, {split: n * 10.0}) for n in (1024, 4096, 16384)]
    made = learn(here, verdicts, [], Made("2026-01-02T03:04:05Z", pairs({"session": "made up"})))
    state = folder / "machines" / f"{here.hardware_id}-{here.limits_id}"
    state.mkdir(parents=True)
    store.save_table(str(state / "decode.table.json"), made)
    return folder


def environment(home: Path) -> dict[str, str]:
    """This environment with the home folder, the command on the path, and no settings of the user's own."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "ADVISOR_"))}
    path = os.pathsep.join([os.path.dirname(sys.executable), own.get("PATH", "")])
    return {**own, "PATH": path, "ADVISOR_HOME": str(home), "PYTHONWARNINGS": "error"}


def run(command: list[str], home: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(home), cwd=home)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "line", [line for page, line in advisor_lines() if page == "README.md" and parsed(line)[0] in SAFE]
)
def test_safe_shell_examples_of_the_readme_run(line, home):
    if line.startswith("eval"):
        said = run(["sh", "-c", f"{line}; echo threads=$OMP_NUM_THREADS"], home)
        assert said == "threads=1\n"
    else:
        assert run(["sh", "-c", line], home).strip()


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_there(command, home):
    assert "Usage: advisor" in run(["advisor", *command.split(), "--help"], home)


def python_blocks() -> list[tuple[str, str]]:
    return [
        (name_of(p), code)
        for p in PAGES
        for code in re.findall(r"```python\n(.*?)```", p.read_text("utf-8"), re.DOTALL)
    ]


@pytest.mark.parametrize(("page", "code"), python_blocks())
def test_python_examples_compile_and_those_that_need_a_table_alone_run(page, code, home):
    ast.parse(code)
    if "Policy.load()" in code and "advisor.lookup" in code:
        check = "print(answer.basis, answer.variant, *policy.notes)"
        assert run([sys.executable, "-c", f"{code}\n{check}"], home) == "EXACT split\n"


def test_readme_and_lookup_page_have_examples_that_run():
    pages = {page for page, code in python_blocks() if "Policy.load()" in code}
    assert {"README.md", "docs/lookup.md"} <= pages


def test_the_server_example_runs(home):
    said = run([sys.executable, str(ROOT / "docs/examples/server.py")], home)
    assert "split, 1 threads" in said
    assert "EXACT" in said


def test_the_examples_ask_for_the_shape_that_they_tune():
    """A reader who follows the README from top to bottom must not end in DEFAULT."""
    line = next(line for page, line in advisor_lines() if page == "README.md" and line.startswith("advisor tune"))
    _, arguments = parsed(line)
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert {name: int(given[f"--{name.replace('_', '-')}"]) for name in SHAPE} == SHAPE


def test_the_files_of_the_files_page_are_where_it_says(home):
    assert shutil.which("advisor", path=environment(home)["PATH"])
    page = chapter("docs/commands.md", "Files")
    assert "machines/<hardware_id>-<limits_id>/" in page
    assert os.path.relpath(paths.machine_dir("h", "l"), paths.state_dir()) == "machines/h-l"
