"""Tables of results: CSV with a line that says what they were measured on, written row by row; and summaries."""

from __future__ import annotations

import csv
import gzip
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import IO, Any

#: Kernels that were removed. Tables of results still name them; programs that need the kernel of a row skip such rows.
REMOVED = frozenset({"gemm.producer", "gemm.unaligned"})
#: Spread over median beyond which a figure is called disturbed: other users of the machine had a part in it.
DISTURBED = 0.25


class Table:
    """A CSV file in the making; a `.gz` is compressed.

    Args:
        path: Where it is written; None: nowhere.
        columns: Names of the columns.
        note: The comment line, without the `#`; none if empty.
        earlier: Rows of an earlier run, which come first.
    """

    def __init__(
        self, path: Path | None, columns: Sequence[str], note: str = "", earlier: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        self._file = None if path is None else _open(path, "wt")
        self.rows: list[dict[str, Any]] = []
        self._columns = columns
        if self._file is not None:
            self._file.write(f"# {note}\n" if note else "")
            self._writer = csv.DictWriter(self._file, columns)
            self._writer.writeheader()
        for row in earlier:
            self.add(**row)

    def add(self, **row: Any) -> dict[str, Any]:
        """Write one row at once; columns that it lacks stay empty, floats get five digits."""
        shown = {name: _shown(value) for name, value in row.items()}
        self.rows.append(shown)
        if self._file is not None:
            self._writer.writerow(shown)
            self._file.flush()
        return shown

    def texts(self) -> list[dict[str, str]]:
        """The rows so far as `read_rows` would read them."""
        return [{name: str(row.get(name, "")) for name in self._columns} for row in self.rows]

    def __enter__(self) -> Table:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()


def read_whole(path: Path) -> tuple[str, list[dict[str, str]]]:
    """The comment line, and the rows that were written to the end: a run may have been cut in the middle of one."""
    note, names, rows = read_table(path)
    return note, [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def read_table(path: Path) -> tuple[str, list[str], list[list[str]]]:
    """The comment line, the names of the columns, and the rows."""
    with _open(path, "rt") as file:
        line = file.readline()
        note = line[1:].strip() if line.startswith("#") else ""
        reader = csv.reader(file)
        names = next(reader) if note else next(csv.reader([line]))
        return note, names, list(reader)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table as dictionaries."""
    _, names, rows = read_table(path)
    return [dict(zip(names, row, strict=True)) for row in rows]


def environment() -> dict[str, str]:
    """Return device, driver and versions for which figures hold; without those that are not installed."""
    facts = {"python": platform.python_version(), "cores": str(os.cpu_count()), "system": platform.platform()}
    for name in ("torch", "triton"):
        try:
            facts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,clocks.max.memory", "--format=csv,noheader"]
    try:
        asked = subprocess.run(query, capture_output=True, text=True, check=False)
        facts |= {"gpu": "; ".join(asked.stdout.strip().splitlines())} if asked.returncode == 0 else {}
    except FileNotFoundError:
        pass
    return facts


def described() -> str:
    """The environment in one line."""
    return ", ".join(f"{name} {value}" for name, value in environment().items())


def print_ratios(name: str, ratios: Sequence[float], limits: Iterable[float] = (0.85, 0.95)) -> None:
    """Geometric mean, the twentieth of the way from the worst, the worst, and how many are under some limits."""
    if ratios:
        twentieth = sorted(ratios)[len(ratios) // 20]
        under = ", ".join(f"{sum(r < limit for r in ratios)} under {limit}" for limit in limits)
        print(
            f"{name}: geometric mean {statistics.geometric_mean(ratios):.3f}, 5th percentile {twentieth:.3f}, "
            f"worst {min(ratios):.3f} of {len(ratios)}; {under}"
        )


def attempt(call: Callable[[], Mapping[str, Any] | None]) -> dict[str, Any]:
    """Call a measurement; a failure becomes the `outcome` of a row, so that one peer does not end the run."""
    try:
        return {"outcome": "ok", **(call() or {})}
    except Exception as error:  # noqa: BLE001 - a failure is a row of the table
        lines = str(error).splitlines() or [""]
        return {"outcome": f"{type(error).__name__}: {lines[-1][:100]}"}


def _open(path: Path, mode: str) -> IO[Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        packed: IO[Any] = gzip.open(path, mode, newline="")  # type: ignore[assignment]  # noqa: SIM115  closed with the table
        return packed
    return path.open(mode, newline="")


def _shown(value: Any) -> Any:
    if isinstance(value, float):
        return "" if value != value else f"{value:.5g}"
    return value
