"""Other tuners' searches over recorded rows: Kernel Tuner's strategies, driven as its own simulation drives them."""

from __future__ import annotations

import contextlib
import random
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.tuning.recorded import Recorded

#: Kernel Tuner's strategies that finish within such budgets on tens of thousands of configurations.
STRATEGIES = (
    "greedy_ils",
    "greedy_mls",
    "genetic_algorithm",
    "bayes_opt",
    "pso",
    "diff_evo",
    "simulated_annealing",
    "dual_annealing",
    "firefly_algorithm",
    "hybrid_vndx",
    "adaptive_tabu_greywolf",
)
KERNEL = "kernel"


class KernelTuner:
    """Kernel Tuner over one workload's recorded rows, all kernels in one space with the kernel as a parameter.

    Args:
        recorded: The rows.
    """

    def __init__(self, recorded: Recorded) -> None:
        from kernel_tuner.searchspace import Searchspace

        self.recorded = recorded
        names = [n for n in recorded.measured.columns if any(n in k.columns for k in recorded.candidates.kernels)]
        self.rows: dict[str, int] = {}
        configs: dict[str, dict[str, int]] = {}
        for place, (kernel, rows) in enumerate(recorded.rows.items()):
            columns = recorded.candidates.kernels[recorded.candidates.by_name[kernel]].columns
            for row in rows.tolist():
                values = {n: int(recorded.measured.columns[n][row]) if n in columns else 0 for n in names}
                config = {KERNEL: place, **values}
                key = ",".join(map(str, config.values()))
                configs[key], self.rows[key] = config, row
        every = [KERNEL, *names]
        self.params = {name: sorted({config[name] for config in configs.values()}) for name in every}
        self.space = Searchspace(None, None, None, from_cache={"tune_params": self.params, "cache": configs})

    def search(self, strategy: str, num_trials: int, seed: int) -> list[int]:
        """The rows that a strategy tries, in order, each once."""
        from kernel_tuner.interface import Options, strategy_map
        from kernel_tuner.util import StopCriterionReached, TuningBudget

        random.seed(seed)
        np.random.seed(seed)
        runner = _Runner(self)
        options = Options(
            {
                "objective": ["time"],
                "objective_higher_is_better": [False],
                "strategy_options": Options({"max_fevals": num_trials}),
                "max_fevals": num_trials,
                "tune_params": self.params,
                "restrictions": [],
                "budget": TuningBudget(None, num_trials),
                "verbose": False,
                "cache": {},
            }
        )
        with warnings.catch_warnings(), contextlib.suppress(StopCriterionReached):
            warnings.simplefilter("ignore")
            strategy_map[strategy].tune(self.space, runner, options)
        return runner.tried


class _Runner:
    """Answers with recorded times; Kernel Tuner's own simulation counts likewise: each configuration once."""

    def __init__(self, tuner: KernelTuner) -> None:
        self.tuner = tuner
        self.tried: list[int] = []
        self.dev = SimpleNamespace(max_threads=1 << 30)
        self._known: set[str] = set()

    def add_strategy_time(self, seconds: float) -> None:
        """How long the strategy thought does not matter here."""

    def available_parallelism(self) -> int:
        """One device."""
        return 1

    def run(self, parameter_space: Any, tuning_options: Any) -> list[dict[str, Any] | None]:
        """The times of configurations; None for those beyond the budget."""
        results: list[dict[str, Any] | None] = []
        for element in parameter_space:
            if tuning_options.budget.is_done():
                results.append(None)
                continue
            key = ",".join(str(int(value)) for value in element)
            row = self.tuner.rows[key]
            if key not in self._known:
                self._known.add(key)
                self.tried.append(row)
                tuning_options.budget.add_evaluations(1)
            config = dict(zip(self.tuner.params, (int(value) for value in element), strict=True))
            results.append({**config, "time": float(self.tuner.recorded.first_us[row])})
        return results
