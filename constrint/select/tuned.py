"""The file of measured winners for one GPU, `tuned-<gpu>.json`: its entries, reading and writing.

Look-ups read it instead of the store of records. Who wins is decided where it is published
(`constrint.tune.store.choices`); whether an entry still holds is decided where it is looked up.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

SCHEMA = "constrint.tuned/1"
#: A larger file is no table of winners: an entry has some 600 bytes.
MAX_BYTES = 64 * 2**20
#: A parameter's value: whole numbers in our kernels, anything that JSON has in others'.
Value = int | float | str | bool | None


class TunedEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The measured best of one workload with one toolchain.

    Args:
        kernel: The implementation's full name, `gemm.pointer`.
        operation: Name of the operation, `gemm`.
        dtype: Type of the operands.
        sizes: The workload's sizes.
        options: Options that differ from their defaults.
        config: A value for each parameter.
        seconds: The measured median.
        source_hash: Hash of the device code.
        spec_hash: Hash of the space, rules and costs; it tells where an entry comes from, and decides nothing.
        toolchain: Versions by name: `triton`, `torch`, `cuda` or `rocm`, `driver`.
        run: Identifier of the tuner's run that measured it.
        created: Time of the measurement, in seconds since 1970.
        fixed: Values of parameters that the tuning fixed; the configuration is the best among those with these values.
    """

    kernel: str
    operation: str
    dtype: str
    sizes: dict[str, int]
    options: dict[str, int]
    config: dict[str, Value]
    seconds: Annotated[float, msgspec.Meta(gt=0)]
    source_hash: str
    spec_hash: str
    toolchain: dict[str, str]
    run: str
    created: float
    fixed: dict[str, int] = {}


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: str
    gpu: str
    entries: tuple[TunedEntry, ...]


@dataclass(frozen=True)
class TunedTable:
    """The winners for one GPU.

    Args:
        gpu: The model's name; empty where the file could not be read.
        entries: In the order of the file.
        problem: Why there are no entries; empty where the file was read, or where there is no file.
    """

    gpu: str = ""
    entries: tuple[TunedEntry, ...] = ()
    problem: str = ""


def tuned_path(folder: Path, gpu: str) -> Path:
    """The file of a GPU, `tuned-h200-sxm.json` for `H200-SXM`; two names have two files, on every file system.

    Capitals, digits and single hyphens are spelt in small letters. Any other name is followed by its hash.
    """
    plain = _plain(gpu)
    if plain.upper() != gpu:
        plain = f"{plain[:100]}_{hashlib.sha256(gpu.encode(errors='surrogatepass')).hexdigest()[:12]}"
    return folder / f"tuned-{plain}.json"


def _plain(gpu: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")


def table_of(folder: Path, gpu: str) -> tuple[Path, TunedTable]:
    """The table of a GPU in a folder and its file, also one under the name that earlier versions gave it."""
    path = tuned_path(folder, gpu)
    table = read_tuned(path)
    if not (table.gpu or table.problem):
        earlier = folder / f"tuned-{_plain(gpu)}.json"
        found = read_tuned(earlier) if earlier != path else table
        if found.gpu == gpu:
            return earlier, found
    return path, table


def read_tuned(path: Path) -> TunedTable:
    """Read a table; for a torn or foreign file it is empty and states the problem. Nothing is raised."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            return TunedTable(problem=f"{path} has more than {MAX_BYTES} bytes: it is no table of tuned kernels.")
        table = msgspec.json.decode(text, type=_File)
    except FileNotFoundError:
        return TunedTable()
    except (OSError, ValueError, RecursionError) as error:
        return TunedTable(problem=f"{path} is left aside: {error}. Publish it again with `constrint tune`.")
    if table.schema != SCHEMA:
        return TunedTable(problem=f"{path} is left aside: its schema is {table.schema!r}, this version reads {SCHEMA}.")
    return TunedTable(table.gpu, table.entries)


def write_tuned(table: TunedTable, path: Path) -> None:
    """Write a table; other processes see the old file or the new one, whole.

    Raises:
        OSError: When the folder cannot be written to, or is full; the old file stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = _File(schema=SCHEMA, gpu=table.gpu, entries=table.entries)
    text = msgspec.json.format(msgspec.json.encode(whole, order="deterministic"), indent=1)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # as readable as other files: a temporary file is created for its owner alone
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
