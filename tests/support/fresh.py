"""Kernels that no fit has seen, compiled on the spot, and what their rules and chances have to be worth."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.resources.check import LIMITS, check_fresh
from benchmarks.resources.sample import KernelSample, Row, draw
from constrint.errors import UnsupportedError
from constrint.model import Var
from tests.support.calibration import check_count
from tests.support.compiled import PACKAGE, Compiler

#: How much of a thread's registers a configuration may be estimated to take: compilers assign them for a minute where
#: there are far more than the 255 or 512 that there can be. (An LSTM backward, 384 units, one wave: 64 s of LLVM, in
#: gigabytes; a product of int8 in tiles of 32x256x256, one warp, estimated at 6,287: 68 s of ptxas.)
MOST_REGISTERS = 640


def fresh_rows(sample: KernelSample, target: str, number: int, seed: int) -> list[Row]:
    """Rows of a target drawn at random, of those that compile soon, valid and excluded ones alike."""
    drawn = draw(sample, target, {"fair": 10 * number}, seed)
    rows = list(islice((row for row in drawn if _compiles_soon(sample, row)), number))
    assert len(rows) == number
    return rows


def _compiles_soon(sample: KernelSample, row: Row) -> bool:
    gpu, spec, workload, config = sample.request(row)
    use = spec.use(gpu, workload, {name: Var(name) for name in config})
    assert use is not None
    return use.registers_per_thread.value(config) <= MOST_REGISTERS


def seed_of(patterns: Iterable[str], *more: Any) -> int:
    """A seed that changes with files of the package and with other content."""
    text = hashlib.sha256(repr(more).encode())
    for pattern in patterns:
        files = sorted(PACKAGE.glob(pattern))
        assert files, pattern
        for file in files:
            text.update(Path(file).read_bytes())
    return int.from_bytes(text.digest()[:4], "big")


def compiled_rows(compiler: Compiler, sample: KernelSample, rows: Iterable[Row]) -> Iterator[Row]:
    """Rows as a table would have them: with what the compiler made of them."""
    for row in rows:
        gpu, spec, workload, config = sample.request(row)
        try:
            found = compiler.compile(spec, gpu, workload, config)
        except UnsupportedError as error:
            yield {**row, "error": str(error)[-120:], "spill_bytes": "", "smem_bytes": "", "registers": "", "agprs": ""}
            continue
        yield {
            **row,
            "smem_bytes": found.smem_bytes,
            "registers": found.registers_per_thread,
            "agprs": found.accumulator_registers,
            "spill_bytes": found.spill_bytes,
            "instruction": found.instruction,
            "error": "",
        }


def check_most_fit(sample: KernelSample, rows: Iterable[Row]) -> None:
    """Half of a whole sample at least breaks no limit for certain: else it would say nothing of kernels that run."""
    asked = [sample.request(row) for row in rows]
    limits = [
        [rule for rule in one.spec.problem(one.gpu, one.workload).constraints if rule.name in LIMITS] for one in asked
    ]
    fit = [all(rule.holds(one.config) for rule in rules) for one, rules in zip(asked, limits, strict=True)]
    assert sum(fit) >= len(fit) / 2, f"{sum(fit)} of {len(fit)}"


def check_fair_rows(sample: KernelSample, rows: Iterable[Row]) -> None:
    """What is excluded for certain does not run clean, what is not runs, and as many spill as are expected to.

    A kernel for which the assembler has no registers at all counts as one that spills.
    """
    compiled = list(rows)
    refused = [f"{row['error']}: {row}" for row in compiled if row["error"] and "ptxas" not in row["error"]]
    assert refused == [], "\n".join(refused)
    (found,) = check_fresh(sample, compiled).values()
    assert found.wrong == [], "\n".join(found.wrong)
    assert (found.pruned_fit, found.valid_exceed) == (0, 0)
    assert found.pruned + found.valid == len(compiled)
    check_count(found.chances, found.spills)
