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
from gemm_compile import PENDING
from gemm_exhaustive import ORDERS, Plan, Results, Shape
from gemm_replay import Check, Launch, Recorder, replay

#: Other orders of tiles are tried where the first took at most this many times the best so far.
ORDERS_WITHIN = 2.0
#: Configurations within this share of the best so far get three launches, and others up to `GLANCE` two.
REPEAT_WITHIN = 1.3
GLANCE = 3.0
#: Of every shape: rows timed properly, of these the kernels that are timed in all orders, and the finalists.
PROPER, ALL_ORDERS, FINAL = 250, 12, 20
MODEL_FIRST = 8
ROUNDS = 3


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
    done[~needed] = 1
    while not done.all() and time.time() < until:
        beat[:] = time.time(), 1, -1
        ready = np.flatnonzero((done == 0) & (state != PENDING))[:64]
        if not len(ready):
            time.sleep(0.005)
        for item in ready.tolist():
            beat[:] = time.time(), 1, item
            bench.first_part(item, is_compiled=state[item] == 1)
            done[item] = 1
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
        self.events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(256)]

    def first_part(self, item: int, *, is_compiled: bool) -> None:
        """Check and glance at every row of one kernel."""
        todo: list[tuple[int, int, int, list[Launch]]] = []
        for i in self.own:
            for row in self.rows[i].get(item, ()):
                order = int(np.argmax(self.plan.shapes[i].valid[row]))
                outcome, launches = self._record(i, row, order) if is_compiled else (plans.NOT_COMPILED, [])
                self.results[i].outcome[row, order] = outcome
                if outcome == plans.RIGHT:
                    todo.append((i, row, order, launches))
        again: list[tuple[int, int, int, list[Launch]]] = []
        for entry, microseconds in zip(todo, self._measure(todo), strict=True):
            i, row, order, launches = entry
            best = self.results[i].figures[0]
            if microseconds < GLANCE * best or microseconds < 200:
                again += [entry] * (2 if microseconds < REPEAT_WITHIN * best else 1)
            if microseconds < ORDERS_WITHIN * best:
                for other in np.flatnonzero(self.plan.shapes[i].valid[row]).tolist():
                    if other != order:
                        outcome, launches = self._record(i, row, other)
                        self.results[i].outcome[row, other] = outcome
                        if outcome == plans.RIGHT:
                            again += [(i, row, other, launches)] * (2 if microseconds < REPEAT_WITHIN * best else 1)
        self._measure(again)
        self.recorder.unload()

    def _record(self, i: int, row: int, order: int) -> tuple[int, list[Launch]]:
        case, config = self.cases[i], self.plan.shapes[i].config(row, order)
        try:
            return plans.RIGHT, self.recorder.record(timing.caller(case, config, self.machine))
        except Exception as error:  # noqa: BLE001 - recorded as the row's outcome
            print(f"{self.plan.shapes[i].name} {config}: {type(error).__name__} {str(error)[-100:]}", flush=True)
            return plans.REFUSED, []

    def _measure(self, entries: list[tuple[int, int, int, list[Launch]]]) -> list[float]:
        """Launch each once with a cold L2 and check it; keep the least time of every row."""
        found = []
        for start in range(0, len(entries), len(self.events)):
            part = entries[start : start + len(self.events)]
            for number, (entry, (begin, end)) in enumerate(zip(part, self.events, strict=False)):
                self.timer.flush.zero_()
                begin.record()
                replay(entry[3])
                end.record()
                self.checks[entry[0]](number)
            wrong = self.wrong[:, 0].cpu().numpy()  # waits for all of it
            self.wrong.zero_()
            for number, ((i, row, order, _), (begin, end)) in enumerate(zip(part, self.events, strict=False)):
                found.append(1e3 * begin.elapsed_time(end))
                results = self.results[i]
                if wrong[number]:
                    results.outcome[row, order] = plans.WRONG
                    config = self.plan.shapes[i].config(row, order)
                    print(f"{self.plan.shapes[i].name} {config}: {wrong[number]} wrong", flush=True)
                    continue
                results.quick_us[row, order] = np.fmin(results.quick_us[row, order], found[-1])
                results.figures[0] = min(results.figures[0], found[-1])
        return found

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
        places = [tuple(map(int, np.unravel_index(f, quick.shape))) for f in flat if not np.isnan(quick.flat[f])]
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
                self._measure([(i, row, order, launches)] if launches else [])
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
