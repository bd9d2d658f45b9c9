"""The cross-entropy of every row of logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrint.propose.operands import Expected, Extent, Operand, Sizes
from constrint.propose.task import Task, register_task


class CrossEntropy(Task):
    """loss = log(sum exp(logits)) - logits[target] for each row."""

    name = "cross_entropy"
    summary = "loss = log(sum exp(logits)) - logits[target] for each row of the logits; loss is fp32 of shape (m,)."
    extents = (
        Extent("m", "rows", most=65536, usual=12, timed=8192),
        Extent("n", "classes", most=131072, usual=300, timed=32768, long=4000),
    )

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
        """PyTorch's own, of fp32."""
        import torch

        logits, target = inputs
        return torch.nn.functional.cross_entropy(logits.float(), target, reduction="none")

    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """The difference of two numbers that may be near each other, each rounded."""
        logits, target = inputs["logits"], inputs["target"]
        total, right = logits.logsumexp(dim=1), logits.gather(1, target[:, None])[:, 0]
        return {"loss": Expected(total - right, 1 + total.abs() + logits.abs().amax(dim=1) + right.abs())}

    def num_terms(self, sizes: Sizes) -> int:
        """The classes."""
        return sizes["n"]

    def flops(self, sizes: Sizes) -> float:
        """A maximum, a difference, an exponential and a sum for each logit."""
        return 4.0 * sizes["m"] * sizes["n"]


register_task(CrossEntropy())
