"""The process that checks and times kernels on one GPU for `bench_gemm_exhaustive.py`, as they become ready."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import gemm_exhaustive as plans
import gemm_timing as timing
import numpy as np
import torch
from gemm_compile import COMPILED, PENDING
from gemm_exhaustive import ORDERS, Plan, Results, Shape
from gemm_replay import Check, Launch, Recorder, replay

#: Other orders of tiles are tried where the first took at most this many times the best so far.
ORDERS_WITHIN = 2.0
#: Configurations within this share of the best so far get three launches, and others up to `GLANCE` two.
REPEAT_WITHIN = 1.3
GLANCE = 3.0
#: Of every shape: rows timed properly, of these the kernels that are timed in all orders, and the finalists.
PROPER, ALL_ORDERS, FINAL = 250, 12, 20
#: Rows slower than the quickest by more than this are not timed properly.
PROPER_WITHIN = 1.25
MODEL_FIRST = 8
ROUNDS = 3
#: Kernels that are looked at together, and how many are looked at one by one after something hung or crashed.
BATCH, CAREFULLY = 8, 64

#: Shape, row, order, launches.
Entry = tuple[int, int, int, list[Launch]]


def work(plan_path: Path, folder: Path, gpu: int, own: list[int], until: float, num_jobs: int) -> None:
    """Time the shapes `own`; `until` ends the first part."""
    plan = Plan.load(plan_path)
    beat = np.memmap(folder / f"beat{gpu}", np.float64, "r+", shape=(3,))
    bench = _Bench(plan, folder, own, beat)
    state = np.memmap(folder / "state", np.uint8, "r", shape=(num_jobs,))
    done = np.memmap(folder / f"done{gpu}", np.uint8, "r+", shape=(num_jobs,))
    needed = np.zeros(num_jobs, dtype=bool)
    for i in own:
        needed[plan.shapes[i].items] = True
    careful = CAREFULLY if np.any(done[needed]) else 0
    done[~needed] = 1
    while not done.all() and time.time() < until:
        ready = np.flatnonzero((done == 0) & (state != PENDING))[: 1 if careful else BATCH]
        beat[:] = time.time(), 1, ready[0] if careful and len(ready) else -1
        if not len(ready):
            time.sleep(0.005)
            continue
        careful = max(0, careful - 1)
        bench.first_part([(item, state[item] == COMPILED) for item in ready.tolist()])
        done[ready] = 1
    print(f"GPU {gpu}: second part", flush=True)
    for i in own:
        bench.second_part(i)
        print(f"GPU {gpu}: {plan.shapes[i].name} done", flush=True)


class _Bench:
    """Operands, results and checks of one GPU's shapes."""

    def __init__(self, plan: Plan, folder: Path, own: list[int], beat: Any) -> None:
        self.plan, self.own, self.beat = plan, own, beat
        self.recorder, self.timer, self.machine = Recorder(), timing.Timer(), timing.this_machine()
        self.results = {i: Results(folder, i, plan.shapes[i]) for i in own}
        self.rows = {i: _rows_of(plan.shapes[i]) for i in own}
        #: Wrong elements of every launch since they were last read.
        self.wrong = torch.zeros((256, 4), dtype=torch.int32, device="cuda")
        self.cases, self.checks = {}, {}
        for i in own:
            case = timing.make_case(*plan.shapes[i].sizes, plans.DTYPE)
            self.checks[i] = Check(self.recorder, case.out, case.expected, case.bound, self.wrong)
            # The check holds them in the precision it needs.
            self.cases[i] = timing.Case(case.a, case.b, case.out, case.expected[:0], case.bound[:0])
            a, b = case.a[0], case.b[0]
            cold, _ = self.timer.cold_us(lambda a=a, b=b: a @ b)
            figures = self.results[i].figures
            figures[1:] = np.fmin(figures[1:], (cold, self.timer.warm_us(lambda a=a, b=b: a @ b, cold)))
        self.recorder.modules.clear()
        self.underway: list[Entry] = []
        #: Where the order of tiles stands among a kernel's arguments.
        self.places: dict[tuple[int, int, int, bool], int] = {}
        self.events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(256)]

    def first_part(self, kernels: list[tuple[int, bool]]) -> None:
        """Check and glance at every row of some kernels, of which it is known whether they compiled."""
        glanced: list[Entry] = []
        for item, is_compiled in kernels:
            for i in self.own:
                for row in self.rows[i].get(item, ()):
                    order = int(np.argmax(self.plan.shapes[i].valid[row]))
                    outcome, launches = self._record(i, row, order) if is_compiled else (plans.NOT_COMPILED, [])
                    self.results[i].outcome[row, order] = outcome
                    if outcome == plans.RIGHT:
                        glanced.append((i, row, order, launches))
                        self._enqueue(glanced[-1])
        self._collect()
        for i, row, order, launches in glanced:
            results = self.results[i]
            microseconds, best = results.quick_us[row, order], results.figures[0]
            if results.outcome[row, order] != plans.RIGHT:
                continue
            times = 2 if microseconds < REPEAT_WITHIN * best else 1
            if microseconds < GLANCE * best or microseconds < 200:
                for _ in range(times):
                    self._enqueue((i, row, order, launches))
            if microseconds < ORDERS_WITHIN * best:
                for other in np.flatnonzero(self.plan.shapes[i].valid[row]).tolist():
                    if other != order:
                        results.outcome[row, other] = plans.RIGHT
                        entry = (i, row, other, self._reordered(i, row, launches, (order, other)))
                        for _ in range(times):
                            self._enqueue(entry)
        self._collect()
        self.recorder.unload()

    def _record(self, i: int, row: int, order: int) -> tuple[int, list[Launch]]:
        case, config = self.cases[i], self.plan.shapes[i].config(row, order)
        try:
            return plans.RIGHT, self.recorder.record(timing.caller(case, config, self.machine))
        except Exception as error:  # noqa: BLE001 - recorded as the row's outcome
            print(f"{self.plan.shapes[i].name} {config}: {type(error).__name__} {str(error)[-100:]}", flush=True)
            return plans.REFUSED, []

    def _reordered(self, i: int, row: int, launches: list[Launch], orders: tuple[int, int]) -> list[Launch]:
        """The same launches in another order of tiles, which is an argument of the last one."""
        was, wanted = (ORDERS[order] for order in orders)
        *before, (launcher, args) = launches
        config = self.plan.shapes[i].config(row, orders[0])
        kind = (len(args), config["descriptor"], config["producer"], config["split_k"] > 1)
        if kind not in self.places:
            other = self.recorder.record(timing.caller(self.cases[i], config | {"group_m": 1 + was}, self.machine))
            for place, (a, b) in enumerate(zip(args, other[-1][1], strict=True)):
                if type(a) is int and type(b) is int and b == a + 1 == was + 1:
                    self.places[kind] = place
        changed = list(args)
        changed[self.places[kind]] = wanted
        return [*before, (launcher, changed)]

    def _enqueue(self, entry: Entry) -> None:
        """Launch once with a cold L2, check, and poison the output again."""
        if len(self.underway) == len(self.events):
            self._collect()
        begin, end = self.events[len(self.underway)]
        self.timer.flush.zero_()
        begin.record()
        replay(entry[3])
        end.record()
        self.checks[entry[0]](len(self.underway))
        self.underway.append(entry)

    def _collect(self) -> None:
        """Wait for what is under way; keep the least time of every row, and whether any of its results were wrong."""
        wrong = self.wrong[:, 0].cpu().numpy()
        self.wrong.zero_()
        for number, (i, row, order, _) in enumerate(self.underway):
            results = self.results[i]
            if wrong[number]:
                results.outcome[row, order] = plans.WRONG
                config = self.plan.shapes[i].config(row, order)
                print(f"{self.plan.shapes[i].name} {config}: {wrong[number]} wrong", flush=True)
                continue
            begin, end = self.events[number]
            microseconds = 1e3 * begin.elapsed_time(end)
            results.quick_us[row, order] = np.fmin(results.quick_us[row, order], microseconds)
            results.figures[0] = min(results.figures[0], microseconds)
        self.underway.clear()

    def second_part(self, i: int) -> None:
        """Time the best of one shape and the model's choices properly."""
        shape, results = self.plan.shapes[i], self.results[i]
        chosen = list(map(tuple, shape.choices.tolist()))
        quick = np.where(results.outcome == plans.RIGHT, results.quick_us, np.nan)
        for row, order in self._proper(shape, quick, chosen):
            if np.isnan(results.cold_us[row, order]) and results.outcome[row, order] in (plans.RIGHT, plans.NOT_RUN):
                self._time(i, row, order)
        fastest = np.argsort(np.where(np.isnan(results.cold_us), np.inf, results.cold_us), axis=None)[:FINAL]
        final = [tuple(map(int, np.unravel_index(flat, results.cold_us.shape))) for flat in fastest]
        final = [p for p in dict.fromkeys(final + chosen[:MODEL_FIRST]) if not np.isnan(results.cold_us[p])]
        times: dict[tuple[int, ...], list[float]] = {place: [] for place in final}
        a, b = self.cases[i].a[0], self.cases[i].b[0]
        library = [results.figures[1]]
        for _ in range(ROUNDS):
            library.append(self.timer.cold_us(lambda: a @ b)[0])
            for row, order in final:
                self.beat[:] = time.time(), 2, shape.items[row]
                times[row, order].append(self.timer.cold_us(self._call(i, row, order))[0])
        results.figures[1] = statistics.median(library)
        for place, measured in times.items():
            results.again_us[place] = statistics.median(measured)
        torch.cuda.synchronize()
        self.recorder.unload()

    @staticmethod
    def _proper(shape: Shape, quick: Any, chosen: list[Any]) -> list[tuple[int, int]]:
        """The quickest rows, every order of the quickest kernels, and the choices of the model."""
        flat = np.argsort(np.where(np.isnan(quick), np.inf, quick), axis=None)[:PROPER]
        near = PROPER_WITHIN * np.nanmin(quick)
        places = [tuple(map(int, np.unravel_index(f, quick.shape))) for f in flat if quick.flat[f] <= near]
        kernels = list(dict.fromkeys(row for row, _ in places))[:ALL_ORDERS]
        kernels += [row for row, _ in chosen[:MODEL_FIRST]]
        orders = [(row, order) for row in kernels for order in range(len(ORDERS)) if shape.valid[row, order]]
        return list(dict.fromkeys([*chosen, *places, *orders]))

    def _call(self, i: int, row: int, order: int) -> Any:
        return timing.caller(self.cases[i], self.plan.shapes[i].config(row, order), self.machine)

    def _time(self, i: int, row: int, order: int) -> None:
        self.beat[:] = time.time(), 2, self.plan.shapes[i].items[row]
        results, call = self.results[i], self._call(i, row, order)
        try:
            if results.outcome[row, order] == plans.NOT_RUN:
                outcome, launches = self._record(i, row, order)
                results.outcome[row, order] = outcome
                if launches:
                    self._enqueue((i, row, order, launches))
                    self._collect()
            if results.outcome[row, order] == plans.RIGHT:
                cold, _ = self.timer.cold_us(call, 15)
                results.cold_us[row, order], results.warm_us[row, order] = cold, self.timer.warm_us(call, cold)
        except Exception as error:  # noqa: BLE001 - recorded as the row's outcome
            print(f"{self.plan.shapes[i].name}: {type(error).__name__} {str(error)[-200:]}", flush=True)
            torch.cuda.synchronize()  # ends this process where the device is lost to it
            results.outcome[row, order] = plans.REFUSED


def _rows_of(shape: Shape) -> dict[int, list[int]]:
    """Rows by their kernel."""
    rows: dict[int, list[int]] = {}
    for row, item in enumerate(shape.items.tolist()):
        rows.setdefault(item, []).append(row)
    return rows
