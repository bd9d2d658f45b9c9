"""Facts about shipped kernels and GPU models that take seconds to compute; they ship in `shipped.json`.

`python -m benchmarks.shipped` computes them anew and writes the file. What the file does not hold (kernels and models
of others) is computed where it is needed.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import msgspec

from constrint.hwmodels import GpuModel

FILE = Path(__file__).with_suffix(".json")
#: The largest LSTM heads of a GPU by the key of `constrint limits`; None where no head fits.
Heads = dict[str, int | None]


class SizeFacts(msgspec.Struct, frozen=True):
    """A size or an option of an operation."""

    name: str
    default: int
    meaning: str
    least: int
    most: int


class ImplementationFacts(msgspec.Struct, frozen=True):
    """An implementation; `gpus` are the names of those on which it takes its usual sizes, or one of them."""

    name: str
    operation: str
    short: str
    summary: str
    dtypes: tuple[str, ...]
    sizes: dict[str, int]
    options: dict[str, int]
    gpus: tuple[str, ...]


class OperationFacts(msgspec.Struct, frozen=True):
    """An operation with its implementations."""

    name: str
    dtypes: tuple[str, ...]
    sizes: tuple[SizeFacts, ...]
    options: tuple[SizeFacts, ...]
    implementations: tuple[ImplementationFacts, ...]


class KernelList(msgspec.Struct, frozen=True):
    """All operations, and the makers of all GPUs by their names."""

    makers: dict[str, str]
    operations: tuple[OperationFacts, ...]


class ShippedFacts(msgspec.Struct, frozen=True):
    """The largest heads by the digest of a GPU's model, and the list of the built-in kernels."""

    heads: dict[str, Heads]
    kernels: KernelList


@functools.cache
def shipped() -> ShippedFacts:
    """The facts of the file; empty ones where an installation lacks it."""
    try:
        return msgspec.json.decode(FILE.read_bytes(), type=ShippedFacts)
    except OSError:
        return ShippedFacts({}, KernelList({}, ()))


def digest(gpu: GpuModel) -> str:
    """The digest of all that kernels read of a model: sources and notes are left out."""
    parts = (gpu.name, gpu.vendor, gpu.arch, gpu.device, gpu.sm, gpu.memory, gpu.compute, gpu.matrix)
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()[:24]
