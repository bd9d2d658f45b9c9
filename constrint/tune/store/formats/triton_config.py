"""A list of `triton.Config` as Python text, the best of each workload first: for `@triton.autotune`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from constrint.tune.store.choices import best_records
from constrint.tune.store.formats.interface import Format
from constrint.tune.store.formats.writing import one_line, workload_text
from constrint.tune.store.record import TuningRecord, digest

#: Parameters that `triton.Config` takes itself; all others go to the kernel.
OWN = ("num_warps", "num_stages", "num_ctas", "maxnreg")


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
        own = {name: best.config[name] for name in OWN if name in best.config}
        others = {name: value for name, value in best.config.items() if name not in OWN}
        named = "".join(f", {name}={value!r}" for name, value in own.items())
        yield f"    triton.Config({others!r}{named}),\n"
    yield "]\n"


FORMAT = Format("triton-config", "the best configurations as a list of triton.Config", write)
