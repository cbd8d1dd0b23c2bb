"""From measured to report: every judge is asked, and the report as one JSON document."""

from __future__ import annotations

from typing import Any

from advisor import codec
from advisor.kernels import registry
from advisor.records import pairs
from advisor.validate import judge
from advisor.validate.findings import findings
from advisor.validate.records import Measured, Report
from advisor.validate.request import SHAPE, Request
from advisor.validate.verdicts import Evidence

SCHEMA = "advisor.validation/1.0"


def report(request: Request, measured: Measured) -> Report:
    """What a measurement comes to."""
    node, series = measured.node, measured.series
    evidence = Evidence(
        node,
        series,
        judge.growth(series, node),
        judge.crossovers(series, node),
        judge.fusions(series, node),
        judge.plateau(measured.windows, node),
        measured.stack,
        judge.languages(measured.languages),
    )
    own = {name for kernel in request.kernels for name in registry.spec(kernel, request.kernel_dirs).parameters}
    shape = {**SHAPE, **dict(request.shape)}
    return Report(
        node=node,
        shape=pairs({name: value for name, value in shape.items() if name in own}),
        growth=evidence.growth,
        crossovers=evidence.crossovers,
        fusions=evidence.fusions,
        traffic=judge.traffic(series, measured.floors, node),
        plateau=evidence.plateau,
        formulas=judge.formulas(registry.spec("forward"), registry.spec("block")),
        stack=measured.stack,
        findings=findings(evidence),
        failed=tuple(one for one in (*series, *measured.languages) if one.status != "ok"),
        missing=measured.missing,
        interrupted=measured.interrupted,
        seconds=measured.seconds,
        busy_percent=measured.busy_percent,
        languages=evidence.languages,
        compilers=measured.compilers,
        predicted=judge.predicted(series),
    )


def document(found: Report, measured: Measured) -> dict[str, Any]:
    """The report and the samples it rests on, as one JSON object."""
    body = codec.to_json(found)
    samples = [codec.to_json(one) for one in (*measured.series, *measured.languages)]
    floors = [codec.to_json(one) for one in measured.floors]
    windows = [codec.to_json(one) for one in measured.windows]
    return {"schema": SCHEMA, **body, "series": samples, "floors": floors, "windows": windows}
