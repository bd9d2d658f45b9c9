"""What a format is: how records become text, and how text becomes records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from constrint.tune.store.record import TuningRecord


@dataclass(frozen=True)
class Said:
    """What the caller says of a file: it is taken where the file does not say it itself.

    Args:
        kernel: The kernel's full name.
        operation: What it computes; the kernel's name without what follows a point, where it is empty.
        gpu: The model's name.
        dtype: Type of the operands.
        sizes: The workload's sizes.
        run: The run that the records will belong to; the format's and the file's name, where it is empty.
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
        name: How errors name it.
        text: What is in it.
        said: What the caller says of it.
    """

    name: str
    text: bytes
    said: Said = field(default_factory=Said)

    def run(self, kind: str) -> str:
        """The run that its records belong to."""
        return self.said.run or f"{kind}:{Path(self.name).stem}"


class Ours(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What the formats of others have no place for; they keep it under the key `constrint`.

    Where the records of a file differ, it is that of the first.
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
        """That of a record."""
        cache = record.figures.cache if record.figures else "warm"
        return cls(**{name: getattr(record, name) for name in cls.__struct_fields__ if name != "cache"}, cache=cache)

    def of_record(self) -> dict[str, Any]:
        """The fields of a record that it has."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "cache"}


Write = Callable[[Iterable[TuningRecord]], Iterator[str]]
Read = Callable[[Source], list[TuningRecord]]


@dataclass(frozen=True)
class Format:
    """A format by name.

    Args:
        name: As `--format` takes it.
        summary: One line of help.
        write: Records as pieces of text; None where it is only read. It raises `UsageError` for records that the format
            cannot hold.
        read: The records of a file, all or none; None where it is only written. It raises `UsageError` that names the
            file, the line and the rule.
    """

    name: str
    summary: str
    write: Write | None = None
    read: Read | None = None
