"""Fit the constants of the sparse kernels' predicted times to times of candidates, and judge them on matrices left out.

    python -m benchmarks.sparse.fit benchmarks/results/h200/spmv_candidates.csv             # constants, choices
    python -m benchmarks.sparse.fit benchmarks/results/h200/spmv_candidates.csv --left-out  # a fit without each matrix

The file is one of `benchmarks.sparse.candidates`. Every kernel's constants are fitted by themselves, from those in
`constrint/kernels/spmv/cost.py`, into which the printed ones are written by hand. A choice is the candidate with the
least predicted time among those that were timed; beside it stands its time as a multiple of the best one's. Needs
scipy, no GPU.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness.table import read_rows
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.spmv import cost
from constrint.kernels.spmv.cost import SparseShape
from constrint.kernels.spmv.spec import SPECS
from constrint.model import Var
from constrint.select.limits import BlockColumns
from constrint.select.workload import Workload

#: Constants by the kernels that they are fitted to.
CONSTANTS = {
    ("vector", "near"): (
        *("SERIAL_SHARE", "GROUP_SHARE", "CHAIN_S", "SERIAL_CLK", "SLOT_CLK", "STEP_CLK", "SUM_CLK", "L1_KEPT"),
        *("L2_KEPT", "LOST_SECTORS", "SECTORS_PER_CLK"),
    ),
    ("merge",): (
        *("MERGE_SHARE", "MERGE_CLK", "MERGE_ROW_CLK", "MERGE_ORDER", "MERGE_UNEVEN", "MERGE_WARPS", "MERGE_S"),
    ),
    ("patterns",): ("PATTERN_CLK", "PATTERN_ROW_CLK", "PATTERN_GROUP_S", "PATTERN_ENTRY_S"),
    ("panels",): ("PANEL_SHARE", "RUN_CLK", "OF_RUN_CLK", "OF_ROW_CLK", "PANEL_S", "FEW_WARPS"),
    ("ell",): ("ELL_SHARE", "ELL_CLK", "ELL_DEEP", "ELL_STEP_S"),
}
#: Greatest values: of shares of the DRAM's rate (which DRAM_SHARE lessens), and of what caches keep.
MOST_SHARE, MOST_KEPT = 1.0, 1.0
#: Groups and slices add a row by one block: where lengths are spread by more, nobody takes them.
MOST_SPREAD = 2.0
#: Exponents of weights: a candidate's time over the best of its kernel, and that over the best of the matrix; the
#: strength by which constants stay where they are, and the error from which on rows count less.
WITHIN, AMONG, STAY, SOFT = 0.7, 0.5, 0.02, 0.1


class TimedCandidates(NamedTuple):
    """The candidates of one kernel for one matrix.

    Args:
        matrix, kernel: Names.
        gpu: The model of the GPU.
        workload: The product.
        configs: As text.
        columns: Parameters of all candidates.
        us: Measured microseconds.
    """

    matrix: str
    kernel: str
    gpu: GpuModel
    workload: Workload
    configs: Sequence[str]
    columns: dict[str, Any]
    us: Any

    def blocks_per_sm(self) -> Any:
        """Blocks of each candidate that reside on an SM."""
        spec = next(spec for spec in SPECS if spec.name == self.kernel)
        if not self.columns:
            return np.ones(1)
        use = spec.use(self.gpu, self.workload, {name: Var(name) for name in self.columns})
        assert use is not None
        problem = spec.problem(self.gpu, self.workload)
        return BlockColumns.of(self.gpu, use, self.columns, problem.estimates).blocks_per_sm

    def predicted(self, blocks: Any) -> Any:
        """Predicted microseconds with the constants as they are."""
        spec = next(spec for spec in SPECS if spec.name == self.kernel)
        return 1e6 * np.asarray(spec.cost(self.gpu, self.workload, self.columns, blocks).seconds)


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--left-out", action="store_true", help="fit without each matrix, and choose for it")
    args = parser.parse_args()
    groups = candidates_of(read_rows(args.file), load_gpu(args.gpu))
    matrices = list(dict.fromkeys(group.matrix for group, _ in groups))
    before = {name: getattr(cost, name) for names in CONSTANTS.values() for name in names}
    lost = []
    if args.left_out:
        for matrix in matrices:
            vars(cost).update(before)
            fit([each for each in groups if each[0].matrix != matrix])
            lost.append(choice([each for each in groups if each[0].matrix == matrix]))
    else:
        print("with the constants as they are:")
        for matrix in matrices:
            choice([each for each in groups if each[0].matrix == matrix])
        fit(groups)
        for name in before:
            print(f"{name} = {getattr(cost, name):.3g}")
        lost = [choice([each for each in groups if each[0].matrix == matrix]) for matrix in matrices]
    near = sum(each <= 1.1 for each in lost)
    print(f"choice / best: {statistics.geometric_mean(lost):.3f}; within 1.1 for {near} of {len(lost)} matrices")


def candidates_of(rows: Sequence[dict[str, str]], gpu: GpuModel) -> list[tuple[TimedCandidates, Any]]:
    """The timed candidates of a file by matrix and kernel, with the blocks that reside on an SM."""
    by_kernel: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for row in rows:
        if row["median_us"]:
            by_kernel.setdefault((row["matrix"], row["dtype"], row["kernel"]), []).append(row)
    found = []
    for (matrix, dtype, kernel), of in by_kernel.items():
        row = of[0]
        options = {name: int(row.get(name) or 0) for name in ("longest", "spread", "scattered", "span", "patterns")}
        workload = Workload("spmv", {name: int(row[name]) for name in ("rows", "cols", "nnz")}, dtype, options)
        parsed = [dict(part.split("=") for part in each["config"].split()) for each in of]
        columns = {name: np.array([int(each[name]) for each in parsed]) for name in parsed[0]}
        us = np.array([float(each["median_us"]) for each in of])
        group = TimedCandidates(
            f"{matrix} {dtype}", kernel, gpu, workload, [each["config"] for each in of], columns, us
        )
        found.append((group, group.blocks_per_sm()))
    return found


def fit(groups: Sequence[tuple[TimedCandidates, Any]]) -> None:
    """Fit the constants of `cost` to measured times; they stay set."""
    from scipy.optimize import least_squares

    best: dict[str, float] = {}
    for group, _ in groups:
        best[group.matrix] = min(best.get(group.matrix, math.inf), float(group.us.min()))
    for kernels, names in CONSTANTS.items():
        own = [
            each for each in groups
            if each[0].kernel in kernels
            and (kernels in (("merge",), ("panels",)) or SparseShape.of(each[0].workload).spread <= MOST_SPREAD)
        ]  # fmt: skip
        if not own:
            continue
        most = [
            MOST_SHARE if name.endswith("_SHARE") else MOST_KEPT if name.endswith("_KEPT") else 1e3 for name in names
        ]
        start = np.minimum(np.log([getattr(cost, name) for name in names]), np.log(most) - 1e-3)

        def errors(logs: Any, own: Any = own, names: Any = names, start: Any = start) -> Any:
            vars(cost).update({name: float(math.exp(log)) for name, log in zip(names, logs, strict=True)})
            found = [STAY * (logs - start)]
            for group, blocks in own:
                weights = (group.us.min() / group.us) ** WITHIN * (best[group.matrix] / group.us.min()) ** AMONG
                found.append(weights * np.log(group.predicted(blocks) / group.us))
            return np.concatenate(found)

        bounds = np.full(len(names), -30.0), np.log(most)
        errors(least_squares(errors, start, bounds=bounds, loss="soft_l1", f_scale=SOFT, max_nfev=60).x)


def choice(groups: Sequence[tuple[TimedCandidates, Any]]) -> float:
    """Print what is chosen for a matrix by prediction; its time over the best one's."""
    listed = [
        (float(predicted), float(us), f"{group.kernel} {config}".strip())
        for group, blocks in groups
        for predicted, us, config in zip(group.predicted(blocks), group.us, group.configs, strict=True)
    ]
    taken, best = min(listed), min(listed, key=lambda each: each[1])
    lost = taken[1] / best[1]
    print(f"{groups[0][0].matrix:28} {lost:5.2f}  {taken[2]}: {taken[1]:.1f} us, best {best[2]}: {best[1]:.1f} us")
    return lost


if __name__ == "__main__":
    main()
