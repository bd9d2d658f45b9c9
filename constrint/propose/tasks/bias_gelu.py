"""A bias and the Gaussian error linear unit, in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrint.propose.operands import Expected, Extent, Operand, Sizes
from constrint.propose.task import Task, register_task


class BiasGelu(Task):
    """y = v / 2 (1 + erf(v / sqrt 2)) with v = x + bias."""

    name = "bias_gelu"
    summary = "y = v * (1 + erf(v / sqrt(2))) / 2 with v = x + bias, the exact GELU."
    extents = (
        Extent("m", "rows", most=65536, usual=12, timed=16384),
        Extent("n", "columns", most=65536, usual=300, timed=8192),
    )

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The rows, and a bias for each column."""
        return Operand("x", (sizes["m"], sizes["n"])), Operand("bias", (sizes["n"],), is_parameter=True)

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """As many rows."""
        x = inputs["x"]
        return {"y": x.new_empty(x.shape)}

    def plain(self, *inputs: Any) -> Any:
        """Two operations of PyTorch."""
        import torch

        x, bias = inputs
        return torch.nn.functional.gelu(x + bias)

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """Where v is far below zero, 1 + erf is the small difference of two numbers near 1."""
        import torch

        x, bias = inputs["x"], inputs["bias"]
        return {"y": Expected(torch.nn.functional.gelu(x + bias), x.abs() + bias.abs())}

    def num_terms(self, sizes: Sizes) -> int:
        """The bias and the input."""
        return 2

    def flops(self, sizes: Sizes) -> float:
        """Two sums, three products, and an error function, which takes no fewer than ten operations."""
        return 15.0 * sizes["m"] * sizes["n"]


register_task(BiasGelu())
