"""Fit the recurrent kernels' register estimate and bound to compiled kernels. Needs scipy.

Both are sums of the terms of `constrint/kernels/rnn/registers.py` with weights >= 0, per vendor, direction, and whether
a head is split. The estimate has the least mean relative error over kernels that neither spill nor sit at the register
limit (their count says what was allowed, not what was needed). The bound is a linear programme: every kernel that
spills lies beyond its limit, by MARGIN, and as few of the others as possible do; those that were fastest on a GPU and
first choices of the model count most. A spill of a few bytes at the limit should be excluded, but need not be.

    python benchmarks/fit_rnn_registers.py TABLES > constrint/kernels/rnn/register_weights.py
    python benchmarks/fit_rnn_registers.py --validate TABLES   # fitted on five sixths, checked on the others, in turn
    python benchmarks/fit_rnn_registers.py --check TABLES      # the weights in use, per target
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from fit_gemm_registers import render

from constrint.hwmodels import load_gpu
from constrint.kernels.rnn import registers
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.triton.spec import SPECS as TRITON_SPECS
from constrint.model import Constraint, Expr, Var, const

KEYS = ("tile_batch", "tile_out", "row_split", "num_warps", "num_stages", "split_depth", "recompute")
#: A kernel that spills has to lie this far beyond its limit. On AMD near ones were not measured to be worth keeping.
MARGIN = {"nvidia": 1.1, "amd": 1.2}
#: Weight of a kernel by how it came into the table, against one drawn at random.
KIND_WEIGHT = {"random": 1.0, "ranked": 6.0, "first": 6.0, "measured": 100.0}
#: Weight of a spilling kernel that the bound calls clean, in clean kernels lost; and of one that spills a little,
#: times its weight by kind.
FALSE_FIT_COST, LIGHT_FIT_COST = 300.0, 3.0
#: Weight of what is added to the estimate for the bound, against a multiple of it.
ADDED_COST = {"nvidia": 1.0, "amd": 30.0}
#: A spill of so few bytes a thread (16 registers) is light: it was measured to cost little.
LIGHT_SPILL_BYTES = 64

SPECS = {spec.operation: spec for spec in TRITON_SPECS}
HEADER = '''"""Weights of the register estimate and bound, written by `benchmarks/fit_rnn_registers.py`.

Do not edit: compile a new sample and fit again. Compiled by Triton {versions}; the comments give kernels,
median and 90th percentile of the estimate's relative error, clean kernels that the bound excludes, and spilling ones
that it does not, those among them that spill lightly.
"""

from __future__ import annotations

from collections.abc import Mapping

from constrint.kernels.rnn.registers import RegisterModel

# fmt: off
REGISTER_MODELS: Mapping[str, RegisterModel] = {{
'''


@dataclass(frozen=True)
class Kernel:
    """One compiled kernel: the terms of its registers, how many it got, how many it could have, whether it spilled."""

    target: str
    version: str
    key: str
    terms: Mapping[str, int]
    registers: int
    limit: int
    spills: bool
    is_light: bool
    is_capped: bool
    weight: float


@cache
def expressions(
    name: str, cell: str, direction: str, dim: int, dtype: str, is_split: bool
) -> tuple[str, dict[str, Expr]]:
    """Name of the weights, and the terms, those of the optional inputs among them."""
    gpu, workload = load_gpu(name), workload_of(cell, (16, 16, 1, dim), dtype, direction)
    layer = SPECS[workload.operation].layer(workload)
    terms = registers.register_terms(gpu, layer, {key: Var(key) for key in KEYS}, is_split)
    return registers.model_key(gpu, layer, is_split), registers.with_inputs(terms)


@cache
def warp_rules(name: str, cell: str, direction: str, dim: int) -> tuple[Constraint, ...]:
    """Rules of the space that are no limits of the GPU."""
    workload = workload_of(cell, (64, 16, 1, dim), "fp16", direction)
    problem = SPECS[workload.operation].problem(load_gpu(name), workload)
    return tuple(rule for rule in problem.constraints if rule.name.startswith("warps"))


def is_in_space(name: str, cell: str, direction: str, dim: int, config: Mapping[str, int]) -> bool:
    """Whether a configuration is one of today's space, but for limits; tables may be older."""
    return all(rule.holds(config) for rule in warp_rules(name, cell, direction, dim))


def read(paths: list[Path]) -> list[Kernel]:
    """Every kernel of the tables; what the compiler gave up counts as spilling."""
    kernels = []
    for path in paths:
        with path.open() as file:
            version = file.readline().split("triton ")[1].split(",")[0]
            for row in csv.DictReader(file):
                if row["error"] and "takes more" not in row["error"]:
                    continue
                config, gpu = {key: int(row[key]) for key in KEYS}, load_gpu(row["gpu"])
                if not is_in_space(row["gpu"], row["cell"], row["direction"], int(row["head_dim"]), config):
                    continue
                layer = (row["gpu"], row["cell"], row["direction"], int(row["head_dim"]), row["dtype"])
                key, terms = expressions(*layer, config["row_split"] > 1)
                has_inputs = bool(int(row["inputs"]))
                values = {
                    name: 0 if name.startswith("inputs") and not has_inputs else term.value(config)
                    for name, term in terms.items()
                }
                limit = registers.most_registers(gpu, {"num_warps": const(config["num_warps"])}).value({})
                count, spilled = int(row["registers"] or limit), int(row["spill_bytes"] or 1 << 20)
                # A few bytes below the limit are the compiler's choice, for occupancy; what was measured was fast.
                is_light = spilled <= LIGHT_SPILL_BYTES
                spills = not is_light or (spilled > 0 and count >= limit - 3 and row["kind"] != "measured")
                kernels.append(
                    Kernel(
                        row["target"], version, key, values, count, limit, spills, is_light,
                        count >= limit - 3, KIND_WEIGHT[row["kind"]],
                    )
                )  # fmt: skip
    return kernels


def matrix(kernels: list[Kernel], names: list[str]) -> np.ndarray:
    """Terms as columns."""
    return np.array([[float(kernel.terms.get(name, 0)) for name in names] for kernel in kernels])


def fit_estimate(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least mean relative error with weights >= 0: re-weighted least squares."""
    from scipy.optimize import nnls

    scaled, ones = x / y[:, None], np.ones(len(y))
    weights, _ = nnls(scaled, ones)
    for _ in range(40):
        row = 1 / np.sqrt(np.maximum(np.abs(scaled @ weights - ones), 0.01))
        weights, _ = nnls(scaled * row[:, None], ones * row)
    return weights


def fit_bound(x: np.ndarray, kernels: list[Kernel], estimate: np.ndarray) -> np.ndarray:
    """The linear programme: spilling kernels beyond MARGIN * limit, others below their limit but above their count.

    The bound is a multiple of the estimate and what has to be added to some of its terms.
    """
    from scipy.optimize import linprog

    x, vendor = np.hstack([x, (x @ estimate)[:, None]]), kernels[0].key.split()[0]

    limit = np.array([kernel.limit for kernel in kernels], dtype=float)
    count = np.array([kernel.registers for kernel in kernels], dtype=float)
    spills = np.array([kernel.spills for kernel in kernels])
    clean = ~spills
    num_clean, num_spills, num_terms = int(clean.sum()), int(spills.sum()), x.shape[1]
    excess, shortfall, missed = np.eye(num_clean), np.eye(num_clean), np.eye(num_spills)
    no_clean, no_spills = np.zeros((num_clean, num_clean)), np.zeros((num_clean, num_spills))
    rows = [
        np.hstack([x[clean] / limit[clean, None], -excess, no_clean, no_spills]),
        np.hstack([-x[clean] / count[clean, None], no_clean, -shortfall, no_spills]),
        np.hstack([-x[spills] / limit[spills, None], no_spills.T, no_spills.T, -missed]),
    ]
    # A little below the limit: weights are rounded, and sums of them up.
    right = np.concatenate([0.98 * np.ones(num_clean), -np.ones(num_clean), -MARGIN[vendor] * np.ones(num_spills)])
    size = (x[clean] / count[clean, None]).mean(axis=0)
    weight, is_light = (np.array([getattr(kernel, name) for kernel in kernels]) for name in ("weight", "is_light"))
    missing = np.where(is_light, LIGHT_FIT_COST * weight, FALSE_FIT_COST)[spills]
    size[:-1] *= ADDED_COST[vendor]
    costs = [0.05 * size, weight[clean], 0.5 * np.ones(num_clean), missing]
    found = linprog(np.concatenate(costs), A_ub=np.vstack(rows), b_ub=right, bounds=(0, None), method="highs")
    return np.asarray(found.x[: num_terms - 1] + found.x[num_terms - 1] * estimate)


@dataclass(frozen=True)
class Fit:
    """Weights by term name."""

    names: list[str]
    estimate: np.ndarray
    bound: np.ndarray


def fit(kernels: list[Kernel]) -> Fit:
    """Both fits of one group."""
    names = list(dict.fromkeys(name for kernel in kernels for name in kernel.terms))
    free = [kernel for kernel in kernels if not kernel.spills and not kernel.is_capped]
    estimate = fit_estimate(matrix(free, names), np.array([float(kernel.registers) for kernel in free]))
    return Fit(names, np.round(100 * estimate), np.round(100 * fit_bound(matrix(kernels, names), kernels, estimate)))


@dataclass
class Score:
    """Relative errors of the estimate; spilling kernels and those called clean, lightly spilling ones among them; clean
    ones and those excluded."""

    errors: list[float]
    spilling: int = 0
    missed: int = 0
    light: int = 0
    clean: int = 0
    lost: int = 0

    def __str__(self) -> str:
        errors = self.errors or [np.nan]
        return (
            f"error {np.median(errors):.1%}, {np.quantile(errors, 0.9):.1%}; "
            f"{self.lost} of {self.clean} clean excluded, {self.missed} of {self.spilling} spilling kept, "
            f"{self.light} of them lightly"
        )


def check(found: Fit, kernels: list[Kernel], score: Score) -> Score:
    """Add what a fit says about kernels to a score."""
    x = matrix(kernels, found.names)
    estimates, bounds = np.ceil(x @ found.estimate / 100), np.ceil(x @ found.bound / 100)
    for kernel, estimate, bound in zip(kernels, estimates, bounds, strict=True):
        fits = bound <= kernel.limit
        score.spilling += kernel.spills
        score.missed += bool(kernel.spills and fits)
        score.light += bool(kernel.spills and fits and kernel.is_light)
        score.clean += not kernel.spills
        score.lost += bool(not kernel.spills and not fits)
        if not kernel.spills and not kernel.is_capped:
            score.errors.append(abs(estimate / kernel.registers - 1))
    return score


def groups_of(kernels: list[Kernel]) -> dict[str, list[Kernel]]:
    """Kernels per name of weights."""
    groups: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        groups[kernel.key].append(kernel)
    return dict(sorted(groups.items()))


def validate(kernels: list[Kernel], folds: int = 6) -> None:
    """Print what fits say about the kernels left out of them, per group and per target."""
    rng = np.random.default_rng(1)
    targets: dict[str, Score] = defaultdict(lambda: Score([]))
    for name, members in groups_of(kernels).items():
        total, order = Score([]), rng.permutation(len(members))
        for fold in range(folds):
            left = {int(i) for i in order[fold::folds]}
            found = fit([kernel for i, kernel in enumerate(members) if i not in left])
            for i in left:
                check(found, [members[i]], total)
                check(found, [members[i]], targets[f"{members[i].target} {members[i].version}"])
        print(f"{name:24} {len(members):5} kernels, left out: {total}")
    for target, score in sorted(targets.items()):
        print(f"{target:24} {score.spilling + score.clean:5} kernels, left out: {score}")


def check_in_use(kernels: list[Kernel]) -> None:
    """Print what the weights in use say, per target."""
    from constrint.kernels.rnn.register_weights import REGISTER_MODELS

    targets: dict[str, Score] = defaultdict(lambda: Score([]))
    for kernel in kernels:
        model = REGISTER_MODELS[kernel.key]
        names = list(kernel.terms)
        weights = [np.array([float(figure.get(name, 0)) for name in names]) for figure in model]
        check(Fit(names, *weights), [kernel], targets[f"{kernel.target} {kernel.version}"])
    for target, score in sorted(targets.items()):
        print(f"{target:24} {score.spilling + score.clean:5} kernels: {score}")


def main() -> None:
    """Print the module with the weights, or validate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    kernels = read(args.tables)
    if args.validate:
        validate(kernels)
    elif args.check:
        check_in_use(kernels)
    else:
        versions = sorted({kernel.version for kernel in kernels})
        print(HEADER.format(versions=" and ".join(versions)), end="")
        for name, members in groups_of(kernels).items():
            found = fit(members)
            print(f"    # {len(members)} kernels, {check(found, members, Score([]))}")
            print(f'    "{name}": RegisterModel(')
            print(render("estimate", found.estimate, found.names))
            print(render("bound", found.bound, found.names))
            print("    ),")
        print("}\n# fmt: on")


if __name__ == "__main__":
    main()
