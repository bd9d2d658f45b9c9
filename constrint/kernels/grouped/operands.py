"""Random operands of grouped products. Needs torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.select.workload import Workload

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def random_inputs(workload: Workload, *, device: Any, seed: int) -> dict[str, Tensor]:
    """A, B, offsets, and a bias where the workload has one; without data on `meta`. Some experts have no rows."""
    s, dtype = workload.sizes, DTYPES[workload.dtype]
    is_meta = torch.device(device).type == "meta"
    draw = None if is_meta else torch.Generator(device).manual_seed(seed)

    def matrix(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=draw).to(dtype)

    experts = s["experts"]
    if workload.options.get("transpose_b"):
        b = matrix(experts, s["n"], s["k"]).transpose(1, 2)
    else:
        b = matrix(experts, s["k"], s["n"])
    inputs = {"a": matrix(s["m"], s["k"]), "b": b, "offsets": _offsets(s["m"], experts, device, draw)}
    if workload.options.get("bias"):
        inputs["bias"] = matrix(experts, s["n"])
    return inputs


def _offsets(rows: int, experts: int, device: Any, draw: torch.Generator | None) -> Tensor:
    """Ends of random shares of the rows, about one in eight of them empty; the last one is `rows`."""
    if draw is None:
        return torch.empty((experts,), dtype=torch.int32, device=device)
    weights = torch.rand((experts,), device=device, generator=draw)
    weights = torch.where(weights < 1 / 8, torch.zeros_like(weights), weights)
    ends = (weights.cumsum(0) / weights.sum().clamp(min=1e-3) * rows).round().to(torch.int32).clamp(0, rows)
    ends[-1] = rows
    return ends
