"""Files of Kernel Tuner: `tune_params` and `restrictions` of a space as Python, and cache files of measurements.

`tune_kernel(..., tune_params, restrictions=restrictions)` builds the configurations of the space. Kernel Tuner passes
the text to python-constraint, which rewrites plain comparisons, some of them wrongly: `x // 2 == 3` becomes
`x == 3 ** 2`, and bounds of sums and products are taken for bounds of positive numbers. Text with an `and` stays as it
is, so every comparison that might be rewritten wrongly gets one.

A cache file holds one kernel on one problem size and GPU, with one result per configuration and times in milliseconds;
simulation mode replays it. Its layout follows `kernel_tuner/util.py` (`process_cache`, `read_cache`, `store_cache`) of
Kernel Tuner 1.5. Fields without a place there (dtype, options, hashes, toolchain) stand under `constrint`, which
Kernel Tuner ignores.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from statistics import median, quantiles
from typing import Any

import msgspec

from constrint.answers.exported import Export
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
    timestamp,
)
from constrint.answers.pruned import pruned
from constrint.answers.registry import Format, RecordFormat
from constrint.answers.text import comment
from constrint.errors import UsageError
from constrint.hwmodels.files import match_device_name
from constrint.model.python.write import write_value
from constrint.tune.store.record import Figures, TuningRecord, Value

#: Names that Kernel Tuner reserves.
FORBIDDEN = frozenset(("grid_size_x", "grid_size_y", "grid_size_z", "time"))
#: Names whose product Kernel Tuner itself keeps below the device's threads.
BLOCK_SIZES = ("block_size_x", "block_size_y", "block_size_z")
#: Comparisons that are read right: `tile_m % 16 == 0`, and a product with a bound that a float holds exactly.
_REMAINDER = re.compile(r"\w+ % \w+ == 0")
_PRODUCT = re.compile(r"\w+(?: \* \w+)* (?:<=|>=) \d{1,15}")


def write(export: Export) -> str:
    """The Python file of a space."""
    space = pruned(export)
    for name in space.params:
        if name in FORBIDDEN:
            raise UsageError(f"Kernel Tuner takes no parameter called {name!r}: --rename {name}=other_name.")
    lines = [comment(line) for line in _header(export)]
    lines += ["", "tune_params = {"]
    lines += [f'    "{name}": [{", ".join(map(write_value, values))}],' for name, values in space.params.items()]
    lines += ["}", "", "restrictions = ["]
    for restriction in space.restrictions:
        rule = restriction.rule
        if rule.name or rule.because:
            lines.append(f"    {comment(': '.join(filter(None, (rule.name, rule.because))))}")
        lines.append(f"    {as_read(restriction.text, space.params)!a},")
    return "\n".join([*lines, "]", ""])


def _header(export: Export) -> list[str]:
    assert export.space is not None
    problem = export.space.problem
    lines = [
        *export.header,
        f"{export.space.size} configurations satisfy the restrictions, of {export.space.product_size} combinations.",
        "tune_params has the values that occur in one of them.",
        "Kernel Tuner evaluates a text with an (and) in it as it stands, and rewrites some others: hence (and True).",
    ]
    if problem.objectives or problem.soft_constraints:
        lines.append("Objectives and soft rules are not in this file: Kernel Tuner has no such thing.")
    if any(name in export.shown.values() for name in BLOCK_SIZES):
        lines.append("Kernel Tuner keeps the product of block_size_x, _y and _z below the device's threads by itself.")
    return lines


def as_read(text: str, params: Mapping[str, tuple[Any, ...]]) -> str:
    """A restriction in a form that python-constraint evaluates unchanged, or rewrites rightly."""
    if " and " in text or " or " in text:
        return text
    if _REMAINDER.fullmatch(text):
        return text
    names = [word for word in re.findall(r"\w+", text) if word in params]
    are_positive = all(type(value) is int and 0 < value < 2**31 for name in names for value in params[name])
    if _PRODUCT.fullmatch(text) and are_positive and len(set(names)) == len(names):
        return text
    return f"({text}) and True"


FORMAT = Format("kernel-tuner", "tune_params and restrictions of the pruned space", write, ("space",))


#: Outcomes in Kernel Tuner's words, and back. Kernel Tuner checks no results, so a wrong result is a failed run.
ERRORS = {
    "compile_failed": "CompilationFailedConfig",
    "launch_failed": "RuntimeFailedConfig",
    "wrong_result": "RuntimeFailedConfig",
    "timed_out": "RuntimeFailedConfig",
    "crashed": "RuntimeFailedConfig",
    "implausible": "RuntimeFailedConfig",
}
OUTCOMES = {
    "CompilationFailedConfig": "compile_failed",
    "RuntimeFailedConfig": "launch_failed",
    "InvalidConfig": "launch_failed",
    "ErrorConfig": "launch_failed",
}
#: Kernel Tuner's times of other phases in milliseconds, which are written as 0 and not read.
OTHER_TIMES = ("compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time")
#: Least time in milliseconds that old versions wrote for a failure.
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


def write_records(records: Iterable[TuningRecord]) -> Iterator[str]:
    """A cache of the best record of every configuration."""
    best = best_of_each(of_one_kernel(records, "a cache of Kernel Tuner"))
    first = best[0]
    names = list(first.config)
    values = {name: list({repr(one.config[name]): one.config[name] for one in best}.values()) for name in names}
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
    for at, record in enumerate(best):
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
    fields: dict[str, Any] = dict.fromkeys(OTHER_TIMES, 0)
    if record.is_ok and record.figures is not None:
        time_ms = record.figures.median_s * 1e3
        fields |= {"time": time_ms, "times": [time_ms]}
    else:
        error = ERRORS.get(record.outcome, "RuntimeFailedConfig")
        fields |= {"time": error, "__error__": error}
    return {**fields, "timestamp": timestamp(record)}


def read(source: Source) -> list[TuningRecord]:
    """The records of a cache file: the median time of each configuration, or its failure.

    Raises:
        UsageError: When the file is no cache, measures something else than time, or contradicts itself.
    """
    source = Source(source.name, _closed(source.text), source.stated)
    cache = converted(source, document(source), _Cache)
    if cache.objective not in ("time", ["time"]):
        refuse(source, f"objective: {cache.objective!r}; only times are imported", ("objective",))
    ours = cache.constrint
    gpu = cache.device_name if ours else match_device_name(cache.device_name) or cache.device_name
    common = common_fields(source, "kernel-tuner", ours, cache.kernel_name, gpu)
    if ours is None and not source.stated.sizes:
        common["sizes"] = _sizes(source, cache.problem_size)
    return checked(source, (_record(source, cache, key, common) for key in cache.cache))


def _closed(text: bytes) -> bytes:
    """The text with its last brackets, which Kernel Tuner omits while it tunes."""
    stripped = text.rstrip()
    if b'"cache"' not in stripped or stripped.endswith((b"}\n}", b"}}}")):
        return text
    try:
        json.loads(stripped)
    except (ValueError, RecursionError):
        return stripped.removesuffix(b",") + b"}\n}"
    return text


def _sizes(source: Source, problem_size: list[int] | int | str) -> dict[str, int]:
    """`problem_size` as sizes x, y, z."""
    if isinstance(problem_size, str):
        rule = f"problem_size: {problem_size[:40]!r} is no number; say the sizes with --workload"
        refuse(source, rule, ("problem_size",))
    values = [problem_size] if isinstance(problem_size, int) else problem_size
    if len(values) > 3:
        refuse(source, "problem_size: more than three; name them with --workload", ("problem_size",))
    return dict(zip("xyz", values, strict=False))


def _record(source: Source, cache: _Cache, key: str, common: dict[str, Any]) -> tuple[Place, TuningRecord]:
    place, entry = ("cache", key), cache.cache[key]
    missing = [name for name in cache.tune_params_keys if name not in entry]
    if missing:
        refuse(source, f"cache[{key[:60]!r}]: the parameter {missing[0]!r} is missing", place)
    named = {name: entry[name] for name in cache.tune_params_keys}
    config = converted(source, named, dict[str, Value], place)
    if ",".join(str(value) for value in config.values()) != key:
        refuse(source, f"cache[{key[:60]!r}]: its parameters have other values than its key", place)
    figures, error = _figures(source, converted(source, entry, _Entry, place), place)
    created = seconds_since_1970(source, entry.get("timestamp"), (*place, "timestamp"))
    outcome = OUTCOMES[error] if error else "ok"
    if figures is not None and cache.constrint is not None:
        figures = msgspec.structs.replace(figures, cache=cache.constrint.cache)
    record = TuningRecord(**common, config=config, outcome=outcome, message=error, figures=figures, created=created)
    return place, record


def _figures(source: Source, entry: _Entry, place: tuple[str, ...]) -> tuple[Figures | None, str]:
    """The times of an entry, or its error."""
    error = entry.error or (entry.time if isinstance(entry.time, str) else "")
    if not error and isinstance(entry.time, float) and entry.time >= FAILED_MS:
        error = "ErrorConfig"
    if error or isinstance(entry.time, str):
        if error not in OUTCOMES:
            rule = f"cache[{place[1][:60]!r}]: there is no time, and {error[:40]!r} is no error of Kernel Tuner's"
            refuse(source, rule, place)
        return None, error
    times = entry.times or [entry.time]
    if min(times) <= 0:
        refuse(source, f"cache[{place[1][:60]!r}]: a time must be positive", place)
    fifths = quantiles(times, n=5, method="inclusive") if len(times) > 1 else [0.0, 0.0]
    spread_s = (fifths[-1] - fifths[0]) / 1e3
    return Figures(median_s=median(times) / 1e3, spread_s=spread_s, num_rounds=len(times), cache="warm"), ""


RECORDS = RecordFormat(
    "kernel-tuner", "a cache file of Kernel Tuner: one kernel, workload and GPU", write_records, read
)
