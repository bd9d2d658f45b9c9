"""Defaults of options that the user sets once: in a file of the project, in a file of the user, in the environment.

    # constrint.toml, or the table [tool.constrint] of pyproject.toml
    gpu = "mi300x"              # or several: ["mi300x", "h200"]
    dtype = "fp16"
    format = "markdown"
    store = "records.sqlite"    # beside this file, or postgresql://…

A typed option comes first, then the environment (`CONSTRINT_GPU`, `CONSTRINT_STORE`), then the nearest file of the
working folder and the folders above it, then `constrint.toml` in the user's configuration. Values of several files are
not mixed.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from constrint import cache
from constrint.errors import UsageError

FILE, PROJECT = "constrint.toml", "pyproject.toml"
GPU, STORE = "CONSTRINT_GPU", "CONSTRINT_STORE"
#: All names, and whether each takes several values.
NAMES: Final = {"gpu": True, "dtype": False, "format": False, "store": False}
#: Largest file that is read.
MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class UserSettings:
    """Values by option, without the leading `--`.

    Args:
        values: The values of each option, at least one.
        sources: Where each was set, for messages: a file or a variable.
    """

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def words(self, option: str, *, may_repeat: bool) -> list[str]:
        """The words that a user would type: `--gpu mi300x`; the first value alone where the option is given once."""
        values = self.values.get(option, ())
        return [word for value in values[: None if may_repeat else 1] for word in (f"--{option}", value)]


def settings(folder: Path | None = None) -> UserSettings:
    """The settings that hold in a folder.

    Args:
        folder: The folder; None: the working folder.

    Raises:
        UsageError: When a file cannot be read, is no TOML, or has an unknown name or a value of another type.
    """
    path = _nearest(Path.cwd() if folder is None else folder)
    found = UserSettings() if path is None else _read(path)
    gpu = os.environ.get(GPU, "").strip()
    if gpu:
        names = tuple(name.strip() for name in gpu.split(",") if name.strip())
        found = UserSettings({**found.values, "gpu": names}, {**found.sources, "gpu": GPU})
    return found


def apply_store(found: UserSettings) -> None:
    """Name the store for this process, where the environment names none."""
    if found.values.get("store"):
        os.environ.setdefault(STORE, found.values["store"][0])


def _nearest(folder: Path) -> Path | None:
    """The file that holds in a folder: of the folder, of those above it, else the user's own."""
    for place in (folder, *folder.parents):
        if (place / FILE).is_file():
            return place / FILE
        project = place / PROJECT
        if project.is_file() and "[tool.constrint" in _text(project):
            return project
    own = cache.settings_folder(FILE)
    return own if own.is_file() else None


def _text(path: Path) -> str:
    """The text of a file.

    Raises:
        UsageError: When it cannot be read, is too long, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError(f"{path}: it is larger than {MAX_BYTES >> 20} MiB, too long for settings.")
        return data.decode()
    except OSError as error:
        raise UsageError(f"{path}: it cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: it is not UTF-8 text: {error}.") from error


def _read(path: Path) -> UserSettings:
    """The settings of a file."""
    tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        document: Any = tomllib.loads(_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: it is not TOML: {error or 'nested too deep'}.") from error
    if path.name == PROJECT:
        tool = document.get("tool")
        document = tool.get("constrint", {}) if isinstance(tool, dict) else {}
    if not isinstance(document, dict):
        raise UsageError(f"{path}: tool.constrint is a table of settings, got {type(document).__name__}.")
    values: dict[str, tuple[str, ...]] = {}
    for name, value in document.items():
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(f"{path}: there is no setting {name[:40]!r}.{hint} Settings: {', '.join(NAMES)}.")
        several = value if isinstance(value, list) and NAMES[name] else [value]
        if not several or not all(isinstance(one, str) and one.strip() for one in several):
            kind = "a text or a list of texts" if NAMES[name] else "a text"
            raise UsageError(f"{path}: {name} takes {kind}, got {str(value)[:40]!r}.")
        values[name] = tuple(_beside(path, name, one.strip()) for one in several)
    return UserSettings(values, dict.fromkeys(values, str(path)))


def _beside(path: Path, name: str, value: str) -> str:
    """A value as it is used: a file that it names lies beside the file of settings."""
    is_file = (name == "store" and "://" not in value) or (name == "gpu" and value.endswith((".yaml", ".yml")))
    return str(path.parent / Path(value).expanduser()) if is_file else value
