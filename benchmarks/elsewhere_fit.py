"""Read what `assumed.yaml` states of a GPU's launch, memory and matrix units off the times that others published.

    python -m benchmarks.elsewhere_fit a100 --dtypes bf16 launch_s dram_share sustained_matrix_fraction
    python -m benchmarks.elsewhere_fit mi355x --dtypes fp8 sustained_fp8_fraction
    python -m benchmarks.elsewhere_fit a100 l40s --judge b200 --dtypes bf16 launch_s        # a GPU left out

Each quantity is read off the products that it decides, all others being as stated: it is the value with which the
geometric mean of predicted over published time of these products is 1.

    launch_s                products below 10 us
    l2_port_bytes_per_clk   products of 10 to 100 us
    tma_bytes_per_clk       products from 10 us on
    sustained_*             products from 300 us on
    dram_write_cost         products from 10 us on whose K is at most 128, so that they write most of what they move
    dram_share              products of at most 32 rows whose operands exceed every cache: bytes over time less launch

The values come from one half of all shapes; predicted over published time is printed for both halves, and for GPUs
left out; a quantity that is named twice is read off again. The predicted time of a product is that of the best of the
configurations that are ranked first, before and after. Without quantities, what the package states is judged as it
stands.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from benchmarks.elsewhere.data import FITTED, QUANTISES, Time, best_times, model_of
from constrint.hwmodels import GpuModel, assumed
from constrint.hwmodels.assumed import QUANTITIES, Assumption, assumption, sustained_matrix_fraction
from constrint.kernels.gemm.measured import MEASURED
from constrint.kernels.registry import load_kernel
from constrint.select import Workload
from constrint.select.cost import L2_PORT_BYTES_PER_CLK, LAUNCH_S
from constrint.select.rank import predict, rank
from constrint.select.spec import KernelSpec

#: Microseconds at which classes of size end, and configurations that stand for a product's space.
CLASSES, POOL = (10.0, 100.0, math.inf), 24
#: Microseconds between which products decide a quantity.
DECIDED = {
    "launch_s": (0.0, 10.0),
    "l2_port_bytes_per_clk": (10.0, 100.0),
    "tma_bytes_per_clk": (10.0, math.inf),
    "dram_write_cost": (10.0, math.inf),
}
LARGE = (300.0, math.inf)
#: The largest K of products that decide a quantity, where not all do.
SHALLOW = {"dram_write_cost": 128}
#: Most rows of products that stream through DRAM, and their least bytes: twice the largest L2 of NVIDIA's.
STREAMED_ROWS, STREAMED_BYTES = 32, 2.6e8
#: The factor within which a quantity is sought around the value in force, and halvings of that interval.
WIDEST, HALVINGS = 6.0, 9
#: Sources that are left out: times of an old library, and times with the host's part in them.
OTHERS = ("vllm-tunableop", "llmcompass")


class Row(NamedTuple):
    """A published time with the configurations that may be the best, by kernel: columns of parameters."""

    gpu: GpuModel
    workload: Workload
    time: Time
    pool: dict[KernelSpec, dict[str, NDArray[np.int64]]]

    def predicted_us(self) -> float:
        """The least predicted time of the pool."""
        costs = (predict(spec, self.gpu, self.workload, columns) for spec, columns in self.pool.items())
        return 1e6 * min(float(cost.seconds.min()) for cost in costs)


def rows_of(gpus: Sequence[str], dtypes: Sequence[str], most: int) -> list[Row]:
    """Rows of some GPUs and types: `most` of each, evenly over their times; none that count a second kernel."""
    rows, known = [], best_times(all_of_them=True)
    for gpu in gpus:
        for dtype in dtypes:
            times = [
                t for t in known if (t.gpu, t.dtype) == (gpu, dtype) and t.what != QUANTISES and t.source not in OTHERS
            ]
            times.sort(key=lambda time: time.us)
            rows += [row_of(time) for time in times[:: max(1, -(-len(times) // most))]]
    return rows


def row_of(time: Time, others: Row | None = None) -> Row:
    """A time with the configurations that are ranked first, and those that another row has."""
    gpu = model_of(time.gpu)
    if gpu is None:
        raise SystemExit(f"{time.gpu}: there is no model of this GPU.")
    sizes = {"m": time.m, "n": time.n, "k": time.k}
    workload = Workload("gemm", sizes, time.dtype, {"transpose_b": 1} if time.transpose_b else {})
    operation = load_kernel("gemm")
    by_name = {spec.full_name: spec for spec in operation.implementations}
    pool: dict[KernelSpec, dict[str, NDArray[np.int64]]] = {}
    for candidate in rank(operation, gpu, workload, top=POOL).candidates:
        if candidate.config:
            one = {name: np.array([value]) for name, value in candidate.config.items()}
            pool[by_name[candidate.kernel]] = _joined(pool.get(by_name[candidate.kernel], {}), one)
    for spec, columns in () if others is None else others.pool.items():
        pool[spec] = _joined(pool.get(spec, {}), columns)
    return Row(gpu, workload, time, pool)


def _joined(some: Mapping[str, NDArray[np.int64]], more: Mapping[str, NDArray[np.int64]]) -> dict[str, Any]:
    return {name: np.concatenate([some[name], more[name]]) if some else more[name] for name in more}


@contextmanager
def stated(gpus: Sequence[GpuModel], values: Mapping[str, float]) -> Iterator[None]:
    """The models with other values of the quantities, for as long as the block lasts."""
    names = {gpu.name for gpu in gpus}
    of_file = {q: dict(entries) for q, entries in assumed.assumptions_of(gpus[0]).items()}
    for quantity, value in values.items():
        entry = Assumption(value=value, low=value, high=value, source="assumed: a step of the fit")
        of_file[quantity] = {**of_file.get(quantity, {}), **dict.fromkeys(names, entry)}
    real = assumed.assumptions_of
    with mock.patch.object(assumed, "assumptions_of", lambda gpu: of_file if gpu.name in names else real(gpu)):
        yield


def errors_of(rows: Sequence[Row]) -> dict[tuple[str, str, int], list[float]]:
    """Logarithms of predicted over published time by GPU, type and class of size."""
    errors: dict[tuple[str, str, int], list[float]] = {}
    for row in rows:
        place = next(place for place, end in enumerate(CLASSES) if row.time.us < end)
        error = math.log(row.predicted_us() / row.time.us)
        errors.setdefault((row.time.gpu, row.time.dtype, place), []).append(error)
    return errors


def start_of(name: str, gpu: GpuModel) -> float:
    """The value in force, or that of the GPU to which the kernels' constants were fitted."""
    found = assumption(gpu, name)
    usual = {
        "launch_s": LAUNCH_S,
        "load_latency_s": gpu.figure("dram_latency_s"),
        "dram_share": 1.0,
        "dram_write_cost": 1.0,
        "l2_port_bytes_per_clk": L2_PORT_BYTES_PER_CLK,
        "tma_bytes_per_clk": MEASURED.load_bytes_per_clk,
    }
    return found.value if found is not None else usual.get(name, sustained_matrix_fraction(gpu))


def streamed(times: Sequence[Time], launch_s: float) -> float:
    """The median rate at which 16-bit products of few rows stream through DRAM, over that of the data sheet."""
    shares = []
    for time in times:
        moved = 2.0 * (time.m * time.k + time.k * time.n + time.m * time.n)
        gpu = model_of(time.gpu)
        if gpu and time.dtype == "bf16" and time.m <= STREAMED_ROWS and moved >= STREAMED_BYTES:
            shares.append(moved / (1e-6 * time.us - launch_s) / gpu.memory.dram.bandwidth_bytes_per_s)
    if not shares:
        raise SystemExit("no published product streams through DRAM: dram_share cannot be read off.")
    print(f"dram_share: {len(shares)} products, {min(shares):.2f} to {max(shares):.2f}")
    return float(np.median(shares))


def balanced(rows: Sequence[Row], gpus: Sequence[GpuModel], values: Mapping[str, float], name: str) -> float:
    """The value of a quantity with which the rows that it decides are predicted right in the geometric mean."""
    least, end = DECIDED.get(name, LARGE)
    deepest = SHALLOW.get(name, math.inf)
    decided = [row for row in rows if least <= row.time.us < end and row.time.k <= deepest]
    if not decided:
        return values[name]
    low, high = values[name] / WIDEST, values[name] * WIDEST
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        with stated(gpus, {**values, name: middle}):
            mean = np.mean([math.log(row.predicted_us() / row.time.us) for row in decided])
        # A longer launch takes longer, a higher rate less.
        is_high = (mean > 0) == name.endswith(("_s", "_cost"))
        low, high = (low, middle) if is_high else (middle, high)
    print(f"{name}: {len(decided)} products")
    return math.sqrt(low * high)


def read_off(rows: Sequence[Row], gpus: Sequence[GpuModel], names: Sequence[str]) -> dict[str, float]:
    """The values of the quantities, one after another."""
    values = {name: start_of(name, gpus[0]) for name in names if name != "dram_share"}
    for name in names:
        if name == "dram_share":
            names_of = {row.time.gpu for row in rows}
            known = [t for t in best_times(all_of_them=True) if t.gpu in names_of and t.half == FITTED]
            values[name] = streamed(known, values.get("launch_s", start_of("launch_s", gpus[0])))
        else:
            values[name] = balanced(rows, gpus, values, name)
    return values


def show(rows: Sequence[Row], title: str) -> None:
    """A line for each GPU and type."""
    errors = errors_of(rows)
    for gpu, dtype in sorted({key[:2] for key in errors}):
        cells = []
        for place, end in enumerate(CLASSES):
            of_class = errors.get((gpu, dtype, place), [])
            mean, spread = (math.exp(np.mean(of_class)), np.std(of_class)) if of_class else (math.nan, math.nan)
            cells.append(f"< {end:g} us: {mean:.2f}, {spread:.2f} ({len(of_class)})")
        far = [abs(e) > math.log(1.5) for key, es in errors.items() if key[:2] == (gpu, dtype) and key[2] for e in es]
        print(f"{title}: {gpu} {dtype}: {'; '.join(cells)}; off by 1.5: {np.mean(far) if far else 0:.0%}", flush=True)


def main() -> None:
    """Read quantities off, and print what it gives on both halves of the shapes and on GPUs left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+", metavar="GPU or QUANTITY")
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["bf16"])
    parser.add_argument("--judge", type=lambda text: text.split(","), default=[], help="GPUs left out of the fit")
    parser.add_argument("--rows", type=int, default=80, help="rows of each GPU and type, evenly over their times")
    args = parser.parse_intermixed_args()
    names = [word for word in args.words if word in QUANTITIES]
    gpus = [word for word in args.words if word not in names]
    rows, out = rows_of(gpus, args.dtypes, args.rows), rows_of(args.judge, args.dtypes, args.rows)
    models = list({row.gpu.name: row.gpu for row in (*rows, *out)}.values())
    values: dict[str, float] = {}
    if names:
        values = read_off([row for row in rows if row.time.half == FITTED], models, names)
        print("read off: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items()), flush=True)
        # What was not among the first before may be so now.
        with stated(models, values):
            rows, out = ([row_of(row.time, row) for row in each] for each in (rows, out))
    with stated(models, values):
        for title, is_fitted in (("fitted", True), ("left out", False)):
            show([row for row in rows if (row.time.half == FITTED) == is_fitted], title)
        show(out, "GPU left out")


if __name__ == "__main__":
    main()
