"""What is said of a GPU's file that breaks the schema: the file, the key, the rule, what was seen, what is valid."""

from __future__ import annotations

import difflib
import re
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

import msgspec

from constrint.errors import HardwareModelError

_AT = re.compile(r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`(?P<path>[^`]*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_STEP = re.compile(r"[^.\[\]]+|\[[^\]]*\]")
#: A value is shown up to this many characters.
MAX_SHOWN = 60
#: The rules of the schema in words, by how msgspec begins to tell them.
_RULES = (
    (r"Expected int \| null", "must be a whole number, or null where nobody knows it"),
    (r"Expected float \| null", "must be a number, or null where nobody knows it"),
    (r"Expected str \| null", "must be text, in quotes"),
    (r"Expected int >= (.*)", r"must be a whole number of at least \1"),
    (r"Expected int <= (.*)", r"must be a whole number of at most \1"),
    (r"Expected int", "must be a whole number"),
    (r"Expected float > (.*)", r"must be a number above \1"),
    (r"Expected float <= (.*)", r"must be a number of at most \1"),
    (r"Expected float", "must be a number"),
    (r"Expected bool", "must be true or false"),
    (r"Expected str matching regex (.*)", r"must be text in quotes of the form \1"),
    (r"Expected str of length >= 1", "must be text of at least one character"),
    (r"Expected str", "must be text, in quotes"),
    (r"Expected array of length >= 1", "must be a list of at least one item"),
    (r"Expected array", "must be a list, [a, b]"),
    (r"Expected object", "must be a mapping of keys to values"),
)


def explain(message: str, source: str, struct: type[msgspec.Struct], raw: Any) -> NoReturn:
    """Raise msgspec's error as one that a writer of the file understands.

    Args:
        message: What msgspec says.
        source: The file.
        struct: The schema.
        raw: What the file holds.

    Raises:
        HardwareModelError: Always.
    """
    match = _AT.fullmatch(message)
    what = (match["what"] if match else message).replace("`", "")
    path = ((match and match["path"]) or "").removeprefix("$").removeprefix(".")
    prefix = f"{path}." if path else ""
    if unknown := _UNKNOWN.fullmatch(match["what"] if match else message):
        raise HardwareModelError(f"{source}: {prefix}{unknown[1]}: unknown key.{_near(unknown[1], path, struct)}")
    if missing := _MISSING.fullmatch(match["what"] if match else message):
        reason = "; every block names where its values come from" if missing[1] == "sources" else ""
        raise HardwareModelError(f"{source}: {prefix}{missing[1]}: missing{reason}.")
    valid = [value for value in _valid(_hint_at(path, struct)) if value is not None]
    listed = ", ".join(map(str, valid))
    if match and match["key"]:
        bad = next((key for key in _value_at(path, raw) or () if key not in valid), "")
        raise HardwareModelError(f"{source}: {prefix}{bad}: unknown key. Known: {listed}.")
    if what.startswith("Invalid enum value"):
        rule = f"must be {'one of ' if len(valid) > 1 else ''}{listed}"
    else:
        rule = _in_words(what.partition(", got")[0])
    seen = _value_at(path, raw)
    shown = "" if seen is _UNSEEN else f"; it is {_shown(seen)}"
    raise HardwareModelError(f"{source}: {path or 'the file'}: {rule}{shown}.")


_UNSEEN = object()


def _in_words(rule: str) -> str:
    for pattern, words in _RULES:
        if match := re.fullmatch(pattern, rule):
            return match.expand(words)
    return rule


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def _value_at(path: str, raw: Any) -> Any:
    """What the file holds at a path; `_UNSEEN` where the path does not say which of several values it is."""
    for step in _STEP.findall(path):
        if step.startswith("["):
            number = step[1:-1]
            if not isinstance(raw, list) or not number.isdigit():
                return _UNSEEN
            raw = raw[int(number)]
        elif isinstance(raw, dict) and step in raw:
            raw = raw[step]
        else:
            return _UNSEEN
    return raw


def _near(key: str, path: str, struct: type[msgspec.Struct]) -> str:
    """The key that was meant, or all that there are."""
    found = _struct_in(_hint_at(path, struct))
    known = list(found.__struct_fields__) if found is not None else []
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6) or [k for k in known if k.startswith(key)][:1]
    return f" Did you mean {near[0]!r}? Units are part of the key." if near else f" Known: {', '.join(known)}."


def _hint_at(path: str, struct: Any) -> Any:
    """The type of the value at a path."""
    hint = struct
    for step in _STEP.findall(path):
        if step.startswith("["):
            continue
        found = _struct_in(hint)
        if found is None:
            return None
        hint = get_type_hints(found, include_extras=True).get(step)
    return hint


def _struct_in(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next((found for inner in get_args(hint) if (found := _struct_in(inner)) is not None), None)


def _valid(hint: Any) -> tuple[Any, ...]:
    """The values that a type lists."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next((found for inner in get_args(hint) if (found := _valid(inner))), ())
