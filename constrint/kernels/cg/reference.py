"""Conjugate gradients in plain PyTorch, on any device, and random systems. Needs torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.cg.sizes import iterations_of, star_of
from constrint.kernels.cg.star import StarMatrix
from constrint.select.workload import Workload

DTYPES = {"fp64": torch.float64, "fp32": torch.float32}


def apply_star(star: StarMatrix, u: Tensor) -> Tensor:
    """The matrix of a star times a vector (n,), by slices."""
    grid = u.reshape(star.shape)
    out = star.centre * grid
    for offset, value in star.offsets.items():
        if any(offset):
            to = tuple(
                slice(max(0, -step), min(size, size - step)) for step, size in zip(offset, star.shape, strict=True)
            )
            of = tuple(
                slice(max(0, step), min(size, size + step)) for step, size in zip(offset, star.shape, strict=True)
            )
            out[to] += value * grid[of]
    return out.reshape(-1)


def plain_iterations(
    product: Callable[[Tensor], Tensor], b: Tensor, inverse: Tensor | None, number: int
) -> tuple[Tensor, Tensor]:
    """The iterate x and r . r after a number of iterations from x = 0, by the textbook."""
    x, r = torch.zeros_like(b), b.clone()
    z = r if inverse is None else inverse * r
    p, rho = z.clone(), torch.dot(r, z)
    for _ in range(number):
        if not float(rho):
            break
        q = product(p)
        alpha = rho / torch.dot(p, q)
        x += alpha * p
        r -= alpha * q
        z = r if inverse is None else inverse * r
        before, rho = rho, torch.dot(r, z)
        p = z + (rho / before) * p
    return x, torch.dot(r, r)


def csr_of(inputs: dict[str, Any], dtype: torch.dtype) -> Tensor:
    """The matrix of inputs as torch's CSR tensor."""
    n = inputs["b"].numel()
    return torch.sparse_csr_tensor(inputs["starts"], inputs["columns"], inputs["values"].to(dtype), (n, n))


def random_inputs(workload: Workload, *, device: Any, seed: int) -> dict[str, Tensor]:
    """A right-hand side, and for CSR a symmetric banded matrix that is dominant in the diagonal; no data on `meta`."""
    n, dtype = workload.sizes["rows"], DTYPES[workload.dtype]
    if torch.device(device).type == "meta":
        inputs = {"b": torch.empty((n,), dtype=dtype, device="meta")}
        if star_of(workload) is None:
            inputs |= _empty_matrix(workload, dtype)
        return inputs
    draw = torch.Generator(device).manual_seed(seed)
    inputs = {"b": torch.randn((n,), device=device, generator=draw, dtype=torch.float64).to(dtype)}
    return inputs if star_of(workload) is not None else inputs | _banded(workload, dtype, device)


def _empty_matrix(workload: Workload, dtype: torch.dtype) -> dict[str, Tensor]:
    n, nnz = workload.sizes["rows"], workload.sizes["nnz"]
    index = torch.int64 if workload.options.get("long", 0) else torch.int32
    shapes = {"starts": ((n + 1,), index), "columns": ((nnz,), index), "values": ((nnz,), dtype)}
    made = {name: torch.empty(shape, dtype=kind, device="meta") for name, (shape, kind) in shapes.items()}
    return made | ({"inverse": torch.empty((n,), dtype=dtype, device="meta")} if workload.options.get("jacobi") else {})


def _banded(workload: Workload, dtype: torch.dtype, device: Any) -> dict[str, Tensor]:
    """Bands at distances 1, 2, 4, ... that fill a row, with a diagonal of unequal elements."""
    n, width = workload.sizes["rows"], max(1, workload.sizes["nnz"] // workload.sizes["rows"])
    index = torch.int64 if workload.options.get("long", 0) else torch.int32
    distances = [
        d for d in dict.fromkeys(min(n - 1, 1 << i if i < 6 else 37 * i) for i in range((width - 1) // 2)) if d
    ]
    steps = sorted([0, *distances, *(-d for d in distances)])
    rows = torch.arange(n, device=device)
    columns = rows[:, None] + torch.tensor(steps, device=device)
    inside = (columns >= 0) & (columns < n)
    diagonal = 4.0 * max(1, len(distances)) + (rows % 7).double()
    values = torch.where(columns == rows[:, None], diagonal[:, None], -1.0)
    starts = torch.nn.functional.pad(inside.sum(1).cumsum(0), (1, 0)).to(index)
    made = {"starts": starts, "columns": columns[inside].to(index), "values": values[inside].to(dtype)}
    return made | ({"inverse": (1.0 / diagonal).to(dtype)} if workload.options.get("jacobi") else {})


def reference_of(workload: Workload, inputs: dict[str, Any]) -> Tensor:
    """The iterate of a workload in fp64."""
    b = inputs["b"].double()
    star, number = star_of(workload), iterations_of(workload)
    if star is not None:
        return plain_iterations(lambda p: apply_star(star, p), b, None, number)[0]
    matrix = csr_of(inputs, torch.float64)
    inverse = inputs["inverse"].double() if "inverse" in inputs else None
    return plain_iterations(lambda p: matrix @ p, b, inverse, number)[0]
