"""`constrint.prune` and `constrint.perf_model`: functions for `prune_configs_by` of `triton.autotune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrint.lazy import lazily

if TYPE_CHECKING:
    from constrint.kernels.launch.pruning.pruner import PerfModel, Pruner, perf_model, prune

__all__ = ["PerfModel", "Pruner", "perf_model", "prune"]

__getattr__ = lazily(__name__, {"pruner": ("PerfModel", "Pruner", "perf_model", "prune")})
