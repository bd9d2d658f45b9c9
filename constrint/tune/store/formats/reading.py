"""What reading the files of other tools shares: JSON taken by the letter, errors that name line and rule."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from constrint.errors import UsageError
from constrint.tune.store.formats.interface import Said, Source
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.schema import row_of

#: Larger files are refused, and so are more records at once.
MAX_BYTES, MAX_RECORDS = 256 * 2**20, 1_000_000
#: Where in a document something is: names and numbers of items.
Place = tuple[str | int, ...]
T = TypeVar("T")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_STEP = re.compile(r"\.([^.\[`]+)|\[(\d+)\]|\[\.\.\.\]")


def load(path: Path, said: Said) -> Source:
    """Read a file to import.

    Raises:
        UsageError: When it cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    if len(text) > MAX_BYTES:
        raise UsageError(f"{path} has more than {MAX_BYTES:,} bytes; split it, at most that many are imported at once.")
    return Source(str(path), text, said)


def refuse(source: Source, rule: str, line: int) -> NoReturn:
    """Raise the one error of an import."""
    raise UsageError(f"{source.name}:{line}: {rule.rstrip('.')}. Nothing was imported.")


def document(source: Source) -> Any:
    """The JSON of a file: every key once, every number finite.

    Raises:
        UsageError: When it is not JSON, with the line.
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
    """Something that is JSON by its grammar and still no data: a number, or a key that is given twice."""

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
    """The line of the first such number, or of the first such key that its object has already."""
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
        UsageError: When it is of another form, with the line and the key.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        said, _, path = str(error).partition(" - at `$")
        steps: list[str | int] = list(place)
        for step in _STEP.finditer(path):
            name, number = step.groups()
            if name is None and number is None:
                break
            steps.append(int(number) if number else name)
        refuse(source, f"{shown(steps)}: {said}", line_of(source, tuple(steps)))


def shown(place: Iterable[str | int]) -> str:
    """A place in a document as text: `results[3].times`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step[:60]}" for step in place)
    return text.lstrip(".") or "the document"


def line_of(source: Source, place: Place) -> int:
    """The line of the first character of what stands at a place, as near as it is there."""
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
    """Records with their lines or places in the document, if all can be kept and no two contradict each other.

    Raises:
        UsageError: Otherwise, with the line and the rule.
    """
    known: dict[str, tuple[int | Place, TuningRecord]] = {}

    def stop(rule: str, where: int | Place) -> NoReturn:
        refuse(source, rule, _line_at(source, where))

    for where, record in records:
        if len(known) >= MAX_RECORDS:
            stop(f"more than {MAX_RECORDS:,} records; split the file", where)
        figures = record.figures
        if figures is not None and (figures.median_s <= 0 or figures.spread_s < 0 or figures.num_rounds < 0):
            stop("a time must be positive, and spread and rounds not negative", where)
        try:
            name = str(row_of(record)["id"])
        except UsageError as error:
            stop(str(error), where)
        if name in known and known[name][1] != record:
            other = _line_at(source, known[name][0])
            stop(f"another record of the same trial, which differs, is in line {other}; keep one of them", where)
        known.setdefault(name, (where, record))
    return [record for _, record in known.values()]


def _line_at(source: Source, where: int | Place) -> int:
    return where if isinstance(where, int) else line_of(source, where)


def need(source: Source, what: str, value: str, option: str) -> str:
    """What a file or the caller has to say.

    Raises:
        UsageError: When neither does.
    """
    if not value:
        raise UsageError(f"{source.name} does not say {what}; say it with {option}. Nothing was imported.")
    return value


def seconds_since_1970(source: Source, text: str | None, place: Place) -> float:
    """When something was measured; 0 where nothing says so.

    Raises:
        UsageError: When it is no time in ISO 8601.
    """
    if not text:
        return 0.0
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        refuse(source, f"{shown(place)}: {text[:40]!r} is no time in ISO 8601", line_of(source, place))
