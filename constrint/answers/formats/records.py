"""Tuning records as files of other tools: which function reads or writes a format, and the helpers that formats share.

An imported file is data: parsed, validated and limited in size, never executed or unpickled. Errors name the file, the
line and the broken rule.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from constrint.answers.registry import RECORDS
from constrint.answers.terminal import printable
from constrint.answers.text import one_line
from constrint.errors import UsageError
from constrint.tune.store.choices import place_of, workload_key
from constrint.tune.store.record import TuningRecord, digest


@dataclass(frozen=True)
class StatedFields:
    """The caller's statements about a file, which fill in fields that the file lacks.

    Args:
        kernel: The kernel's full name.
        operation: The operation; if empty, the kernel's name up to the point.
        gpu: The model's name.
        dtype: Type of the operands.
        sizes: The workload's sizes.
        run: The run of the records; if empty, the names of the format and the file.
    """

    kernel: str = ""
    operation: str = ""
    gpu: str = ""
    dtype: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    run: str = ""


@dataclass(frozen=True)
class Source:
    """A file to import.

    Args:
        name: The name in errors.
        text: The content.
        stated: The caller's statements.
    """

    name: str
    text: bytes
    stated: StatedFields = field(default_factory=StatedFields)


class Ours(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields of a record without a place in other formats, stored under the key `constrint`.

    If the records of a file differ, the fields are those of the first record.
    """

    operation: str
    dtype: str
    sizes: dict[str, int]
    options: dict[str, int] = {}
    fixed: dict[str, int] = {}
    source_hash: str = ""
    spec_hash: str = ""
    toolchain: dict[str, str] = {}
    cache: str = "warm"

    @classmethod
    def of(cls, record: TuningRecord) -> Ours:
        """The fields of a record."""
        cache = record.figures.cache if record.figures else "warm"
        return cls(**{name: getattr(record, name) for name in cls.__struct_fields__ if name != "cache"}, cache=cache)

    def of_record(self) -> dict[str, Any]:
        """The fields as arguments of a `TuningRecord`."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "cache"}


#: Largest file, and most records of an import.
MAX_BYTES, MAX_RECORDS = 256 * 2**20, 1_000_000
#: Most characters of an error's rule.
MAX_RULE = 500
#: A place in a JSON document: names of members and indices of items.
Place = tuple[str | int, ...]
T = TypeVar("T")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_STEP = re.compile(r"\.([^.\[`]+)|\[(\d+)\]|\[\.\.\.\]")


def writer(name: str) -> Callable[[Iterable[TuningRecord]], Iterator[str]]:
    """The function that writes records in a format.

    Raises:
        UsageError: When the format is unknown, or is only imported.
    """
    write = RECORDS.named(name).write
    if write is None:
        names = ", ".join(one.name for one in map(RECORDS.named, sorted(RECORDS.names())) if one.write)
        raise UsageError(f"the format {name} is only imported; exported are: {names}.")
    return write


def reader(name: str) -> Callable[[Source], list[TuningRecord]]:
    """The function that reads files of a format.

    Raises:
        UsageError: When the format is unknown, or is only exported.
    """
    read = RECORDS.named(name).read
    if read is None:
        names = ", ".join(one.name for one in map(RECORDS.named, sorted(RECORDS.names())) if one.read)
        hint = " `constrint count --space FILE` reads it as a space." if name == "t1" else ""
        raise UsageError(f"the format {name} has no results that could be imported; imported are: {names}.{hint}")
    return read


def load(path: Path, stated: StatedFields) -> Source:
    """Read a file to import.

    Raises:
        UsageError: When the file cannot be read or is too large.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    if len(text) > MAX_BYTES:
        raise UsageError(f"{path} has more than {MAX_BYTES:,} bytes; split it, at most that many are imported at once.")
    return Source(str(path), text, stated)


def refuse(source: Source, rule: str, where: int | Place) -> NoReturn:
    """Raise the error of an import, with the file, the line (stated, or that of a place) and the rule."""
    line = _line_at(source, where)
    quoted = rule if len(rule) <= MAX_RULE else f"{rule[:MAX_RULE]}..."
    raise UsageError(printable(f"{source.name}:{line}: {quoted.rstrip('.')}. Nothing was imported."))


def document(source: Source) -> Any:
    """Parse the JSON of a file, in which every key occurs once and every number is finite.

    Raises:
        UsageError: When the text is not such JSON; names the line.
    """
    text = source.text

    def number(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            raise _Mistake(f"the number {digits[:20]} is not finite", digits)
        return value

    def constant(name: str) -> NoReturn:
        raise _Mistake(f"the number {name} is not finite", name)

    try:
        return json.loads(text, object_pairs_hook=_unique, parse_float=number, parse_constant=constant)
    except _Mistake as mistake:
        refuse(source, str(mistake), _line_of_mistake(source, mistake))
    except json.JSONDecodeError as error:
        refuse(source, f"not JSON: {error.msg}", error.lineno)
    except UnicodeDecodeError as error:
        refuse(source, "not JSON: not in UTF-8", text.count(b"\n", 0, error.start) + 1)
    except RecursionError:
        refuse(source, "not JSON of this form: it is nested too deep", 1)
    except ValueError as error:
        refuse(source, f"not JSON of this form: {error}", 1)


class _Mistake(Exception):
    """A number that is not finite, or a key that occurs twice."""

    def __init__(self, rule: str, number: str = "", key: str = "") -> None:
        super().__init__(rule)
        self.number, self.key = number, key


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Mistake(f"the key {twice[:60]!r} is given twice", key=twice)
    return unique


def _line_of_mistake(source: Source, mistake: _Mistake) -> int:
    """The line of the first such number, or of the second occurrence of the key."""
    text = source.text.decode(errors="replace")
    objects: list[set[str]] = []
    last = ""
    for token in _TOKEN.finditer(text):
        piece = token.group()
        if mistake.number and piece == mistake.number:
            return text.count("\n", 0, token.start()) + 1
        if piece in "{[":
            objects.append(set())
        elif piece in "}]":
            objects.pop()
        elif piece == ":" and mistake.key:
            key = json.loads(last)
            if key == mistake.key and key in objects[-1]:
                return text.count("\n", 0, token.start()) + 1
            objects[-1].add(key)
        last = piece
    return 1


def converted(source: Source, value: Any, kind: type[T], place: Place = ()) -> T:
    """A part of a document as a struct.

    Raises:
        UsageError: When the form is another; names the line and the key.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        rule, _, path = str(error).partition(" - at `$")
        steps: list[str | int] = list(place)
        for step in _STEP.finditer(path):
            name, number = step.groups()
            if name is None and number is None:
                break
            steps.append(int(number) if number else name)
        refuse(source, f"{shown(steps)}: {rule}", tuple(steps))
    except UnicodeEncodeError:
        refuse(source, f"{shown(place)}: a text has half of a character (\\ud800 to \\udfff)", place)


def shown(place: Iterable[str | int]) -> str:
    """A place in a document as text: `results[3].times`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step[:60]}" for step in place)
    return text.lstrip(".") or "the document"


def line_of(source: Source, place: Place) -> int:
    """The line of a place in a document; of the nearest enclosing place if it is missing."""
    text = source.text.decode(errors="replace")
    path: list[str | int] = []  # of the value that comes next
    nearest, best, key = 0, 0, ""
    for token in _TOKEN.finditer(text):
        piece = token.group()
        if piece in "}]":
            path = path[:-1]
        elif piece == ":":
            path[-1] = json.loads(key)
        elif piece == ",":
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else ""
        else:
            agree = sum(1 for one, two in zip(path, place, strict=False) if one == two)
            if agree == len(path) and agree > best:
                nearest, best = token.start(), agree
            if best == len(place):
                break
            key = piece
            if piece in "{[":
                path.append(0 if piece == "[" else "")
    return text.count("\n", 0, nearest) + 1


def checked(source: Source, records: Iterable[tuple[int | Place, TuningRecord]]) -> list[TuningRecord]:
    """The records, if all are valid and no two contradict each other.

    Args:
        source: The file.
        records: The records with their lines or places in the document.

    Raises:
        UsageError: When a record is invalid or contradicts another; names the line and the rule.
    """
    from constrint.tune.store.schema import row_of  # sqlalchemy: 150 ms that writers do not wait for

    by_id: dict[str, tuple[int | Place, TuningRecord]] = {}

    def stop(rule: str, where: int | Place) -> NoReturn:
        refuse(source, rule, _line_at(source, where))

    for where, record in records:
        if len(by_id) >= MAX_RECORDS:
            stop(f"more than {MAX_RECORDS:,} records; split the file", where)
        figures = record.figures
        if figures is not None and (figures.median_s <= 0 or figures.spread_s < 0 or figures.num_rounds < 0):
            stop("a time must be positive, and spread and rounds not negative", where)
        try:
            name = str(row_of(record)["id"])
        except UsageError as error:
            stop(str(error), where)
        if name in by_id and by_id[name][1] != record:
            other = _line_at(source, by_id[name][0])
            stop(f"another record of the same trial, which differs, is in line {other}; keep one of them", where)
        by_id.setdefault(name, (where, record))
    return [record for _, record in by_id.values()]


def _line_at(source: Source, where: int | Place) -> int:
    return where if isinstance(where, int) else line_of(source, where)


def need(source: Source, what: str, value: str, option: str) -> str:
    """A value that the file or the caller has to state.

    Raises:
        UsageError: When it is empty.
    """
    if not value:
        raise UsageError(f"{source.name} does not say {what}; say it with {option}. Nothing was imported.")
    return value


def common_fields(source: Source, form: str, ours: Ours | None, kernel: str, gpu: str) -> dict[str, Any]:
    """The fields that all records of a file share: as the caller states them, or else as the file does.

    Args:
        source: The file.
        form: The name of its format.
        ours: What constrint wrote into it; None for a file of another program.
        kernel: The kernel's name in the file; empty where it has none.
        gpu: The GPU's name in the file, likewise.

    Raises:
        UsageError: When neither says what the kernel, the GPU or the dtype is.
    """
    stated = source.stated
    kernel = need(source, "the kernel", stated.kernel or kernel, "--kernel")
    return {
        **(ours.of_record() if ours else {}),
        "kernel": kernel,
        "operation": stated.operation or (ours.operation if ours else kernel.partition(".")[0]),
        "gpu": need(source, "the GPU", stated.gpu or gpu, "--gpu"),
        "dtype": need(source, "the dtype", stated.dtype or (ours.dtype if ours else ""), "--dtype"),
        "sizes": dict(stated.sizes) or (ours.sizes if ours else {}),
        "run": stated.run or f"{form}:{Path(source.name).stem}",
    }


def seconds_since_1970(source: Source, text: str | None, place: Place) -> float:
    """The time of a measurement in seconds since 1970; 0 if it is unknown.

    Raises:
        UsageError: When the text is not a time in ISO 8601.
    """
    if not text:
        return 0.0
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        refuse(source, f"{shown(place)}: {text[:40]!r} is no time in ISO 8601", place)


def of_one_kernel(records: Iterable[TuningRecord], what: str) -> list[TuningRecord]:
    """Records of one kernel on one workload and GPU, with the same parameters.

    Raises:
        UsageError: When there are no records, or they belong to several kernels, workloads or GPUs.
    """
    listed = list(records)
    if not listed:
        raise UsageError("there are no records to export: `constrint records list --all` shows what there is.")
    if len({digest([workload_key(one), one.kernel, sorted(one.config)]) for one in listed}) > 1:
        kernels = sorted({f"{one.kernel} on {one.gpu}: {workload_text(one)}" for one in listed})
        raise UsageError(
            f"{what} holds one kernel on one workload and GPU, and these records are of {len(kernels)}, such as "
            f"{kernels[0]}. Choose with --kernel, --gpu, --dtype and --workload."
        )
    return listed


def best_of_each(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """The best record of every configuration, in the order of the records."""
    best: dict[str, TuningRecord] = {}
    for record in records:
        config = digest(record.config)
        if config not in best or _rank(record) < _rank(best[config]):
            best[config] = record
    return list(best.values())


def _rank(record: TuningRecord) -> tuple[object, ...]:
    """The order of records: measured ones by place, then failed ones from the latest on."""
    if record.is_ok and record.figures is not None:
        return (0, *place_of(record))
    return (1, -record.created, record.id)


def workload_text(record: TuningRecord) -> str:
    """`bf16 m=4096 n=4096 k=4096`, safe in a comment."""
    sizes = [f"{name}={value}" for name, value in {**record.sizes, **record.options, **record.fixed}.items()]
    return one_line(" ".join([record.dtype, *sizes]))


def timestamp(record: TuningRecord) -> str:
    """The time of a record in ISO 8601; the beginning of 1970 for a time beyond calendars."""
    try:
        when = datetime.fromtimestamp(record.created, timezone.utc)
    except (ValueError, OverflowError, OSError):
        when = datetime.fromtimestamp(0, timezone.utc)
    return when.isoformat(sep=" ")
