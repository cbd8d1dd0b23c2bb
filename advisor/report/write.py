"""A report from a folder: gathered, digested, drawn, bounded in size."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.errors import AdvisorError
from advisor.report import chapters, digest, failures, page, traffic
from advisor.report.figures import Figure
from advisor.report.material import Material
from advisor.report.page import Page, Part
from advisor.words import many

MOST_BYTES = 3_000_000
"""What figures may take beside plotly.js, which has 5 MB: a page that mails and phones still take."""


def plotly_js() -> str:
    """The source of plotly.js that comes with the package plotly.

    Raises:
        AdvisorError: it is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise AdvisorError(
            "a report needs the package plotly", got=str(error), next_step="pip install plotly"
        ) from error
    return str(get_plotlyjs())


def report(material: Material, now: str) -> Page:
    """The page of a folder.

    Args:
        material: what lies there.
        now: date and time of the report.
    """
    told = problems(material)
    floors = traffic.floors(material.machine)
    made = [chapters.problem(one, floors, i) for i, one in enumerate(told)]
    parts, drawn, dropped = bounded(made)
    last = [
        chapters.failed(failures.failures(material.records, [table.kernel for table in material.tables])),
        chapters.provenance(material),
    ]
    if dropped:
        last.insert(0, Part("dropped", "Left out", page.paragraph(_dropped_words(dropped))))
    name = _name(material)
    about = f"{now}, from {many(len(material.tables), 'table')} and {many(len(material.records), 'record')} of the log"
    return Page(f"advisor report: {name}", about, (chapters.machine(material), *parts, *last), drawn)


def problems(material: Material) -> list[chapters.Told]:
    """What is known of each problem that the tables answer."""
    times = digest.timed(material.records)
    found = []
    for table in material.tables:
        for key in digest.keys([table]):
            steps = digest.path(table, key, material.records)
            if steps:
                tuned = {step.n for step in steps}
                dots = digest.dots(one for one in times.get(key, ()) if one.n in tuned)
                held = digest.heldout(table, key)
                found.append(chapters.Told(key, dots, steps, held, traffic.moved(key, steps)))
    return found


def bounded(
    made: Sequence[tuple[Part, tuple[Figure, ...]]], most: int = MOST_BYTES
) -> tuple[tuple[Part, ...], tuple[Figure, ...], tuple[str, ...]]:
    """Chapters in their order as long as they fit; the titles of the others.

    Args:
        made: chapters with their figures.
        most: bytes of all together.
    """
    parts: list[Part] = []
    figures: list[Figure] = []
    dropped: list[str] = []
    left = most
    for part, own in made:
        size = len(part.body) + len(page.data(own))
        if size > left:
            dropped.append(part.title)
            continue
        left -= size
        parts.append(part)
        figures += own
    return tuple(parts), tuple(figures), tuple(dropped)


def _dropped_words(titles: Sequence[str]) -> str:
    return f"The page would have grown too large with these; --kernel NAME shows them: {'; '.join(titles)}"


def _name(material: Material) -> str:
    found = material.machine
    if found is None:
        return material.tables[0].hardware_id
    if found.limits_id == "device" and found.gpus:
        return found.gpus[0].name or "a GPU"
    return f"{found.model_name or 'a machine'}, {many(len(found.allowed_cpus), 'CPU')}"
