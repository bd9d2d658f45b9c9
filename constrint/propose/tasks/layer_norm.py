"""Layer normalisation of every row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrint.propose.operands import Expected, Extent, Operand, Sizes
from constrint.propose.task import Task, register_task


class LayerNorm(Task):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each row."""

    name = "layer_norm"
    summary = "y = (x - mean) / sqrt(variance + eps) * weight + bias, with mean and variance (over n) of each row of x."
    constants: Mapping[str, float] = {"eps": 1e-5}
    extents = (
        Extent("m", "rows", most=65536, usual=12, timed=16384),
        Extent("n", "columns", most=16384, usual=300, timed=8192, long=4000),
    )

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The rows, a weight and a bias for each column."""
        m, n = sizes["m"], sizes["n"]
        return (
            Operand("x", (m, n)),
            Operand("weight", (n,), is_parameter=True),
            Operand("bias", (n,), is_parameter=True),
        )

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """As many rows."""
        x = inputs["x"]
        return {"y": x.new_empty(x.shape)}

    def plain(self, *inputs: Any) -> Any:
        """PyTorch's layer normalisation."""
        import torch

        x, weight, bias = inputs
        return torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, self.constants["eps"])

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """The mean is off in proportion to the row, and so is the difference from it."""
        x, weight, bias = inputs["x"], inputs["weight"], inputs["bias"]
        variance = x.var(dim=1, correction=0, keepdim=True)
        scale = (variance + self.constants["eps"]).rsqrt()
        y = (x - x.mean(dim=1, keepdim=True)) * scale * weight + bias
        size = x.abs() + x.square().mean(dim=1, keepdim=True).sqrt()
        return {"y": Expected(y, size * scale * weight.abs() + bias.abs() + y.abs())}

    def num_terms(self, sizes: Sizes) -> int:
        """The columns."""
        return sizes["n"]

    def flops(self, sizes: Sizes) -> float:
        """Two sums, a difference, a square, and the affine map."""
        return 6.0 * sizes["m"] * sizes["n"]


register_task(LayerNorm())
