"""Configurations of `gemv.triton`: their times with a cold L2, and what the model chooses among them.

    python -m benchmarks.vectors --sweep gemv_configs.csv                              # times; needs a GPU
    python -m benchmarks.gemv_configs benchmarks/results/h200/gemv_configs.csv         # constants and choices; no GPU
    python -m benchmarks.gemv_configs benchmarks/results/h200/gemv_configs.csv --left-out

Those that are timed have the widest loads and matrices that leave the L2 first: the best by prediction, blocks of one
step, and some of a few steps. A fit starts from the constants of `constrint/kernels/gemv/cost.py`, into which the
printed ones are written by hand; `--left-out` fits without each shape and chooses for it. Needs scipy.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness.table import Table, described, read_rows
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemv import cost
from constrint.kernels.gemv.spec import GemvSpec
from constrint.kernels.registry import load_kernel
from constrint.model import Var
from constrint.select.candidate import Candidate
from constrint.select.limits import BlockColumns
from constrint.select.rank import rank_requests, requests
from constrint.select.workload import Workload

COLUMNS = ("dtype", "m", "n", "config", "predicted_us", "cold_us", "spread")
#: The shapes that are timed.
SHAPES = (
    *(("fp32", 4096, 4096), ("bf16", 4096, 4096), ("fp32", 8192, 2048), ("bf16", 2048, 8192)),
    *(("fp32", 1024, 1024), ("bf16", 8192, 8192)),
)
#: Configurations of a kind that are timed, at most, of so many that are ranked; splits of one step, and of few steps.
BEST, ONE_STEP, FEW_STEPS, RANKED, MOST_SPLITS, FEW_SPLITS, FEW = 8, 40, 16, 6000, 4, 2, 8
THREADS = 14
#: Constants that are fitted, all of matrices that lie by rows.
FITTED = ("ROWS_REDUCE_S", "ROW_S", "ADD_S", "STAGED", "LOOPED", "SPLIT", "CROWDED", "ROWS_EXPOSED")
#: Strength by which constants stay, the share by which a shape's mean error does not count, and soft errors.
STAY, ASIDE, SOFT = 0.02, 0.7, 0.05


class TimedShape(NamedTuple):
    """The timed configurations of one product.

    Args:
        name: Dtype and sizes.
        gpu, workload: What was timed.
        columns: Parameters of all configurations.
        blocks_per_sm: Blocks of each that reside on an SM.
        us: Measured microseconds.
    """

    name: str
    gpu: GpuModel
    workload: Workload
    columns: dict[str, Any]
    blocks_per_sm: Any
    us: Any

    def predicted(self) -> Any:
        """Predicted microseconds with the constants as they are."""
        return 1e6 * np.asarray(GemvSpec().cost(self.gpu, self.workload, self.columns, self.blocks_per_sm).seconds)

    def choice(self) -> tuple[float, str]:
        """Time of the configuration with the least predicted time over the best one's, and its parameters."""
        taken = int(np.argmin(self.predicted()))
        text = " ".join(f"{name}={values[taken]}" for name, values in self.columns.items())
        return float(self.us[taken] / self.us.min()), text


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--left-out", action="store_true", help="fit without each shape, and choose for it")
    args = parser.parse_args()
    shapes = shapes_of(read_rows(args.file), load_gpu(args.gpu))
    before = {name: getattr(cost, name) for name in FITTED}
    if not args.left_out:
        print("with the constants as they are:")
        show(shapes)
        fit(shapes)
        for name in FITTED:
            print(f"{name} = {getattr(cost, name):.3g}")
        show(shapes)
        return
    lost = []
    for left in shapes:
        vars(cost).update(before)
        fit([each for each in shapes if each is not left])
        lost += show([left])
    print(f"choice / best of shapes left out: {statistics.geometric_mean(lost):.3f}, worst {max(lost):.3f}")


def shapes_of(rows: Sequence[dict[str, str]], gpu: GpuModel) -> list[TimedShape]:
    """The timed configurations of a file, by shape."""
    by_shape: dict[tuple[str, int, int], list[tuple[dict[str, int], float]]] = {}
    for row in rows:
        if row["config"] != "torch":
            config = {name: int(value) for name, value in (part.split("=") for part in row["config"].split())}
            key = row["dtype"], int(row["m"]), int(row["n"])
            by_shape.setdefault(key, []).append((config, float(row["cold_us"])))
    found, spec = [], GemvSpec()
    for (dtype, m, n), of in by_shape.items():
        workload = Workload("gemv", {"m": m, "n": n}, dtype)
        columns = {name: np.array([config[name] for config, _ in of]) for name in of[0][0]}
        use = spec.use(gpu, workload, {name: Var(name) for name in columns})
        blocks = BlockColumns.of(gpu, use, columns, spec.problem(gpu, workload).estimates).blocks_per_sm
        us = np.array([each for _, each in of])
        found.append(TimedShape(f"{dtype} {m}x{n}", gpu, workload, columns, blocks, us))
    return found


def fit(shapes: Sequence[TimedShape]) -> None:
    """Fit the constants of `cost` to measured times; they stay set."""
    from scipy.optimize import least_squares

    start = np.array([math.log(getattr(cost, name)) for name in FITTED])

    def errors(logs: Any) -> Any:
        vars(cost).update({name: math.exp(value) for name, value in zip(FITTED, logs, strict=True)})
        found = [STAY * (logs - start)]
        for shape in shapes:
            weights = shape.us.min() / shape.us
            error = np.log(shape.predicted() / shape.us)
            found.append(weights * (error - ASIDE * np.average(error, weights=weights)))
        return np.concatenate(found)

    errors(least_squares(errors, start, loss="soft_l1", f_scale=SOFT, max_nfev=60).x)


def show(shapes: Sequence[TimedShape]) -> list[float]:
    """Print the choice of each shape; return its time over the best one's."""
    lost = []
    for shape in shapes:
        over, text = shape.choice()
        lost.append(over)
        print(f"{shape.name:16} {over:5.3f} of the best {shape.us.min():6.2f} us: {text}")
    return lost


def sweep(gpu: GpuModel, flush: Callable[[], Any], out: Path, dtypes: Sequence[str], sizes: Sequence[str]) -> None:
    """Time configurations of every shape; write a row for each, and one for torch's product."""
    import torch

    from benchmarks.harness.timing import cold

    spec: Any = load_kernel("gemv.triton").implementations[0]
    with Table(out, COLUMNS, described()) as table:
        for dtype, m, n in SHAPES:
            if dtype not in dtypes or (sizes and f"{m}x{n}" not in sizes):
                continue
            workload = Workload("gemv", {"m": m, "n": n}, dtype)
            listed = list({tuple(each.config.items()): each for each in timed_candidates(gpu, workload)}.values())
            inputs = spec.inputs(gpu, workload, device="cuda")
            outputs = spec.outputs(gpu, workload, inputs)
            launches = [spec.launches(gpu, workload, each.config, inputs, outputs)[0] for each in listed]
            with ThreadPoolExecutor(THREADS) as threads:
                compiled = list(threads.map(is_compiled, launches))
            names = [" ".join(f"{name}={value}" for name, value in each.config.items()) for each in listed]
            predicted = {name: 1e6 * each.cost.seconds for name, each in zip(names, listed, strict=True)}
            timed = zip(names, launches, compiled, strict=True)
            calls: dict[str, Callable[[], Any]] = {name: launch.run for name, launch, runs in timed if runs}
            calls["torch"] = partial(torch.mv, inputs["a"][0], inputs["x"][0])
            for who, (median, spread) in cold(calls, flush).items():
                row: dict[str, Any] = {"dtype": dtype, "m": m, "n": n, "config": who, "cold_us": median}
                table.add(**row, predicted_us=predicted.get(who, 0.0), spread=spread)


def timed_candidates(gpu: GpuModel, workload: Workload) -> Iterator[Candidate]:
    """The configurations of a shape that are timed."""
    stated, refusals = requests(load_kernel("gemv.triton"), gpu, workload)
    ranked = rank_requests(load_kernel("gemv.triton"), stated, refusals, top=RANKED).candidates
    widest = max(each.config["vector"] for each in ranked)
    kept = [each for each in ranked if each.config["evict_first"] and each.config["vector"] == widest]

    def reach(each: Candidate) -> int:
        return each.config["tile_n"] * each.config["splits"]

    n = workload.sizes["n"]
    one = [each for each in kept if reach(each) >= n and each.config["num_stages"] == 1]
    one = [each for each in one if each.config["splits"] <= MOST_SPLITS]
    few = [each for each in kept if n < FEW * reach(each) and each not in one and each.config["splits"] <= FEW_SPLITS]
    yield from (*kept[:BEST], *one[:ONE_STEP], *few[:: max(1, len(few) // FEW_STEPS)][:FEW_STEPS])


def is_compiled(launch: Any) -> bool:
    """Compile a launch; whether that went well."""
    with suppress(Exception):
        launch.warm_up()
        return True
    return False


if __name__ == "__main__":
    main()
