"""The tasks that come with the package; the docstring of each reference says what its errors are in proportion to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from constrint.propose.operands import Expected, Extent, Operand, Sizes
from constrint.propose.task import Task


class ElementTask(Task):
    """A task with a fixed number of operations for each element, and one output `y` like the first input.

    Attributes:
        operations: Floating-point operations for each element.
        summed: The size that the longest sum has; empty for a sum of two terms.
    """

    operations: float
    summed = ""

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """An output of the first input's shape and type."""
        x = inputs["x"]
        return {"y": x.new_empty(x.shape)}

    def num_terms(self, sizes: Sizes) -> int:
        """The size of the longest sum."""
        return sizes[self.summed] if self.summed else 2

    def flops(self, sizes: Sizes) -> float:
        """Operations for each element, for all elements."""
        return self.operations * math.prod(sizes.values())


class RowTask(ElementTask):
    """A task about every row of a matrix."""

    extents = (
        Extent("m", "rows", most=65536, usual=12, timed=16384),
        Extent("n", "columns", most=16384, usual=300, timed=8192, long=4000),
    )
    summed = "n"


class Softmax(RowTask):
    """y = exp(x - max x) / sum exp(x - max x) for each row."""

    name = "softmax"
    summary = "y = softmax of each row of x, exp(x - max x) / sum exp(x - max x)."
    operations = 5.0  # a maximum, a difference, an exponential, a sum and a division

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The rows."""
        return (Operand("x", (sizes["m"], sizes["n"])),)

    def plain(self, *inputs: Any) -> Any:
        """PyTorch's softmax."""
        (x,) = inputs
        return x.softmax(dim=1)

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """An exponent that is off by a rounding puts the result off in proportion to the exponent."""
        x = inputs["x"]
        y = x.softmax(dim=1)
        return {"y": Expected(y, y * (1 + (x - x.amax(dim=1, keepdim=True)).abs()))}


class LayerNorm(RowTask):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each row."""

    name = "layer_norm"
    summary = "y = (x - mean) / sqrt(variance + eps) * weight + bias, with mean and variance (over n) of each row of x."
    constants: Mapping[str, float] = {"eps": 1e-5}
    operations = 6.0  # two sums, a difference, a square, and the affine map

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The rows, a weight and a bias for each column."""
        m, n = sizes["m"], sizes["n"]
        return (
            Operand("x", (m, n)),
            Operand("weight", (n,), is_parameter=True),
            Operand("bias", (n,), is_parameter=True),
        )

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


class RmsNorm(RowTask):
    """y = x / sqrt(mean of x^2 + eps) * weight for each row."""

    name = "rms_norm"
    summary = "y = x / sqrt(mean(x * x) + eps) * weight, with the mean of each row of x."
    constants: Mapping[str, float] = {"eps": 1e-6}
    operations = 4.0  # a square, a sum and two products

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The rows, and a weight for each column."""
        return Operand("x", (sizes["m"], sizes["n"])), Operand("weight", (sizes["n"],), is_parameter=True)

    def plain(self, *inputs: Any) -> Any:
        """PyTorch's root-mean-square normalisation."""
        import torch

        x, weight = inputs
        return torch.nn.functional.rms_norm(x, x.shape[1:], weight, self.constants["eps"])

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """All terms have one sign: errors are in proportion to the result."""
        x, weight = inputs["x"], inputs["weight"]
        y = x * (x.square().mean(dim=1, keepdim=True) + self.constants["eps"]).rsqrt() * weight
        return {"y": Expected(y, y.abs())}


class CrossEntropy(RowTask):
    """loss = log(sum exp(logits)) - logits[target] for each row."""

    name = "cross_entropy"
    summary = "loss = log(sum exp(logits)) - logits[target] for each row of the logits; loss is fp32 of shape (m,)."
    extents = (
        Extent("m", "rows", most=65536, usual=12, timed=8192),
        Extent("n", "classes", most=131072, usual=300, timed=32768, long=4000),
    )
    operations = 4.0  # a maximum, a difference, an exponential and a sum

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """Logits, and the right class of each row."""
        m, n = sizes["m"], sizes["n"]
        return Operand("logits", (m, n)), Operand("target", (m,), "i64", below=n)

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One number for each row, fp32, or fp64 of the reference."""
        import torch

        logits = inputs["logits"]
        return {"loss": logits.new_empty(logits.shape[:1], dtype=torch.float32)}

    def plain(self, *inputs: Any) -> Any:
        """PyTorch's cross-entropy, of fp32."""
        import torch

        logits, target = inputs
        return torch.nn.functional.cross_entropy(logits.float(), target, reduction="none")

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """The difference of two numbers that may be near each other, each rounded."""
        logits, target = inputs["logits"], inputs["target"]
        total, right = logits.logsumexp(dim=1), logits.gather(1, target[:, None])[:, 0]
        return {"loss": Expected(total - right, 1 + total.abs() + logits.abs().amax(dim=1) + right.abs())}


class Rotary(ElementTask):
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
    operations = 3.0  # two products and a sum

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

    def plain(self, *inputs: Any) -> Any:
        """The rotation as it is written by hand in PyTorch."""
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


class BiasGelu(ElementTask):
    """y = v / 2 (1 + erf(v / sqrt 2)) with v = x + bias."""

    name = "bias_gelu"
    summary = "y = v * (1 + erf(v / sqrt(2))) / 2 with v = x + bias, the exact GELU."
    extents = (
        Extent("m", "rows", most=65536, usual=12, timed=16384),
        Extent("n", "columns", most=65536, usual=300, timed=8192),
    )
    operations = 15.0  # two sums, three products, and an error function, which takes no fewer than ten

    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The rows, and a bias for each column."""
        return Operand("x", (sizes["m"], sizes["n"])), Operand("bias", (sizes["n"],), is_parameter=True)

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


TASKS: tuple[Task, ...] = (Softmax(), LayerNorm(), RmsNorm(), CrossEntropy(), Rotary(), BiasGelu())
