"""How many trials proposers take to come within 0.5 % of the best, replayed over tables of measurements.

    python -m benchmarks.propose.value --gpu h200 --draws 10

The tables are every configuration of 13 products and loops of recurrent layers on the CUDA kernels. As in
`benchmarks.tuning.chance` every measurement is drawn anew from a row's likely time, and what was found is judged by the
likely time. Compared are the cost model's order alone, the default search, the built-in proposer (with and without what
is learnt from times), scripted strategies of an expert, and uniform draws. `left out` is the built-in proposer whose
plan was chosen for each workload by all others.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.table import Table, described
from benchmarks.propose.experts import Experts
from benchmarks.propose.layers import recorded_layers
from benchmarks.propose.orders import InOrder
from benchmarks.propose.rounds import tried_rows
from benchmarks.tuning.chance import Likely
from benchmarks.tuning.recorded import FOLDER, Recorded, Space, recorded
from benchmarks.tuning.replay import TABLES, known_to, run
from constrint.hwmodels.load import load_gpu
from constrint.tune.search.llm.rules import PLAN, BuiltInProposer
from constrint.tune.store.record import TuningRecord

COLUMNS = ("table", "workload", "proposer", "draws", "median", "lower", "upper", "mean", "geometric_mean", "within_16")
#: The columns of what is compared with the order alone, of all workloads.
AGAINST = ("over_order", "error")
#: How near to the best is near enough.
SHARE = 0.995
#: Trials of a proposer at most; what did not come near enough counts as one more.
MOST_TRIALS = 128
#: Plans of the built-in proposer among which `left out` chooses.
PLANS = ("o", "m", "p", "oppp", "oppa", "opps", "oppv", "mppa", PLAN)
#: How far one measurement of a layer's loop is off; the products' tables say so themselves.
LAYER_ERROR = 0.01
#: Trials of every other workload that a warm start knows.
KNOWN = 32
#: Trials by workload and draw.
Trials = NDArray[np.int64]


@dataclass(frozen=True)
class Judged:
    """A table with what its rows are judged by."""

    table: str
    of: Recorded
    likely: Likely
    known: Sequence[TuningRecord] = ()

    def trials_to(self, rows: Sequence[int]) -> int:
        """How many of the rows were tried when one near enough to the best was among them."""
        return next((number for number, row in enumerate(rows, start=1) if self.is_near(row)), len(rows) + 1)

    def is_near(self, row: int) -> bool:
        """Whether a row is near enough to the best."""
        return float(self.likely.log_us[row] - self.likely.log_us.min()) <= -math.log(SHARE)


#: The rows that a proposer tries of a table, where its trials are answered so.
Run = Callable[[Judged, NDArray[np.float64], int], Sequence[int]]


def in_order(judged: Judged, answers_us: NDArray[np.float64], seed: int) -> list[int]:
    """The cost model's order alone."""
    return ordered(judged.of)


def ordered(of: Space) -> list[int]:
    """All rows in the order of the cost model's times."""
    places, rows = of.candidates.best(sum(kernel.num_rows for kernel in of.candidates.kernels))
    names = [kernel.spec.full_name for kernel in of.candidates.kernels]
    return [int(of.rows[names[place]][row]) for place, row in zip(places.tolist(), rows.tolist(), strict=True)]


def at_random(judged: Judged, answers_us: NDArray[np.float64], seed: int) -> list[int]:
    """Uniform draws."""
    return shuffled(judged.of, seed)


def shuffled(of: Space, seed: int) -> list[int]:
    """All rows in an order that is drawn."""
    every = np.concatenate(list(of.rows.values()))
    return [int(row) for row in np.random.default_rng(seed).permutation(every)]


def searched(judged: Judged, answers_us: NDArray[np.float64], seed: int, *, warm: bool, batch: int) -> list[int]:
    """The default search."""
    known = judged.known if warm else ()
    for most in (MOST_TRIALS // 8, MOST_TRIALS):  # it tries the same ones again, and more
        rows = run(judged.of, "model", most, batch=batch, known=known, answers_us=answers_us)
        if judged.trials_to(rows) <= len(rows):
            break
    return rows


@dataclass(frozen=True)
class BuiltIn:
    """The built-in proposer.

    Args:
        plan: What it proposes in turn.
        learns: Whether times change which configuration of a proposal comes first.
        warm: Whether it knows records of other workloads.
    """

    plan: str = PLAN
    learns: bool = True
    warm: bool = False

    def __call__(self, judged: Judged, answers_us: NDArray[np.float64], seed: int) -> list[int]:
        """The rows that it tries."""
        make, order = partial(BuiltInProposer, plan=self.plan), None if self.learns else InOrder
        known = judged.known if self.warm else ()
        return tried_rows(judged.of, make, answers_us, MOST_TRIALS, order=order, known=known, is_enough=judged.is_near)


def scripted(judged: Judged, answers_us: NDArray[np.float64], seed: int) -> list[int]:
    """An expert's strategies."""
    return tried_rows(judged.of, lambda _: Experts(), answers_us, MOST_TRIALS, is_enough=judged.is_near)


def proposers() -> Iterator[tuple[str, Run]]:
    """What is compared, by name; the others are compared with the first one."""
    yield "model's order alone", in_order
    yield "default search", partial(searched, warm=False, batch=1)
    yield "default search by 4", partial(searched, warm=False, batch=4)
    yield "built-in", BuiltIn()
    yield "built-in, nothing learnt from times", BuiltIn(learns=False)
    yield "default search by 4, warm", partial(searched, warm=True, batch=4)
    yield "built-in, warm", BuiltIn(warm=True)
    yield "expert's strategies", scripted
    yield "random", at_random


def tables(gpu_name: str) -> Iterator[list[Judged]]:
    """The products, and the layers."""
    gpu, folder = load_gpu(gpu_name), FOLDER / gpu_name
    products = list(recorded(gpu, gpu_name, TABLES["gemm"]))
    first = [run(of, "model", KNOWN) for of in products]
    knowledge = known_to(products, first, KNOWN)
    yield [Judged("products", of, Likely.of(of), known) for of, known in zip(products, knowledge, strict=True)]
    layers = list(recorded_layers(gpu, folder / "rnn_cuda_space.csv"))
    knowledge = known_to(layers, [run(of, "model", KNOWN) for of in layers], KNOWN)
    likely = [Likely(np.log(of.first_us), LAYER_ERROR) for of in layers]
    yield [Judged("layers", *each) for each in zip(layers, likely, knowledge, strict=True)]


def counted(spaces: Sequence[Judged], tries: Run, num_draws: int) -> Trials:
    """Trials of a proposer: a row for each workload, a column for each draw."""
    return np.array(
        [
            [each.trials_to(tries(each, np.exp(each.likely.drawn(seed)), seed)) for seed in range(num_draws)]
            for each in spaces
        ]
    )


def left_out(by_plan: Mapping[str, Trials]) -> Trials:
    """Of each workload the trials with the plan that takes the fewest on all others (geometric mean)."""
    logs = {plan: np.log(trials).mean(axis=1) for plan, trials in by_plan.items()}
    num_workloads = len(next(iter(by_plan.values())))
    chosen = [min(by_plan, key=lambda plan: np.delete(logs[plan], place).mean()) for place in range(num_workloads)]
    return np.array([by_plan[plan][place] for place, plan in enumerate(chosen)])


def summary(trials: Trials) -> dict[str, float]:
    """Median and quartiles over all workloads and draws, the means, and how many came near within 16 trials."""
    lower, median, upper = np.percentile(trials, [25, 50, 75])
    logs = math.exp(float(np.log(trials).mean()))
    share = float((trials <= 16).mean())
    facts = {"median": median, "lower": lower, "upper": upper, "mean": float(trials.mean())}
    return {name: float(fact) for name, fact in facts.items()} | {"geometric_mean": logs, "within_16": share}


def against(trials: Trials, order: Trials) -> dict[str, float]:
    """Trials over those of the order alone: the geometric mean, and its standard error over workloads as a factor."""
    logs = np.log(trials).mean(axis=1) - np.log(order).mean(axis=1)
    return {
        "over_order": math.exp(float(logs.mean())),
        "error": math.exp(float(np.std(logs, ddof=1)) / math.sqrt(len(logs))),
    }


def compare(arguments: argparse.Namespace) -> None:
    """Run everything, print and write it."""
    path = arguments.out or FOLDER / arguments.gpu / "propose_value.csv"
    with Table(path, (*COLUMNS, *AGAINST), f"replayed: {described()}") as table:

        def add(spaces: Sequence[Judged], name: str, trials: Trials, order: Trials) -> None:
            facts = {"table": spaces[0].table, "proposer": name, "draws": arguments.draws}
            whole = {**summary(trials), **against(trials, order)}
            table.add(workload="all", **facts, **whole)
            shown = "  ".join(f"{fact} {value:.4g}" for fact, value in whole.items())
            print(f"{spaces[0].table:9} {name:36} {shown}", flush=True)
            for each, own in zip(spaces, trials, strict=True):
                table.add(workload=str(each.of.measured.workload), **facts, **summary(own))

        for spaces in tables(arguments.gpu):
            order = counted(spaces, in_order, arguments.draws)
            for name, tries in proposers():
                add(spaces, name, counted(spaces, tries, arguments.draws), order)
            by_plan = {plan: counted(spaces, BuiltIn(plan), arguments.draws) for plan in PLANS}
            for plan, trials in by_plan.items():
                add(spaces, f"built-in, plan {plan}", trials, order)
            add(spaces, "built-in, plan left out", left_out(by_plan), order)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="h200", help="the GPU whose tables are replayed")
    parser.add_argument("--draws", type=int, default=10, help="how often every measurement is drawn")
    parser.add_argument("--out", type=Path, help="where the table is written")
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
