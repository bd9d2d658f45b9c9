"""The measured workloads: shapes of products and recurrent layers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

from constrint.kernels.registry import load_kernel
from constrint.select import Workload

Shape = tuple[int, int, int]

SQUARE = [(s, s, s) for s in (256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)]
PREFILL = [
    *((2048, 6144, 2048), (4096, 4096, 512), (4096, 14336, 4096), (4096, 4096, 14336), (2048, 12288, 4096)),
    *((1024, 11008, 4096), (512, 4096, 11008), (8192, 1024, 28672), (2048, 8192, 1024), (4096, 6144, 4096)),
    *((1024, 8192, 8192), (2048, 2048, 8192)),
]
DECODE = [(m, n, k) for m in (1, 8, 16, 32, 64) for n, k in ((4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192))]
SKINNY = [(2, 11008, 4096), (4, 4096, 11008), (24, 6144, 4096), (48, 4096, 4096), (128, 4096, 11008), (256, 8192, 8192)]
TALL = [(16384, 3072, 768), (16384, 256, 1024), (65536, 128, 256), (32768, 1024, 512), (8192, 64, 4096)]
RAGGED = [(333, 777, 1555), (1000, 1000, 1000), (1023, 2047, 511), (100, 300, 5000), (3001, 1999, 1001)]
RNN = [(16384, 3072, 768), (1024, 3072, 768), (8192, 2048, 512), (640, 2560, 1280), (2048, 1024, 256)]
#: Every shape on which `matmul` is compared with its peers.
GEMM_SHAPES: list[Shape] = list(dict.fromkeys(SQUARE + PREFILL + DECODE + SKINNY + TALL + RAGGED + RNN))
#: Products on which kernels in Triton are slower than cuBLAS.
HARD_SHAPES = (
    (5000, 5000, 5000), (1536, 1536, 6144), (32768, 256, 256), (2560, 2560, 2560), (64, 64, 65536), (3328, 3328, 3328),
    (2304, 2304, 2304), (1000, 1000, 1000), (1536, 1536, 1536), (4096, 4096, 4096), (8192, 8192, 8192),
    (1000, 3000, 2000), (256, 7168, 2048), (16384, 3072, 768), (3072, 3072, 3072), (64, 8192, 8192),
)  # fmt: skip
#: Those of which some hundred configurations each are timed.
SPACE_SHAPES: list[Shape] = [
    *((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)),
    *((1, 4096, 4096), (8, 14336, 4096), (16, 4096, 4096), (16, 8192, 8192), (32, 14336, 4096), (64, 8192, 8192)),
    *((128, 4096, 11008), (256, 8192, 8192), (512, 4096, 4096), (1024, 3072, 768), (16384, 3072, 768)),
    *((4096, 4096, 512), (2048, 6144, 2048), (4096, 14336, 4096), (8192, 1024, 28672), (640, 2560, 1280)),
    *((32768, 1024, 512), (333, 777, 1555)),
]
#: Those of which every configuration is timed.
WHOLE_SHAPES: list[Shape] = [
    *((512, 512, 512), (1024, 1024, 1024), (2048, 1024, 256), (4096, 4096, 512), (1024, 3072, 768)),
    *((16384, 3072, 768), (32768, 1024, 512), (16, 4096, 4096), (640, 2560, 1280), (1536, 1536, 1536)),
    *((64, 8192, 8192), (2048, 2048, 2048), (4096, 4096, 4096)),
]
#: What operands of 8 and 32 bits are timed on.
DTYPE_SHAPES: list[Shape] = [
    *((1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (32, 4096, 4096)),
    *((128, 4096, 11008), (16384, 3072, 768), (4096, 14336, 4096)),
]
#: Outputs and inputs of linear layers of language models.
LAYERS_OF_MODELS = [
    *((4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096), (28672, 8192), (8192, 28672), (11008, 4096)),
    *((3072, 768), (768, 3072), (50257, 768), (128256, 2048), (5120, 5120), (13824, 5120), (2048, 7168), (7168, 2048)),
]
#: Cell, heads, head dim, dtype; with 1,024 steps of 16 sequences, of an LSTM in bf16 also of 64.
LAYERS = [
    *(("lstm", heads, dim, "bf16") for heads, dim in ((24, 32), (12, 64), (8, 96), (6, 128))),
    *(("lstm", 1, dim, "bf16") for dim in (256, 512, 768, 1024)),
    *(("gru", heads, dim, "bf16") for heads, dim in ((12, 64), (6, 128), (1, 768))),
    *(("slstm", heads, dim, "bf16") for heads, dim in ((12, 64), (1, 768))),
    *(("elman", heads, dim, "bf16") for heads, dim in ((12, 64), (6, 128), (1, 768))),
    *(("lstm", 12, 64, dtype) for dtype in ("fp32", "tf32", "fp16")),
    ("lstm", 1, 256, "fp32"),
]
#: Layers that no fit sees: cell, batch, heads, head dim, dtype.
HELD_OUT = [
    *(("lstm", 32, 16, 48, "bf16"), ("lstm", 128, 1, 384, "bf16"), ("lstm", 16, 2, 640, "fp16")),
    *(("gru", 64, 24, 32, "bf16"), ("gru", 64, 1, 512, "bf16"), ("gru", 16, 12, 64, "tf32")),
    *(("elman", 64, 8, 96, "bf16"), ("elman", 32, 1, 1024, "bf16"), ("slstm", 64, 8, 96, "bf16")),
    ("slstm", 32, 2, 384, "bf16"),
]


def gemm(shape: Shape, dtype: str = "bf16", layout: str = "rr") -> Workload:
    """A product; r: rows contiguous, c: columns, of A and of B; `fp32` is multiplied in three passes of tf32."""
    options = {"transpose_a": int(layout[0] == "c"), "transpose_b": int(layout[1] == "c")}
    options["three_pass"] = int(dtype == "fp32")
    given = {name: value for name, value in options.items() if value}
    return Workload("gemm", dict(zip("mnk", shape, strict=True)), "tf32" if dtype == "fp32" else dtype, given)


def columns_of(workload: Workload) -> dict[str, int | str]:
    """A product as columns of a table: what `gemm` made it of."""
    options = workload.options
    layout = "".join("c" if options.get(f"transpose_{operand}") else "r" for operand in "ab")
    return {**workload.sizes, "dtype": "fp32" if options.get("three_pass") else workload.dtype, "layout": layout}


def drawn_gemms(number: int, seed: int, dtypes: Sequence[str] = ("bf16", "fp16")) -> list[Workload]:
    """Products that nobody chose, in types of 16 bits or in fp8, with operands either way round where libraries do.

    Of five, three have sides log-uniform from 1 to 16,384, one has the next multiples of 64, and one is of a language
    model's layer with a drawn number of rows. No matrix takes more than 1 GiB, no product more than one of 8,192 cubed.
    In fp8, whose rows have to start at multiples of 16 bytes for libraries, N and K are the next multiples of 16.
    """
    draw = random.Random(seed)

    def side(least: float = 0.0) -> int:
        return round(2 ** draw.uniform(least, 14))

    drawn: list[Workload] = []
    while len(drawn) < number:
        kind = len(drawn) % 5
        shape = side(), side(), side()
        if kind == 3:
            shape = 64 * -(-shape[0] // 64), 64 * -(-shape[1] // 64), 64 * -(-shape[2] // 64)
        elif kind == 4:
            n, k = draw.choice(LAYERS_OF_MODELS)
            shape = side(), n, k
        m, n, k = shape
        if max(m * k, k * n, m * n) <= 2**29 and m * n * k <= 2**39:
            dtype, layout = draw.choice(list(dtypes)), draw.choice(("rr", "rc", "cr", "cc"))
            if dtype == "fp8":
                shape, layout = (m, 16 * -(-n // 16), 16 * -(-k // 16)), "rc"
            drawn.append(gemm(shape, dtype, layout))
    return drawn


def layer(
    cell: str, batch: int, time: int, heads: int, head_dim: int, dtype: str, *, backward: bool = False
) -> Workload:
    """One direction of a recurrent layer."""
    sizes = {"batch": batch, "time": time, "heads": heads, "head_dim": head_dim}
    return Workload(cell + ("-backward" if backward else ""), sizes, dtype)


def listed(operation: str, name: str, dtype: str | None) -> list[Workload]:
    """The workloads of a list (`space`, `whole` or `table` of a product) that an operation is measured on."""
    if operation == "gemm":
        shapes = {"space": SPACE_SHAPES, "whole": WHOLE_SHAPES, "table": GEMM_SHAPES}[name]
        return [gemm(shape, dtype or "bf16") for shape in shapes]
    cell, _, direction = operation.partition("-")
    return [
        layer(cell, batch, 1024, heads, dim, kind, backward=bool(direction))
        for (name_of_cell, heads, dim, kind), batch in product(LAYERS, (16, 64))
        if name_of_cell == cell and (batch == 16 or (cell, kind) == ("lstm", "bf16")) and kind == (dtype or kind)
    ]


def of_sizes(kernel: str, text: str, dtype: str | None) -> list[Workload]:
    """Workloads of sizes such as `512x512x512,64x8192x8192`, in the order of the kernel's sizes."""
    spec = load_kernel(kernel).implementations[0]
    shapes = [map(int, part.split("x")) for part in text.split(",")]
    return [
        Workload(spec.operation, dict(zip(spec.size_names, shape, strict=True)), dtype or spec.dtypes[0])
        for shape in shapes
    ]
