"""The page: figures whose data are right, text that stays text, a bounded size, and a browser that draws it all."""

import functools
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_fixtures import NASTY, SIZES, folder, times
from tabling import choice

from advisor.report import figures, material, page, write
from advisor.report.figures import Figure
from advisor.report.page import Part

POLICIES = Path(write.__file__).parents[2] / "policies"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write.report(material.gather(folder(tmp_path_factory.mktemp("page"))), "2026-01-02")


@pytest.fixture(scope="module")
def text(made):
    return page.html(made, "/* plotly */")


class Reader(HTMLParser):
    """Tags, and what they would load."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.loads, self.ids = [], [], []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset", "action")]
        self.ids += [value for name, value in attrs if name == "id"]


def figure(made, ending):
    (found,) = [one for one in made.figures if one.name.endswith(ending)]
    return found


# --- what is drawn ---


def test_time_over_threads_has_a_line_an_n_and_the_path_over_them(made):
    lines = {trace["name"]: trace for trace in figure(made, "-time").data}
    assert set(lines) == {"chosen", *(f"n = {n}" for n in SIZES)}
    for n in SIZES:
        assert lines[f"n = {n}"]["x"] == [1, 2, 4]
        assert lines[f"n = {n}"]["y"] == pytest.approx([ns * 1e-9 for ns in times(n).values()])
    assert lines["chosen"]["x"] == [1, 2, 4]
    assert figure(made, "-time").layout["xaxis"]["type"] == figure(made, "-time").layout["yaxis"]["type"] == "log"


def test_the_busy_neighbour_regret_and_floors_are_drawn(made):
    beside = {trace["name"]: trace for trace in figure(made, "-beside").data}
    assert beside["chosen, beside a busy neighbour"]["x"] == [1024]
    assert beside["chosen, beside a busy neighbour"]["y"] == pytest.approx([5 * beside["chosen, quiet"]["y"][0]])
    regret = {trace["name"]: trace for trace in figure(made, "-regret").data}
    assert regret["held out"]["y"] == pytest.approx([5.0])
    assert regret["tuned n"]["y"] == pytest.approx([2.0] * 3)
    rates = {trace["name"]: trace for trace in figure(made, "-rates").data}
    assert (rates["read floor, memory"]["y"], rates["read floor, l3"]["y"]) == ([20.0] * 2, [90.0] * 2)


@functools.cache
def shipped(name):
    return write.report(material.gather(str(POLICIES / name)), "now")


def test_a_gpus_figures_are_over_n_with_a_line_a_variant():
    found = shipped("nvidia-h200")
    first = found.figures[0]
    names = [trace["name"] for trace in first.data]
    assert "chosen" in names
    assert len(names) > 3
    assert first.layout["xaxis"]["title"]["text"] == "n"


@pytest.mark.parametrize("name", sorted(path.name for path in POLICIES.iterdir() if path.is_dir()))
def test_every_shipped_policy_has_a_report(name):
    found = shipped(name)
    source = page.html(found, "")
    assert len(found.parts) > 3
    assert len(source) < write.MOST_BYTES + 1_000_000
    assert len(Reader(source).ids) == len(set(Reader(source).ids))


def test_the_text_says_what_failed_and_where_tables_come_from(text):
    for words in ("crashed", "wrong", "a build runs", "hw0000000001", "2026-01-02T03:04:05Z", "fragile", "5.0%"):
        assert words in text


# --- text stays text ---


def test_nothing_of_a_log_becomes_markup(text):
    read = Reader(text)
    assert "img" not in read.tags
    assert set(read.tags) <= {
        *("html", "head", "meta", "title", "style", "body", "header", "main", "nav", "section", "script"),
        *("h1", "h2", "h3", "p", "ul", "li", "a", "div", "table", "thead", "tbody", "tr", "th", "td"),
        *("svg", "g", "rect", "text"),
    }
    assert read.tags.count("script") == 3
    assert "onerror" in text  # it is there, as text


def test_the_page_loads_nothing(text):
    assert all(link.startswith("#") for link in Reader(text).loads)
    assert "default-src 'none'" in text
    assert not re.search(r"@import|url\(", text)


def test_data_cannot_end_their_element(made):
    text = page.data(made.figures)
    assert "<" not in text
    assert [one["name"] for one in json.loads(text)] == [one.name for one in made.figures]


def test_labels_are_escaped_for_plotly_which_reads_markup():
    words = figures.choice_lines(choice(NASTY, threads=2, knob=1))
    assert set(re.findall(r"<[^>]*>", words)) == {"<br>"}
    assert "2 threads" in words


# --- size ---


def test_chapters_that_do_not_fit_are_named():
    big = [(Part(f"p{i}", f"title {i}", "x" * 600), (Figure(f"f{i}", "", "", [], {}),)) for i in range(4)]
    parts, drawn, dropped = write.bounded(big, 1500)
    assert ([part.name for part in parts], [one.name for one in drawn]) == (["p0", "p1"], ["f0", "f1"])
    assert dropped == ("title 2", "title 3")


@pytest.mark.parametrize(("value", "words"), [(4096, "4k"), (3 << 20, "3m"), (3000, "3000"), (1, "1")])
def test_sizes_are_written_as_people_do(value, words):
    assert figures.short(value) == words


def test_every_colour_differs_from_its_neighbour():
    assert len({figures.shade(i, 12) for i in range(12)}) == 12
    assert figures.shade(0, 1) == "hsl(225,65%,46%)"


# --- a browser ---


@pytest.fixture(scope="module")
def browser():
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if found is None:
        pytest.skip("no Chromium here")
    return found


def opened(browser, path, profile, *options):
    """The document after its scripts have run, and what the console said."""
    line = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"]
    line += ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    line += ["--virtual-time-budget=20000", "--enable-logging=stderr", f"--user-data-dir={profile}", *options]
    done = subprocess.run([*line, path.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    said = [one for one in done.stderr.splitlines() if "CONSOLE" in one]
    return done.stdout, said


def write_page(path, source):
    found = write.report(material.gather(source), "2026-01-02")
    path.write_text(page.html(found, write.plotly_js()), "utf-8")
    return found


DARK = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0")
INK = {"dark": "rgb(228, 231, 235)", "light": "rgb(27, 31, 36)"}
OTHER_SCHEME = """<script>
(function () {  // once all is drawn: keep that, then tell the page that its reader prefers the other scheme
  const real = window.matchMedia.bind(window), heard = [];
  let turned = false;
  window.matchMedia = function (query) {
    const own = real(query);
    return !query.includes("color-scheme") ? own : {
      get matches() { return own.matches !== turned; },
      addEventListener: function (name, listener) { heard.push(listener); }};
  };
  const watch = setInterval(function () {
    const root = document.documentElement;
    if (!root.dataset.drawn) return;
    clearInterval(watch);
    const first = document.createElement("template");
    first.id = "first-" + root.dataset.scheme;
    first.innerHTML = document.querySelector("main").outerHTML;
    delete root.dataset.drawn;
    turned = true;
    heard.forEach(function (listener) { listener(); });
    document.body.append(first);
  }, 50);
})();
</script>"""


def drawings(document):
    """Scheme -> the body as it was drawn in it."""
    second, _, first = document.partition('<template id="first-')
    before, after = first.split('"', 1)[0], re.search(r'data-scheme="(\w+)"', second)[1]
    return {before: first[first.index("<main>") :], after: second[second.index("<main>") :]}


def test_a_browser_draws_every_figure_dark_and_light(browser, tmp_path):
    """The made-up folder with its nasty names. One start for both: a browser takes ten seconds for it."""
    pytest.importorskip("plotly", reason="no plotly here")
    path = tmp_path / "report.html"
    made = write_page(path, folder(tmp_path))
    assert path.stat().st_size < 8_000_000
    path.write_text(path.read_text("utf-8").replace("<head>", f"<head>{OTHER_SCHEME}", 1), "utf-8")
    document, said = opened(browser, path, tmp_path / "profile", *DARK)
    assert said == []
    assert f'data-drawn="{len(made.figures)}"' in document
    assert "<title>1</title>" not in document  # no script of the log has run
    lines = sum(trace["mode"] != "markers" for one in made.figures for trace in one.data)
    points = sum(len(trace["x"]) for one in made.figures for trace in one.data if "markers" in trace["mode"])
    drawn = drawings(document)
    assert set(drawn) == set(INK)
    for scheme, body in drawn.items():
        assert body.count('class="advisor-machine"') == 1
        assert body.count('class="js-line"') >= lines
        assert body.count('class="point"') >= points
        assert all(f">n = {n}</text>" in body for n in SIZES)
        assert [ink in body for ink in (INK["dark"], INK["light"])] == [scheme == "dark", scheme == "light"]
