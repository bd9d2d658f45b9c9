"""Which products torch's operator is timed on: log-uniform sizes of every kind that has a prediction of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as combinations

from benchmarks.harness.workloads import LAYERS_OF_MODELS
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.library.cost import floor_s
from constrint.kernels.gemm.library.points import BIAS, PLAIN, SOURCE, WIDE, Place, place_of_row
from constrint.kernels.gemm.library.spec import FP8_MULTIPLE, INT8_MULTIPLE, INT8_ROWS
from constrint.kernels.gemm.units import ELEMENT_BYTES, WIDEST_BYTES

#: Sizes go up to this; products whose floor is longer, or operands with more elements, are left out.
LARGEST, LONGEST_S, MOST_ELEMENTS = 16384, 1.2e-3, 1 << 28
LAYOUTS = ("rr", "rc", "cr", "cc")
#: Sizes at which implementations change: powers of two and the sides of models that are run every day.
USUAL = (
    *(
        64,
        256,
        512,
        768,
        1024,
        1536,
        2048,
        3072,
        4096,
        5120,
        6144,
        7168,
        8192,
        11008,
        13824,
        14336,
        28672,
        50257,
        128256,
    ),
)


@dataclass(frozen=True)
class Family:
    """Products that are drawn in the same way.

    Args:
        dtype: Type of A and B.
        layout: Order of axes of A and B.
        end: What is done with the sums.
        number: How many.
        is_ragged: Whether sizes are any integers, and every third operand has one element between its rows.
        is_batched: Whether there are several products.
        vector: "row" or "column" where C is one.
        is_layer: Whether N and K are those of a layer of a language model, and M alone is drawn.
    """

    dtype: str
    layout: str
    end: str = PLAIN
    number: int = 0
    is_ragged: bool = False
    is_batched: bool = False
    vector: str = ""
    is_layer: bool = False


def families() -> Iterator[Family]:
    """Every kind; those that are asked for most have the most products."""
    for dtype, layout in combinations(("bf16", "fp16"), LAYOUTS):
        yield Family(dtype, layout, PLAIN, 360)
        yield Family(dtype, layout, PLAIN, 1100, is_ragged=True)
        yield Family(dtype, layout, PLAIN, 50, is_batched=True)
        yield Family(dtype, layout, PLAIN, 25, is_ragged=True, is_batched=True)
        for vector, is_ragged in combinations(("row", "column"), (False, True)):
            yield Family(dtype, layout, PLAIN, 50, is_ragged=is_ragged, vector=vector)
        for end in (BIAS, SOURCE, WIDE):
            yield Family(dtype, layout, end, 40)
            yield Family(dtype, layout, end, 20, is_ragged=True)
    for layout in LAYOUTS:
        yield Family("tf32", layout, PLAIN, 160)
        yield Family("tf32", layout, PLAIN, 60, is_ragged=True)
        yield Family("tf32", layout, BIAS, 30)
        yield Family("int8", layout, PLAIN, 100)
    yield Family("fp8", "rc", PLAIN, 300)
    for dtype, layout in combinations(("bf16", "fp16"), LAYOUTS):
        yield Family(dtype, layout, PLAIN, 120, is_layer=True)
        yield Family(dtype, layout, PLAIN, len(LAYERS_OF_MODELS), vector="row", is_layer=True)


def drawn(gpu: GpuModel, share: float = 1.0) -> list[dict[str, str]]:
    """Rows to measure, in an order that leaves every family as complete as the others wherever a run is cut.

    Args:
        gpu: Its model says which products take too long.
        share: How many of each family, as a share.
    """
    ordered: list[tuple[float, int, dict[str, str]]] = []
    for number, family in enumerate(families()):
        wanted = max(1, round(share * family.number))
        rows: dict[tuple[str, ...], dict[str, str]] = {}
        # A low-discrepancy sequence of its own for each family, so that families complete each other.
        for index in range(1, 40 * wanted):
            row = _row(family, index, number)
            if row is not None and floor_s(gpu, place_of_row(row)) <= LONGEST_S:
                rows.setdefault(tuple(row.values()), row)
            if len(rows) == wanted:
                break
        ordered += [(place / wanted, number, row) for place, row in enumerate(rows.values())]
    return [row for _, _, row in sorted(ordered, key=lambda one: one[:2])]


def _row(family: Family, index: int, shift: int) -> dict[str, str] | None:
    """One product of a family; None where its operands are too large, or its kind is another one."""
    fractions = [_halton(index, base, shift) for base in (2, 3, 5, 7)]
    m, n, k = (max(1, round(LARGEST**fraction)) for fraction in fractions[:3])
    if family.is_layer:
        n, k = LAYERS_OF_MODELS[index % len(LAYERS_OF_MODELS)]
    if not family.is_ragged:
        if index % 4 == 0 and not family.is_layer:
            m, n, k = (USUAL[int(fraction * len(USUAL))] for fraction in fractions[:3])
        m, n, k = _aligned(family, m, n, k)
    batch = max(2, round(512 ** fractions[3])) if family.is_batched else 1
    gap = 1 if family.is_ragged and index % 3 == 0 else 0
    m, n = (1 if family.vector == "row" else m), (1 if family.vector == "column" else n)
    if batch * max(m * (k + gap), k * (n + gap), m * n) > MOST_ELEMENTS or batch * m * n * k > 1 << 42:
        return None
    sizes = {"batch": batch, "m": m, "n": n, "k": k, "gap": gap}
    row = {"dtype": family.dtype, "layout": family.layout, "end": family.end}
    row |= {name: str(size) for name, size in sizes.items()}
    kind = place_of_row(row).kind
    is_vector_aligned = bool(family.vector)  # a single column has rows of one element, whatever else is aligned
    is_meant = kind.vector == family.vector and (is_vector_aligned or kind.is_aligned != family.is_ragged)
    return row if is_meant else None


def _aligned(family: Family, m: int, n: int, k: int) -> tuple[int, int, int]:
    """The same sizes, those that rows run along rounded to whole accesses."""
    step = WIDEST_BYTES // ELEMENT_BYTES[family.dtype]
    steps_m, steps_n, steps_k = step, step, step
    if family.layout[0] == "r":
        steps_m = 1
    if family.layout == "cr":
        steps_k = 1
    if family.dtype == "fp8":
        steps_n, steps_k = FP8_MULTIPLE, FP8_MULTIPLE
    if family.dtype == "int8":
        steps_n, steps_k = max(step, INT8_MULTIPLE), max(step, INT8_MULTIPLE)
        m = max(m, INT8_ROWS + steps_m)
    return _rounded(m, steps_m), _rounded(n, steps_n), _rounded(k, steps_k)


def _rounded(size: int, step: int) -> int:
    return max(step, size // step * step)


def _halton(index: int, base: int, shift: int) -> float:
    """The radical inverse of an index, turned by a share of its own for each family."""
    fraction, inverse = 1.0, 0.0
    while index:
        fraction /= base
        inverse += fraction * (index % base)
        index //= base
    return (inverse + shift * 0.6180339887498949) % 1.0


def place_key(row: dict[str, str]) -> Place:
    """What tells two rows apart."""
    return place_of_row(row)
