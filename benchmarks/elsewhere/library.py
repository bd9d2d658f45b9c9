"""The tables of published library times that come with the package, and the error of what they predict.

`python -m benchmarks.elsewhere library` writes `constrint/kernels/gemm/library/elsewhere/` and prints, for each GPU,
the error on products that were left out; and on the H200 and the H100, whose tables this project measured, how well
bf16 products with B by columns predict those of fp16 and of other orders of axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from benchmarks.elsewhere.data import LIBRARY, Time, model_of, sources, times
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.library.cost import (
    PLAIN,
    PUBLISHED_COLUMNS,
    PUBLISHED_DTYPES,
    PUBLISHED_LAYOUT,
    Kind,
    Points,
    answering,
    is_published,
    left_out_error,
    measured,
    predicted_s,
    published_path,
)

#: The sources whose library times are shipped, and the library. Others time from the host, are a few rows, or are
#: under a licence that asks for more than a name.
SHIPPED = {"aiconfigurator": "cuBLAS", "aiter": "hipBLASLt", "vllm-tunableop": "hipBLASLt 0.6 (ROCm 6.0)"}
#: GPUs that get a table, by their names in the data and as models: those with enough times of a library, and without a
#: table of this project's own.
NAMES = {
    "a100": "A100-SXM4-80GB",
    "b200": "B200",
    "b300": "B300",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
    "mi300x": "MI300X",
    "mi355x": "MI355X",
}
#: GPUs and the number of products of each order of axes on which published tables' assumptions are checked.
CHECKED, PRODUCTS = ("h200", "h100"), 400


def write_tables() -> None:
    """Write the table of every GPU of `NAMES`, whether or not it has a model yet."""
    by_gpu: dict[str, list[Time]] = {name: [] for name in NAMES}
    for time in times():
        if time.gpu in NAMES and time.what == LIBRARY and time.source in SHIPPED:
            by_gpu[time.gpu].append(time)
    for name, rows in by_gpu.items():
        path = published_path(NAMES[name])
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(_lines(name, rows)))
        print(f"{path.name}: {len(rows)} products, {path.stat().st_size // 1024} KiB")


def _lines(name: str, rows: Iterable[Time]) -> Iterator[str]:
    rows = sorted(rows)
    known = sources()
    origins = []
    for source in dict.fromkeys(time.source for time in rows):
        by, licence = known[source]["by"], known[source]["licence"]
        through = known[source]["libraries"].get(name)
        library = SHIPPED[source] + (f" through {through}" if through else "")
        origins.append(f"{library}, published by {by}, {licence}")
    yield f"# {'; '.join(origins)}\n"
    yield ",".join(PUBLISHED_COLUMNS) + "\n"
    for time in rows:
        yield f"{time.dtype},{time.m},{time.n},{time.k},{time.us:g}\n"


def table_lines() -> Iterator[str]:
    """The errors in Markdown: of each published table, and of the assumption that it makes about types and axes."""
    yield "| GPU | products | n | silent | median | nine in ten |"
    yield "|---|---|---|---|---|---|"
    for name in dict.fromkeys(time.gpu for time in times()):
        gpu = model_of(name)
        if gpu is None or answering(gpu.name) is None or not is_published(gpu.name):
            continue
        for kind, points in measured(gpu.name, "bf16", PLAIN).items():
            error = left_out_error(gpu, kind, len(points))
            if error is not None:
                yield f"| {gpu.name} | {_shown(kind)} | {_figures(*error)} |"
    yield ""
    yield "Where this project measured both, bf16 with B by columns (rc) predicts other types and orders of axes:"
    yield ""
    yield "| GPU | products | n | silent | median | nine in ten |"
    yield "|---|---|---|---|---|---|"
    for name in CHECKED:
        gpu = load_gpu(name)
        for dtype in PUBLISHED_DTYPES:
            for layout in ("rc", "rr", "cr", "cc"):
                yield f"| {gpu.name} | {dtype} {layout} | {_figures(*_transfer(gpu, dtype, layout))} |"


def _transfer(gpu: GpuModel, dtype: str, layout: str) -> tuple[float, float, int, int]:
    kinds = {each: Kind(each, PLAIN, True, False, "") for each in ("bf16", dtype)}
    known, asked = (measured(gpu.name, each, PLAIN)[kinds[each]] for each in ("bf16", dtype))
    rows = known.by_layout[PUBLISHED_LAYOUT]
    base = Points([known.places[i] for i in rows], [float(known.seconds[i]) for i in rows], [])
    places = {place: i for i, place in enumerate(base.places)}
    errors, silent = [], 0
    for i in asked.by_layout[layout][:PRODUCTS]:
        place = asked.places[i]._replace(kind=kinds["bf16"], layout=PUBLISHED_LAYOUT)
        left_out = places.get(place) if (dtype, layout) == ("bf16", PUBLISHED_LAYOUT) else None
        seconds = predicted_s(gpu, base, place, left_out=left_out)
        if seconds is None:
            silent += 1
        else:
            errors.append(abs(np.log(seconds / asked.seconds[i])))
    median, ninth = (float(np.expm1(np.quantile(errors, share))) for share in (0.5, 0.9))
    return median, ninth, len(errors), silent


def _figures(median: float, ninth: float, number: int, silent: int) -> str:
    return f"{number} | {silent} | {median:.1%} | {ninth:.1%}"


def _shown(kind: Kind) -> str:
    return ", ".join(filter(None, ("16 bits", kind.vector, "" if kind.is_aligned else "unaligned")))
