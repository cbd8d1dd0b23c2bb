"""From what a device measured to a report: every judge is asked, and the report as one JSON document."""

from __future__ import annotations

from typing import Any

from advisor import codec
from advisor.kernels import registry
from advisor.records import pairs
from advisor.validate import judge
from advisor.validate.device_findings import device_findings
from advisor.validate.device_judge import DeviceEvidence, crossings, steps
from advisor.validate.device_records import DeviceMeasured, DeviceReport
from advisor.validate.request import SHAPE, Request

SCHEMA = "advisor.device_validation/1.0"


def device_report(request: Request, measured: DeviceMeasured) -> DeviceReport:
    """What a measurement on a device comes to."""
    series = measured.series
    walked = steps(series)
    evidence = DeviceEvidence(
        measured.device,
        series,
        judge.growths(judge.good(series)),
        measured.grids,
        walked,
        crossings(walked),
        measured.counts,
        measured.waits,
        measured.uncounted,
        measured.cold_start_s,
    )
    own = {name for kernel in request.kernels for name in registry.spec(kernel, request.kernel_dirs).parameters}
    shape = {name: value for name, value in {**SHAPE, **dict(request.shape)}.items() if name in own}
    return DeviceReport(
        device=measured.device,
        shape=pairs(shape),
        growth=evidence.growth,
        steps=walked,
        crossings=evidence.crossings,
        counts=measured.counts,
        waits=measured.waits,
        programs=measured.programs,
        uncounted=measured.uncounted,
        remedy=measured.remedy,
        cold_start_s=measured.cold_start_s,
        formulas=judge.formulas(registry.spec("forward"), registry.spec("block")),
        findings=device_findings(evidence),
        failed=tuple(one for one in series if one.status != "ok"),
        missing=measured.missing,
        interrupted=measured.interrupted,
        seconds=measured.seconds,
        others=measured.others,
        tools=measured.tools,
    )


def device_document(found: DeviceReport, measured: DeviceMeasured) -> dict[str, Any]:
    """The report and the samples it rests on, as one JSON object."""
    samples = [codec.to_json(one) for one in measured.series]
    grids = [codec.to_json(one) for one in measured.grids]
    return {"schema": SCHEMA, **codec.to_json(found), "series": samples, "grids": grids}
