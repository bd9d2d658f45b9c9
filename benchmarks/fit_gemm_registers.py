"""Fit the GEMM's register estimate and bound to compiled kernels, per target, instruction and elements. Needs scipy.

Both are the larger of two sums of the terms of `constrint/kernels/gemm/registers.py` with weights >= 0. The estimate
has the least mean relative error over kernels of the first table's version that neither spill nor sit at the register
limit (their count says what was allowed, not what was needed); a target's weights are drawn towards its family's. The
bound is the larger of two figures: the estimate with a margin that few large kernels exceeded when they were left out
of the fit, short of what would exclude a clean first choice of the model; and a linear programme for the kernels that
spill nevertheless, which lie beyond their limit by MARGIN while as few of the others as possible do.

    python benchmarks/fit_gemm_registers.py tests/data/triton_gemm_space.csv tests/data/triton_gemm_space_3_6.csv \\
        tests/data/triton_gemm_descriptor.csv tests/data/triton36_gemm_descriptor.csv \\
        > constrint/kernels/gemm/register_weights.py
    python benchmarks/fit_gemm_registers.py --validate TABLES   # fitted on three random quarters, checked on the fourth
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
from compile_gemm_space import GPUS

from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.registers import END, Kind, family_key, kinds_of, register_terms
from constrint.kernels.gemm.units import aligned_operands, async_share, unit
from constrint.model import Expr, Var
from constrint.select import Workload

PARAMS = ("tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "split_k", "persistent")
#: A kernel that spills has to lie this far beyond its limit.
MARGIN = 1.2
#: Weight of the bound's mean size, in clean kernels lost: only as large as it has to be.
SIZE_COST = 0.02
#: Weight of a kernel that the model would rank first, against one drawn at random.
RANKED_WEIGHT = 40.0
#: Weight of a spilling kernel that the bound calls clean, in clean kernels lost.
FALSE_FIT_COST = 300.0
#: The bound is above the estimate by what this share of kernels does not exceed it by; without enough of them, and at
#: most for their sake, by so many percent; at most for the sake of kernels that spill, by so many.
COVERED, FEW_MARGIN, MOST_MARGIN = 0.95, 50, 200
#: A kernel that spills although it was left out has to be so far beyond its limit.
MORE = 1.04
#: Percent: a first choice that takes all registers there are may be estimated to take a few more.
LEAST_MARGIN = 97
#: With so many erratic kernels the bound is twice the estimate.
ERRATIC_KERNELS = 60
#: Kernels count there that take at least one in so many of the registers there are.
LARGE = 3
#: Parts of a group, each left out once to find the margin.
FOLDS = 4
#: A spill of so few bytes below the register limit is the compiler's choice, for occupancy.
VOLUNTARY_SPILL_BYTES = 64
#: Fewer kernels than this have no weights of their own target.
LEAST_KERNELS = 40
#: Fewer than this have no weights at all.
LEAST_POOLED = 8
#: How strongly weights of few kernels are drawn to those of all targets: relative error per relative change of a term.
PULL = 3.0


@dataclass(frozen=True)
class Kernel:
    """One compiled kernel: the terms of its registers, how many it got, how many it could have, whether it spilled."""

    target: str
    key: str
    terms: Mapping[str, int]
    registers: int
    limit: int
    spills: bool
    is_ragged: bool = False
    is_latest: bool = True
    weight: float = 1.0

    @property
    def own_key(self) -> str:
        """Name of the weights for its target alone."""
        return f"{self.target} {self.key.partition(' ')[2]}"

    @property
    def is_erratic(self) -> bool:
        """Whether operands are turned in registers on their way to a unit that reads shared memory.

        What that takes hardly follows the sizes, and the other kernel does without.
        """
        is_direct = " wgmma " in self.key or " tcgen05 " in self.key
        return is_direct and "descriptor" not in self.key and not self.key.endswith(" 16")

    @property
    def is_free(self) -> bool:
        """Whether its count says what it needs, by the version of Triton that the estimate is for."""
        return self.is_latest and not self.spills and self.registers < self.limit - 3


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


def is_refused(row: Mapping[str, str]) -> bool:
    """Whether the assembler had no registers for a single instruction."""
    return "ptxas" in row["error"]


def is_used(gpu: GpuModel, row: Mapping[str, str]) -> bool:
    """Whether the row's registers say anything: compiled, with the matrix unit, and not squeezed to keep a promise."""
    if row["error"] and not is_refused(row):
        return False
    reaches = row["instruction"] or is_refused(row) or unit(gpu, row["dtype"]).kind == "fma"
    return bool(reaches) and int(row.get("waves_per_eu") or 0) <= 1 and not int(row.get("producer") or 0)


def kind_of(gpu: GpuModel, row: Mapping[str, str]) -> Kind:
    """The kind of a row's kernel."""
    sizes = {name: int(row.get(name) or 4096) for name in "mnk"}
    aligned = aligned_operands(Workload("gemm", sizes, row["dtype"]))
    own, *others = kinds_of(gpu, row["dtype"], aligned, has_descriptors=bool(int(row.get("descriptor") or 0)))
    config = {name: int(row[name]) for name in PARAMS}
    use = async_share(unit(gpu, row["dtype"]), {name: Var(name) for name in PARAMS}).value(config)
    return own if use else others[0]


def read(paths: list[Path]) -> tuple[list[str], list[Kernel]]:
    """The versions of Triton and every kernel whose registers say anything; estimates are for the first version."""
    kernels, versions = [], []
    expressions: dict[Kind, dict[str, Expr]] = {}
    for path in paths:
        with path.open() as file:
            versions.append(file.readline().split("triton ")[1].split(",")[0])
            for row in csv.DictReader(file):
                row.setdefault("descriptor", str(int("descriptor" in path.name)))
                gpu = load_gpu(GPUS[row["target"]])
                if not is_used(gpu, row):
                    continue
                kind, config = kind_of(gpu, row), {name: int(row[name]) for name in PARAMS}
                if kind not in expressions:
                    expressions[kind] = register_terms(kind, {name: Var(name) for name in PARAMS})
                terms = {name: term.value(config) for name, term in expressions[kind].items()}
                registers, limit = int(row["registers"] or 255), limit_of(gpu, row)
                spills = is_refused(row) or is_spilling(int(row["spill_bytes"] or 0), registers, limit)
                weight = RANKED_WEIGHT if row.get("kind") == "ranked" else 1.0
                key, is_latest = family_key(gpu, kind), versions[-1] == versions[0]
                kernels.append(
                    Kernel(row["target"], key, terms, registers, limit, spills, kind.is_ragged, is_latest, weight)
                )
    return versions, kernels


def groups_of(kernels: list[Kernel]) -> dict[str, list[Kernel]]:
    """Kernels per name of weights: each kind, and each of its targets with enough of them."""
    groups: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        groups[kernel.key].append(kernel)
        groups[kernel.own_key].append(kernel)
    pooled = {kernel.key for kernel in kernels}
    return {
        name: members
        for name, members in sorted(groups.items(), key=lambda group: (group[0] not in pooled, group[0]))
        if sum(kernel.is_free for kernel in members) >= (LEAST_POOLED if name in pooled else LEAST_KERNELS)
    }


def names_of(kernels: list[Kernel]) -> list[str]:
    """Terms that any of the kernels has."""
    return sorted({name for kernel in kernels for name, term in kernel.terms.items() if term})


def matrix(kernels: list[Kernel], names: list[str]) -> np.ndarray:
    """Terms as columns."""
    return np.array([[float(kernel.terms.get(name, 0)) for name in names] for kernel in kernels])


Margins = tuple[int, int]
NO_MARGINS: tuple[Margins, Margins] = ((100, 100), (100, 100))


def larger(x: np.ndarray, weights: np.ndarray, ends: np.ndarray, margins: Margins = (100, 100)) -> np.ndarray:
    """The larger of the sums over the loop's terms and over the end's, each so many percent of itself."""
    return np.maximum(x[:, ~ends] @ weights[~ends] * margins[0], x[:, ends] @ weights[ends] * margins[1]) / 100


def with_margins(
    x: np.ndarray, kernels: list[Kernel], weights: np.ndarray, ends: np.ndarray, margins: tuple[Margins, Margins]
) -> np.ndarray:
    """The larger sum with the margins for kernels whose rows are aligned, and for the others."""
    is_ragged = np.array([kernel.is_ragged for kernel in kernels])
    return np.where(is_ragged, larger(x, weights, ends, margins[1]), larger(x, weights, ends, margins[0]))


def fit_estimate(x: np.ndarray, y: np.ndarray, ends: np.ndarray, prior: np.ndarray | None) -> np.ndarray:
    """Least mean relative error with weights >= 0, near the prior where kernels are few."""
    from scipy.optimize import minimize, nnls

    scaled = x / y[:, None]
    scale = np.sqrt((scaled**2).mean(axis=0)) + 1e-9
    start = prior
    if start is None:
        start = np.zeros(x.shape[1])
        start[~ends], _ = nnls(scaled[:, ~ends], np.ones(len(y)))
        if ends.any():
            start[ends], _ = nnls(scaled[:, ends], np.ones(len(y)))
    centre = start if prior is not None else np.zeros_like(start)
    pull = PULL * 100 / len(y) if prior is not None else 0.002

    def loss(z: np.ndarray, sharpness: float) -> tuple[float, np.ndarray]:
        weights = z / scale
        loop, end = scaled[:, ~ends] @ weights[~ends], scaled[:, ends] @ weights[ends]
        top = np.maximum(loop, end)
        of_loop, of_end = np.exp(sharpness * (loop - top)), np.exp(sharpness * (end - top))
        total = of_loop + of_end
        error = top + np.log(total) / sharpness - 1
        size = np.sqrt(error**2 + 1e-4)
        slope = error / size / len(y)
        gradient = np.zeros_like(z)
        gradient[~ends] = scaled[:, ~ends].T @ (slope * of_loop / total)
        gradient[ends] = scaled[:, ends].T @ (slope * of_end / total)
        away = z - centre * scale
        return float(size.mean() + pull * (away**2).sum()), gradient / scale + 2 * pull * away

    bounds = [(0, None)] * len(start)
    found = []
    # The largest of two sums has several best places; some are found only from the other side.
    for factor in (0.9, 0.5) if prior is None else (1.0,):
        z = np.where(ends, factor, 1.0) * start * scale
        for sharpness in (20.0, 60.0, 200.0):
            options = {"maxiter": 300}
            best = minimize(loss, z, args=(sharpness,), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            z = best.x
        found.append((best.fun, tuple(z / scale)))
    return np.asarray(min(found)[1])


def fit_bound(
    x: np.ndarray, kernels: list[Kernel], ends: np.ndarray, estimate: np.ndarray, margins: tuple[Margins, Margins]
) -> np.ndarray:
    """The linear programme: spilling kernels beyond MARGIN * limit where the estimate's margin leaves them below it,
    the others below their limit.

    Which of the two sums has to be beyond it is what the estimate says is larger.
    """
    from scipy.optimize import linprog
    from scipy.sparse import bmat, csr_matrix, identity

    limit = np.array([kernel.limit for kernel in kernels], dtype=float)
    spills = np.array([kernel.spills for kernel in kernels])
    kept = spills & (with_margins(x, kernels, estimate, ends, margins) <= MARGIN * limit)
    if not kept.any():
        return np.zeros(x.shape[1])
    clean = ~spills
    is_end = x[:, ends] @ estimate[ends] > x[:, ~ends] @ estimate[~ends]
    meant = np.where(ends[None, :] == is_end[:, None], x, 0.0)
    shares = x / limit[:, None]
    excess, missed = identity(int(clean.sum())), identity(int(kept.sum()))
    rows = [
        [csr_matrix(shares[clean] * ~ends), -excess, None],
        [csr_matrix(shares[clean] * ends), -excess, None],
        [csr_matrix(-meant[kept] / limit[kept, None]), None, -missed],
    ]
    # A little below the limit: weights are rounded, and sums of them up.
    right = [0.98] * (2 * int(clean.sum())) + [-MARGIN] * int(kept.sum())
    weight = np.array([kernel.weight for kernel in kernels])[clean]
    costs = np.concatenate(
        [SIZE_COST * shares.mean(axis=0) * len(x), weight, FALSE_FIT_COST * np.ones(int(kept.sum()))]
    )
    found = linprog(costs, A_ub=bmat(rows, format="csr"), b_ub=right, bounds=(0, None), method="highs")
    return np.asarray(found.x[: x.shape[1]])


@dataclass(frozen=True)
class Fit:
    """Weights in hundredths by term name."""

    names: list[str]
    estimate: np.ndarray
    bound: np.ndarray
    margins: tuple[Margins, Margins]

    def of(self, kernels: list[Kernel]) -> tuple[np.ndarray, np.ndarray]:
        """Estimate and bound of kernels."""
        x, ends = matrix(kernels, self.names), ends_of(self.names)
        margined = with_margins(x, kernels, self.estimate, ends, self.margins)
        bound = np.maximum(margined, larger(x, self.bound, ends))
        return np.ceil(larger(x, self.estimate, ends) / 100), np.ceil(bound / 100)

    def is_end(self, kernels: list[Kernel]) -> np.ndarray:
        """Whether the estimate is that of the end."""
        x, ends = matrix(kernels, self.names), ends_of(self.names)
        return np.asarray(x[:, ends] @ self.estimate[ends] > x[:, ~ends] @ self.estimate[~ends])


def ends_of(names: list[str]) -> np.ndarray:
    """Which terms belong to the end of a kernel."""
    return np.array([name.startswith(END) for name in names])


def fit(kernels: list[Kernel], prior: Fit | None = None) -> Fit:
    """Both fits of one group, and margins from kernels that were left out of it."""
    fold = np.random.default_rng(len(kernels)).permutation(len(kernels)) % FOLDS
    excesses: list[Excess] = []
    for number in range(FOLDS):
        left_out = [kernel for kernel, of in zip(kernels, fold, strict=True) if of == number]
        rest = [kernel for kernel, of in zip(kernels, fold, strict=True) if of != number]
        if left_out and sum(kernel.is_free for kernel in rest) >= LEAST_POOLED:
            found = fit_once(rest, prior, NO_MARGINS)
            of_end = found.is_end(left_out)
            for kernel, is_end, estimate in zip(left_out, of_end, found.of(left_out)[0], strict=True):
                excesses.append(Excess(kernel, bool(is_end), kernel.registers / estimate, kernel.limit / estimate))
    whole = fit_once(kernels, prior, NO_MARGINS)
    margins = [
        (margin_of(excesses, whole, kernels, False, is_ragged), margin_of(excesses, whole, kernels, True, is_ragged))
        for is_ragged in (False, True)
    ]
    return fit_once(kernels, prior, (margins[0], margins[1]))


@dataclass(frozen=True)
class Excess:
    """A kernel that was left out, which part of it was estimated to be larger, its count and limit per estimate."""

    kernel: Kernel
    is_end: bool
    ratio: float
    room: float


def margin_of(excesses: list[Excess], found: Fit, kernels: list[Kernel], is_end: bool, is_ragged: bool) -> int:
    """Percent of the estimate that few large kernels exceed, and none that spills, short of excluding a first choice.

    What small kernels exceed their estimate by says little about large ones. Where tiles come through descriptors,
    spilling kernels are left to the linear programme: few do, and those that do not are the best.
    """
    mine = [excess for excess in excesses if excess.is_end == is_end and excess.kernel.is_ragged == is_ragged]
    large = [e.ratio for e in mine if e.kernel.is_free and LARGE * e.kernel.registers >= e.kernel.limit]
    margin = np.quantile(large, COVERED) if len(large) >= LEAST_POOLED else 1 + FEW_MARGIN / 100
    margin = MORE * min(float(margin), 1 + FEW_MARGIN / 100)
    if kernels[0].is_erratic:
        margin = max(margin, 1 + ERRATIC_KERNELS / len(kernels))
    if "descriptor" not in kernels[0].key:
        margin = max([margin, *(MORE * e.room for e in mine if e.kernel.spills)])
    most = 1 + MOST_MARGIN / 100
    first = [k for k in kernels if k.weight > 1 and not k.spills and k.is_ragged == is_ragged]
    if first:
        of_part = ends_of(found.names) == is_end
        sums = np.maximum(1, matrix(first, found.names)[:, of_part] @ found.estimate[of_part] / 100)
        most = min(most, float(np.min([kernel.limit for kernel in first] / sums)))
    return max(LEAST_MARGIN, int(100 * min(margin, most)))


def fit_once(kernels: list[Kernel], prior: Fit | None, margins: tuple[Margins, Margins]) -> Fit:
    """Both fits with given margins."""
    names = names_of(kernels)
    ends = ends_of(names)
    free = [kernel for kernel in kernels if kernel.is_free]
    known = None
    if prior is not None:
        by_name = dict(zip(prior.names, prior.estimate / 100, strict=True))
        known = np.array([by_name.get(name, 0.0) for name in names])
    y = np.array([float(kernel.registers) for kernel in free])
    estimate = fit_estimate(matrix(free, names), y, ends, known)
    bound = fit_bound(matrix(kernels, names), kernels, ends, estimate, margins)
    return Fit(names, np.round(100 * estimate), np.round(100 * bound), margins)


def fit_all(groups: Mapping[str, list[Kernel]]) -> dict[str, Fit]:
    """Fits of all groups, those of single targets near those of all."""
    fits: dict[str, Fit] = {}
    for name, members in groups.items():
        fits[name] = fit(members, fits.get(members[0].key))
    return fits


def fit_for(fits: Mapping[str, Fit], kernel: Kernel) -> Fit:
    """The fit that a kernel is judged by."""
    return fits.get(kernel.own_key, fits[kernel.key])


@dataclass
class Score:
    """How the fits do on kernels: the estimate's relative errors; spilling kernels, those called clean; the others."""

    errors: list[float]
    spilling: int = 0
    kept: int = 0
    clean: int = 0
    excluded: int = 0

    def __str__(self) -> str:
        """One line."""
        median, most = np.quantile(self.errors, (0.5, 0.9)) if self.errors else (0.0, 0.0)
        return (
            f"{len(self.errors)} counts, error {median:.1%}, {most:.1%}; "
            f"{self.excluded} of {self.clean} clean excluded, {self.kept} of {self.spilling} spilling kept"
        )


def score(fits: Mapping[str, Fit], kernels: list[Kernel]) -> Score:
    """Judge kernels by the fits."""
    result = Score([])
    by_fit: dict[int, tuple[Fit, list[Kernel]]] = {}
    for kernel in kernels:
        if kernel.key not in fits:
            continue
        found = fit_for(fits, kernel)
        by_fit.setdefault(id(found), (found, []))[1].append(kernel)
    for found, members in by_fit.values():
        for kernel, estimate, bound in zip(members, *found.of(members), strict=True):
            fits_in = bound <= kernel.limit
            result.spilling += kernel.spills
            result.kept += kernel.spills and fits_in
            result.clean += not kernel.spills
            result.excluded += not kernel.spills and not fits_in
            if kernel.is_free:
                result.errors.append(abs(estimate / kernel.registers - 1))
    return result


def validate(kernels: list[Kernel], folds: int = 4) -> None:
    """Print what fits made without a fold of the kernels say about that fold, per target."""
    fold = np.random.default_rng(1).permutation(len(kernels)) % folds
    total: dict[str, Score] = defaultdict(lambda: Score([]))
    for number in range(folds):
        fits = fit_all(groups_of([kernel for kernel, of in zip(kernels, fold, strict=True) if of != number]))
        left_out = [kernel for kernel, of in zip(kernels, fold, strict=True) if of == number]
        for target in sorted({kernel.target for kernel in kernels}):
            found = score(fits, [kernel for kernel in left_out if kernel.target == target])
            so_far = total[target]
            so_far.errors += found.errors
            for name in ("spilling", "kept", "clean", "excluded"):
                setattr(so_far, name, getattr(so_far, name) + getattr(found, name))
    for target, found in total.items():
        print(f"{target:8} left out: {found}")


HEADER = '''"""Weights of the register estimate and bound, written by `benchmarks/fit_gemm_registers.py`.

Do not edit: compile a new sample and fit again. Compiled by Triton {versions}; the comments give the median and
the 90th percentile of the estimate's relative error, clean kernels that the bound excludes, spilling ones it does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from constrint.kernels.gemm.registers import RegisterModel

# fmt: off
REGISTER_MODELS: Mapping[str, RegisterModel] = {{
'''


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
    versions, kernels = read(args.tables)
    if args.validate:
        validate(kernels)
        return
    groups = groups_of(kernels)
    fits = fit_all(groups)
    print(HEADER.format(versions=" and ".join(dict.fromkeys(versions))), end="")
    for name, members in groups.items():
        print(f"    # {score({members[0].key: fits[name]}, members)}")
        print(f'    "{name}": RegisterModel(')
        print(render("estimate", fits[name].estimate, fits[name].names))
        print(render("bound", fits[name].bound, fits[name].names))
        print(f"        margins={fits[name].margins[0]},")
        print(f"        ragged_margins={fits[name].margins[1]},")
        print("    ),")
    print("}\n# fmt: on")


if __name__ == "__main__":
    main()
