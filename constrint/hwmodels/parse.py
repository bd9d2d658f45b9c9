"""Strict YAML reader: no aliases, tags, duplicate keys, deep nesting or large files.

It works on the event stream, so that nothing is expanded or constructed before validation. `null`, `true`, `false`,
decimal integers and finite decimal numbers are converted; everything else is a string.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from constrint.errors import HardwareModelError, shortened

MAX_BYTES = 1_000_000
MAX_DEPTH = 12
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]{1,3})?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}


def read_yaml(path: Path) -> Any:
    """Read and parse one file.

    Raises:
        HardwareModelError: When it cannot be read, is too large, is no UTF-8 or breaks a rule above.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise HardwareModelError(f"{path}: {size:,} bytes; a GPU's file has at most {MAX_BYTES:,}.")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise HardwareModelError(f"{path}: cannot be read: {error.strerror or error}.") from None
    if len(data) > MAX_BYTES:
        raise HardwareModelError(f"{path}: more than {MAX_BYTES:,} bytes, the most that a GPU's file has.")
    try:
        return parse_yaml(data.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise HardwareModelError(f"{path}: byte {error.start} is not UTF-8 text.") from None


def parse_yaml(text: str, source: str) -> Any:
    """Parse one YAML document; `source` stands in front of every error message."""
    loader = _Parser(text)
    try:
        return _YamlDocument(loader, source).value()
    except HardwareModelError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        problem = str(error.problem or error.context)
        if "nesting depth" in problem:  # PyYAML from 6.0.4 has a limit of its own
            raise HardwareModelError(f"{where}: more than {MAX_DEPTH} levels of nesting.") from None
        raise HardwareModelError(f"{where}: not YAML: {problem}.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise HardwareModelError(f"{source}: not YAML: {' '.join(str(error).split())}.") from None
    finally:
        loader.dispose()


class _YamlDocument:
    """Builds the value of the only document of an event stream."""

    def __init__(self, loader: Any, source: str) -> None:
        self._next = loader.get_event
        self._source = source

    def value(self) -> Any:
        self._next()  # the start of the stream
        if isinstance(self._next(), yaml.StreamEndEvent):
            raise HardwareModelError(f"{self._source}: the file is empty.")
        value = self._node(self._next(), "", 0)
        self._next()  # the end of the document
        event = self._next()
        if not isinstance(event, yaml.StreamEndEvent):
            raise self._refuse(event, "a second document; a file holds one GPU")
        return value

    def _node(self, event: Any, path: str, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            raise self._refuse(event, f"alias *{event.anchor} at {path or 'the top'}; write the value out")
        if event.anchor is not None:
            raise self._refuse(event, f"anchor &{event.anchor} at {path or 'the top'}; anchors are not allowed")
        if event.tag is not None:
            raise self._refuse(event, f"tag {event.tag} at {path or 'the top'}; tags are not allowed")
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event.value) if event.implicit[0] else event.value
        if depth == MAX_DEPTH:
            raise self._refuse(event, f"more than {MAX_DEPTH} levels of nesting")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(path, depth)
        return self._mapping(path, depth)

    def _list(self, path: str, depth: int) -> list[Any]:
        items = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._node(event, path, depth + 1))
        return items

    def _mapping(self, path: str, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self._node(event, path, depth + 1)
                raise self._refuse(event, f"a key that is no plain word at {path or 'the top'}")
            if event.anchor is not None or event.tag is not None:
                self._node(event, path, depth + 1)
            key = event.value
            inner = f"{path}.{key}" if path else key
            if key in values:
                raise self._refuse(event, f"duplicate key {inner}")
            values[key] = self._node(self._next(), inner, depth + 1)
        return values

    def _refuse(self, event: Any, what: str) -> HardwareModelError:
        return HardwareModelError(f"{self._source}:{event.start_mark.line + 1}: {shortened(what, 300)}.")


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first not in "0123456789+-" or len(text) > 40:
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        return value if value not in (float("inf"), float("-inf")) else text
    return text
