"""Fit the GEMM's register estimate and bound to compiled kernels, per instruction kind and target. Needs scipy.

Both are sums of the terms of `constrint/kernels/gemm/registers.py` with weights >= 0. The estimate has the least mean
relative error over kernels that neither spill nor sit at the register limit (their count says what was allowed, not
what was needed). The bound is a linear programme: every kernel that spills lies beyond its limit, by MARGIN, and as
few of the others as possible do, first choices of the model counting most.

    python benchmarks/fit_gemm_registers.py tests/data/triton_gemm_resources.csv tests/data/triton_gemm_space.csv \\
        > constrint/kernels/gemm/register_weights.py
    python benchmarks/fit_gemm_registers.py --validate TABLES   # fitted on one random half, checked on the other
"""

from __future__ import annotations

import argparse
import csv
import textwrap
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.registers import kinds_of, register_terms
from constrint.kernels.gemm.units import aligned_operands, async_share, unit
from constrint.model import Var
from constrint.select import Workload

GPUS = {
    "sm_75": "t4",
    "sm_80": "a100",
    "sm_86": "rtx-3090",
    "sm_89": "rtx-4090",
    "sm_90": "h200",
    "sm_100": "b200",
    "sm_120": "rtx-5090",
    "gfx908": "mi100",
    "gfx90a": "mi210",
    "gfx942": "mi300x",
    "gfx950": "mi355x",
    "gfx1100": "rx-7900-xtx",
    "gfx1201": "rx-9070-xt",
}
PARAMS = ("tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "split_k", "persistent")
#: A kernel that spills has to lie this far beyond its limit.
MARGIN = 1.25
#: Weight of a kernel that the model would rank first, against one drawn at random.
RANKED_WEIGHT = 6.0
#: Weight of a spilling kernel that the bound calls clean, in clean kernels lost.
FALSE_FIT_COST = 300.0
#: A spill of so few bytes below the register limit is the compiler's choice, for occupancy.
VOLUNTARY_SPILL_BYTES = 64
#: Fewer kernels than this have no weights of their own target.
LEAST_KERNELS = 60

HEADER = '''"""Weights of the register estimate and bound, written by `benchmarks/fit_gemm_registers.py`.

Do not edit: compile a new sample and fit again. Compiled by Triton {version}; the comments give kernels, median and
90th percentile of the estimate's relative error, clean kernels that the bound excludes, spilling ones that it does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from constrint.kernels.gemm.registers import RegisterModel

# fmt: off
REGISTER_MODELS: Mapping[str, RegisterModel] = {{
'''


@dataclass(frozen=True)
class Kernel:
    """One compiled kernel: the terms of its registers, how many it got, how many it could have, whether it spilled."""

    target: str
    kind: str
    terms: Mapping[str, int]
    registers: int
    limit: int
    spills: bool
    is_capped: bool
    weight: float = 1.0


def limit_of(gpu: GpuModel, row: Mapping[str, Any]) -> int:
    """Registers that the compiler may give a thread: the instruction set's limit, or what a block's warps leave."""
    warps = int(row["num_warps"])
    if gpu.vendor == "nvidia":
        return min(gpu.sm.max_registers_per_thread, 65536 // (32 * warps))
    most = gpu.sm.max_registers_per_thread
    if not gpu.arch.target.startswith("gfx9"):
        return most
    return min(most, 512 // -(-warps // 4) // 8 * 8)


def is_spilling(spill_bytes: int, registers: int, limit: int) -> bool:
    """Whether registers ran out, rather than the compiler trading a few for occupancy."""
    return spill_bytes > VOLUNTARY_SPILL_BYTES or (spill_bytes > 0 and registers >= limit - 3)


def read(paths: list[Path]) -> tuple[str, list[Kernel]]:
    """Triton's version and every kernel that used a matrix instruction."""
    kernels, expressions, version = [], {}, ""
    for path in paths:
        with path.open() as file:
            version = file.readline().split("triton ")[1].split(",")[0]
            for row in csv.DictReader(file):
                gpu, sizes = load_gpu(GPUS[row["target"]]), {name: int(row.get(name) or 4096) for name in "mnk"}
                found = unit(gpu, row["dtype"])
                is_refused = "ptxas" in (row["error"] or "")  # out of registers for one instruction
                if int(row.get("descriptor") or 0):
                    continue  # another kernel
                if (row["error"] and not is_refused) or not (row["instruction"] or is_refused or found.kind == "fma"):
                    continue
                if int(row.get("waves_per_eu") or 0) > 1:
                    continue  # squeezed to keep a promise: a rule of its own in spec.py
                config = {name: int(row[name]) for name in PARAMS}
                variables = {name: Var(name) for name in PARAMS}
                kind = found.kind
                if found.fallback is not None and not async_share(found, variables).value(config):
                    kind = found.fallback
                aligned = aligned_operands(Workload("gemm", sizes, row["dtype"]))
                own = next(k for k in kinds_of(gpu, row["dtype"], aligned) if k.instruction == kind)
                if own not in expressions:
                    expressions[own] = register_terms(own, variables)
                terms = {name: term.value(config) for name, term in expressions[own].items()}
                registers, limit = int(row["registers"] or 255), limit_of(gpu, row)
                spills = is_refused or is_spilling(int(row["spill_bytes"] or 0), registers, limit)
                weight = RANKED_WEIGHT if row.get("kind") == "ranked" else 1.0
                kernels.append(
                    Kernel(row["target"], kind, terms, registers, limit, spills, registers >= limit - 3, weight)
                )
    return version, kernels


def groups_of(kernels: list[Kernel]) -> dict[str, list[Kernel]]:
    """Kernels per name of weights: each AMD target; on NVIDIA each kind, and each of its targets with enough."""
    groups: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        if kernel.target.startswith("gfx"):
            groups[kernel.target].append(kernel)
            continue
        groups[kernel.kind].append(kernel)
        groups[f"{kernel.kind} {kernel.target}"].append(kernel)
    pooled = {kernel.kind for kernel in kernels}
    return {
        name: members
        for name, members in sorted(groups.items())
        if name in pooled or name.startswith("gfx") or len(members) >= LEAST_KERNELS
    }


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


def fit_bound(x: np.ndarray, kernels: list[Kernel]) -> np.ndarray:
    """The linear programme: spilling kernels beyond MARGIN * limit, others below their limit but above their count."""
    from scipy.optimize import linprog

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
    right = np.concatenate([0.98 * np.ones(num_clean), -np.ones(num_clean), -MARGIN * np.ones(num_spills)])
    size = (x[clean] / count[clean, None]).mean(axis=0)
    weight = np.array([kernel.weight for kernel in kernels])[clean]
    costs = [0.05 * size, weight, 0.5 * np.ones(num_clean), FALSE_FIT_COST * np.ones(num_spills)]
    found = linprog(np.concatenate(costs), A_ub=np.vstack(rows), b_ub=right, bounds=(0, None), method="highs")
    return np.asarray(found.x[:num_terms])


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
    return Fit(names, np.round(100 * estimate), np.round(100 * fit_bound(matrix(kernels, names), kernels)))


def check(found: Fit, kernels: list[Kernel]) -> tuple[list[float], int, int, int, int]:
    """Relative errors of the estimate; spilling kernels and those called clean; clean ones and those excluded."""
    x = matrix(kernels, found.names)
    estimates, bounds = np.ceil(x @ found.estimate / 100), np.ceil(x @ found.bound / 100)
    errors, spilling, missed, clean, lost = [], 0, 0, 0, 0
    for kernel, estimate, bound in zip(kernels, estimates, bounds, strict=True):
        fits = max(estimate, bound) <= kernel.limit
        spilling += kernel.spills
        missed += kernel.spills and fits
        clean += not kernel.spills
        lost += not kernel.spills and not fits
        if not kernel.spills and not kernel.is_capped:
            errors.append(abs(estimate / kernel.registers - 1))
    return errors, spilling, missed, clean, lost


def validate(groups: dict[str, list[Kernel]], halves: int = 4) -> None:
    """Print what fits made on random halves say about the other halves."""
    rng = np.random.default_rng(1)
    for name, kernels in groups.items():
        errors: list[float] = []
        counts = np.zeros(4, dtype=int)
        for _ in range(halves):
            order = rng.permutation(len(kernels))
            middle = len(kernels) // 2
            for here, there in ((order[:middle], order[middle:]), (order[middle:], order[:middle])):
                found = fit([kernels[i] for i in here])
                more, *others = check(found, [kernels[i] for i in there])
                errors += more
                counts += np.array(others)
        spilling, missed, clean, lost = counts // halves
        print(
            f"{name:16} {len(kernels):5} kernels, left-out half: "
            f"error {np.median(errors):6.1%} {np.quantile(errors, 0.9):6.1%}, "
            f"{missed} of {spilling} spilling called clean, {lost} of {clean} clean excluded"
        )


def render(what: str, weights: np.ndarray, names: list[str]) -> str:
    """Non-zero weights as a dict display in lines of 120 columns."""
    shown = ", ".join(f'"{n}": {int(w)}' for n, w in zip(names, weights, strict=True) if w)
    return textwrap.fill(f"{what}={{{shown}}},", 120, initial_indent=" " * 8, subsequent_indent=" " * 12)


def main() -> None:
    """Print the module with the weights, or validate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--validate", action="store_true")
    args = parser.parse_args()
    version, kernels = read(args.tables)
    groups = groups_of(kernels)
    if args.validate:
        validate(groups)
        return
    print(HEADER.format(version=version), end="")
    for name, members in groups.items():
        found = fit(members)
        errors, spilling, missed, clean, lost = check(found, members)
        print(
            f"    # {len(members)} kernels, error {np.median(errors):.1%}, {np.quantile(errors, 0.9):.1%}; "
            f"{lost} of {clean} clean excluded, {missed} of {spilling} spilling kept"
        )
        print(f'    "{name}": RegisterModel(')
        print(render("estimate", found.estimate, found.names))
        print(render("bound", found.bound, found.names))
        print("    ),")
    print("}\n# fmt: on")


if __name__ == "__main__":
    main()
