"""How much of what a search misses is chance: replays in which every measurement is drawn anew.

    python -m benchmarks.tuning.chance --gpu h200 --draws 20

A row's likely time is the mean of the figures that it has. A trial is answered with the likely time and an error as
large as figures of the table differ; the fastest answer is taken, and judged by its likely time. `everything, once`
measures every row of the table that way. Warm searches know the recorded first trials of every other workload.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.table import Table, described
from benchmarks.tuning.recorded import FOLDER, Recorded, recorded
from benchmarks.tuning.replay import TABLES, WARM, known_to, run
from constrint.hwmodels.load import load_gpu
from constrint.tune.store.record import TuningRecord

COLUMNS = ("search", "workload", "trials", "draws", "found", "error", "between_draws")
#: What is lost, as a logarithm: by workload, draw and budget.
Losses = NDArray[np.float64]


@dataclass(frozen=True)
class Likely:
    """What the figures of a table say together.

    Args:
        log_us: The logarithm of each row's likely time: the mean of its figures, in microseconds.
        error: How far one measurement is off, as the standard deviation of its logarithm.
    """

    log_us: NDArray[np.float64]
    error: float

    @staticmethod
    def of(space: Recorded) -> Likely:
        """Of a table in which some rows have two figures of the same kind; the others keep the one they have."""
        times = space.measured.times
        later = np.log(times["again_us"] / times["cold_us"])
        twice = np.isfinite(later)
        # The clock of one run may differ from that of the other: only differences among rows count.
        later = np.where(twice, later - np.median(later[twice]), 0.0)
        return Likely(np.log(space.first_us) + later / 2, float(np.std(later[twice]) / math.sqrt(2)))

    def drawn(self, seed: int) -> NDArray[np.float64]:
        """Logarithms of one measurement of every row."""
        return self.log_us + self.error * np.random.default_rng(seed).standard_normal(len(self.log_us))

    def loss(self, rows: Sequence[int], answers: NDArray[np.float64]) -> float:
        """How much longer than the table's best the fastest answer among the rows takes, as a logarithm."""
        tried = np.array(rows)
        return float(self.log_us[tried[np.argmin(answers[tried])]] - self.log_us.min())


def searched(of: Recorded, known: Sequence[TuningRecord], budgets: Sequence[int], num_draws: int) -> Losses:
    """The losses of the default search on one table: a row for each draw, a column for each budget."""
    likely, losses = Likely.of(of), []
    for seed in range(num_draws):
        answers = likely.drawn(seed)
        rows = run(of, "model", max(budgets), known=known, answers_us=np.exp(answers))
        losses.append([likely.loss(rows[:budget], answers) for budget in budgets])
    return np.array(losses)


def exhausted(of: Recorded, num_draws: int) -> Losses:
    """The losses of measuring every row once and taking the fastest: a row for each draw, one column."""
    likely, everything = Likely.of(of), range(len(of.first_us))
    return np.array([[likely.loss(everything, likely.drawn(seed))] for seed in range(num_draws)])


def summary(losses: Losses) -> Iterator[Mapping[str, float]]:
    """Per budget what is found, its standard error over the workloads, and the deviation between draws."""
    for of_budget in np.moveaxis(losses, 2, 0):
        of_workloads, of_draws = of_budget.mean(axis=1), of_budget.mean(axis=0)
        error = np.std(of_workloads, ddof=1) / math.sqrt(len(of_workloads)) if len(of_workloads) > 1 else math.nan
        yield {"found": math.exp(-of_workloads.mean()), "error": error, "between_draws": float(np.std(of_draws))}


def replay(arguments: argparse.Namespace) -> None:
    """Run everything, print and write it."""
    budgets, draws = [1, 2, 4, 8, 16, 32], arguments.draws
    spaces = list(recorded(load_gpu(arguments.gpu), arguments.gpu, TABLES["gemm"]))
    first = [run(of, "model", max(WARM)) for of in spaces]
    path = arguments.out or FOLDER / arguments.gpu / "tuning_chance.csv"
    with Table(path, COLUMNS, f"replayed: {described()}") as table:

        def add(search: str, trials: Sequence[int], losses: Losses) -> None:
            for number, facts in zip(trials, summary(losses), strict=True):
                table.add(search=search, workload="all", trials=number, draws=draws, **facts)
                print(f"{search:34} {number:2}  " + "  ".join(f"{name} {fact:.4f}" for name, fact in facts.items()))
            for of, own in zip(spaces, losses, strict=True):
                workload = " ".join(map(str, of.measured.workload.sizes.values()))
                for number, facts in zip(trials, summary(own[np.newaxis]), strict=True):
                    table.add(search=search, workload=workload, trials=number, draws=draws, **facts)

        add("everything, once", [0], np.array([exhausted(of, draws) for of in spaces]))
        cold = np.array([searched(of, (), budgets, draws) for of in spaces])
        add("model", budgets, cold)
        for number in WARM:
            knowledge = known_to(spaces, first, number)
            pairs = zip(spaces, knowledge, strict=True)
            warm = np.array([searched(of, known, budgets, draws) for of, known in pairs])
            add(f"model, warm {number}", budgets, warm)
            # What a warm start gains over a cold one of twice as many trials; more than 1 where it is better.
            add(f"warm {number} over twice the trials", budgets[:-1], warm[:, :, :-1] - cold[:, :, 1:])


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="h200", help="the GPU whose tables are replayed")
    parser.add_argument("--draws", type=int, default=20, help="how often every measurement is drawn")
    parser.add_argument("--out", type=Path, help="where the table is written")
    replay(parser.parse_args())


if __name__ == "__main__":
    main()
