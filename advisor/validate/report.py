"""From measured to report: every judge is asked, and the report as one JSON document."""

from __future__ import annotations

from typing import Any

from advisor import codec
from advisor.kernels import registry
from advisor.records import pairs
from advisor.validate import judge
from advisor.validate.findings import Evidence, findings
from advisor.validate.records import Measured, Report
from advisor.validate.request import SHAPE, Request

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
    )
    return Report(
        node=node,
        shape=pairs({**SHAPE, **dict(request.shape)}),
        growth=evidence.growth,
        crossovers=evidence.crossovers,
        fusions=evidence.fusions,
        traffic=judge.traffic(series, measured.floors, node),
        plateau=evidence.plateau,
        formulas=judge.formulas(registry.spec("forward")),
        stack=measured.stack,
        findings=findings(evidence),
        failed=tuple(one for one in series if one.status != "ok"),
        missing=measured.missing,
        interrupted=measured.interrupted,
        seconds=measured.seconds,
        busy_percent=measured.busy_percent,
    )


def document(found: Report, measured: Measured) -> dict[str, Any]:
    """The report and the samples it rests on, as one JSON object."""
    body = codec.to_json(found)
    samples = [codec.to_json(one) for one in measured.series]
    floors = [codec.to_json(one) for one in measured.floors]
    windows = [codec.to_json(one) for one in measured.windows]
    return {"schema": SCHEMA, **body, "series": samples, "floors": floors, "windows": windows}
