"""The attention of examples/attention on a GPU, beside torch's own."""

from __future__ import annotations

from pathlib import Path

from constrint.kernels.registry import load_kernel
from constrint.select import KernelSpec

FILE = Path(__file__).parents[2] / "examples" / "attention" / "attention.py"


def load_attention(name: str) -> KernelSpec:
    """The example's spec, for processes that compile it."""
    return load_kernel(f"{FILE}:SPEC").implementations[0]
