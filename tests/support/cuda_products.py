"""Products of the CUDA GEMM to check: operands, what is done with their sums, exact results, and launches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.gemm.cuda.fit import product_of
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.spec import SPECS, CudaSpec
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import ELEMENT_BYTES, needs_k_major
from constrint.kernels.launch.cuda import CudaLaunch
from constrint.solve import enumerate_space

SPEC = SPECS[0]
#: Sides of products that are checked.
SIDES = (1, 8, 64, 100, 129, 256, 511, 1000, 1024, 3000)

#: The driver's names of the dtypes.
KINDS = {"fp16": "float16", "bf16": "bfloat16", "tf32": "float32", "fp8": "float8_e4m3fn", "int8": "int8"}
#: Of results where none is asked for.
RESULTS = {"fp8": "bfloat16", "int8": "int32"}
#: Half the distance of neighbouring numbers, as a share of them, by the type of results.
ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-23, "int32": 0.0}


class End(NamedTuple):
    """An epilogue.

    Args:
        alpha, beta: Factors of the product, and of the matrix that is added.
        has_bias, has_source: Whether a row, and a matrix, is added.
        source_by_columns: Whether that matrix lies by columns.
        activation: Its name, or None.
        result: The type of the results; empty for the dtype's own.
    """

    alpha: float = 1.0
    beta: float = 0.0
    has_bias: bool = False
    has_source: bool = False
    source_by_columns: bool = False
    activation: str | None = None
    result: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether sums leave as they are."""
        return not (self.has_bias or self.has_source or self.activation or self.result)

    @staticmethod
    def drawn(draw: random.Random, dtype: str) -> End:
        """One at random: half of them plain."""
        if draw.random() < 0.5:
            return End()
        source = draw.random() < 0.5
        return End(
            alpha=draw.choice((1.0, 0.5, 2.0**-6)),
            beta=2.0 * source,
            has_bias=draw.random() < 0.5,
            has_source=source,
            source_by_columns=draw.random() < 0.3,
            activation=draw.choice((None, "relu", "gelu", "silu", "gelu_tanh", "sigmoid", "quick_gelu")),
            result=draw.choice(("float32", "bfloat16", "float16") if dtype != "int8" else ("float32", "bfloat16")),
        )


class Made(NamedTuple):
    """A product on a device.

    Args:
        a, b: (M, K) and (K, N).
        bias, source: The addends of the epilogue, or None.
        whole: C with what lies beyond its rows, all poison.
        out: C in it.
    """

    a: Any
    b: Any
    bias: Any
    source: Any
    whole: Any
    out: Any


def made(
    shape: tuple[int, int, int], dtype: str, layout: str, end: End, *, pad: int = 16, device: str = "cuda"
) -> Made:
    """Random operands, whose rows start at multiples of 16 bytes, whatever their length, and an output full of poison.

    Args:
        shape: M, N and K.
        dtype: Type of A and B.
        layout: How A and B lie: "r" by rows, "c" by columns.
        end: The epilogue.
        pad: The distance of C's rows is a multiple of this; one element more where it is 1.
        device: Where; `meta` for operands without data.
    """
    import torch

    m, n, k = shape
    kind = getattr(torch, KINDS[dtype])
    result = getattr(torch, end.result or RESULTS.get(dtype, KINDS[dtype]))

    def matrix(rows: int, columns: int, is_by_rows: bool) -> Any:
        if not is_by_rows:
            return matrix(columns, rows, True).T
        pitch = -(-columns // 16) * 16
        if dtype == "int8":
            return torch.randint(-99, 99, (rows, pitch), dtype=kind, device=device)[:, :columns]
        return torch.randn(rows, pitch, device=device).to(kind)[:, :columns]

    added = result if result.is_floating_point else torch.float32
    source = None
    if end.has_source:
        sizes = (n, m) if end.source_by_columns else (m, n)
        source = torch.randn(sizes, device=device).to(added)
        source = source.T if end.source_by_columns else source
    bias = torch.randn(n, device=device).to(added) if end.has_bias else None
    pitch = -(-n // pad) * pad + (pad == 1)
    whole = torch.full((m, pitch), float("nan") if result.is_floating_point else -1, dtype=result, device=device)
    a, b = matrix(m, k, layout[0] == "r"), matrix(k, n, layout[1] == "r")
    return Made(a, b, bias, source, whole, whole[:, :n])


def launch_of(gpu: GpuModel, config: Mapping[str, int], given: Made, end: End) -> CudaLaunch:
    """The launch of a configuration of the CUDA GEMM."""
    from constrint.kernels.gemm.cuda.launch import cuda_launches

    source = None if given.source is None else given.source[None]
    epilogue = Epilogue(given.bias, source, end.alpha, end.beta, end.activation)
    call = GemmCall(given.a[None], given.b[None], given.out[None], Machine.of(gpu), epilogue, "tf32")
    return cuda_launches(call, config)[0]


def product_of_made(given: Made) -> Product:
    """The product as rules and costs see it."""
    from constrint.kernels.gemm.operands import product_of

    source = None if given.source is None else given.source[None]
    return product_of(given.a[None], given.b[None], given.bias, source, given.out.dtype, is_three_pass=False)


def exact_product(given: Made, dtype: str, end: End) -> tuple[Any, Any]:
    """The results in fp64, and how much each of them may be off."""
    import torch

    from constrint.kernels.gemm.reference import ACTIVATIONS

    x, y = given.a.double(), given.b.double()
    if dtype == "tf32":
        # The TMA unit rounds to the nearest, halves to even.
        words = (t.float().view(torch.int32) for t in (given.a, given.b))
        x, y = (((w + 0xFFF + (w >> 13 & 1)) & ~0x1FFF).view(torch.float32).double() for w in words)
    exact, size = end.alpha * (x @ y), abs(end.alpha) * (x.abs() @ y.abs())
    # Matrix units sum in a fraction of 23 bits, fp8 in one of 13 and every 128 products in fp32; as many products at a
    # time as 32 bytes hold.
    depth = given.a.shape[1]
    times = 1 + depth * ELEMENT_BYTES[dtype] / 32
    each = {"fp8": 2.0**-13 * 5 + 2.0**-23 * depth / 128, "int8": 0.0}.get(dtype, 2.0**-23 * times)
    terms = torch.zeros_like(size)
    if given.bias is not None:
        exact, terms = exact + given.bias.double(), terms + given.bias.double().abs()
    if given.source is not None:
        exact, terms = exact + end.beta * given.source.double(), terms + (end.beta * given.source.double()).abs()
    if end.activation is not None:
        exact = ACTIVATIONS[end.activation](exact)
    kind = str(given.out.dtype).removeprefix("torch.")
    least = {"float16": 2.0**-24, "int32": 0.25}.get(kind, 1e-30)
    # 1.13 is the steepest slope of gelu; arithmetic in fp32 adds a few roundings where more is done with sums.
    after = 0.0 if end.is_plain else 2.0**-21
    error = 1.13 * (each * size + after * (size + terms))
    # Activations for bf16 may miss by a sixteenth of a unit before they are rounded (`test_activations.py`).
    share = 1.125 if kind == "bfloat16" and end.activation else 1.01
    return exact, ROUNDOFF[kind] * exact.abs() * share + error + least + (after > 0) * 2.0**-24


def share_of(allowed: tuple[Any, Any], given: Made) -> float:
    """The largest error as a share of what is allowed; infinite where something else was written."""
    exact, bound = allowed
    rest = given.whole[:, exact.shape[1] :]
    is_kept = rest.isnan().all() if rest.is_floating_point() else (rest == -1).all()
    if not bool(is_kept):
        return float("inf")
    error = ((given.out.double() - exact).abs() / bound).max().item()
    return error if error == error else float("inf")


class Case(NamedTuple):
    """A product with a configuration."""

    shape: tuple[int, int, int]
    dtype: str
    layout: str
    config: Mapping[str, int]
    end: End = End()
    pad: int = 16


def columns_of(gpu: GpuModel, product: Product, spec: CudaSpec = SPEC) -> dict[str, NDArray[np.int64]]:
    """Every valid configuration, as columns; the order of tiles has its first value."""
    problem = spec.product_problem(gpu, product)
    names = [name for name in problem.variables if name not in spec.order_params]
    columns, _ = enumerate_space(problem).project(names)
    number = len(columns["tile_m"])
    return {**columns, "group_m": np.full(number, 8)}


def config_at(columns: Mapping[str, NDArray[Any]], row: int) -> dict[str, int]:
    """One of them."""
    return {name: int(column[row]) for name, column in columns.items()}


def ranked(gpu: GpuModel, product: Product, top: int, spec: CudaSpec = SPEC) -> Iterator[dict[str, int]]:
    """Rank configurations by the cost model."""
    columns = columns_of(gpu, product, spec)
    seconds = spec.price(gpu, product, columns, np.ones(len(columns["tile_m"]))).seconds
    order = np.argsort(seconds, kind="stable")
    for row in order[:top]:
        yield config_at(columns, int(row))


def drawn(gpu: GpuModel, product: Product, draw: random.Random, spec: CudaSpec = SPEC) -> dict[str, int]:
    """One of all, with any order of tiles."""
    columns = columns_of(gpu, product, spec)
    config = config_at(columns, draw.randrange(len(columns["tile_m"])))
    return config | {"group_m": draw.choice((1, 2, 8))}


def random_cases(gpu: GpuModel, number: int, seed: int) -> Iterator[Case]:
    """Random products with random configurations and ends."""
    draw = random.Random(seed)
    for _ in range(number):
        dtype = draw.choice(("bf16", "fp16", *SPEC.dtypes))
        layout, shape = (
            draw.choice(("rc",) if needs_k_major(dtype) else ("rr", "rc", "cr", "cc")),
            tuple(draw.choices(SIDES, k=3)),
        )
        end = End.drawn(draw, dtype)
        product = product_of((shape[0], shape[1], shape[2]), dtype, layout, is_plain=end.is_plain)
        config = drawn(gpu, product, draw)
        yield Case((shape[0], shape[1], shape[2]), dtype, layout, config, end, draw.choice((16, 16, 8, 1)))
