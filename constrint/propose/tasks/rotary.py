"""Rotary embedding of positions: pairs of channels are turned by an angle of their position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrint.propose.operands import Expected, Extent, Operand, Sizes
from constrint.propose.task import Task, register_task


class Rotary(Task):
    """The first and second halves of the channels are turned: y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin."""

    name = "rotary"
    summary = (
        "with x1 and x2 the first and second half of x along d, y = (x1 * cos - x2 * sin, x2 * cos + x1 * sin); "
        "cos and sin are the same for all heads. half = d / 2."
    )
    extents = (
        Extent("t", "positions", most=65536, usual=12, timed=16384),
        Extent("h", "heads", most=128, usual=8, timed=32),
        Extent("d", "channels of a head", most=256, usual=128, timed=128, multiple=2),
    )

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """Channels of every head and position, and the angles' cosines and sines."""
        t, h, half = sizes["t"], sizes["h"], sizes["d"] // 2
        angles = (t, half)
        # A rotation makes no number larger than the square root of two times.
        return (
            Operand("x", (t, h, 2 * half)),
            Operand("cos", angles, "fp32", bound=1.0),
            Operand("sin", angles, "fp32", bound=1.0),
        )

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """As many channels."""
        x = inputs["x"]
        return {"y": x.new_empty(x.shape)}

    def plain(self, *inputs: Any) -> Any:
        """As it is written by hand in PyTorch."""
        import torch

        x, cos, sin = inputs
        first, second = x.float().chunk(2, dim=-1)
        cos, sin = cos[:, None], sin[:, None]
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """A sum of two products."""
        import torch

        first, second = inputs["x"].chunk(2, dim=-1)
        cos, sin = inputs["cos"][:, None], inputs["sin"][:, None]
        value = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        one, two = (first * cos).abs() + (second * sin).abs(), (second * cos).abs() + (first * sin).abs()
        return {"y": Expected(value, torch.cat((one, two), dim=-1))}

    def num_terms(self, sizes: Sizes) -> int:
        """Two products."""
        return 2

    def flops(self, sizes: Sizes) -> float:
        """Two products and a sum for each channel."""
        return 3.0 * sizes["t"] * sizes["h"] * sizes["d"]


register_task(Rotary())
