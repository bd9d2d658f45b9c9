"""Measure the fp32 GEMM beside torch, and fit the constants of its cost model to the times.

    python -m benchmarks.gemm.fp32 measure benchmarks/results/h100/gemm_fp32.csv
    python -m benchmarks.gemm.fp32 fit benchmarks/results/h100/gemm_fp32.csv --gpu h100-sxm5 --write

Products are some that are named below and others drawn at random, in fp32's precision and in tf32; for each, those
configurations that the model expects to be fastest, and some that split K. Results are checked against fp64. Times are
those of the launches alone, in turn with torch's own product, with a cold L2. A fit is judged by its errors.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gemm.candidates import config_of
from benchmarks.gemm.constants_fit import fitted, print_constants, write_constants
from benchmarks.harness.table import Table, described, read_rows
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.fp32.cost import ASSUMED, FILE, Fp32Constants, fp32_cost
from constrint.kernels.gemm.fp32.spec import SPECS
from constrint.kernels.gemm.product import Product
from constrint.select import Workload

NAMES = [field.name for field in fields(Fp32Constants) if field.name != "measured"]
#: What a change of a constant by a factor of e costs, in rows whose error is 10 %.
PRIOR = 0.5
NOTE = (
    "What the cost model of gemm.fp32 has beside the GPU's model. Values are fitted by benchmarks.gemm.fp32 to times "
    "of {number} products in the file that `measured` names. A value that these times do not determine stays near what "
    "was assumed, which stands beside it with its source."
)
#: M, N, K, and how A and B lie: "r" by rows, "c" by columns.
NAMED = (
    *((64, 8192, 8192, "rr"), (64, 8192, 8192, "rc"), (2048, 2048, 512, "rr"), (2048, 2048, 512, "rc")),
    *((4096, 4096, 4096, "rr"), (16, 8192, 8192, "rr"), (1, 4096, 4096, "rc"), (512, 512, 512, "rr")),
    *((256, 4096, 1024, "rc"), (1024, 1024, 1024, "rr"), (8192, 768, 768, "rr"), (512, 3072, 768, "cr")),
)
COLUMNS = ("m", "n", "k", "layout", "three_pass", "config", "us", "torch_us", "error", "outcome")
#: Products drawn, and configurations of each beside those that split K.
DRAWN, EACH = 24, 5


@dataclass(frozen=True)
class Measured:
    """Timed configurations of one product."""

    product: Product
    columns: dict[str, NDArray[np.int64]]
    seconds: NDArray[np.float64]


def workload_of(m: int, n: int, k: int, layout: str, *, three_pass: bool) -> Workload:
    """The product as a workload."""
    options = {"transpose_a": layout[0] == "c", "transpose_b": layout[1] == "c", "three_pass": three_pass}
    return Workload("gemm", {"m": m, "n": n, "k": k}, "tf32", {name: 1 for name, is_set in options.items() if is_set})


def cases(seed: int) -> list[tuple[int, int, int, str, bool]]:
    """The products."""
    draw = random.Random(seed)
    made = [(*each, three) for each in NAMED for three in (True, False)]
    for at in range(DRAWN):
        n, k = (8 * round(2 ** draw.uniform(3, 10)) for _ in range(2))
        made.append((round(2 ** draw.uniform(0, 13)), n, k, draw.choice(("rr", "rc", "cr")), at % 2 == 0))
    return made


def configs_of(gpu: GpuModel, product: Product) -> list[dict[str, int]]:
    """The first configurations by the model, and the first one of all with parts of K."""
    from constrint.kernels.gemm.candidates import tables_of

    spec = SPECS[0]
    if spec.refusal(gpu, product):
        return []
    table = tables_of(gpu).table(spec, product)
    rows, seconds = table.price(product)
    found: dict[tuple[int, int], dict[str, int]] = {}
    for at in np.argsort(seconds, kind="stable"):
        config = table.whole_config(product, int(rows[at]))
        found.setdefault((config["tile_m"], config["tile_n"]), dict(config))
        if len(found) == EACH:
            break
    chosen = list(found.values())
    for parts in (1, 2, 4):
        if chosen and -(-product.k // 32) >= 4 * parts and chosen[0]["split_k"] != parts:
            chosen.append(chosen[0] | {"split_k": parts})
    return chosen


def measure(path: Path, seed: int) -> int:
    """Time all products and write the table; the number of wrong results."""
    import torch

    from benchmarks.harness.timing import gpu_here
    from constrint.tune.measure import Timer, call_of

    gpu, spec, timer, wrong = gpu_here(), SPECS[0], Timer(), 0
    with Table(path, COLUMNS, described()) as table:
        for m, n, k, layout, three in cases(seed):
            workload = workload_of(m, n, k, layout, three_pass=three)
            product = Product.of(workload)
            configs = configs_of(gpu, product)
            if not configs:
                continue
            torch.set_float32_matmul_precision("highest" if three else "high")
            inputs = spec.inputs(gpu, workload, device="cuda", seed=m + n + k)
            a, b = inputs["a"][0].double(), inputs["b"][0].double()
            exact, weight = a @ b, a.abs() @ b.abs()
            bound = 1.01 * weight * ((2.0**-20 if three else 2.0**-10) + k * 2.0**-24) + 2.0**-24 * exact.abs()
            calls: list[Any] = [lambda x=inputs["a"][0], y=inputs["b"][0]: torch.mm(x, y)]
            outcomes = []
            for config in configs:
                outputs = spec.outputs(gpu, workload, inputs)
                call = call_of(spec.launches(gpu, workload, config, inputs, outputs))
                outputs["c"].fill_(float("nan"))
                call()
                off = outputs["c"][0].double() - exact
                is_right = bool((off.abs() <= bound).all())
                wrong += not is_right
                outcomes.append((float(off.norm() / exact.norm()), "ok" if is_right else "wrong"))
                calls.append(call)
            torch_us, *ours = (1e6 * each.median_s for each in timer.cold([timer.graph(call) for call in calls], 15))
            for config, us, (error, outcome) in zip(configs, ours, outcomes, strict=True):
                text = " ".join(f"{name}={value}" for name, value in config.items())
                facts = {"m": m, "n": n, "k": k, "layout": layout, "three_pass": int(three), "config": text}
                table.add(**facts, us=us, torch_us=torch_us, error=error, outcome=outcome)
            print(f"{workload}: torch {torch_us:.1f}, gemm.fp32 {min(ours):.1f} us", flush=True)
    print(f"{wrong} wrong")
    return wrong


def read_measured(path: Path) -> list[Measured]:
    """The right ones of a table, by product."""
    by_product: dict[Product, list[tuple[dict[str, int], float]]] = defaultdict(list)
    for row in read_rows(path):
        if row["outcome"] == "ok":
            m, n, k = (int(row[name]) for name in ("m", "n", "k"))
            product = Product.of(workload_of(m, n, k, row["layout"], three_pass=row["three_pass"] == "1"))
            by_product[product].append((config_of(row), 1e-6 * float(row["us"])))
    return [
        Measured(
            product,
            {name: np.array([config[name] for config, _ in timed]) for name in timed[0][0]},
            np.array([seconds for _, seconds in timed]),
        )
        for product, timed in by_product.items()
    ]


def predicted(gpu: GpuModel, measured: Sequence[Measured], constants: Fp32Constants) -> list[NDArray[np.float64]]:
    """Predicted times of all configurations."""
    return [fp32_cost(gpu, one.product, one.columns, np.ones(len(one.seconds)), constants).seconds for one in measured]


def fit(path: Path, gpu: GpuModel, *, write: bool) -> Fp32Constants:
    """Fit the constants, and print what they say of the products."""
    measured = read_measured(path)
    found = fitted(ASSUMED, NAMES, [m.seconds for m in measured], lambda c: predicted(gpu, measured, c), PRIOR)
    times = predicted(gpu, measured, found)
    errors = np.abs(np.concatenate([np.log(p / m.seconds) for p, m in zip(times, measured, strict=True)]))
    shares = [float(m.seconds.min() / m.seconds[np.argmin(p)]) for p, m in zip(times, measured, strict=True)]
    print(f"{len(measured)} products, {len(errors)} configurations")
    print(f"error: median {np.median(errors):.1%}, nine in ten up to {np.quantile(errors, 0.9):.1%}")
    print(f"first choice over the fastest: mean {np.mean(shares):.3f}, least {min(shares):.3f}")
    print_constants(found, NAMES, path.name)
    if write:
        write_constants(FILE, found, measured=path.as_posix(), note=NOTE.format(number=len(measured)))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("measure", "fit"))
    parser.add_argument("table", type=Path)
    parser.add_argument("--gpu", default="h100-sxm5", help="the GPU of the table's times")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write the constants to their file")
    options = parser.parse_args(arguments)
    if options.command == "measure":
        return int(measure(options.table, options.seed) > 0)
    fit(options.table, load_gpu(options.gpu), write=options.write)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
