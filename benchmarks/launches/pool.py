"""Processes that run groups of launches: a group that ends its process is a failure, and another process goes on."""

from __future__ import annotations

import json
import os
import queue
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

#: Seconds after which a group is taken to hang.
HANGS_S = 150.0
#: Processes that are started in place of ended ones, at most.
MOST_STARTS = 40


def work(place: int, counter: Any, results: Any, options: dict[str, Any]) -> None:
    """One process: groups until there are enough launches or no time."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    from benchmarks.launches.group import run_group

    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    while time.time() < options["until"]:
        with counter.get_lock():
            number = counter.value
            counter.value += 1
        while number in options["done"]:
            with counter.get_lock():
                number = counter.value
                counter.value += 1
        if number >= options["last"]:
            break
        results.put(("begin", place, number, None))
        started = time.time()
        try:
            outcome = run_group(options["seed"], number, options["device"], options["kind"])
        except Exception as error:  # noqa: BLE001 - the device is lost, and another process goes on
            results.put(("lost", place, number, f"{type(error).__name__}: {str(error)[:400]}"))
            results.close()
            results.join_thread()
            os._exit(3)
        found = {
            "group": number, "launches": outcome.launches, "failures": outcome.failures,
            "counts": dict(outcome.counts), "refused": dict(outcome.refused), "seconds": time.time() - started,
        }  # fmt: skip
        results.put(("end", place, number, found))
    results.put(("stop", place, -1, None))


class Pool:
    """Processes that run groups; one that dies is replaced, and its group is a failure."""

    def __init__(self, size: int, options: dict[str, Any], out: Path | None) -> None:
        context = get_context("spawn")
        self.context, self.options, self.out = context, options, out
        self.counter, self.results = context.Value("q", options["first"]), context.Queue()
        self.workers: dict[int, Any] = {}
        self.running: dict[int, tuple[int, float]] = {}
        self.found: list[dict[str, Any]] = []
        self.starts = 0
        for place in range(size):
            self._start(place)

    def _start(self, place: int) -> None:
        arguments = place, self.counter, self.results, self.options
        self.workers[place] = self.context.Process(target=work, args=arguments, daemon=True)
        self.workers[place].start()

    def run(self) -> list[dict[str, Any]]:
        """All groups."""
        number, told = 0, time.time()
        while self.workers:
            try:
                what, place, group, found = self.results.get(timeout=0.5)
            except queue.Empty:
                self._look_after()
                continue
            if what == "begin":
                self.running[place] = group, time.time()
            elif what == "stop":
                self.running.pop(place, None)
                self.workers.pop(place).join()
            elif what == "lost":
                self._lost(place, group, str(found))
            else:
                self.running.pop(place, None)
                self._keep(found)
                number += found["launches"]
                if number >= self.options["count"]:
                    self.options["until"] = 0.0
                    with self.counter.get_lock():
                        self.counter.value = 1 << 40
            if time.time() - told > 20:
                told = time.time()
                print(f"  {number} launches, {sum(len(f['failures']) for f in self.found)} failures", flush=True)
        return self.found

    def _keep(self, found: dict[str, Any]) -> None:
        self.found.append(found)
        if self.out is not None:
            with self.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"seed": self.options["seed"], **found}) + "\n")

    def _look_after(self) -> None:
        for place, worker in list(self.workers.items()):
            group, since = self.running.get(place, (-1, time.time()))
            if not worker.is_alive():
                self._lost(place, group, f"the process ended with {worker.exitcode}")
            elif time.time() - since > HANGS_S:
                worker.kill()
                self._lost(place, group, f"no end after {HANGS_S:.0f} s")

    def _lost(self, place: int, group: int, why: str) -> None:
        worker = self.workers.pop(place, None)
        if worker is not None:
            worker.join(5)
        self.running.pop(place, None)
        line = f"{self.options['seed']}:{group} {why}"
        self._keep({"group": group, "launches": 1, "failures": [line], "counts": {}, "refused": {}, "seconds": 0.0})
        self.starts += 1
        if (
            self.starts <= MOST_STARTS
            and time.time() < self.options["until"] - 15
            and self.counter.value < self.options["last"]
        ):
            self._start(place)
