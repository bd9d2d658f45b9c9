"""Root-mean-square normalisation of every row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrint.propose.operands import Expected, Extent, Operand, Sizes
from constrint.propose.task import Task, register_task


class RmsNorm(Task):
    """y = x / sqrt(mean of x^2 + eps) * weight for each row."""

    name = "rms_norm"
    summary = "y = x / sqrt(mean(x * x) + eps) * weight, with the mean of each row of x."
    constants: Mapping[str, float] = {"eps": 1e-6}
    extents = (
        Extent("m", "rows", most=65536, usual=12, timed=16384),
        Extent("n", "columns", most=16384, usual=300, timed=8192, long=4000),
    )

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The rows, and a weight for each column."""
        return Operand("x", (sizes["m"], sizes["n"])), Operand("weight", (sizes["n"],), is_parameter=True)

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """As many rows."""
        x = inputs["x"]
        return {"y": x.new_empty(x.shape)}

    def plain(self, *inputs: Any) -> Any:
        """PyTorch's own."""
        import torch

        x, weight = inputs
        return torch.nn.functional.rms_norm(x, x.shape[1:], weight, self.constants["eps"])

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """All terms have one sign: errors are in proportion to the result."""
        x, weight = inputs["x"], inputs["weight"]
        y = x * (x.square().mean(dim=1, keepdim=True) + self.constants["eps"]).rsqrt() * weight
        return {"y": Expected(y, y.abs())}

    def num_terms(self, sizes: Sizes) -> int:
        """The columns."""
        return sizes["n"]

    def flops(self, sizes: Sizes) -> float:
        """A square, a sum and two products for each element."""
        return 4.0 * sizes["m"] * sizes["n"]


register_task(RmsNorm())
