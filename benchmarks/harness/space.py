"""Measured configurations, read from a table of any age, as columns; and the choices they are judged against."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.table import REMOVED, read_table
from constrint.hwmodels import GpuModel
from constrint.kernels.registry import load_kernel, load_spec
from constrint.kernels.rnn.triton.spec import TritonSpec
from constrint.select import KernelSpec, Operation, Workload, rank
from constrint.select.rank import predict

#: Times in us, the best figure last.
TIMES = ("quick_us", "cold_us", "again_us")
#: Older names of columns; milliseconds are made microseconds.
RENAMED = {"median_us": "cold_us", "cublas_us": "baseline_cold_us", "loop_ms": "cold_us"}
RENAMED |= {"cublas_cold_us": "baseline_cold_us", "cublas_warm_us": "baseline_warm_us"}
DTYPES = ("bf16", "fp16", "tf32", "fp8", "int8", "fp32")
#: Steps of all recurrent layers in older tables.
OLD_TIME = 1024


@dataclass(frozen=True)
class Measured:
    """Configurations of one workload that ran.

    Args:
        workload: The workload.
        kernels: Full name of each row's kernel.
        columns: Parameters; -1 where a row's kernel lacks one.
        times: Figures in us, nan where there is none.
        triton: The version of Triton that compiled them; empty where the table does not say.
    """

    workload: Workload
    kernels: NDArray[Any]
    columns: dict[str, NDArray[np.int64]]
    times: dict[str, NDArray[np.float64]]
    triton: str = ""

    def take(self, rows: NDArray[Any]) -> Measured:
        """Some of the rows."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        times = {name: column[rows] for name, column in self.times.items()}
        return Measured(self.workload, self.kernels[rows], columns, times, self.triton)

    def spec(self, kernel: str) -> KernelSpec:
        """A kernel by its full name, with the resource rules of the version of Triton that compiled the rows."""
        spec = load_spec(kernel)
        return spec.under(self.triton) if isinstance(spec, TritonSpec) else spec

    def by_kernel(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Every kernel with its rows."""
        for name in np.unique(self.kernels):
            yield str(name), np.flatnonzero(self.kernels == name)

    def config(self, row: int) -> dict[str, int]:
        """A row's configuration."""
        return {name: int(column[row]) for name, column in self.columns.items() if column[row] >= 0}

    def of_rows(self, rows: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """The parameters that rows of one kernel have."""
        return {name: column[rows] for name, column in self.columns.items() if np.all(column[rows] >= 0)}

    def find(self, kernel: str, config: dict[str, int]) -> int | None:
        """The row of a configuration."""
        is_it = self.kernels == kernel
        for name, value in config.items():
            if name in self.columns:
                is_it &= self.columns[name] == value
        rows = np.flatnonzero(is_it)
        return int(rows[0]) if len(rows) else None

    @property
    def best_figure(self) -> str:
        """The name of the best figure there is."""
        return next(name for name in reversed(TIMES) if name in self.times and np.isfinite(self.times[name]).any())

    def time_us(self) -> NDArray[np.float64]:
        """The best figure of every row, the rougher ones brought to the scale of the best."""
        best = self.times[self.best_figure]
        level: NDArray[np.float64] = best.copy()
        for name in reversed(TIMES[: TIMES.index(self.best_figure)]):
            if name in self.times:
                rougher = self.times[name]
                both = np.isfinite(best) & np.isfinite(rougher)
                if both.any():
                    scale = float(np.median(best[both] / rougher[both]))
                    level = np.asarray(np.where(np.isnan(level), scale * rougher, level))
        return level

    def predicted_us(self, gpu: GpuModel) -> NDArray[np.float64]:
        """Return the models' times in microseconds, row by row."""
        seconds = np.full(len(self.kernels), np.nan)
        for kernel, rows in self.by_kernel():
            seconds[rows] = predict(self.spec(kernel), gpu, self.workload, self.of_rows(rows)).seconds
        return np.asarray(1e6 * seconds)


def read_space(path: Path, *, only_ok: bool = True) -> list[Measured]:
    """The rows of a table that ran and were right, by workload."""
    note, names, rows = read_table(path)
    raw = {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    if only_ok:
        is_ok = np.char.lower(raw["outcome"]) == "ok"
        raw = {name: column[is_ok] for name, column in raw.items()}
    if "kernel" not in raw:
        raw = _as_new(raw, note)
    is_there = ~np.isin(raw["kernel"], sorted(REMOVED))
    raw = {name: column[is_there] for name, column in raw.items()}
    times = {
        RENAMED.get(name, name): _floats(raw.pop(name), name) for name in list(raw) if name.endswith(("_us", "_ms"))
    }
    kernels, dtypes = raw.pop("kernel"), raw.pop("dtype")
    numbers = {name: _integers(column) for name, column in raw.items() if name not in ("outcome", "error_over_bound")}
    operations = np.full(len(kernels), "", dtype=object)
    for kernel in np.unique(kernels):
        operations[kernels == kernel] = load_spec(str(kernel)).operation
    version = re.search(r"\btriton ([0-9.]+[0-9])", note)
    triton = "" if version is None else version[1]
    return [replace(of, triton=triton) for of in _grouped(operations, kernels, dtypes, numbers, times)]


def _grouped(
    operations: NDArray[Any],
    kernels: NDArray[Any],
    dtypes: NDArray[Any],
    numbers: dict[str, NDArray[np.int64]],
    times: dict[str, NDArray[np.float64]],
) -> Iterator[Measured]:
    for operation in dict.fromkeys(operations.tolist()):
        known = load_kernel(operation)
        sizes = [size.name for size in known.sizes]
        options = [option.name for option in known.options if option.name in numbers]
        rows = np.flatnonzero(operations == operation)
        keys = list(zip(dtypes[rows].tolist(), *(numbers[n][rows].tolist() for n in (*sizes, *options)), strict=True))
        places: dict[tuple[Any, ...], list[int]] = {}
        for row, key in zip(rows.tolist(), keys, strict=True):
            places.setdefault(key, []).append(row)
        params = [name for name in numbers if name not in (*sizes, *options)]
        for (dtype, *values), group in places.items():
            here = np.array(group)
            given = dict(zip((*sizes, *options), values, strict=True))
            workload = Workload(
                operation,
                {name: given[name] for name in sizes},
                str(dtype),
                {name: given[name] for name in options if given[name] > 0},
            )
            yield Measured(
                workload,
                kernels[here],
                {name: numbers[name][here] for name in params},
                {name: column[here] for name, column in times.items()},
            )


def _as_new(raw: dict[str, NDArray[Any]], note: str) -> dict[str, NDArray[Any]]:
    """A table from before kernels had names of their own, with the columns of today."""
    num = len(raw["outcome"])
    if "cell" in raw:
        backward = np.where(raw.pop("direction") == "backward", "-backward", "")
        names = np.char.add(np.char.add(raw.pop("cell"), backward), ".triton")
        for name in ("registers", "spill_bytes"):
            raw.pop(name)
        return {**raw, "kernel": names, "time": np.full(num, OLD_TIME)}
    is_tma = raw.pop("descriptor", np.full(num, "0")) == "1"
    has_producer = raw.pop("producer", np.full(num, "0")) == "1"
    names = np.where(has_producer, "gemm.producer", np.where(is_tma, "gemm.descriptor", "gemm.pointer"))
    subtile = raw.pop("epilogue_subtile", np.full(num, "1"))
    lacked = {"epilogue_subtile": np.where(names == "gemm.descriptor", subtile, "")}
    dtype = next(word for word in note.replace(",", " ").split() if word in DTYPES)
    return {**raw, **lacked, "kernel": names, "dtype": np.full(num, dtype)}


def _floats(column: NDArray[Any], name: str) -> NDArray[np.float64]:
    return np.where(column == "", "nan", column).astype(np.float64) * (1e3 if name.endswith("_ms") else 1.0)


def _integers(column: NDArray[Any]) -> NDArray[np.int64]:
    return column if column.dtype.kind == "i" else np.where(column == "", "-1", column).astype(np.int64)


def first_choices(
    operation: Operation, gpu: GpuModel, workload: Workload, top: int, *, has_nvrtc: bool = True
) -> list[tuple[str, dict[str, int]]]:
    """Return the first choices among our kernels for a workload, as (kernel, configuration).

    Without NVRTC there are products in Triton alone, which is what tables hold that are older than those in CUDA C++.
    """
    if operation.name == "gemm":
        from constrint.kernels.gemm.candidates import best_configs
        from constrint.kernels.gemm.product import Product

        product = replace(Product.of(workload), no_library="a space has no library", has_nvrtc=has_nvrtc)
        return [(choice.kernel, dict(choice.config)) for choice in best_configs(gpu, product, top)]
    return [(c.kernel, dict(c.config)) for c in rank(operation, gpu, workload, top=top).candidates]
