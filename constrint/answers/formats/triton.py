"""Python files with a list of `triton.Config`, the best first: for `@triton.autotune(configs=CONFIGS, key=...)`.

The list holds ranked configurations, or the best measured one of each workload. `num_warps`, `num_stages` and the like
are arguments of `triton.Config`. All other parameters go to the kernel by name, as do the options of the AMD back-end
(`waves_per_eu`, `matrix_instr_nonkdim`, `kpack`), which Triton takes from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from constrint.answers.exported import Export, Row
from constrint.answers.formats.records import workload_text
from constrint.answers.registry import Format, RecordFormat
from constrint.answers.text import comment, identifier, one_line
from constrint.errors import UsageError
from constrint.model.python.write import CannotWrite, check_parameter, write_value
from constrint.tune.store.choices import best_records
from constrint.tune.store.record import TuningRecord, digest

#: Parameters that are arguments of `triton.Config`.
OWN = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def config_text(config: Mapping[str, Any]) -> str:
    """One configuration as the text of a call of `triton.Config`.

    Raises:
        UsageError: For a parameter that is no name of Python, and for a value without a literal.
    """
    texts = {}
    for name, value in config.items():
        check_parameter(name)
        try:
            texts[name] = write_value(value)
        except CannotWrite as error:
            raise UsageError(f"{name}: {error}; triton.Config takes numbers, text, bools and None.") from None
    others = ", ".join(f'"{name}": {text}' for name, text in texts.items() if name not in OWN)
    return f"triton.Config({{{others}}}{''.join(f', {name}={texts[name]}' for name in OWN if name in texts)})"


def write(export: Export) -> str:
    """The list; with several kernels a list each, and `CONFIGS` names the list of the best row's kernel."""
    rows = export.rows()
    if export.ranking is not None:
        rows = _of_triton(rows)
    lists: dict[str, list[str]] = {}
    for place, row in enumerate(rows, 1):
        lists.setdefault(row.kernel, []).append(f"    {comment(_place(place, row))}\n    {config_text(row.config)},\n")
    text = "".join(f"{comment(line)}\n" for line in export.header) + "\nimport triton\n"
    if len(lists) == 1:
        (only,) = lists.values()
        return f"{text}\nCONFIGS = [\n{''.join(only)}]\n"
    names = {kernel: f"CONFIGS_{identifier(kernel).upper()}" for kernel in lists}
    for kernel, configs in lists.items():
        text += f"\n{comment(kernel)}\n{names[kernel]} = [\n{''.join(configs)}]\n"
    return f"{text}\n# Those of the kernel that is ranked first.\nCONFIGS = {names[rows[0].kernel]}\n"


def _of_triton(rows: list[Row]) -> list[Row]:
    """The rows of Triton kernels: those with warps or stages to choose."""
    of_triton = [row for row in rows if set(OWN) & row.config.keys()]
    if not of_triton:
        kernels = ", ".join(dict.fromkeys(row.kernel for row in rows))
        raise UsageError(
            f"{kernels} has no num_warps and no num_stages: it is no kernel in Triton. Choose one with --kernel, or "
            "another format: json, csv and c-header take any kernel."
        )
    return of_triton


def _place(place: int, row: Row) -> str:
    if row.candidate is None:
        return str(place)
    return f"{place}: {row.kernel}, {row.candidate.cost.seconds * 1e6:.1f} us modelled"


FORMAT = Format("triton", "a list of triton.Config for @triton.autotune", write)


def write_records(records: Iterable[TuningRecord]) -> Iterator[str]:
    """The best measured configuration of each workload."""
    yield "import triton\n\nCONFIGS = [\n"
    digests: set[str] = set()
    for best in best_records(records):
        seconds = best.figures.median_s if best.figures else 0.0
        yield f"    # {one_line(f'{best.kernel} on {best.gpu}')}: {workload_text(best)}, {seconds * 1e6:.2f} us\n"
        config = digest(best.config)
        if config in digests:
            yield "    # the same as above\n"
            continue
        digests.add(config)
        yield f"    {config_text(best.config)},\n"
    yield "]\n"


RECORDS = RecordFormat("triton-config", "the best configurations as a list of triton.Config", write_records)
