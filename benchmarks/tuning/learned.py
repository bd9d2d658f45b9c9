"""How much better predictions become by what other workloads' trials taught: each workload left out in its turn.

    python -m benchmarks.tuning.learned --gpu h200 --known 32

For every recorded workload the default search is told the first trials of all others. Printed are the spread of the
logarithm of measured over predicted time, before and after, over the configurations that the model puts first, and how
near the first choice comes to the table's best; then how much better or worse the corrected first choice is, with its
standard error over the workloads. `lists` are products of which some 30 to 240 configurations were measured.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np

from benchmarks.tuning.recorded import Recorded, recorded
from benchmarks.tuning.replay import TABLES, known_to, mean_ratio, run
from constrint.hwmodels.load import load_gpu
from constrint.tune.search.interface import Proposal, SearchTask
from constrint.tune.search.model import ModelSearch
from constrint.tune.store.record import TuningRecord

#: Configurations whose predictions are compared with their measurements.
NUM_COMPARED = 1000
#: Tables by a short name.
LEARNED = {**TABLES, "lists": ("gemm_choices_bf16.csv", "gemm_parts_bf16.csv")}


def leaders(of: Recorded, known: Sequence[TuningRecord]) -> list[Proposal]:
    """The configurations in the order in which they are expected to be fast."""
    task = SearchTask(of.operation, of.gpu, of.measured.workload, known=known)
    return ModelSearch(task, of.candidates).leaders(NUM_COMPARED)


def spread(of: Recorded, proposals: Sequence[Proposal]) -> float:
    """The standard deviation of the logarithm of measured over predicted time."""
    measured = np.array([of.first_us[of.row_of(proposal)] for proposal in proposals])
    return float(np.std(np.log(measured / [proposal.predicted_s for proposal in proposals])))


def main() -> None:
    """Read the command line, leave each workload out in its turn, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="h200", help="the GPU whose tables are read")
    parser.add_argument("--known", type=int, default=32, help="trials of every other workload that are known")
    arguments = parser.parse_args()
    for name, tables in LEARNED.items():
        spaces = list(recorded(load_gpu(arguments.gpu), arguments.gpu, tables))
        trials = [run(of, "model", arguments.known) for of in spaces]
        before = [leaders(of, ()) for of in spaces]
        knowledge = known_to(spaces, trials, arguments.known)
        after = [leaders(of, known) for of, known in zip(spaces, knowledge, strict=True)]
        firsts = []
        for title, each in (("model alone", before), ("corrected", after)):
            spreads = [spread(of, found) for of, found in zip(spaces, each, strict=True)]
            first = [of.found([of.row_of(p[0])]) for of, p in zip(spaces, each, strict=True)]
            blind = mean_ratio(of.found_blind([of.row_of(p[0])]) for of, p in zip(spaces, each, strict=True))
            shown = f"first {mean_ratio(first):.4f}  judged anew {blind:.4f}"
            print(f"{name:5} {title:12} spread {np.mean(spreads):.3f}  {shown}")
            firsts.append(np.log(first))
        gains = firsts[1] - firsts[0]
        error = np.std(gains, ddof=1) / math.sqrt(len(gains))
        changed = f"{np.count_nonzero(gains)} of {len(gains)} differ"
        print(f"{name:5} corrected over alone: {100 * np.mean(gains):+.2f} % +- {100 * error:.2f} %, {changed}")


if __name__ == "__main__":
    main()
