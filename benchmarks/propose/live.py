"""How many trials proposers take to come within 0.5 % of the best, measured on this machine's GPU.

    python -m benchmarks.propose.live --trials 40 --top 96 --limit 540 --jobs 32
    python -m benchmarks.propose.live --gpus 0,1 --layers lstm:16x1024x1x512:bf16 gru:16x1024x1x768:bf16

For each layer the cost model's order alone, the default search, the built-in proposer, scripted strategies of an expert
and uniform draws choose among every valid configuration of all kernels. A trial is the tuner's: compiled, checked on
five sets of inputs, timed. A configuration is measured once, whoever asks first. The best is the best of all that
anybody asked for and of the cost model's first `--top` ones; the fastest are timed once more, in turn, and judged by
that figure. An exhaustive search might find a better one. The cost model of the CUDA kernels was fitted to loops of
many layers, the default ones among them; `--layers` takes others, which it has not seen.

Every measurement is written as it comes. With `--limit` the run ends in time, and the same command goes on with it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.table import Table, described, read_whole
from benchmarks.propose.experts import Experts
from benchmarks.propose.measuring import Asking, Bench, OutOfTime, Whole, microseconds
from benchmarks.propose.rounds import tried_rows
from benchmarks.propose.value import SHARE, ordered, shuffled
from benchmarks.tuning.recorded import FOLDER
from benchmarks.tuning.replay import searched_rows
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.rnn.spec import workload_of
from constrint.tune.engine.interface import Engine, Setup, TrialAnswer
from constrint.tune.search.llm.gates import NUM_INPUTS
from constrint.tune.search.llm.rules import BuiltInProposer
from constrint.tune.store.record import Figures
from constrint.tune.trial import Outcome

LAYERS = ("lstm:16x1024x1x512:bf16", "gru:16x1024x1x768:bf16")
MEASURED = (
    *("layer", "row", "kernel", "config", "outcome", "error_over_bound", "predicted_us", "time_us", "spread_us"),
    *("is_final", "message"),
)
COLUMNS = (
    *("layer", "proposer", "seed", "trials", "is_near", "tried", "is_whole"),
    *("share_4", "share_8", "share_16", "share_32", "best_us", "num_measured", "num_right"),
)
#: The columns that say how near to the best so many trials came.
BUDGETS = (4, 8, 16, 32)
#: What is this much slower than the best, by its first figure, is not timed once more; so many are at most.
FINAL_WITHIN, MOST_FINAL = 1.03, 32
#: How long the round of finalists of a layer may take.
FINAL_S = 60.0
#: Chooses rows and is answered; it hears its rows through the answers that it asks for.
Run = Callable[[Whole, "Listened"], object]


@dataclass
class Listened:
    """Answers of a layer, and the rows that were asked for in order: what is known when the time is up."""

    answers: Asking
    rows: list[int] = field(default_factory=list)

    def __getitem__(self, rows: list[int], /) -> Any:
        """The answers of rows, which count as tried."""
        found = self.answers[rows]
        self.rows += rows
        return found


@dataclass
class Tried:
    """What one proposer tried of a layer."""

    layer: int
    proposer: str
    seed: int
    rows: list[int]
    is_whole: bool


def listed(rows: Callable[[Whole], list[int]], num_trials: int, of: Whole, answers: Listened) -> object:
    """Try rows that are known beforehand."""
    return answers[rows(of)[:num_trials]]


def runs(num_trials: int, num_seeds: int) -> Iterator[tuple[str, int, Run]]:
    """What is compared: a name, a seed, and how it chooses."""
    yield "model's order alone", 0, partial(listed, ordered, num_trials)
    yield "default search by 2", 0, lambda of, answers: searched_rows(of, "model", num_trials, answers, batch=2)
    yield "built-in", 0, lambda of, answers: tried_rows(of, BuiltInProposer, answers, num_trials)
    yield "expert's strategies", 0, lambda of, answers: tried_rows(of, lambda _: Experts(), answers, num_trials)
    for seed in range(num_seeds):
        yield "random", seed, partial(listed, partial(_drawn, seed=seed), num_trials)


def _drawn(of: Whole, seed: int) -> list[int]:
    return shuffled(of, seed)


def measure(bench: Bench, num_trials: int, num_seeds: int, num_top: int) -> list[Tried]:
    """Let every proposer choose in every layer, all at once; what each tried."""
    found: list[Tried] = []
    threads = []
    for layer, of in enumerate(bench.layers):
        bench.ahead(layer, ordered(of)[:num_top])
        for name, seed, tries in runs(num_trials, num_seeds):
            one = Tried(layer, name, seed, [], is_whole=False)
            found.append(one)
            threads.append(threading.Thread(target=_try, args=(bench, one, tries, num_trials), daemon=True))
    for thread in threads:
        thread.start()
    bench.serve(threads)
    for thread in threads:
        thread.join()
    return found


def _try(bench: Bench, one: Tried, tries: Run, num_trials: int) -> None:
    """One proposer in its thread."""
    heard = Listened(Asking(bench, one.layer))
    try:
        tries(bench.layers[one.layer], heard)
        one.is_whole = True
    except OutOfTime:
        pass
    finally:
        one.rows = heard.rows[:num_trials]


def judged_us(first: Mapping[int, float], final: Mapping[int, float]) -> dict[int, float]:
    """The times that rows are judged by: the final figure, or the first one brought to the scale of final figures."""
    both = [row for row in final if math.isfinite(first[row]) and math.isfinite(final[row])]
    scale = statistics.median(final[row] / first[row] for row in both) if both else 1.0
    return {row: final.get(row, scale * time_us) for row, time_us in first.items()}


def row_of(one: Tried, times_us: Mapping[int, float]) -> dict[str, Any]:
    """What is written of a proposer: the trials until one was near enough to the best, and what each budget found."""
    best_us = min(times_us.values(), default=math.inf)
    tried = [times_us[row] for row in one.rows]
    near = [number for number, time_us in enumerate(tried, 1) if math.isfinite(best_us) and SHARE * time_us <= best_us]
    # What was not found counts as one more trial; is_whole says whether there were as many as allowed.
    shares = {f"share_{most}": best_us / min(tried[:most]) for most in BUDGETS if len(tried) >= most}
    shares = {name: share for name, share in shares.items() if math.isfinite(share)}
    return {
        "proposer": one.proposer,
        "seed": one.seed,
        "trials": near[0] if near else len(tried) + 1,
        "is_near": int(bool(near)),
        "tried": len(tried),
        "is_whole": int(one.is_whole),
        **shares,
        "best_us": best_us,
        "num_measured": len(times_us),
        "num_right": sum(map(math.isfinite, times_us.values())),
    }


def written(of: Whole, name: str, row: int, answer: TrialAnswer) -> dict[str, Any]:
    """An answer as a row of the table of measurements."""
    trial, figures = of.trial(row), answer.figures
    times = {} if figures is None else {"time_us": 1e6 * figures.median_s, "spread_us": 1e6 * figures.spread_s}
    return {
        "layer": name,
        "row": row,
        "kernel": trial.kernel,
        "config": json.dumps(trial.config, sort_keys=True),
        "outcome": answer.outcome.name.lower(),
        "error_over_bound": answer.error_over_bound,
        "predicted_us": 1e6 * of.predicted_s(row),
        **times,
        "is_final": int(figures is not None and figures.is_final),
        "message": answer.message,
    }


def recalled(
    rows: Sequence[Mapping[str, str]], names: Sequence[str], layers: Sequence[Whole]
) -> dict[Any, TrialAnswer]:
    """First answers that an earlier run wrote, of configurations that are the same today."""
    found = {}
    for told in rows:
        if told["is_final"] == "1" or told["layer"] not in names:
            continue
        layer, row = names.index(told["layer"]), int(told["row"])
        try:
            trial = layers[layer].trial(row)
        except IndexError:
            continue
        if (trial.kernel, json.dumps(trial.config, sort_keys=True)) != (told["kernel"], told["config"]):
            continue
        seconds = 1e-6 * float(told["time_us"]) if told["time_us"] else None
        spread_s = 1e-6 * float(told["spread_us"] or 0)
        figures = None if seconds is None else Figures(median_s=seconds, spread_s=spread_s, num_rounds=0)
        found[layer, row] = TrialAnswer(
            outcome=Outcome[told["outcome"].upper()], message=told["message"], figures=figures
        )
    return found


def compare(arguments: argparse.Namespace, engine: Engine, gpu: GpuModel) -> None:
    """Run everything, print and write it."""
    started, names = time.monotonic(), list(arguments.layers)
    layers = [Whole(gpu, _workload(name)) for name in names]
    note = f"measured: {described()}"
    earlier_note, earlier = read_whole(arguments.measured) if arguments.measured.exists() else (note, [])
    if earlier_note != note:
        sys.exit(f"{arguments.measured} was measured elsewhere ({earlier_note}): name another file with --measured")
    with Table(arguments.measured, MEASURED, note, earlier) as kept:
        until = started + arguments.limit - FINAL_S
        bench = Bench(
            engine,
            layers,
            arguments.jobs + 2,
            until,
            lambda layer, row, answer: _keep(kept, layers[layer], names[layer], row, answer),
            recalled(earlier, names, layers),
        )
        print(f"{len(bench.answers)} configurations were measured before", flush=True)
        tried = measure(bench, arguments.trials, arguments.seeds, arguments.top)
        with Table(arguments.out, COLUMNS, note) as table:
            for layer, name in enumerate(names):
                first = {row: microseconds(answer) for (of, row), answer in bench.answers.items() if of == layer}
                limit_us = FINAL_WITHIN * min(first.values(), default=math.inf)
                quickest = sorted((row for row in first if first[row] <= limit_us < math.inf), key=first.__getitem__)
                answers = bench.in_turn(layer, quickest[:MOST_FINAL], FINAL_S / len(names))
                for row, answer in answers.items():
                    kept.add(**written(layers[layer], name, row, answer))
                times_us = judged_us(first, {row: microseconds(answer) for row, answer in answers.items()})
                for one in (one for one in tried if one.layer == layer):
                    shown = table.add(layer=name, **row_of(one, times_us))
                    print("  ".join(f"{fact} {value}" for fact, value in shown.items()), flush=True)
    print(f"{time.monotonic() - started:.0f} s", flush=True)
    if bench.why_lost:
        sys.exit(f"ended early: {bench.why_lost}")


def _keep(table: Table, of: Whole, name: str, row: int, answer: TrialAnswer) -> None:
    shown = table.add(**written(of, name, row, answer))
    print(f"{name} {shown['kernel']} {shown['outcome']} {shown.get('time_us', '')} {shown['message']}", flush=True)


def _workload(text: str) -> Any:
    """The workload of `lstm:BxTxNxD:bf16`."""
    cell, sizes, dtype = text.split(":")
    batch, steps, heads, head_dim = map(int, sizes.split("x"))
    return workload_of(cell, (batch, steps, heads, head_dim), dtype, "forward")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="h200", help="the model of the devices")
    parser.add_argument("--gpus", default="0", help="indices of the devices, to which layers are dealt: 0,1")
    parser.add_argument("--layers", nargs="+", default=LAYERS, help="cell:BxTxNxD:dtype, forward")
    parser.add_argument("--trials", type=int, default=40, help="trials of each proposer")
    parser.add_argument("--seeds", type=int, default=3, help="runs that draw at random")
    parser.add_argument("--top", type=int, default=96, help="first ones of the model that are measured whoever asks")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds of the whole run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile")
    parser.add_argument("--out", type=Path, help="where trials are written")
    parser.add_argument("--measured", type=Path, help="where measurements are written, and read if they are there")
    asked = parser.parse_args()
    asked.out = asked.out or FOLDER / asked.gpu / "propose_live.csv"
    asked.measured = asked.measured or FOLDER / asked.gpu / "propose_live_measured.csv"
    from constrint.kernels.registry import load_spec
    from constrint.tune.engine.local import LocalEngine

    gpu = load_gpu(asked.gpu)
    # Inputs are drawn in this run: no proposal can know them.
    setup = Setup(load_spec, gpu, num_inputs=NUM_INPUTS, has_unusual=True, seed=secrets.randbits(31))
    devices = tuple(map(int, asked.gpus.split(",")))
    engine = LocalEngine(setup, devices, num_compilers=asked.jobs)
    try:
        compare(asked, engine, gpu)
    finally:
        engine.close()


if __name__ == "__main__":
    main()
