"""The softmax of every row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrint.propose.operands import Expected, Extent, Operand, Sizes
from constrint.propose.task import Task, register_task


class Softmax(Task):
    """y = exp(x - max x) / sum exp(x - max x) for each row."""

    name = "softmax"
    summary = "y = softmax of each row of x, exp(x - max x) / sum exp(x - max x)."
    extents = (
        Extent("m", "rows", most=65536, usual=12, timed=16384),
        Extent("n", "columns", most=16384, usual=300, timed=8192, long=4000),
    )

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The rows."""
        return (Operand("x", (sizes["m"], sizes["n"])),)

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """As many rows."""
        x = inputs["x"]
        return {"y": x.new_empty(x.shape)}

    def plain(self, *inputs: Any) -> Any:
        """PyTorch's softmax."""
        (x,) = inputs
        return x.softmax(dim=1)

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """An exponent that is off by a rounding puts the result off in proportion to the exponent."""
        x = inputs["x"]
        y = x.softmax(dim=1)
        return {"y": Expected(y, y * (1 + (x - x.amax(dim=1, keepdim=True)).abs()))}

    def num_terms(self, sizes: Sizes) -> int:
        """The columns."""
        return sizes["n"]

    def flops(self, sizes: Sizes) -> float:
        """A maximum, a difference, an exponential, a sum and a division for each element."""
        return 5.0 * sizes["m"] * sizes["n"]


register_task(Softmax())
