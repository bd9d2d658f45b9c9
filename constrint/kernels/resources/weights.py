"""Reading and writing the fitted weights, `data/<kernel>.json`, with where they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from constrint.kernels.resources.registers import RegisterModel

DATA = Path(__file__).parent / "data"


class LeftOut(msgspec.Struct, frozen=True):
    """What fits said of kernels that were left out of them, each kernel once.

    Args:
        counts: Kernels whose register count says what they need.
        median_error: Median relative error of the estimate for these, in percent.
        p90_error: The error that one in ten of them exceeds, in percent.
        kernels: All of them.
        spilled: Those that spill.
        expected: The sum of their chances to spill: as many as `spilled` where the chances are right.
        log_loss: Mean of -ln of the chance that was given to what came true: 0 is certainty, 0.69 a coin's.
    """

    counts: int
    median_error: float | None
    p90_error: float | None
    kernels: int
    spilled: int
    expected: float
    log_loss: float


class FittedModel(RegisterModel, frozen=True, kw_only=True):
    """Weights, and what they were fitted to.

    Args:
        targets: Targets of the kernels that the weights were fitted to.
        kernels: How many kernels these were.
        left_out: What was said of the kernels that take these weights while they were left out of the fit; null where
            every recorded target has weights of its own, or where kernels are too few to leave some out.
    """

    targets: tuple[str, ...]
    kernels: int
    left_out: LeftOut | None


class Weights(msgspec.Struct, frozen=True):
    """One kernel's file of weights.

    Args:
        compilers: Compilers of the sample.
        fitted_on: Date of the fit.
        command: The command that wrote the file.
        models: Weights by family of kernels.
    """

    compilers: tuple[str, ...]
    fitted_on: str
    command: str
    models: dict[str, FittedModel]


@cache
def load_models(kernel: str) -> Mapping[str, FittedModel]:
    """The weights of a kernel by family."""
    return read_weights(DATA / f"{kernel}.json").models


def read_weights(path: Path) -> Weights:
    """Read a file of weights."""
    return msgspec.json.decode(path.read_bytes(), type=Weights)


def write_weights(weights: Weights, path: Path) -> None:
    """Write a file of weights, one figure a line, so that changes of a figure can be read."""
    head = msgspec.to_builtins(weights)
    models = head.pop("models")
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    blocks = []
    for name, model in models.items():
        fields = ",\n".join(f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in model.items())
        blocks.append(f"  {json.dumps(name)}: {{\n{fields}\n  }}")
    path.write_text("\n".join(["{", *lines, ' "models": {', ",\n".join(blocks), " }", "}", ""]))
