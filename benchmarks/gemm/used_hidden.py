"""`benchmarks.gemm.used --no-tables`: this GPU as one that nothing was measured on.

Its own tables of the library, corrections and winners are hidden; the library is estimated by the slowdowns of the
reference GPU (`library/estimate.py`), which are spread by classes alone.
"""

from __future__ import annotations

from typing import Any

from constrint.kernels.gemm import correction
from constrint.kernels.gemm.library import cost, estimate
from constrint.select import winners


def hide(hidden: str) -> None:
    """Hide the tables of a GPU, by its model's name."""
    answering, correctors = cost.answering, correction.correctors
    modules: dict[Any, dict[str, Any]] = {
        cost: {"answering": lambda name: None if name == hidden else answering(name)},
        correction: {"correctors": lambda name, group: {} if name == hidden else correctors(name, group)},
        estimate: {"_reference": lambda _: estimate.REFERENCE},
        winners: {"toolchain": dict},
    }
    for module, replaced in modules.items():
        for name, value in replaced.items():
            setattr(module, name, value)
