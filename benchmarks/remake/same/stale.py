"""Stale entries of shipped tables, and the configurations whose machine code decides about each.

A winner is decided by its own configuration. Corrections are fitted to thousands of rows, and layers have many rows:
`PER_CLASS` configurations of every class are compared, and no fewer than `LEAST` of a table, those whose hashes come
first. Classes of corrections are the
dtypes and the layouts of operands; those of layers are cells, dtypes and directions, for which the winners of the same
GPU stand, or the best configuration by prediction where a class has no winner.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gemm import candidates
from benchmarks.harness.table import REMOVED, read_whole
from benchmarks.remake import tables
from constrint.errors import ConstrintError
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.measured import rows_of
from constrint.kernels.rnn.spec import SUFFIX, workload_of
from constrint.select import Workload, rank
from constrint.select.winners import TunedEntry, read_tuned

#: Configurations of a class that are compared where a table has many, and the least of a table.
PER_CLASS, LEAST = 2, 8


@dataclass(frozen=True)
class Stale:
    """Something of a table that holds for older device code.

    Args:
        table: Name of the table.
        gpu: The GPU.
        kernel: The kernel.
        before: The fingerprint that it was measured with; empty where nothing states it.
        jobs: The configurations that decide, as `probe.py` takes them.
        compared: What they are of the whole, in words.
        entry: The winner; None for other tables.
    """

    table: str
    gpu: str
    kernel: str
    before: str
    jobs: tuple[Mapping[str, Any], ...]
    compared: str
    entry: TunedEntry | None = None


def job_of(kernel: str, gpu: str, workload: Workload, config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of a workload as `probe.py` takes it."""
    sizes, options = dict(workload.sizes), dict(workload.options)
    facts = {"kernel": kernel, "gpu": gpu, "operation": workload.operation, "dtype": workload.dtype}
    job = {**facts, "sizes": sizes, "options": options, "config": dict(config)}
    return {"id": hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:16], **job}


def stale_of(gpus: Iterable[str], is_wanted: Callable[[str], bool]) -> Iterator[Stale]:
    """Everything that is stale in the tables of GPUs, of the parts of a remake that are wanted."""
    recorded = tables.evidence()
    for gpu in gpus:
        if is_wanted("winners"):
            yield from _winners(gpu)
        for name in tables.names():
            part = name.partition("-")[0]
            if name in ("winners", "library") or not is_wanted(part) or not tables.path_of(name, gpu).is_file():
                continue
            known = recorded.get(f"{tables.slug(gpu)}/{name}", {}).get("kernels", {})
            for kernel, now in tables.hashes_of(tables.kernels_of(name, gpu)).items():
                before = known.get(kernel, "")
                if now and before != now:
                    jobs, compared = (_corrected if part == "corrections" else _layers)(name, gpu, kernel)
                    yield Stale(name, gpu, kernel, before, tuple(jobs), compared)


def _winners(gpu: str) -> Iterator[Stale]:
    entries = read_tuned(tables.path_of("winners", gpu)).entries
    now = tables.hashes_of({entry.kernel for entry in entries})
    for entry in entries:
        if now[entry.kernel] and entry.source_hash != now[entry.kernel]:
            workload = Workload(entry.operation, entry.sizes, entry.dtype, entry.options)
            jobs = (job_of(entry.kernel, gpu, workload, entry.config),)
            yield Stale("winners", gpu, entry.kernel, entry.source_hash, jobs, str(workload), entry)


def sampled(rows: Sequence[tuple[tuple[str, ...], dict[str, Any]]]) -> list[dict[str, Any]]:
    """`PER_CLASS` jobs of every class and `LEAST` in all, if there are so many: those whose identifiers come first.

    Args:
        rows: Class and job of every row.
    """
    chosen: dict[str, dict[str, Any]] = {}
    of_class: Counter[tuple[str, ...]] = Counter()
    in_order = sorted(rows, key=lambda row: str(row[1]["id"]))
    for most, least in ((PER_CLASS, 0), (len(rows), LEAST)):
        for kind, job in in_order:
            if job["id"] not in chosen and of_class[kind] < most and not 0 < least <= len(chosen):
                chosen[job["id"]] = job
                of_class[kind] += 1
    return list(chosen.values())


def _corrected(name: str, gpu: str, kernel: str) -> tuple[list[dict[str, Any]], str]:
    """A sample of the candidates that a kernel's corrections were fitted to."""
    rows = []
    for path in _fitted_to(name, gpu):
        for row in read_whole(path)[1]:
            if row["kernel"] == kernel and row["us"] and row["kernel"] not in REMOVED:
                job = job_of(kernel, gpu, candidates.workload_of(row), candidates.config_of(row))
                rows.append(((row["dtype"], row["layout"]), job))
    chosen = sampled(rows)
    return chosen, f"{len(chosen)} of {len(rows)} candidates, {len({kind for kind, _ in rows})} dtypes and layouts"


def _fitted_to(name: str, gpu: str) -> list[Path]:
    """The tables of candidates that corrections say they were fitted to, as far as they are recorded."""
    stated = json.loads(tables.path_of(name, gpu).read_bytes())["measured"].split(", ")
    remade = tables.path_of(name.replace("corrections", "candidates"), gpu)
    paths = [tables.results_of(gpu) / one for one in stated]
    return [path for path in dict.fromkeys((remade, *paths)) if path.is_file()]


def _layers(name: str, gpu: str, kernel: str) -> tuple[list[dict[str, Any]], str]:
    """Configurations of an implementation for the cells, dtypes and directions that its table has."""
    implementation = name.partition("-")[2]
    winners = read_tuned(tables.path_of("winners", gpu)).entries
    rows, classes, model = [], set(), load_gpu(gpu)
    for row in rows_of(tables.path_of(name, gpu)):
        sizes = (int(row["batch"]), int(row["time"]), 1, int(row["dim"]))
        for direction in SUFFIX:
            kind = (row["cell"], row["dtype"], direction)
            full_name = f"{row['cell']}{SUFFIX[direction]}.{implementation}"
            if kind in classes or CELLS.get(row["cell"]) is None or full_name not in _known(row["cell"], direction):
                continue
            classes.add(kind)
            own = [entry for entry in winners if (entry.kernel, entry.dtype) == (full_name, row["dtype"])]
            for entry in own:
                workload = Workload(entry.operation, entry.sizes, entry.dtype, entry.options)
                rows.append((kind, job_of(full_name, gpu, workload, entry.config)))
            if not own:
                workload = workload_of(row["cell"], sizes, row["dtype"], direction)
                with suppress(ConstrintError):
                    best = rank(load_spec(full_name), model, workload, top=1).candidates[0]
                    rows.append((kind, job_of(full_name, gpu, workload, best.config)))
    chosen = sampled(rows)
    missing = len(classes) - len({kind for kind, _ in rows})
    words = f"{len(chosen)} configurations of {len(classes)} cells, dtypes and directions"
    return ([] if missing else chosen), words + (f"; {missing} have none" if missing else "")


def _known(cell: str, direction: str) -> list[str]:
    from constrint.kernels.registry import load_kernel

    return [spec.full_name for spec in load_kernel(cell + SUFFIX[direction]).implementations]
