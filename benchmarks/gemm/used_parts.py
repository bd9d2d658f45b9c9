"""The parts of `benchmarks.gemm.used`'s cases that all kinds share: a case, its sizes, operands and bounds."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from constrint.errors import ConstrintError

Run = Callable[[], Any]
#: Largest number of multiplications of a case, and of elements of its largest operand.
MOST_PRODUCTS, MOST_ELEMENTS = 2**39, 2**27
#: Sizes of language models and vision models, taken for half of all cases; others are drawn between 64 and 16,384.
USUAL = (64, 128, 256, 320, 512, 768, 1024, 1280, 1536, 2048, 2560, 3072, 4096, 5120, 8192, 11008, 14336)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 2048, 4096, 8192, 16384)
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
}
HALF = (torch.bfloat16, torch.float16)
NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float8_e4m3fn: "fp8"}
#: Half a unit in the last place of a type, relative, at most: half of `torch.finfo(dtype).eps`.
HALF_UNITS = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}


@dataclass
class UsedCase:
    """One case.

    Args:
        kind: Its kind.
        name: Its sizes and layout.
        make: Makes the operands, and returns the call of torch, ours by the name of a kernel, and the reference, which
            returns one tensor in fp64 with the greatest error that an element may have.
        programs: Programs of ours that are always called by name, too; "compiled" is `torch.compile` of torch's call.
    """

    kind: str
    name: str
    make: Callable[[], tuple[Run, Callable[[str], Any], Callable[[], tuple[Tensor, Tensor]]]]
    programs: Sequence[str] = ()
    _made: Any = field(default=None, repr=False)
    _expected: Any = field(default=None, repr=False)

    def _operands(self) -> Any:
        if self._made is None:
            self._made = self.make()
        return self._made

    def calls(self, each: Sequence[str]) -> dict[str, Run]:
        """Torch's call, ours, and ours by the name of each kernel, or of each program of the case."""
        theirs, ours, _ = self._operands()
        named = {name: partial(ours, name) for name in self.programs or each}
        return {"torch": theirs, "ours": partial(ours, "auto")} | named

    def is_right(self, call: Run) -> bool:
        """Whether a result is within the bound everywhere; results of several tensors are checked by their first."""
        if self._expected is None:
            self._expected = self._operands()[2]()
        out, (expected, most) = call(), self._expected
        return bool(((out.double() - expected).abs() <= most).all())

    def forget(self) -> None:
        """Drop the operands and the reference."""
        self._made = self._expected = None

    def program(self) -> str:
        """The program that runs, with the times of a trial where there was one; else the one that `auto` chooses."""
        ours = self._operands()[1]
        if hasattr(ours, "note"):
            return str(ours.note())
        why = getattr(ours, "why", None)
        if why is None:
            return ""
        try:
            decision = why()
        except ConstrintError as error:
            return str(error).splitlines()[0]
        if decision.recorded:
            return str(decision.recorded)
        program = decision.program
        steps = (" ".join(f"{name}={value}" for name, value in step.config.items()) for step in program.steps)
        return f"{program.name} {' '.join(steps)}".strip()


# Sizes.


def size_of(source: random.Random, least: int = 64, most: int = 16384, multiple: int = 8) -> int:
    """A usual size, or any multiple."""
    if source.random() < 0.5:
        return source.choice([size for size in USUAL if least <= size <= most])
    return max(least, round(math.exp(source.uniform(math.log(least), math.log(most))) / multiple) * multiple)


def rows_of(source: random.Random, most: int = 16384) -> int:
    """A usual number of rows, or any."""
    if source.random() < 0.6:
        return source.choice([rows for rows in ROWS if rows <= most])
    return round(math.exp(source.uniform(0.0, math.log(most))))


def sizes_of(source: random.Random, **limits: int) -> tuple[int, int, int]:
    """M, N and K of a product that is not too large."""
    while True:
        m, n, k = rows_of(source), size_of(source, **limits), size_of(source, **limits)
        if m * n * k <= MOST_PRODUCTS and max(m * n, n * k, m * k) <= MOST_ELEMENTS:
            return m, n, k


def generator_of(*key: object) -> torch.Generator:
    """Random numbers of a case."""
    return torch.Generator(device="cuda").manual_seed(zlib.crc32(repr(key).encode()))


def matrix(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, *, by_columns: bool) -> Tensor:
    """Normal values scaled by the contracted dimension's root, by rows or by columns."""
    if by_columns:
        shape = (*shape[:-2], shape[-1], shape[-2])
    drawn_values = torch.randn(shape, device="cuda", dtype=torch.float32, generator=generator)
    values = drawn_values.to(dtype)
    return values.mT if by_columns else values
