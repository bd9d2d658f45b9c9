"""Files of GPU models: a strict reader of YAML, and the index of GPU names and aliases.

The reader takes no aliases, tags, duplicate keys, deep nesting or large files. It works on the event stream, so that
nothing is expanded or constructed before validation. `null`, `true`, `false`, decimal integers and finite decimal
numbers are converted; everything else is a string.

The index reads the first lines of the files, `schema`, `name`, `vendor` and `aliases`; a file that ships is
`<vendor>/<name in lower case>.yaml`. Nothing else lists the GPUs: a file that is put beside the others is found. The
user's own files, in the folders of `user_folders`, come first: a name that one of them claims is its own.

Environment:
    CONSTRINT_GPU_PATH: Folders with the user's files, in place of the one in the user's configuration.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from constrint import cache
from constrint.errors import HardwareModelError, UnknownNameError, shortened

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


DATA = Path(__file__).parent / "data"
#: End of a file's first lines: the first block of values.
_FIRST_BLOCK = re.compile(r"^(?!aliases:)\w+:[ \t]*(#.*)?\r?$", re.MULTILINE)
HEAD_BYTES = 4096
#: Words of device names that do not tell one GPU from another.
_VENDOR_WORDS = re.compile(r"^(nvidia|amd|geforce|instinct|radeon|tesla)+")


@dataclass(frozen=True)
class Index:
    """`files`: canonical name to its file; `names`: folded spelling to the canonical names that claim it."""

    files: dict[str, Path]
    names: dict[str, tuple[str, ...]]

    def find(self, name: str) -> Path | None:
        """The file that a name or alias stands for; None where there is none.

        Raises:
            HardwareModelError: When several files claim it.
        """
        canonical = self.names.get(fold(name), ())
        if len(canonical) > 1:
            raise HardwareModelError(
                f"GPU {name!r}: an alias of {' and of '.join(canonical)}; take it from one of them."
            )
        return self.files[canonical[0]] if canonical else None


def fold(name: str) -> str:
    """Normalise a name for comparison: letters and digits only, lower case, no vendor words."""
    folded = re.sub(r"[^a-z0-9]", "", name.lower())
    return _VENDOR_WORDS.sub("", folded) or folded


def user_folders() -> tuple[Path, ...]:
    """Folders with the user's own files, whether they exist or not; the first is where new ones are written."""
    named = os.environ.get("CONSTRINT_GPU_PATH", "")
    if named:
        return tuple(Path(folder).expanduser() for folder in named.split(os.pathsep) if folder)
    return (cache.settings_folder("gpus"),)


def user_index() -> Index:
    """Index of the user's own files, read anew: of one name in two folders the first holds."""
    found: dict[str, Path] = {}
    for folder in user_folders():
        with suppress(OSError):
            for name in sorted(os.listdir(folder)):
                if name.endswith(".yaml"):
                    found.setdefault(name, folder / name)
    return _index_of(found.values())


@functools.cache
def index() -> Index:
    """Index of the names of the files below `data`."""
    return _index_of(sorted(DATA.glob("*/*.yaml")))


def _index_of(paths: Iterable[Path]) -> Index:
    files: dict[str, Path] = {}
    names: dict[str, tuple[str, ...]] = {}
    for path in paths:
        name, aliases = _spellings(path)
        own = {fold(text): None for text in (name, *aliases)}
        if name in files:  # two of the user's files; whoever asks for the name is told of both
            name = f"{name} ({path})"
        files[name] = path
        for spelling in own:
            names[spelling] = (*names.get(spelling, ()), name)
    return Index(files, names)


def _spellings(path: Path) -> tuple[str, list[str]]:
    """A GPU's name and aliases; of a file that cannot be read its own name, so that loading it says what is wrong."""
    try:
        with path.open("rb") as file:
            text = file.read(HEAD_BYTES).decode("utf-8", "ignore")
        block = _FIRST_BLOCK.search(text)
        head = parse_yaml(text[: block.start()] if block else text, str(path))
    except (OSError, HardwareModelError):
        head = None
    name, aliases = (head.get("name"), head.get("aliases")) if isinstance(head, dict) else (None, None)
    if not isinstance(name, str) or (path.is_relative_to(DATA) and name.lower() != path.stem):
        return path.stem, []
    return name, [text for text in aliases if isinstance(text, str)] if isinstance(aliases, list) else []


def find(name: str, *, shipped_first: bool = False) -> Path:
    """Path of the file that a name or alias stands for: one of the user's, else one that ships.

    Args:
        name: The name.
        shipped_first: Whether the user's files come after those that ship.

    Raises:
        UnknownNameError: When there is none; names the nearest spellings.
        HardwareModelError: When several files claim it.
    """
    indices = (index, user_index) if shipped_first else (user_index, index)
    found = next((path for read in indices if (path := read().find(name)) is not None), None)
    if found is None:
        known = {**index().files, **user_index().files}
        near = UnknownNameError("GPU", name, known, "`constrint gpus` lists them; a path names your own file.")
        raise _nearest_alias(name, near)
    return found


def match_device_name(device_name: str) -> str | None:
    """Canonical name of the GPU whose name or alias equals a device's name; None where there is none."""
    for read in (user_index, index):
        canonical = read().names.get(fold(device_name), ())
        if canonical:
            return canonical[0] if len(canonical) == 1 else None
    return None


def _nearest_alias(name: str, fallback: UnknownNameError) -> UnknownNameError:
    """The error for an unknown name, with the nearest aliases too (`h20` is nearer to `h200` than to `H200-SXM`)."""
    import difflib

    close = difflib.get_close_matches(fold(name), index().names, n=5, cutoff=0.6)
    canonical = {owner: None for match in close for owner in index().names[match]}
    if not canonical:
        return fallback
    error = UnknownNameError("GPU", name, index().files)
    error.nearest = tuple(canonical)[:3]
    error.args = (
        f"unknown GPU {shortened(name)!r}. Nearest: {', '.join(error.nearest)}. `constrint gpus` lists them; a path "
        "names your own file.",
    )
    return error
