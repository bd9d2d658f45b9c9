"""Kernel Tuner's cache files, which its simulation mode replays; times in milliseconds.

Layout after `kernel_tuner/util.py` (`process_cache`, `read_cache`, `store_cache`) of Kernel Tuner 1.5. A cache holds
one kernel on one problem size and GPU, and one result per configuration. What it has no place for (dtype, options,
hashes, toolchain) stands under the key `constrint`, which Kernel Tuner does not look at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from statistics import median, quantiles
from typing import Any

import msgspec

from constrint.errors import UsageError
from constrint.hwmodels.names import match_device_name
from constrint.tune.store.formats.interface import Format, Ours, Source
from constrint.tune.store.formats.reading import (
    Place,
    checked,
    converted,
    document,
    line_of,
    need,
    refuse,
    seconds_since_1970,
)
from constrint.tune.store.formats.writing import best_of_each, of_one_kernel, timestamp
from constrint.tune.store.record import Figures, TuningRecord, Value

#: Our outcomes in Kernel Tuner's words, and back. It checks no results itself, so a wrong one is a failed run.
ERRORS = {
    "compile_failed": "CompilationFailedConfig",
    "launch_failed": "RuntimeFailedConfig",
    "wrong_result": "RuntimeFailedConfig",
    "timed_out": "RuntimeFailedConfig",
    "crashed": "RuntimeFailedConfig",
}
OUTCOMES = {
    "CompilationFailedConfig": "compile_failed",
    "RuntimeFailedConfig": "launch_failed",
    "InvalidConfig": "launch_failed",
    "ErrorConfig": "launch_failed",
}
#: Milliseconds that Kernel Tuner says it took for other things; we keep none of them.
OTHER_TIMES = ("compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time")
#: From this many milliseconds on, old versions meant a failure.
FAILED_MS = 1e20


class _Cache(msgspec.Struct):
    device_name: str
    kernel_name: str
    tune_params_keys: list[str]
    cache: dict[str, dict[str, Any]]
    problem_size: list[int] | int | str = []
    objective: str | list[str] = "time"
    constrint: Ours | None = None


class _Entry(msgspec.Struct):
    time: float | str = ""
    times: list[float] = []
    timestamp: str | None = None
    error: str | None = msgspec.field(default=None, name="__error__")


def write(records: Iterable[TuningRecord]) -> Iterator[str]:
    """A cache of the best record of every configuration."""
    kept = best_of_each(of_one_kernel(records, "a cache of Kernel Tuner"))
    first = kept[0]
    names = list(first.config)
    values = {name: list({repr(one.config[name]): one.config[name] for one in kept}.values()) for name in names}
    header = {
        "device_name": first.gpu,
        "kernel_name": first.kernel,
        "problem_size": list(first.sizes.values()),
        "tune_params_keys": names,
        "tune_params": values,
        "objective": "time",
        "constrint": msgspec.to_builtins(Ours.of(first)),
        "cache": {},
    }
    yield json.dumps(header, indent=0)[: -len("{}\n}")] + "{"
    keys: set[str] = set()
    for at, record in enumerate(kept):
        config = {name: record.config[name] for name in names}
        key = ",".join(str(value) for value in config.values())
        if key in keys:
            raise UsageError(
                f"a cache of Kernel Tuner cannot tell two configurations apart that it calls {key[:60]!r}."
            )
        keys.add(key)
        yield ("," if at else "") + "\n" + json.dumps({key: {**config, **_result(record)}})[1:-1]
    yield "}\n}\n"


def _result(record: TuningRecord) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(OTHER_TIMES, 0)
    if record.is_ok and record.figures is not None:
        time_ms = record.figures.median_s * 1e3
        found |= {"time": time_ms, "times": [time_ms]}
    else:
        error = ERRORS.get(record.outcome, "RuntimeFailedConfig")
        found |= {"time": error, "__error__": error}
    return {**found, "timestamp": timestamp(record)}


def read(source: Source) -> list[TuningRecord]:
    """The records of a cache: the median of the times of a configuration, or why there is none.

    Raises:
        UsageError: When it is no such cache, measures something else than time, or contradicts itself.
    """
    source = Source(source.name, _closed(source.text), source.said)
    cache = converted(source, document(source), _Cache)
    if cache.objective not in ("time", ["time"]):
        refuse(source, f"objective: {cache.objective!r}; only times are imported", line_of(source, ("objective",)))
    common = _common(source, cache)
    return checked(source, (_record(source, cache, key, common) for key in cache.cache))


def _closed(text: bytes) -> bytes:
    """Kernel Tuner leaves a cache open while it tunes: the last brackets may be missing."""
    kept = text.rstrip()
    if b'"cache"' not in kept or kept.endswith((b"}\n}", b"}}}")):
        return text
    try:
        json.loads(kept)
    except (ValueError, RecursionError):
        return kept.removesuffix(b",") + b"}\n}"
    return text


def _common(source: Source, cache: _Cache) -> dict[str, Any]:
    """What all records of a cache share."""
    said, ours = source.said, cache.constrint
    kernel = said.kernel or cache.kernel_name
    sizes = dict(said.sizes) or (ours.sizes if ours else _sizes(source, cache.problem_size))
    return {
        **(ours.of_record() if ours else {}),
        "kernel": kernel,
        "operation": said.operation or (ours.operation if ours else kernel.partition(".")[0]),
        "gpu": said.gpu or (cache.device_name if ours else match_device_name(cache.device_name) or cache.device_name),
        "dtype": need(source, "the dtype", said.dtype or (ours.dtype if ours else ""), "--dtype"),
        "sizes": sizes,
        "run": source.run("kernel-tuner"),
    }


def _sizes(source: Source, problem_size: list[int] | int | str) -> dict[str, int]:
    """`problem_size` as sizes x, y, z."""
    if isinstance(problem_size, str):
        rule = f"problem_size: {problem_size[:40]!r} is no number; say the sizes with --workload"
        refuse(source, rule, line_of(source, ("problem_size",)))
    values = [problem_size] if isinstance(problem_size, int) else problem_size
    if len(values) > 3:
        refuse(source, "problem_size: more than three; name them with --workload", line_of(source, ("problem_size",)))
    return dict(zip("xyz", values, strict=False))


def _record(source: Source, cache: _Cache, key: str, common: dict[str, Any]) -> tuple[Place, TuningRecord]:
    place, entry = ("cache", key), cache.cache[key]
    missing = [name for name in cache.tune_params_keys if name not in entry]
    if missing:
        refuse(source, f"cache[{key[:60]!r}]: the parameter {missing[0]!r} is missing", line_of(source, place))
    named = {name: entry[name] for name in cache.tune_params_keys}
    config = converted(source, named, dict[str, Value], place)
    if ",".join(str(value) for value in config.values()) != key:
        refuse(source, f"cache[{key[:60]!r}]: its parameters have other values than its key", line_of(source, place))
    figures, error = _figures(source, converted(source, entry, _Entry, place), place)
    created = seconds_since_1970(source, entry.get("timestamp"), (*place, "timestamp"))
    outcome = OUTCOMES[error] if error else "ok"
    if figures is not None and cache.constrint is not None:
        figures = msgspec.structs.replace(figures, cache=cache.constrint.cache)
    found = TuningRecord(**common, config=config, outcome=outcome, message=error, figures=figures, created=created)
    return place, found


def _figures(source: Source, entry: _Entry, place: tuple[str, ...]) -> tuple[Figures | None, str]:
    """The times of an entry, or the error that it has instead."""
    error = entry.error or (entry.time if isinstance(entry.time, str) else "")
    if not error and isinstance(entry.time, float) and entry.time >= FAILED_MS:
        error = "ErrorConfig"
    if error or isinstance(entry.time, str):
        if error not in OUTCOMES:
            rule = f"cache[{place[1][:60]!r}]: there is no time, and {error[:40]!r} is no error of Kernel Tuner's"
            refuse(source, rule, line_of(source, place))
        return None, error
    times = entry.times or [entry.time]
    if min(times) <= 0:
        refuse(source, f"cache[{place[1][:60]!r}]: a time must be positive", line_of(source, place))
    fifths = quantiles(times, n=5, method="inclusive") if len(times) > 1 else [0.0, 0.0]
    spread_s = (fifths[-1] - fifths[0]) / 1e3
    return Figures(median_s=median(times) / 1e3, spread_s=spread_s, num_rounds=len(times), cache="warm"), ""


FORMAT = Format("kernel-tuner", "a cache file of Kernel Tuner: one kernel, workload and GPU", write, read)
