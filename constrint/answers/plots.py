"""Figures of a report as plain text for a terminal: the roofline, and the heat map of two parameters.

Every figure is at most as wide as it is told and of ASCII alone, so that it survives a pipe and any locale. Colour only
repeats what the letters say, and stands where the terminal shows it (`terminal.is_styled`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from constrint.answers.facts import CandidateFacts, CellFacts, GpuFacts, HeatFacts, RooflineFacts
from constrint.answers.terminal import BOLD, SHADES, break_text, styled

#: Widest figure, and rows of the roofline.
MAX_WIDTH, HEIGHT = 80, 16
#: Factors by which the roofline's axes exceed what they hold.
MARGIN_X, MARGIN_Y = 2.5, 1.6
#: Marks of a cell by its time over the best one, the first that fits; slower cells have none.
MARKS = ((1.05, "#"), (1.25, "+"), (2.0, "."))
BEST, EXCLUDED = "*", "x"
TERA, MICRO = 1e12, 1e6


def figures(gpu: GpuFacts, width: int) -> Iterator[str]:
    """The lines of a GPU's figures: the roofline, then the heat map of the best candidate's kernel.

    Args:
        gpu: The facts; without candidates there is no figure.
        width: Columns of the terminal.
    """
    yield from roofline_lines(gpu, width)
    best = gpu.candidates[0].kernel if gpu.candidates else ""
    for kernel in gpu.kernels:
        if kernel.kernel == best and kernel.heat is not None:
            yield from ("", *heat_lines(kernel.kernel, kernel.heat, width))


def roofline_lines(gpu: GpuFacts, width: int) -> Iterator[str]:
    """The roofline with the candidates by their places; nothing without counted operations or a known peak."""
    marked = [c for c in gpu.candidates if c.op_per_byte and c.op_per_s]
    if gpu.roofline is None or not marked:
        return
    unit = "TOP/s" if gpu.dtype.startswith("int") else "TFLOP/s"
    width = min(width, MAX_WIDTH)
    yield from break_text(f"Roofline: {unit} over operations per byte of DRAM traffic, modelled", width)
    yield from _roofline(gpu.roofline, marked, width)
    yield from break_text(_roofs_text(gpu.roofline, unit), width)


def _roofs_text(roofline: RooflineFacts, unit: str) -> str:
    roofs = f"/ {roofline.bandwidths_bytes_per_s['dram'] / TERA:.1f} TB/s of DRAM"
    roofs += f", - {roofline.peak_op_per_s / TERA:,.0f} {unit} of the data sheet"
    if roofline.sustained_op_per_s is not None:
        how = "sustained (assumed)" if roofline.is_sustained_assumed else "sustained"
        roofs += f", . {roofline.sustained_op_per_s / TERA:,.0f} {unit} {how}"
    return f"{roofs}; 1 to 9: places in the ranking, o: later ones"


def _roofline(roofline: RooflineFacts, marked: Sequence[CandidateFacts], width: int) -> Iterator[str]:
    """The grid with its axes; both are logarithmic."""
    bandwidth, peak = roofline.bandwidths_bytes_per_s["dram"], roofline.peak_op_per_s
    points = [(float(c.op_per_byte or 0.0), float(c.op_per_s or 0.0)) for c in marked]
    x_values = [x for x, _ in points] + [peak / bandwidth]
    x_axis = LogAxis(min(x_values) / MARGIN_X, max(x_values) * MARGIN_X, max(8, width - 8))
    y_axis = LogAxis(min(y for _, y in points) / MARGIN_Y**3, peak * MARGIN_Y, HEIGHT)
    grid = [[" "] * x_axis.size for _ in range(HEIGHT)]
    for at in range(x_axis.size):
        roof = min(x_axis.value(at) * bandwidth, peak)
        if roofline.sustained_op_per_s is not None and roof >= roofline.sustained_op_per_s:
            grid[y_axis.place(roofline.sustained_op_per_s)][at] = "."
        if roof >= y_axis.low:
            grid[y_axis.place(roof)][at] = "-" if roof == peak else "/"
    for one, (x, y) in reversed(list(zip(marked, points, strict=True))):
        mark = str(one.place) if one.place <= 9 else "o"
        grid[y_axis.place(y)][x_axis.place(x)] = mark
    labels = {y_axis.place(tick * TERA): f"{tick:,.10g}" for tick in ticks(y_axis.low / TERA, y_axis.high / TERA, 5)}
    for row in reversed(range(HEIGHT)):
        yield f"{labels.get(row, ''):>6} |{''.join(map(_marked, grid[row]))}".rstrip()
    yield " " * 7 + "+" + "-" * x_axis.size
    line = ""
    for tick in ticks(x_axis.low, x_axis.high, 6):
        start = 8 + x_axis.place(tick) - len(f"{tick:,.10g}") // 2
        if start > len(line) and start + len(f"{tick:,.10g}") <= width:
            line = line.ljust(start) + f"{tick:,.10g}"
    yield line


def _marked(mark: str) -> str:
    return styled(BOLD, mark) if mark == "1" else mark


class LogAxis:
    """A logarithmic axis of some places, from 0."""

    def __init__(self, low: float, high: float, size: int) -> None:
        """Take the values at both ends, and the number of places."""
        self.low, self.high, self.size = low, high, size

    def place(self, value: float) -> int:
        """The place nearest to a value; that of an end for a value beyond it."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return min(self.size - 1, max(0, round(share * (self.size - 1))))

    def value(self, place: int) -> float:
        """The value at a place."""
        return self.low * math.pow(self.high / self.low, place / (self.size - 1))


def curve_lines(points: Sequence[tuple[float, float]], width: int, height: int = 6) -> list[str]:
    """Times that fall over time, as steps: the axis down is of microseconds, the one across of seconds.

    Args:
        points: Seconds since the start with the time known by then, in order; at least one.
        width: Columns of the terminal.
        height: Rows of the curve.
    """
    size = max(8, min(width, MAX_WIDTH) - 12)
    last, times = points[-1][0] or 1.0, [time for _, time in points]
    low, high = min(times), max(times)
    known = iter(points)
    (_, now), following = next(known), next(known, None)
    grid = [[" "] * size for _ in range(height)]
    for at in range(size):
        while following is not None and following[0] <= last * at / (size - 1):
            (_, now), following = following, next(known, None)
        share = math.log(now / low) / math.log(high / low) if high > low else 0.0
        grid[round(share * (height - 1))][at] = "_"
    labels = {height - 1: f"{high * MICRO:,.1f} us", 0: f"{low * MICRO:,.1f} us"}
    lines = [f"{labels.get(row, ''):>11}|{''.join(grid[row])}".rstrip() for row in reversed(range(height))]
    return [*lines, f"{'':>11}0 s{f'{last:.0f} s':>{size - 2}}"]


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers in a range, evenly spread on a logarithmic axis: 1, 2 and 5, or powers of ten of some step."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    for found in (fine, *([10.0**power for power in powers if power % step == 0] for step in (1, 2, 3, 6))):
        inside = [value for value in found if low <= value <= high]
        if len(inside) <= most:
            break
    return inside


def heat_lines(kernel: str, heat: HeatFacts, width: int) -> Iterator[str]:
    """The heat map: the best modelled time of each pair of values in microseconds; without room, marks alone."""
    width = min(width, MAX_WIDTH)
    best = heat.cells[heat.best]
    title = f"Heat map of {kernel}: the best modelled time in us over {heat.y} (down) and {heat.x} (across)"
    yield from break_text(title, width)
    columns = len(heat.x_values)
    rows = [heat.cells[at : at + columns] for at in range(0, len(heat.cells), columns)]
    head = max(map(len, map(str, heat.y_values)))
    titles, texts = list(map(str, heat.x_values)), [[_text(cell) for cell in row] for row in rows]
    cell_width = 3 + max(map(len, [*titles, *(text for row in texts for text in row)]))
    if head + 1 + columns * cell_width > width:
        texts = [["" for _ in row] for row in rows]
        cell_width = max(2, (width - head - 1) // columns)
        titles = [title if len(title) <= cell_width - 1 else "" for title in titles]
    gap = 2 if any(map(any, texts)) else 0
    shades = _Shades([cell.seconds for cell in heat.cells if cell.seconds is not None])
    fastest = min(cell.seconds for cell in heat.cells if cell.seconds is not None)
    for at in reversed(range(len(rows))):
        line = f"{heat.y_values[at]!s:>{head}} "
        for cell, text in zip(rows[at], texts[at], strict=True):
            mark = BEST if cell is best else mark_of(cell, fastest)
            line += shades.of(cell, f"{text:>{cell_width - 2}} {mark}" if text else f"{mark:>{cell_width}}")
        yield line.rstrip()
    yield (" " * (head + 1) + "".join(f"{title:>{cell_width - gap}}" + " " * gap for title in titles)).rstrip()
    limits = ", ".join(f"{mark} {limit - 1:.0%}" for limit, mark in MARKS)
    legend = f"{BEST} the best; slower than it by up to: {limits}; {EXCLUDED} nothing is valid (`constrint explain`)"
    yield from break_text(legend, width)


def _text(cell: CellFacts) -> str:
    """Microseconds in at most four letters."""
    if cell.seconds is None:
        return ""
    us = cell.seconds * MICRO
    if us >= 9_999.5:
        return f"{us / 1000:.0f}k"
    return f"{us:.0f}" if us >= 99.95 else f"{us:.1f}"


def mark_of(cell: CellFacts, fastest: float) -> str:
    """The letter of a cell by its time over the fastest one."""
    if cell.seconds is None:
        return EXCLUDED
    return next((mark for limit, mark in MARKS if cell.seconds <= limit * fastest), " ")


class _Shades:
    """Colours of cells by the logarithm of their times."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._low, self._high = min(seconds), max(seconds)

    def of(self, cell: CellFacts, text: str) -> str:
        """A cell's text in its colour."""
        if cell.seconds is None:
            return text
        span = math.log(self._high / self._low)
        share = math.log(cell.seconds / self._low) / span if span else 0.0
        return styled(SHADES[min(len(SHADES) - 1, int(share * len(SHADES)))], text)
