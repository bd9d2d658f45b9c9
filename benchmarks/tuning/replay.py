"""Replay searches over recorded tables: how near to the table's best they come within so many trials.

    python -m benchmarks.tuning.replay --gpu h200 --trials 1 2 4 8 16 32 --seeds 10

Every search chooses from the same recorded rows and is told the same figures. Beside ours run uniform draws, Optuna's
samplers and Kernel Tuner's strategies. `model, warm n` knows n trials of every other workload of the table's operation.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.harness.table import Table, described
from benchmarks.tuning.peers import STRATEGIES, KernelTuner
from benchmarks.tuning.recorded import FOLDER, Answers, Recorded, Space, recorded
from constrint.hwmodels.load import load_gpu
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.registry import make_search
from constrint.tune.store.record import TuningRecord

TABLES = {"gemm": ("gemm_exhaustive_bf16.csv.gz",), "rnn": ("rnn_space.csv",)}
COLUMNS = ("table", "workloads", "search", "batch", "trials", "seeds", "median", "least", "most", "blind", "ask_s")
#: Trials of every other workload that a warm start knows.
WARM = (8, 32)
#: Runs by seed: rows tried for each workload, in the workloads' order.
Runs = dict[int, list[list[int]]]


def run(
    of: Recorded,
    name: str,
    num_trials: int,
    *,
    seed: int = 0,
    batch: int = 1,
    known: Sequence[TuningRecord] = (),
    answers_us: Answers | None = None,
) -> list[int]:
    """The rows that one of our searches tries, in order; it is told the rows' first figures, or other answers."""
    answers_us = of.first_us if answers_us is None else answers_us
    return searched_rows(of, name, num_trials, answers_us, seed=seed, batch=batch, known=known)


def searched_rows(
    of: Space,
    name: str,
    num_trials: int,
    answers_us: Answers,
    *,
    seed: int = 0,
    batch: int = 1,
    known: Sequence[TuningRecord] = (),
) -> list[int]:
    """The rows of any space that one of our searches tries, in order; a batch is answered at once."""
    task = SearchTask(of.operation, of.gpu, of.workload, known=known, seed=seed)
    search = make_search(name, task, of.candidates)
    tried: list[int] = []
    while len(tried) < num_trials:
        proposals = search.ask(min(batch, num_trials - len(tried)))
        if not proposals:
            break
        rows = [of.row_of(proposal) for proposal in proposals]
        tried += rows
        for proposal, answer_us in zip(proposals, answers_us[rows].tolist(), strict=True):
            search.tell(proposal, answer_us * 1e-6 if math.isfinite(answer_us) else None)
    return tried


def known_to(spaces: Sequence[Recorded], trials: Sequence[Sequence[int]], number: int) -> Iterator[list[TuningRecord]]:
    """For every workload the records of the first trials of all others of its operation."""
    records = [[of.record(row) for row in rows[:number]] for of, rows in zip(spaces, trials, strict=True)]
    for of in spaces:
        others = zip(spaces, records, strict=True)
        yield [r for other, own in others if other.measured.workload != of.measured.workload for r in own]


def ours(spaces: Sequence[Recorded], num_trials: int, num_seeds: int) -> Iterator[tuple[str, int, Callable[[], Runs]]]:
    """Our searches, by name and batch; those that draw nothing have one seed."""

    def of(name: str, batch: int, seeds: Iterable[int]) -> Runs:
        return {seed: [run(s, name, num_trials, seed=seed, batch=batch) for s in spaces] for seed in seeds}

    def warm(number: int, batch: int) -> Runs:
        cold = [run(s, "model", num_trials) for s in spaces]
        knowledge = list(known_to(spaces, cold, number))
        pairs = zip(spaces, knowledge, strict=True)
        return {0: [run(s, "model", num_trials, batch=batch, known=known) for s, known in pairs]}

    yield "model", 1, lambda: of("model", 1, range(1))
    yield "model", 4, lambda: of("model", 4, range(1))
    for number in WARM:
        yield f"model, warm {number}", 1, lambda number=number: warm(number, 1)  # type: ignore[misc]
    for name in ("random", "optuna:tpe"):
        yield name, 1, lambda name=name: of(name, 1, range(num_seeds))  # type: ignore[misc]


def theirs(
    spaces: Sequence[Recorded], strategies: Sequence[str], num_trials: int, num_seeds: int
) -> Iterator[tuple[str, int, Callable[[], Runs]]]:
    """Kernel Tuner's strategies."""
    tuners = [KernelTuner(space) for space in spaces] if strategies else []
    for strategy in strategies:

        def of(strategy: str = strategy) -> Runs:
            return {seed: [t.search(strategy, num_trials, seed) for t in tuners] for seed in range(num_seeds)}

        yield f"kernel_tuner:{strategy}", 1, of


def summarise(spaces: Sequence[Recorded], runs: Runs, budget: int) -> Mapping[str, float]:
    """Geometric means over the workloads of what was found within a budget: median, least and most of the seeds."""
    found, blind = [], []
    for tried in runs.values():
        pairs = [(of, rows[:budget]) for of, rows in zip(spaces, tried, strict=True)]
        found.append(mean_ratio(of.found(rows) for of, rows in pairs))
        blind.append(mean_ratio(of.found_blind(rows) for of, rows in pairs))
    median = statistics.median
    return {"median": median(found), "least": min(found), "most": max(found), "blind": median(blind)}


def mean_ratio(ratios: Iterable[float]) -> float:
    """The geometric mean."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logarithms) / len(logarithms))


def replay(arguments: argparse.Namespace) -> None:
    """Run everything, print and write it."""
    gpu, most = load_gpu(arguments.gpu), max(arguments.trials)
    path = arguments.out or FOLDER / arguments.gpu / "tuning_replay.csv"
    with Table(path, COLUMNS, f"replayed: {described()}; {_versions()}") as table:
        for name in arguments.tables:
            spaces = list(recorded(gpu, arguments.gpu, TABLES[name]))
            peers = theirs(spaces, arguments.strategies if name == "gemm" else (), most, arguments.seeds)
            for search, batch, make in (*ours(spaces, most, arguments.seeds), *peers):
                started = time.perf_counter()
                runs = make()
                num_asked = sum(len(rows) for tried in runs.values() for rows in tried)
                ask_s = (time.perf_counter() - started) / num_asked
                shown = []
                for budget in arguments.trials:
                    facts = summarise(spaces, runs, budget)
                    table.add(
                        table=name, workloads=len(spaces), search=search, batch=batch, trials=budget, seeds=len(runs),
                        ask_s=ask_s, **facts,
                    )  # fmt: skip
                    shown.append(f"{budget}: {facts['median']:.4f} ({facts['least']:.4f} to {facts['most']:.4f})")
                print(f"{name:5} {search:36} by {batch}  {'  '.join(shown)}", flush=True)


def _versions() -> str:
    from importlib import metadata

    return ", ".join(f"{name} {metadata.version(name)}" for name in ("optuna", "kernel_tuner"))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="h200", help="the GPU whose tables are replayed")
    parser.add_argument("--tables", nargs="+", choices=tuple(TABLES), default=list(TABLES))
    parser.add_argument("--trials", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32], help="budgets")
    parser.add_argument("--seeds", type=int, default=10, help="runs of each search that draws at random")
    parser.add_argument("--strategies", nargs="*", default=list(STRATEGIES), help="Kernel Tuner's strategies")
    parser.add_argument("--out", type=Path, help="where the table is written")
    replay(parser.parse_args())


if __name__ == "__main__":
    main()
