"""A list of `triton.Config` as Python text, the best of each workload first: for `@triton.autotune`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from constrint.export.formats.triton import config_text
from constrint.export.text import one_line
from constrint.tune.store.choices import best_records
from constrint.tune.store.formats.interface import Format
from constrint.tune.store.formats.writing import workload_text
from constrint.tune.store.record import TuningRecord, digest


def write(records: Iterable[TuningRecord]) -> Iterator[str]:
    """One configuration for each that is the best of some workload."""
    yield "import triton\n\nCONFIGS = [\n"
    seen: set[str] = set()
    for best in best_records(records):
        seconds = best.figures.median_s if best.figures else 0.0
        yield f"    # {one_line(f'{best.kernel} on {best.gpu}')}: {workload_text(best)}, {seconds * 1e6:.2f} us\n"
        config = digest(best.config)
        if config in seen:
            yield "    # the same as above\n"
            continue
        seen.add(config)
        yield f"    {config_text(best.config)},\n"
    yield "]\n"


FORMAT = Format("triton-config", "the best configurations as a list of triton.Config", write)
