"""A C header of macros: a value for each parameter of the best configuration, by kernel and workload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from constrint.errors import UsageError
from constrint.export.text import c_literal, identifier, one_line
from constrint.tune.store.choices import best_records
from constrint.tune.store.formats.interface import Format
from constrint.tune.store.formats.writing import workload_text
from constrint.tune.store.record import TuningRecord


def write(records: Iterable[TuningRecord]) -> Iterator[str]:
    """The macros of every best configuration; for a single one also under the parameters' plain names."""
    best = best_records(records)
    yield "/* The best configurations that were measured. */\n#ifndef CONSTRINT_TUNED_H\n#define CONSTRINT_TUNED_H\n"
    used: set[str] = set()
    for record in best:
        seconds = record.figures.median_s if record.figures else 0.0
        what = one_line(f"{record.kernel} on {record.gpu}")
        yield f"\n/* {what}: {workload_text(record)}, {seconds * 1e6:.2f} us */\n"
        sizes = "".join(f"_{name}{value}" for name, value in {**record.sizes, **record.options}.items())
        prefix = identifier(f"{record.gpu}_{record.kernel}_{record.dtype}{sizes}").upper()
        yield from _macros(record, f"CONSTRINT_{prefix}_", used)
        if len(best) == 1:
            yield from _macros(record, "", used)
    yield "\n#endif\n"


def _macros(record: TuningRecord, prefix: str, used: set[str]) -> Iterator[str]:
    for name, value in record.config.items():
        macro = prefix + identifier(name)
        if macro in used or not macro or macro[0].isdigit():
            raise UsageError(f"{name!r} of {record.kernel} cannot be the name of a C macro of its own; rename it.")
        used.add(macro)
        yield f"#define {macro} {c_literal(value)}\n"


FORMAT = Format("c-header", "the best configurations as macros of C", write)
