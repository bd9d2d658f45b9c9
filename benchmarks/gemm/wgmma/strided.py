"""Operands and results at random strides amid poison, so that whatever is read or written beside them is seen."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from benchmarks.gemm.wgmma.products import KINDS, RESULTS, End, Made, exact_product
from constrint.kernels.gemm.product import ROW_ALIGNMENT_BYTES
from constrint.kernels.gemm.units import ELEMENT_BYTES

#: What stands beside operands of integers, and where nothing was written in results of integers.
INTEGER_POISON = 113
UNWRITTEN = -(2**31) + 1


class Gaps(NamedTuple):
    """Where matrices begin in their memory, and what lies between their rows: (start, gap) in elements.

    Args:
        a, b: Of the operands, whose rows start at multiples of 16 bytes where the TMA unit loads them.
        c, source: Of the results and of the matrix that is added.
    """

    a: tuple[int, int] = (0, 0)
    b: tuple[int, int] = (0, 0)
    c: tuple[int, int] = (0, 0)
    source: tuple[int, int] = (0, 0)

    @staticmethod
    def drawn(draw: random.Random, shape: tuple[int, int, int], dtype: str, layout: str, bytes_: int) -> Gaps:
        """Some at random: rows of C start at multiples of 16 bytes in half of them, where N allows it.

        Args:
            draw: What draws.
            shape: M, N and K.
            dtype: Of A and B.
            layout: How A and B lie: "r" by rows, "c" by columns.
            bytes_: Of an element of C.
        """

        def pair(most: int) -> tuple[int, int]:
            return draw.choice((0, draw.randrange(most))), draw.choice((0, draw.randrange(most)))

        def operand(name: str) -> tuple[int, int]:
            step, (start, gap) = ROW_ALIGNMENT_BYTES // ELEMENT_BYTES[dtype], pair(24)
            return start * step, -lies(name, shape, layout)[1] % step + gap * step

        start, gap = pair(24)
        unit = ROW_ALIGNMENT_BYTES // bytes_
        if draw.random() < 0.5:
            start, gap = start * unit, -shape[1] % unit + gap * unit
        return Gaps(operand("a"), operand("b"), (start, gap), pair(24))

    @staticmethod
    def least(shape: tuple[int, int, int], dtype: str, layout: str, odd_c: int = 0) -> Gaps:
        """The smallest, with so many elements more between rows of C; arguments as of `drawn`."""
        step = ROW_ALIGNMENT_BYTES // ELEMENT_BYTES[dtype]
        a, b = ((0, -lies(name, shape, layout)[1] % step) for name in ("a", "b"))
        return Gaps(a, b, (0, odd_c))


def lies(name: str, shape: tuple[int, int, int], layout: str) -> tuple[int, int]:
    """Rows of an operand as they lie in memory, `a` or `b`, and their length."""
    m, n, k = shape
    rows, columns, letter = (m, k, layout[0]) if name == "a" else (k, n, layout[1])
    return (rows, columns) if letter == "r" else (columns, rows)


def result_bytes(dtype: str, end: End) -> int:
    """Bytes of an element of C."""
    return 2 if "16" in _result(dtype, end) else 4


def _result(dtype: str, end: End) -> str:
    return end.result or RESULTS.get(dtype, KINDS[dtype])


def amid_poison(
    shape: tuple[int, int, int], dtype: str, layout: str, end: End, gaps: Gaps, *, device: str = "cuda"
) -> Made:
    """Random operands amid NaN, and results full of it; integers have numbers instead that are no operand's.

    Args:
        shape: M, N and K.
        dtype: Of A and B.
        layout: How A and B lie: "r" by rows, "c" by columns.
        end: What is done with sums.
        gaps: Where they lie.
        device: Where; `meta` for operands without data.
    """
    import torch

    m, n, k = shape
    kind, result = getattr(torch, KINDS[dtype]), getattr(torch, _result(dtype, end))
    unit = ROW_ALIGNMENT_BYTES // ELEMENT_BYTES[dtype]

    def within(rows: int, columns: int, pitch: int, start: int, kind: Any) -> Any:
        """A matrix in memory of its own, with poison before, between and after its rows."""
        total = start + rows * pitch + unit
        if kind == torch.int8:
            memory = torch.full((total,), INTEGER_POISON, dtype=kind, device=device)
            values = torch.randint(-99, 99, (rows, columns), dtype=kind, device=device)
            memory.as_strided((rows, columns), (pitch, 1), start).copy_(values)
        else:
            numbers = torch.full((total,), float("nan"), device=device)
            values = torch.randn(rows, columns, device=device)
            numbers.as_strided((rows, columns), (pitch, 1), start).copy_(values)
            memory = numbers.to(kind)
        return memory.as_strided((rows, columns), (pitch, 1), start)

    def operand(rows: int, columns: int, place: tuple[int, int], *, is_by_rows: bool) -> Any:
        if not is_by_rows:
            return operand(columns, rows, place, is_by_rows=True).T
        return within(rows, columns, columns + place[1], place[0], kind)

    added = result if result.is_floating_point else torch.float32
    source = bias = None
    if end.has_source:
        rows, columns = (n, m) if end.source_by_columns else (m, n)
        source = within(rows, columns, columns + gaps.source[1], gaps.source[0], added)
        source = source.T if end.source_by_columns else source
    if end.has_bias:
        bias = torch.randn(n, device=device).to(added)
    start, gap = gaps.c
    pitch = n + gap
    whole = torch.full((start + m * pitch + 64,), poison_of(result), dtype=result, device=device)
    a = operand(m, k, gaps.a, is_by_rows=layout[0] == "r")
    b = operand(k, n, gaps.b, is_by_rows=layout[1] == "r")
    return Made(a, b, bias, source, whole, whole.as_strided((m, n), (pitch, 1), start))


def poison_of(kind: Any) -> float:
    """What results are filled with before they are computed."""
    return float("nan") if kind.is_floating_point else UNWRITTEN


def worst_share(given: Made, dtype: str, end: End) -> float:
    """The largest error as a share of what rounding allows; infinite where C was left, or something beside it written.

    Results are overwritten.
    """
    exact, bound = exact_product(given, dtype, end)
    share = float(((given.out.double() - exact).abs() / bound).max().item())
    given.out.fill_(poison_of(given.out.dtype))
    is_kept = given.whole.isnan() if given.out.is_floating_point() else given.whole == UNWRITTEN
    return share if share == share and bool(is_kept.all().item()) else float("inf")
