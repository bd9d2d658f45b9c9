"""Write the facts about shipped kernels and GPU models that take seconds to compute: `constrint/cli/shipped.json`.

    python -m benchmarks.shipped [--check]

`--check` writes nothing, and ends with exit code 1 where the file is stale. It takes two minutes.
"""

from __future__ import annotations

import sys

import msgspec

from constrint.cli.kernel_list import kernels_of
from constrint.cli.limits import largest_heads
from constrint.cli.shipped import FILE, ShippedFacts, digest
from constrint.hwmodels.load import load_all
from constrint.kernels import registry


def main(arguments: list[str]) -> int:
    """Write the file, or check it."""
    built_in = kernels_of([registry.load_kernel(name) for name in registry.built_in_operations()])
    heads = {digest(gpu): largest_heads(gpu) for gpu in load_all()}
    text = msgspec.json.format(msgspec.json.encode(ShippedFacts(heads, built_in)), indent=1)
    if "--check" in arguments:
        is_fresh = FILE.exists() and FILE.read_bytes() == text
        print(f"{FILE.name}: {'fresh' if is_fresh else 'stale'}")
        return int(not is_fresh)
    FILE.write_bytes(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
