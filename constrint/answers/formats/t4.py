"""T4, the results format of the autotuning community (github.com/odgaard/TuningSchema, version 1.0.0).

A file is a list of results: configuration, times in milliseconds, and validity. The format names neither kernel nor
GPU; constrint writes them under `constrint` in the metadata, and for other files the caller states them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

import msgspec

from constrint.answers.formats.records import (
    Ours,
    Place,
    Source,
    best_of_each,
    checked,
    common_fields,
    converted,
    document,
    of_one_kernel,
    refuse,
    seconds_since_1970,
    shown,
    timestamp,
)
from constrint.answers.registry import RecordFormat
from constrint.tune.store.record import Figures, TuningRecord, Value

VERSION = "1.0.0"
#: Outcomes in the words of the schema, and back.
INVALIDITY = {
    "ok": "correct",
    "compile_failed": "compile",
    "launch_failed": "runtime",
    "wrong_result": "correctness",
    "timed_out": "timeout",
    "crashed": "runtime",
    "implausible": "correctness",
}
OUTCOMES = {
    "correct": "ok",
    "compile": "compile_failed",
    "runtime": "launch_failed",
    "correctness": "wrong_result",
    "timeout": "timed_out",
    "constraints": "launch_failed",
}


class _Kernel(msgspec.Struct, forbid_unknown_fields=True):
    kernel: str
    gpu: str
    more: Ours


class _Metadata(msgspec.Struct):
    timeunit: str = "milliseconds"
    constrint: _Kernel | None = None


class _Times(msgspec.Struct):
    runtimes: list[float] = []


class _Measurement(msgspec.Struct):
    name: str
    value: float | str | list[Any]
    unit: str = ""


class _Result(msgspec.Struct):
    configuration: dict[str, Value]
    times: _Times
    invalidity: str
    correctness: float
    timestamp: str | None = None
    measurements: list[_Measurement] = []


class _Document(msgspec.Struct):
    results: list[_Result]
    schema_version: str = VERSION
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def write(records: Iterable[TuningRecord]) -> Iterator[str]:
    """A document of the best record of every configuration."""
    best = best_of_each(of_one_kernel(records, "a T4 file"))
    ours = {"kernel": best[0].kernel, "gpu": best[0].gpu, "more": msgspec.to_builtins(Ours.of(best[0]))}
    head = {"schema_version": VERSION, "metadata": {"timeunit": "milliseconds", "constrint": ours}, "results": []}
    yield json.dumps(head, indent=1)[: -len("]\n}")]
    for at, record in enumerate(best):
        yield ("," if at else "") + "\n" + json.dumps(_result(record))
    yield "\n]\n}\n"


def _result(record: TuningRecord) -> dict[str, Any]:
    is_measured = record.is_ok and record.figures is not None
    times = [record.figures.median_s * 1e3] if is_measured and record.figures else []
    return {
        "timestamp": timestamp(record),
        "configuration": dict(record.config),
        "times": {"runtimes": times},
        "invalidity": INVALIDITY.get(record.outcome, "runtime"),
        "correctness": 0 if record.outcome == "wrong_result" else 1,
        "measurements": [{"name": "time", "value": time, "unit": "ms"} for time in times],
        "objectives": ["time"],
    }


def read(source: Source) -> list[TuningRecord]:
    """The records of a document.

    Raises:
        UsageError: When the form or the unit is another, or neither the file nor the caller names kernel and GPU.
    """
    results_document = converted(source, document(source), _Document)
    if results_document.schema_version.partition(".")[0] != VERSION.partition(".")[0]:
        rule = f"schema_version: {results_document.schema_version[:20]!r}, and this version reads {VERSION}"
        refuse(source, rule, ("schema_version",))
    # The most common writer spells it with one l.
    if results_document.metadata.timeunit.replace("mili", "milli") != "milliseconds":
        rule = f"metadata.timeunit: {results_document.metadata.timeunit[:20]!r}; only milliseconds are read"
        refuse(source, rule, ("metadata", "timeunit"))
    ours = results_document.metadata.constrint
    common = common_fields(source, "t4", *((ours.more, ours.kernel, ours.gpu) if ours else (None, "", "")))
    cache = ours.more.cache if ours else "warm"
    return checked(source, (_record(source, at, one, common, cache) for at, one in enumerate(results_document.results)))


def _record(source: Source, at: int, result: _Result, common: dict[str, Any], cache: str) -> tuple[Place, TuningRecord]:
    place: Place = ("results", at)
    if result.invalidity not in OUTCOMES:
        rule = f"{shown(place)}.invalidity: {result.invalidity[:40]!r} is none of {', '.join(OUTCOMES)}"
        refuse(source, rule, (*place, "invalidity"))
    outcome = OUTCOMES[result.invalidity]
    named = [one.value for one in result.measurements if one.name == "time" and isinstance(one.value, float)]
    times = result.times.runtimes or named
    figures = None
    if outcome == "ok":
        if not times or min(times) <= 0:
            rule = f"{shown(place)}: a correct result needs positive times.runtimes or a measurement called time"
            refuse(source, rule, place)
        figures = Figures(median_s=median(times) / 1e3, spread_s=0.0, num_rounds=len(times), cache=cache)
    record = TuningRecord(
        **common,
        config=result.configuration,
        outcome=outcome,
        message="" if outcome == "ok" else result.invalidity,
        figures=figures,
        created=seconds_since_1970(source, result.timestamp, (*place, "timestamp")),
    )
    return place, record


RECORDS = RecordFormat("t4", "results in the T4 format of the autotuning community", write, read)
