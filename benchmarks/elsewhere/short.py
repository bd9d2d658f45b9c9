"""What is short, and what limits it: classes out of their band by shape and by kernel, and how shares can be ordered.

The band of a class is the geometric mean of predicted over published time that the models aim at. The order of shares
is that of the roofline's share above 100 us. What bounds it: the same products on another GPU of the architecture,
this project's own measurements of cuBLAS beside those that others published, and what can be learned of a GPU's shares
from the sizes and the shares of the other half of its own products.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from benchmarks.elsewhere.data import FITTED, QUANTISES, Time, best_times, model_of
from benchmarks.elsewhere.judge import (
    CLASSES,
    FEWEST,
    LARGE,
    SMALL,
    Judged,
    by_gpu_and_type,
    figures,
    groups,
    rank_correlation,
    size_of,
)
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.units import ELEMENT_BYTES, OUTPUT_BYTES
from constrint.kernels.registry import load_kernel
from constrint.select import Workload
from constrint.select.rank import rank
from constrint.select.spec import Operation

#: Geometric means that are aimed at: below 10 us, and from there on.
BAND = {SMALL: (0.85, 1.2)}
STEADY = 0.95, 1.05
#: Depth up to which a product is shallow, rows or columns up to which it is narrow, K over both sides of a deep one.
SHALLOW, NARROW, DEEP = 128, 32, 4
#: GPUs of one architecture, whose published times are of the same products.
PAIRS = (("H100-SXM5", "H200-SXM"), ("B200", "GB200"), ("B300", "GB300"), ("B200", "B300"))
#: GPUs on which this project measured the library, too.
OWN = ("H200-SXM", "H100-SXM5")
#: Products of the other half whose shares say that of one of about their sizes, and the softness of distances to them.
NEIGHBOURS, SOFTNESS = 8, 0.1


def shape_of(row: Judged) -> str:
    """The kind of shape that a product has."""
    m, n, k = row.time.m, row.time.n, row.time.k
    if k <= SHALLOW:
        return f"K up to {SHALLOW}"
    if min(m, n) <= NARROW:
        return f"a side up to {NARROW}"
    return "deep" if k >= DEEP * max(m, n) else "other"


def short_classes(rows: Iterable[Judged]) -> Iterator[tuple[str, str, str, list[Judged]]]:
    """Classes of at least `FEWEST` products whose mean lies out of its band: GPU, type, class, products."""
    for (gpu, dtype), of_type in by_gpu_and_type(rows).items():
        for size, of_class in groups(of_type, lambda row: row.size).items():
            found = figures(of_class)
            low, high = BAND.get(size, STEADY)
            if found is not None and len(of_class) >= FEWEST and not low <= found.mean <= high:
                yield gpu, dtype, size, of_class


def lines(rows: Sequence[Judged]) -> Iterator[str]:
    """The three tables in Markdown: classes, the order of shares, warm caches."""
    yield "| GPU, type, class | mean, median (n) | by shape | by published kernel |"
    yield "|---|---|---|---|"
    order = {size: place for place, size in enumerate(CLASSES)}
    for gpu, dtype, size, of_class in sorted(short_classes(rows), key=lambda short: (*short[:2], order[short[2]])):
        found = figures(of_class)
        assert found is not None
        shapes = _means(groups(of_class, shape_of))
        kernels = _means(groups(of_class, lambda row: row.time.kernel))
        yield f"| {gpu} {dtype}, {size} | {found.mean:.2f}, {found.median:.2f} ({found.n}) | {shapes} | {kernels} |"
    yield ""
    yield "| products above 100 us, bf16 | n | order of shares | of these, eight in ten shares |"
    yield "|---|---|---|---|"
    large = {(row.gpu, row.time[2:5]): row for row in rows if row.size == LARGE and row.time.dtype == "bf16"}
    for one, other in PAIRS:
        both = [key for gpu, key in large if gpu == one and (other, key) in large]
        shares = [[_share(large[gpu, key]) for key in both] for gpu in (one, other)]
        if len(both) >= FEWEST:
            yield _order_line(f"published on the {one}, on the {other}", *shares)
    for gpu in OWN:
        pairs = [(row, seconds) for (name, _), row in large.items() if name == gpu and (seconds := _own_s(row))]
        if len(pairs) >= FEWEST:
            what = f"published on the {gpu}, cuBLAS as this project measured it there"
            ours = [row.roofline_us / (1e6 * seconds) for row, seconds in pairs]
            yield _order_line(what, [_share(row) for row, _ in pairs], ours)
    for gpu, of_gpu in sorted(groups(large.values(), lambda row: row.gpu).items()):
        learned = _learned_shares(of_gpu)
        if learned is not None:
            what = f"published on the {gpu}, the mean of {NEIGHBOURS} products of nearest sizes in the half that fits"
            yield _order_line(what, [_share(row) for row in of_gpu], learned)
    yield ""
    yield from warm_lines(rows)


def warm_lines(rows: Iterable[Judged]) -> Iterator[str]:
    """GPUs with products that took less time than their roofline allows: operands stayed in a cache."""
    yield "| GPU | products | published below the roofline | at most by |"
    yield "|---|---|---|---|"
    for gpu, of_gpu in sorted(groups(rows, lambda row: row.gpu).items()):
        faster = [_share(row) for row in of_gpu if _share(row) > 1.0]
        if faster:
            yield f"| {gpu} | {len(of_gpu)} | {len(faster)} | {max(faster):.2f} |"


def _means(of: dict[str, list[Judged]]) -> str:
    shown = []
    for name, of_name in sorted(of.items(), key=lambda item: -len(item[1])):
        found = figures(of_name)
        if found is not None:
            shown.append(f"{name} {found.mean:.2f} ({found.n})")
    return ", ".join(shown)


def _share(row: Judged) -> float:
    return row.roofline_us / row.time.us


def _learned_shares(rows: Sequence[Judged]) -> list[float] | None:
    """The roofline's share of each product by those of its neighbours in the other half; None where these are few."""
    name = rows[0].time.gpu
    known = [t for t in best_times(all_of_them=True) if (t.gpu, t.dtype, t.half) == (name, "bf16", FITTED)]
    known = [time for time in known if size_of(time.us) == LARGE]
    gpu = model_of(name)
    if gpu is None or min(len(known), len(rows)) < FEWEST:
        return None
    shares = np.log([_roofline_us(gpu, time) / time.us for time in known])
    sizes, places = (np.log2([time[2:5] for time in of]) for of in (known, [row.time for row in rows]))
    learned = []
    for place in places:
        squares = ((sizes - place) ** 2).sum(axis=1)
        near = np.argsort(squares)[:NEIGHBOURS]
        learned.append(float(np.exp(np.average(shares[near], weights=1.0 / (squares[near] + SOFTNESS)))))
    return learned


def _roofline_us(gpu: GpuModel, time: Time) -> float:
    moved = (time.m + time.n) * time.k * ELEMENT_BYTES[time.dtype] + time.m * time.n * OUTPUT_BYTES[time.dtype]
    peak = gpu.peak_flop_per_s(time.dtype)
    compute_s = 2.0 * time.m * time.n * time.k / peak if peak else 0.0
    return 1e6 * max(compute_s, moved / gpu.memory.dram.bandwidth_bytes_per_s)


def _order_line(what: str, one: Sequence[float], other: Sequence[float]) -> str:
    low, high = np.quantile(one, [0.1, 0.9])
    correlation = rank_correlation(np.array(one), np.array(other))
    return f"| {what} | {len(one)} | {correlation:.2f} | {low:.2f} to {high:.2f} |"


def _own_s(row: Judged) -> float | None:
    """Seconds of the library by this project's own table; None where it says nothing."""
    time = row.time
    gpu = model_of(time.gpu)
    library = tuple(s for s in load_kernel("gemm").implementations if s.full_name == "gemm.library")
    options = {"transpose_b": 1} if time.transpose_b else {}
    workload = Workload("gemm", {"m": time.m, "n": time.n, "k": time.k}, time.dtype, options)
    if gpu is None or time.what == QUANTISES:
        return None
    try:
        return float(rank(Operation("gemm", library), gpu, workload, top=1).candidates[0].cost.seconds)
    except ConstrintError:
        return None
