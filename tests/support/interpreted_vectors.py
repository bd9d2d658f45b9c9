"""Kernels of `gemv` and `axpy` in Triton's interpreter, run by `tests.support.interpreter`."""

from __future__ import annotations

import random
from typing import Any

import torch

from constrint.hwmodels import load_gpu
from constrint.kernels.axpy.launch import AxpyCall, axpy_launch
from constrint.kernels.gemv.launch import GemvCall, gemv_launch, lies_by_columns, width_of


def gemv_misses(case: dict[str, Any]) -> list[str]:
    """Calls of random sizes, strides and configurations whose results are off, against fp64."""
    draw, gpu = random.Random(case["seed"]), load_gpu("h200")
    torch.manual_seed(case["seed"])
    missed = []
    for _ in range(case["number"]):
        m, n, batch = draw.choice([1, 3, 8, 17, 40]), draw.choice([1, 2, 16, 33, 100]), draw.choice([1, 1, 3])
        pad, by_columns = draw.choice([0, 0, 4, 1]), draw.random() < 0.5
        a = torch.randn(batch, n, m + pad)[:, :, :m].mT if by_columns else torch.randn(batch, m, n + pad)[:, :, :n]
        x, y = torch.randn(batch, n), torch.randn(batch, m) if draw.random() < 0.5 else None
        out = torch.full((batch, m), float("nan"))
        vector = draw.choice([v for v in (1, 2, 4) if 4 * v <= width_of(a)])
        tile = (draw.choice([4, 8, 16]), draw.choice([1, 4, 16]))
        tile = tile if lies_by_columns(a) else (draw.choice([1, 2, 4]), draw.choice([4, 8, 32]))
        config = {"tile_m": tile[0], "tile_n": tile[1], "splits": draw.choice([1, 2, 3, 5]), "vector": vector}
        config |= {"num_warps": 1, "num_stages": draw.choice([1, 2]), "evict_first": 1}
        beta = 0.0 if y is None else 0.5
        gemv_launch(gpu, GemvCall(a, x, out, y, 1.5, beta), config).run()
        products = a.double() * x.double()[:, None, :]
        exact, size = 1.5 * products.sum(2), 1.5 * products.abs().sum(2)
        if y is not None:
            exact, size = exact + beta * y.double(), size + beta * y.double().abs()
        # Every sum is a tree or a chain of at most N additions of fp32, and one rounding more for each factor.
        bound = (n + 4) * torch.finfo(torch.float32).eps * size
        if not bool(((out.double() - exact).abs() <= bound).all()):
            missed.append(f"{tuple(a.shape)} {a.stride()} {config} y={y is not None}")
    return missed


def axpy_misses(case: dict[str, Any]) -> list[str]:
    """The same of sums of vectors: rows, steps, a factor as a tensor, results in place."""
    draw = random.Random(case["seed"])
    torch.manual_seed(case["seed"])
    missed = []
    for _ in range(case["number"]):
        rows, n, step = draw.choice([1, 1, 3]), draw.choice([1, 5, 64, 100, 257]), draw.choice([1, 1, 2])
        x = torch.randn(rows, n * step + draw.choice([0, 3]))[:, ::step][:, :n]
        y = torch.randn(rows, n)
        factor = torch.tensor(1.5) if draw.random() < 0.4 else None
        exact = 1.5 * x.double() + y.double()
        out = y if draw.random() < 0.5 else torch.full((rows, n), float("nan"))
        axpy_launch(AxpyCall(x, y, out, 1.5, factor), {"tile": 64, "vector": 1, "num_warps": 1, "evict_first": 0}).run()
        size = 1.5 * x.double().abs() + exact.abs()
        if not bool(((out.double() - exact).abs() <= 2 * torch.finfo(torch.float32).eps * size).all()):
            missed.append(f"{rows} x {n}, step {step}")
    return missed


def misses(case: dict[str, Any]) -> list[str]:
    """Those of the kernel that a case names."""
    return {"gemv": gemv_misses, "axpy": axpy_misses}[case["kernel"]](case)
