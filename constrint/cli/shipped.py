"""Facts about shipped kernels and GPU models that take seconds to compute; they ship in `shipped.json`.

`python -m constrint.cli.shipped` computes them anew and writes the file, with `--check` it says whether they are still
right. What the file does not hold (kernels and models of others) is computed where it is needed.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path

import msgspec

from constrint.cli.kernel_list import KernelList
from constrint.hwmodels import GpuModel

FILE = Path(__file__).with_suffix(".json")
#: The largest LSTM heads of a GPU by the key of `constrint limits`; None where no head fits.
Heads = dict[str, int | None]


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


def main(arguments: list[str]) -> int:
    """Write the file, or check it; the exit code is 1 where it is stale."""
    from constrint.cli.kernel_list import kernels_of
    from constrint.cli.limits import largest_heads
    from constrint.hwmodels.load import load_all
    from constrint.kernels import registry

    built_in = kernels_of([registry.load_kernel(name) for name in registry.built_in_operations()])
    heads = {digest(gpu): largest_heads(gpu) for gpu in load_all()}
    text = msgspec.json.format(msgspec.json.encode(ShippedFacts(heads, built_in)), indent=1)
    if "--check" in arguments:
        is_fresh = FILE.exists() and FILE.read_bytes() == text
        print(f"{FILE.name}: {'fresh' if is_fresh else 'stale; write it anew with python -m constrint.cli.shipped'}")
        return int(not is_fresh)
    FILE.write_bytes(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
