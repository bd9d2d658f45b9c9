"""Epilogues of one's own in `benchmarks.gemm.used`: a function by `matmul`, by torch's calls, by torch's compiler."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.gemm.used_parts import HALF, HALF_UNITS, NAMES, UsedCase, generator_of, matrix, sizes_of
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.traced.op import why

#: Epilogues by name: the function, and the greatest slope in the sum at operands of a size.
EPILOGUES: dict[str, tuple[Callable[..., Any], float]] = {
    "gelu(acc + bias) * r": (lambda acc, bias, r: functional.gelu(acc + bias) * r, 1.13),
    "acc + bias + r": (lambda acc, bias, r: acc + bias + r, 1.0),
    "silu(acc * s) + r": (lambda acc, s, r: functional.silu(acc * s) + r, 1.1),
    "30 * tanh(acc / 30)": (lambda acc: 30.0 * torch.tanh(acc / 30.0), 1.0),
}
#: Programs that are always timed beside what `matmul` chooses, and torch's compiler.
PROGRAMS = ("cuda", "composition", "compiled")


class _Own:
    """`matmul` with an epilogue by the name of a program; torch's compiler by "compiled"."""

    def __init__(self, a: Tensor, b: Tensor, text: str, operands: dict[str, Tensor]) -> None:
        self.a, self.b, self.operands = a, b, operands
        self.function = EPILOGUES[text][0]
        self._compiled: Any = None

    def by_torch(self, a: Tensor, b: Tensor, operands: dict[str, Tensor]) -> Tensor:
        """What a user of torch writes."""
        out: Tensor = self.function(torch.matmul(a, b), **operands)
        return out

    def __call__(self, program: str) -> Tensor:
        if program == "compiled":
            if self._compiled is None:
                torch._dynamo.reset()
                self._compiled = torch.compile(self.by_torch, dynamic=False)
            made: Tensor = self._compiled(self.a, self.b, self.operands)
            return made
        return matmul(self.a, self.b, epilogue=self.function, operands=self.operands, kernel=program)

    def why(self) -> Any:
        """The decision."""
        return why(self.a, self.b, self.function, self.operands)


def own_epilogue(kind: str, source: random.Random) -> UsedCase:
    """A product with an epilogue of one's own."""
    dtype, text = source.choice(HALF), source.choice(list(EPILOGUES))
    m, n, k = sizes_of(source)
    name = f"{m}x{n}x{k} {NAMES[dtype]} {text}"

    def make() -> Any:
        g = generator_of(kind, name)
        a = matrix((m, k), dtype, g, by_columns=False) / math.sqrt(k)
        b = matrix((k, n), dtype, g, by_columns=True)
        shapes = {"bias": (n,), "s": (m, 1), "r": (m, n)}
        named = EPILOGUES[text][0].__code__.co_varnames[1:]
        operands = {each: torch.randn(shapes[each], device="cuda", generator=g).to(dtype) for each in named}
        ours = _Own(a, b, text, operands)

        def expected() -> tuple[Tensor, Tensor]:
            wide = {each: t.double() for each, t in operands.items()}
            z = a.double() @ b.double()
            terms = a.double().abs() @ b.double().abs()
            exact = ours.function(z, **wide)
            half = HALF_UNITS[dtype]
            # The slope in the sum; a product that is rounded first is off by half a unit, and so is the result.
            factor = wide["s"].abs() if "s" in wide else 1.0
            factor = factor * (wide["r"].abs() if "* r" in text else 1.0)
            rounded = 2 * math.sqrt(k) * 2.0**-23 * terms + half * z.abs()
            most = 1.01 * EPILOGUES[text][1] * factor * rounded + 1.01 * half * exact.abs()
            return exact, most + 2.0**-24

        return partial(ours.by_torch, a, b, operands), ours, expected

    return UsedCase(kind, name, make, PROGRAMS)
