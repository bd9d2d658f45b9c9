"""Records of trials for tests."""

from __future__ import annotations

from typing import Any

from constrint.tune.store.record import Figures, TuningRecord

TOOLCHAIN = {"triton": "3.6.0", "torch": "2.11.0", "cuda": "12.9", "driver": "570.1"}


def record(number: int = 0, **changes: Any) -> TuningRecord:
    """A record that differs from those of other numbers in its configuration and its time of creation."""
    values: dict[str, Any] = {
        "kernel": "gemm.pointer",
        "operation": "gemm",
        "gpu": "H200",
        "dtype": "bf16",
        "sizes": {"m": 4096, "n": 4096, "k": 4096},
        "config": {"tile_m": 128, "tile_n": 64, "number": number},
        "outcome": "ok",
        "run": "run-1",
        "created": 1_760_000_000.0 + number,
        "source_hash": "a1",
        "spec_hash": "b2",
        "toolchain": TOOLCHAIN,
        "figures": timed(1e-4),
    }
    return TuningRecord(**values | changes)


def timed(median_s: float, *, is_final: bool = False, cache: str = "cold") -> Figures:
    """Figures of which only the median matters."""
    return Figures(median_s=median_s, spread_s=median_s / 50, num_rounds=20, is_final=is_final, cache=cache)
