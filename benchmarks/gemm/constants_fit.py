"""Robust least squares over logarithms of times, for constants of a cost model, and the file that these go to."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.table import read_rows
from constrint.kernels.gemm.measured import ConstantEntry, ConstantsFile

C = TypeVar("C")

#: Relative error from which on a configuration counts less than its square.
OUTLIER = 0.1
#: Iterations, the smallest step that is taken, and by how much a constant is moved to see what it does.
ITERATIONS, LEAST_STEP, NUDGE = 40, 1e-4, 1e-3


def weights_of(seconds: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the weight of each configuration: fast ones count most, all products equally."""
    return np.concatenate([(each.min() / each) / len(each) ** 0.5 for each in seconds])


def rows_by_product(
    path: Path, kernel: str, takes: Callable[[dict[str, str]], bool] = lambda row: True
) -> list[list[dict[str, str]]]:
    """The timed rows of a kernel in a table that are taken, by product."""
    rows: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in read_rows(path):
        if row["us"] and takes(row) and row.get("kernel", kernel) == kernel:
            rows[tuple(row[name] for name in ("m", "n", "k", "dtype", "layout"))].append(row)
    return list(rows.values())


def print_constants(constants: Any, names: Sequence[str], what: str) -> None:
    """A line for each constant that was fitted."""
    print(f"# fitted to {what}")
    print("\n".join(f"{name:24} {getattr(constants, name):.3g}" for name in names), flush=True)


def fitted(
    start: C,
    names: Sequence[str],
    seconds: Sequence[NDArray[np.float64]],
    predicted: Callable[[C], Sequence[NDArray[np.float64]]],
    stiffness: float,
) -> C:
    """Constants whose predictions are nearest to times, in steps of the constants' logarithms.

    Args:
        start: A data class of constants: where the fit begins.
        names: Those that are fitted.
        seconds: Times of the configurations of each product.
        predicted: Predicts these times from constants.
        stiffness: A constant that times say nothing of stays where it was: what a change by a factor of e costs, in
            rows.
    """
    weights, truth = weights_of(seconds), np.log(np.concatenate(seconds))
    begin = np.log([getattr(start, name) for name in names])
    prior = stiffness * OUTLIER * float(np.sqrt(np.mean(weights**2)))

    def made(at: NDArray[np.float64]) -> C:
        record: Any = start
        changed: C = replace(record, **dict(zip(names, np.exp(at).tolist(), strict=True)))
        return changed

    def errors(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.log(np.concatenate(predicted(made(at)))) - truth)

    def loss(error: NDArray[np.float64], at: NDArray[np.float64]) -> float:
        each = 2 * OUTLIER**2 * (np.sqrt(1 + (error / OUTLIER) ** 2) - 1)
        return float(np.sum(weights**2 * each) + np.sum((prior * (at - begin)) ** 2))

    at, damping = begin.copy(), 1e-2
    error = errors(at)
    for _ in range(ITERATIONS):
        slopes = np.stack([(errors(at + NUDGE * unit) - error) / NUDGE for unit in np.eye(len(names))], axis=1)
        counts = weights**2 / np.sqrt(1 + (error / OUTLIER) ** 2)
        normal = slopes.T @ (counts[:, None] * slopes) + prior**2 * np.eye(len(names))
        downhill = -(slopes.T @ (counts * error) + prior**2 * (at - begin))
        for _ in range(8):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill)
            step = np.clip(step, -0.5, 0.5)
            tried = errors(at + step)
            if loss(tried, at + step) < loss(error, at):
                break
            damping *= 4
        else:
            break
        at, error, damping = at + step, tried, max(damping / 4, 1e-6)
        if np.abs(step).max() < LEAST_STEP:
            break
    return made(at)


def write_constants(file: Path, constants: object, *, measured: str, note: str) -> None:
    """Replace the values in a file of constants, three digits of each; what each is and where it is from stays.

    Args:
        file: The file.
        constants: Has an attribute of each constant's name.
        measured: The results that the values rest on.
        note: The note of the file about the constants.
    """
    read = msgspec.json.decode(file.read_bytes(), type=ConstantsFile)
    entries = {
        name: msgspec.structs.replace(entry, value=float(f"{getattr(constants, name):.3g}"))
        for name, entry in read.constants.items()
    }
    head: Mapping[str, str] = {"device": read.device, "measured": measured, "note": note}
    lines = [f"  {_json(name)}: {_json(text)}," for name, text in head.items()]
    rows = [f"    {_json(name)}: {_json(entry)}" for name, entry in entries.items()]
    text = "\n".join(["{", *lines, '  "constants": {', ",\n".join(rows), "  }", "}"])
    file.write_text(text + "\n", encoding="utf-8")


def _json(value: str | ConstantEntry) -> str:
    return json.dumps(value if isinstance(value, str) else msgspec.to_builtins(value), ensure_ascii=False)
