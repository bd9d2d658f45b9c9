"""Kinds beside products: sums of vectors, matrix-vector and sparse products, sweeps, conjugate gradients."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from benchmarks.launches.bounds import FLUSHED
from benchmarks.launches.kinds import LIMITS, Drawn, Exact, Operands
from benchmarks.launches.memory import Guarded, Place, values_of

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
#: Values of which sums of many steps are bounded: neither infinities nor numbers that overflow on the way.
TAME = ("ints", "normal", "zeros", "one_signed")
#: Sparse matrices: kernels that read the matrix as it is, and those that copy it.
PLAIN, COPYING = ("merge", "vector", "near"), ("panels", "ell")


def _size(draw: random.Random, most: int) -> int:
    return min(LIMITS.side, max(1, int(2 ** draw.uniform(0, most))))


def _sum_unit(dtype: torch.dtype) -> float:
    """Roundoff of sums: fp64 for fp64, else fp32."""
    return 2.0**-53 if dtype == torch.float64 else 2.0**-24


def _least(dtype: torch.dtype) -> float:
    """How much subnormal numbers that are taken for zero may change a sum."""
    return 0.0 if dtype == torch.float64 else FLUSHED


def _tame(places: dict[str, Place]) -> dict[str, Any]:
    """How operands are filled whose values have to be tame."""

    def fill(place: Place) -> Any:
        return lambda generator, mode: values_of(mode if mode in TAME else "normal", place, generator, generator.device)

    return {name: fill(place) for name, place in places.items()}


def drawn_axpy(draw: random.Random) -> Drawn:
    """alpha * x + y, into new memory or given memory."""
    from constrint.kernels.axpy.op import axpy

    dtype, alpha = draw.choice(DTYPES), draw.choice((1.0, -0.7, 3.0))
    shape = draw.choice(((_size(draw, 17),), (_size(draw, 9), _size(draw, 9)), (3, _size(draw, 6), _size(draw, 6))))
    places = {name: Place.drawn(draw, shape, dtype) for name in ("x", "y")}
    into = Place.drawn(draw, shape, dtype) if draw.random() < 0.5 else None

    def call(operands: Operands) -> Any:
        x, y = operands["x"], operands["y"]
        if into is None:
            return axpy(alpha, x, y)
        out = Guarded.at(into, x.device)
        axpy(alpha, x, y, out=out.view)
        return out

    def exact(operands: Operands, is_exact: bool) -> Exact:
        scaled, y = alpha * operands["x"].double(), operands["y"].double()
        value = scaled + y
        error = 3 * _sum_unit(dtype) * (scaled.abs() + y.abs()) + _least(dtype)
        return value, torch.where(value.isfinite(), error, 0.0), None

    text = f"axpy({alpha}, x, y{', out=...' if into else ''})"
    return Drawn("axpy", text, places, call, exact, repeats=True, in_graphs=into is None)


def drawn_gemv(draw: random.Random) -> Drawn:
    """alpha * a x + beta * y, of a matrix or its transpose, alone or in batches."""
    from constrint.kernels.gemv.op import gemv

    dtype, transposed, batch = draw.choice(DTYPES), draw.random() < 0.5, draw.choice(((), (), (3,)))
    m, n = _size(draw, 12), _size(draw, 12)
    alpha, beta = draw.choice(((1.0, 0.0), (1.0, 0.0), (-0.7, 0.3)))
    kernel = draw.choice(("auto", "triton", "triton"))
    places = {
        "a": Place.drawn(draw, (*batch, m, n), dtype, by_columns=draw.random() < 0.5),
        "x": Place.drawn(draw, (*batch, m if transposed else n), dtype),
    }
    if beta:
        places["y"] = Place.drawn(draw, (*batch, n if transposed else m), dtype)

    def call(operands: Operands) -> Tensor:
        y = operands.get("y")
        return gemv(operands["a"], operands["x"], y=y, alpha=alpha, beta=beta, transposed=transposed, kernel=kernel)

    def exact(operands: Operands, is_exact: bool) -> Exact:
        a, x = operands["a"].double(), operands["x"].double().unsqueeze(-1)
        a = a.mT if transposed else a
        value, size = alpha * (a @ x).squeeze(-1), abs(alpha) * (a.abs() @ x.abs()).squeeze(-1)
        error = 2 * (a.shape[-1] + 8) * _sum_unit(dtype) * size + _least(dtype)
        if kernel == "auto":  # the library rounds the product before it scales it and adds y
            error = error + 2 * torch.finfo(dtype).eps * size + torch.finfo(dtype).tiny
        if beta:
            value = value + beta * operands["y"].double()
            error = error + 4 * _sum_unit(dtype) * beta * operands["y"].double().abs()
        return value, torch.where(value.isfinite(), error, 0.0), None

    text = f"gemv(a, x, alpha={alpha}, beta={beta}, transposed={transposed}, kernel={kernel!r})"
    fills = _tame(places) if kernel == "auto" else {}
    return Drawn("gemv", text, places, call, exact, repeats=kernel == "triton", fills=fills)


def drawn_spmv(draw: random.Random) -> Drawn:
    """A sparse matrix of odd structure times a vector or a few columns; the matrix is kept from call to call."""
    from constrint.kernels.spmv.formats import patterns_of
    from constrint.kernels.spmv.op import spmv
    from constrint.kernels.spmv.reference import spmv_reference

    dtype, kernel = draw.choice(DTYPES), draw.choice(("auto", *PLAIN, *COPYING))
    rows, width = _size(draw, 11), _size(draw, 11)
    lengths = _lengths(draw, rows)
    entries = sum(lengths)
    alpha, beta = draw.choice(((1.0, 0.0), (0.75, 2.5)))
    columns = (draw.randint(2, 16),) if kernel in ("auto", "vector") and draw.random() < 0.3 else ()
    places = {
        "crow": Place((rows + 1,), torch.int32),
        "columns": Place((entries,), torch.int32),
        "values": Place((entries,), dtype),
        "x": Place((width, *columns), dtype),
    }
    if beta:
        places["y"] = Place((rows, *columns), dtype)
    fills = _tame({name: place for name, place in places.items() if place.dtype == dtype})
    starts = torch.tensor([0, *lengths]).cumsum(0)
    which = torch.tensor([draw.randrange(width) for _ in range(entries)], dtype=torch.int64)
    if kernel in ("auto", "merge") and not columns and draw.random() < 0.5:
        # Rows of few patterns: one list of distances, of which each row has as many as it is long.
        row = torch.repeat_interleave(torch.arange(rows), starts[1:] - starts[:-1])
        which = (row + (torch.arange(entries) - starts[row]) * 7 % 11).remainder(width)
        if patterns_of(starts, which, max(lengths, default=0)) is not None:
            kernel = "patterns"
    fills["crow"] = lambda generator, mode: starts.to(generator.device, torch.int32)
    fills["columns"] = lambda generator, mode: which.to(generator.device, torch.int32)
    kept: dict[int, Tensor] = {}

    def call(operands: Operands) -> Tensor:
        at = operands["values"].data_ptr()
        if at not in kept:
            arrays = operands["crow"], operands["columns"], operands["values"]
            kept[at] = torch.sparse_csr_tensor(*arrays, (rows, width), check_invariants=False)
        x, y = operands["x"], operands.get("y")
        how = kernel if x.is_cuda else "auto"
        return spmv(kept[at], x, alpha=alpha, beta=beta, y=y, kernel=how, reuse=1000)

    def exact(operands: Operands, is_exact: bool) -> Exact:
        crow, column, values, x, y = (operands.get(name) for name in ("crow", "columns", "values", "x", "y"))
        assert crow is not None
        assert column is not None
        assert values is not None
        assert x is not None
        value = spmv_reference(crow, column, values, x, y, alpha, beta)
        size = spmv_reference(crow, column, values.abs(), x.abs(), None if y is None else y.abs(), alpha, beta)
        terms = (crow[1:] - crow[:-1] + 4).double().view(-1, *[1] * len(columns))
        error = 2 * terms * _sum_unit(dtype) * size + _least(dtype)
        if kernel == "auto":  # torch's product adds in its own order, and in 16 bits rounds before it adds y
            error = error + 2 * torch.finfo(dtype).eps * size
        return value, error, None

    text = f"spmv(({rows}, {width}), {entries} entries, alpha={alpha}, beta={beta}, kernel={kernel!r})"
    return Drawn("spmv", text, places, call, exact, repeats=kernel != "auto", fills=fills, in_graphs=False)


def _lengths(draw: random.Random, rows: int) -> list[int]:
    """Lengths of rows: even ones, mostly empty ones, one that has all, few long ones, and an empty second half."""
    kind = draw.randrange(5)
    found = [draw.randint(0, 11) for _ in range(rows)]
    if kind == 1:
        found = [length if draw.random() < 0.05 else 0 for length in found]
    elif kind == 2:
        found = [0] * rows
        found[draw.randrange(rows)] = draw.randint(1, 20_000)
    elif kind == 3:
        found[draw.randrange(rows)] = draw.randint(1000, 5000)
    elif kind == 4:
        found[rows // 2 :] = [0] * (rows - rows // 2)
    found[0] += not any(found)
    return found


def drawn_jacobi(draw: random.Random) -> Drawn:
    """Sweeps of a star over a grid of two or three axes, or a batch of them."""
    from constrint.kernels.jacobi.op import jacobi
    from constrint.kernels.jacobi.reference import NARROW, sweeps_reference
    from constrint.kernels.jacobi.star import star_of

    axes, dtype, steps = draw.choice((2, 3)), draw.choice(DTYPES), draw.randint(1, 12)
    shape = tuple(_size(draw, 8 if axes == 2 else 6) for _ in range(axes))
    shape = (draw.randint(1, 3), *shape) if draw.random() < 0.3 else shape
    stencil: Any = _star(draw, axes) if draw.random() < 0.6 else f"{2 * axes + 1}-point"
    kernel = draw.choice(("auto", "auto", "pointer"))
    names = ("u", "f") if draw.random() < 0.7 else ("u",)
    places = {name: Place.drawn(draw, shape, dtype, plain=draw.random() < 0.5) for name in names}
    into = Place.drawn(draw, shape, dtype) if draw.random() < 0.5 else None
    star = star_of(stencil, len(shape))

    def call(operands: Operands) -> Any:
        u, f = operands["u"], operands.get("f")
        if into is None:
            return jacobi(u, f, steps, stencil=stencil, kernel=kernel)
        out = Guarded.at(into, u.device)
        jacobi(u, f, steps, stencil=stencil, kernel=kernel, out=out.view)
        return out

    def exact(operands: Operands, is_exact: bool) -> Exact:
        u, f = operands["u"].double(), operands["f"].double() if "f" in operands else None
        value = sweeps_reference(u, f, star, steps)
        of_step = 2 * _sum_unit(dtype) * (len(star.terms) + 1)
        of_step += torch.finfo(dtype).eps / 2 if dtype in NARROW else 0.0
        largest = max(float(each.abs().max()) for each in (u, value, u if f is None else f))
        growth = sum(max(sum(abs(factor) for _, factor in star.terms), 1e-3) ** step for step in range(steps))
        error = of_step * growth * largest * (1 + abs(star.right_side)) + _least(dtype)
        return value, torch.full_like(value, error), None

    text = f"jacobi(u, {'f' if 'f' in names else None}, {steps}, stencil={stencil}, kernel={kernel!r})"
    return Drawn("jacobi", text, places, call, exact, repeats=True, fills=_tame(places), in_graphs=into is None)


def _star(draw: random.Random, axes: int) -> dict[Any, float]:
    """Factors of some offsets of up to 4 along each axis, whose magnitudes sum to at most 1."""
    offsets = {(0,) * axes}
    for axis in range(axes):
        for step in draw.sample([-4, -3, -2, -1, 1, 2, 3, 4], draw.randint(1, 4)):
            offsets.add(tuple(step if other == axis else 0 for other in range(axes)))
    factors: dict[Any, float] = {offset: draw.uniform(-1, 1) / len(offsets) for offset in sorted(offsets)}
    return factors | {"f": draw.uniform(-1, 1)}


def drawn_conjugate(draw: random.Random) -> Drawn:
    """A number of iterations of conjugate gradients for a Poisson problem on a grid."""
    from constrint.kernels.cg.op import cg
    from constrint.kernels.cg.reference import apply_star, plain_iterations
    from constrint.kernels.cg.star import Poisson

    dtype, number = draw.choice((torch.float64, torch.float32)), draw.randint(1, 12)
    kernel, preconditioner = draw.choice(("auto", "cuda", "triton")), draw.choice((None, "jacobi"))
    axes = draw.randint(1, 3)
    star = Poisson(tuple(draw.randint(30, (900, 90, 40)[axes - 1]) for _ in range(axes)))
    places = {"b": Place.drawn(draw, (star.num_rows,), dtype)}

    def call(operands: Operands) -> Tensor:
        b = operands["b"]
        how = kernel if b.is_cuda else "auto"
        found: Tensor = cg(star, b, rtol=0.0, maxiter=number, preconditioner=preconditioner, kernel=how).x
        return found

    def exact(operands: Operands, is_exact: bool) -> Exact:
        b = operands["b"].double()
        inverse = None if preconditioner is None else torch.full_like(b, 1 / star.centre)
        value, _ = plain_iterations(lambda v: apply_star(star, v), b, inverse, number)
        return value, torch.full_like(value, 500 * torch.finfo(dtype).eps * float(value.abs().max())), None

    text = f"cg({star}, b, maxiter={number}, preconditioner={preconditioner!r}, kernel={kernel!r})"
    return Drawn("cg", text, places, call, exact, fills=_tame(places), in_graphs=False)
