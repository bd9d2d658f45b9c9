"""C and C++ headers: macros of ranked configurations with the GPU's limits, and of the best measured ones.

Ranked: `CONSTRINT_0_TILE_M` belongs to the best configuration, `CONSTRINT_1_TILE_M` to the next one, and
`CONSTRINT_TILE_M` to number `CONSTRINT_CONFIG`, which is 0 unless a compiler option sets it (`-DCONSTRINT_CONFIG=1`).
All macros but texts are constants for `#if` and `static_assert`. Measured: the prefix names GPU, kernel and workload.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from constrint.answers.exported import Export, Row
from constrint.answers.formats.records import workload_text
from constrint.answers.registry import Format, RecordFormat
from constrint.answers.terminal import printable
from constrint.answers.text import c_literal, identifier, one_line
from constrint.errors import UsageError
from constrint.tune.store.choices import best_records
from constrint.tune.store.record import TuningRecord

PREFIX = "CONSTRINT_"
_CHOICE = """\
#ifndef CONSTRINT_CONFIG
#define CONSTRINT_CONFIG 0
#endif
#if CONSTRINT_CONFIG < 0 || CONSTRINT_CONFIG >= CONSTRINT_NUM_CONFIGS
#error "CONSTRINT_CONFIG must be at least 0 and less than CONSTRINT_NUM_CONFIGS"
#endif
"""


def write(export: Export) -> str:
    """The header of ranked configurations, or of a space."""
    rows = export.rows()
    guard = f"{PREFIX}{identifier(export.title).upper()}_H"
    lines = [*(f"/* {one_line(line)} */" for line in export.header), f"#ifndef {guard}", f"#define {guard}", ""]
    own = dict(_limits(export)) | {"NUM_CONFIGS": c_literal(len(rows))}
    lines += [f"#define {PREFIX}{name} {text}" for name, text in own.items()]
    chosen = ["", f"/* The configuration in use; define {PREFIX}CONFIG to take another one. */", _CHOICE.rstrip()]
    for place, row in enumerate(rows):
        macros = _macros(row, {*own, "CONFIG"})
        lines += ["", f"/* {place}{_comment(row)} */"]
        lines += [f"#define {PREFIX}{place}_{name} {text}".rstrip() for name, text in macros.items()]
        chosen.append(f"{'#elif' if place else '#if'} {PREFIX}CONFIG == {place}")
        chosen += [f"#define {PREFIX}{name} {PREFIX}{place}_{name}" for name in macros]
    return "\n".join([*lines, *chosen, "#endif", "", "#endif", ""])


def _limits(export: Export) -> Iterator[tuple[str, str]]:
    """The workload, and the GPU's limits per block."""
    if export.gpu is None or export.workload is None:
        return
    sm = export.gpu.sm
    yield "GPU", c_literal(export.gpu.name)
    yield "DTYPE", c_literal(export.workload.dtype)
    for name, size in {**export.workload.sizes, **export.workload.options}.items():
        yield f"SIZE_{identifier(name).upper()}", c_literal(size)
    yield "WARP_SIZE", c_literal(sm.warp_size)
    yield "MAX_THREADS_PER_BLOCK", c_literal(sm.max_threads_per_block)
    yield "MAX_REGISTERS_PER_THREAD", c_literal(sm.max_registers_per_thread)
    yield "MAX_SMEM_BYTES_PER_BLOCK", c_literal(sm.max_smem_bytes_per_block)


def _macros(row: Row, taken: set[str]) -> dict[str, str]:
    """The macros of one configuration by name, without the prefix."""
    macros: dict[str, str] = dict(_figures(row))
    for name, value in row.config.items():
        macro = identifier(name).upper()
        if not macro or macro[0].isdigit() or macro in macros or macro in taken:
            raise UsageError(
                f"{name!r} cannot be the name of a C macro of its own ({PREFIX}{macro}): "
                f"--rename {printable(name)}=other_name."
            )
        try:
            macros[macro] = c_literal(value)
        except UsageError as error:
            raise UsageError(f"{printable(name)}: {error}") from None
    return macros


def _figures(row: Row) -> Iterator[tuple[str, Any]]:
    if row.kernel:
        yield "KERNEL", c_literal(row.kernel)
    use = None if row.candidate is None else row.candidate.resources
    if use is not None:
        yield "THREADS_PER_BLOCK", c_literal(use.threads)
        yield "REGISTERS_PER_THREAD", c_literal(use.registers_per_thread)
        yield "SMEM_BYTES_PER_BLOCK", c_literal(use.smem_bytes)
        yield "BLOCKS_PER_SM", c_literal(use.blocks_per_sm)
    if row.candidate is not None:
        yield "PREDICTED_NS", c_literal(round(row.candidate.cost.seconds * 1e9))


def _comment(row: Row) -> str:
    if row.candidate is None:
        return ""
    problem = f", {row.candidate.problem}" if row.candidate.problem else ""
    return one_line(f": {row.kernel}, {row.candidate.cost.seconds * 1e6:.1f} us modelled{problem}")


FORMAT = Format("c-header", "macros for C and C++, ranked, with the GPU's limits", write)


def write_records(records: Iterable[TuningRecord]) -> Iterator[str]:
    """The macros of the best configuration of each workload; a single one also under the parameters' plain names."""
    best = best_records(records)
    yield "/* The best configurations that were measured. */\n#ifndef CONSTRINT_TUNED_H\n#define CONSTRINT_TUNED_H\n"
    used: set[str] = set()
    for record in best:
        seconds = record.figures.median_s if record.figures else 0.0
        what = one_line(f"{record.kernel} on {record.gpu}")
        yield f"\n/* {what}: {workload_text(record)}, {seconds * 1e6:.2f} us */\n"
        sizes = "".join(f"_{name}{value}" for name, value in {**record.sizes, **record.options}.items())
        prefix = identifier(f"{record.gpu}_{record.kernel}_{record.dtype}{sizes}").upper()
        yield from _record_macros(record, f"CONSTRINT_{prefix}_", used)
        if len(best) == 1:
            yield from _record_macros(record, "", used)
    yield "\n#endif\n"


def _record_macros(record: TuningRecord, prefix: str, used: set[str]) -> Iterator[str]:
    for name, value in record.config.items():
        macro = prefix + identifier(name)
        if macro in used or not macro or macro[0].isdigit():
            raise UsageError(f"{name!r} of {record.kernel} cannot be the name of a C macro of its own; rename it.")
        used.add(macro)
        yield f"#define {macro} {c_literal(value)}\n"


RECORDS = RecordFormat("c-header", "the best configurations as macros of C", write_records)
