"""Cases of `benchmarks.gemm.used`: what a user of torch writes, and the same by `matmul`; one entry a kind."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.gemm.used_parts import (
    ACTIVATIONS,
    HALF,
    HALF_UNITS,
    MOST_ELEMENTS,
    MOST_PRODUCTS,
    NAMES,
    UsedCase,
    generator_of,
    matrix,
    rows_of,
    size_of,
    sizes_of,
)
from benchmarks.gemm.used_training import layer, training
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.gated import gated_matmul
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


def drawn(kind: str, count: int, seed: int) -> Iterator[UsedCase]:
    """Cases of a kind, drawn by a seed."""
    source = random.Random(zlib.crc32(kind.encode()) ^ seed)
    for _ in range(count):
        yield KINDS[kind](kind, source)


@dataclass(frozen=True)
class _Ours:
    """`matmul` with everything but its kernel given."""

    a: Tensor
    b: Tensor
    options: dict[str, Any]

    def __call__(self, kernel: str) -> Tensor:
        out: Tensor = matmul(self.a, self.b, **self.options, kernel=kernel)
        return out

    def why(self) -> Any:
        return matmul.why(self.a, self.b, **self.options)  # type: ignore[attr-defined]


def _reference(
    a: Tensor, b: Tensor, k: int, out: torch.dtype, *, alpha: float, beta: float, bias: Tensor | None, c: Tensor | None,
    activation: str | None, unit: float = 2.0**-23,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The result in fp64, and the bound: sums in fp32, and two roundings to the output's type as torch's calls have."""
    z = alpha * (a.double() @ b.double())
    terms = abs(alpha) * (a.double().abs() @ b.double().abs())
    if bias is not None:
        z, terms = z + bias.double(), terms + bias.double().abs()
    if c is not None:
        z, terms = z + beta * c.double(), terms + abs(beta) * c.double().abs()
    half, tiny = HALF_UNITS[out], 2.0**-24 if out == torch.float16 else 2.0**-120
    most = 1.13 * (2 * math.sqrt(k) * unit * terms + half * z.abs())  # no activation grows faster than 1.13
    result = z if activation is None else ACTIVATIONS[activation](z)
    return result, 1.01 * (most + half * result.abs()) + tiny


def _product(
    kind: str, source: random.Random, *, dtype: torch.dtype | None = None, tf32: bool = False,
    with_bias: bool = False, activation: str | None = None, with_c: bool = False, batched: bool = False,
) -> UsedCase:  # fmt: skip
    dtype = dtype or source.choice(HALF)
    batch: tuple[int, ...] = ()
    if batched:
        batch, (m, n, k) = _batch(source)
    else:
        m, n, k = sizes_of(source)
    by_columns = source.random() < 0.6  # weights of a linear layer
    broadcast = batched and source.random() < 0.15
    name = f"{'x'.join(map(str, (*batch, m, n, k)))} {NAMES[dtype]} {'nt' if by_columns else 'nn'}"
    name += " shared b" if broadcast else ""

    def make() -> Any:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        g = generator_of(kind, name)
        a = matrix((*batch, m, k), dtype, g, by_columns=False) / math.sqrt(k)
        b = matrix((k, n) if broadcast else (*batch, k, n), dtype, g, by_columns=by_columns)
        bias = torch.randn(n, device="cuda", generator=g).to(dtype) if with_bias else None
        c = torch.randn(m, n, device="cuda", generator=g).to(dtype) if with_c else None
        alpha, beta = (0.5, 1.5) if with_c else (1.0, 0.0)
        options: dict[str, Any] = {}
        if bias is not None:
            options["bias"] = bias
        if activation:
            options["activation"] = activation
        if c is not None:
            options |= {"alpha": alpha, "beta": beta, "c": c}

        def theirs() -> Tensor:
            if c is not None:
                return torch.addmm(c, a, b, beta=beta, alpha=alpha)
            out = torch.matmul(a, b) if bias is None else torch.addmm(bias, a, b)
            return ACTIVATIONS[activation](out) if activation else out

        def expected() -> tuple[Tensor, Tensor]:
            unit = 2.0**-10 if tf32 else 2.0**-21 if dtype == torch.float32 else 2.0**-23
            known: dict[str, Any] = {"alpha": alpha, "beta": beta, "bias": bias, "c": c, "activation": activation}
            return _reference(a, b, k, dtype, unit=unit, **known)

        return theirs, _Ours(a, b, options), expected

    return UsedCase(kind, name, make)


def _batch(source: random.Random) -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """Batches as attention has them, short sides, and others."""
    while True:
        count = source.choice((2, 4, 8, 12, 16, 32, 64, 96, 128, 256, 512))
        style = source.random()
        if style < 0.4:
            length, width = source.choice((64, 128, 200, 256, 512, 1024, 2048)), source.choice((64, 80, 96, 128))
            m, n, k = source.choice(((length, length, width), (length, width, length)))
        elif style < 0.6:
            m, n, k = 1, size_of(source, 64, 4096), size_of(source, 64, 4096)
        else:
            m, n, k = rows_of(source, 2048), size_of(source, 64, 4096), size_of(source, 64, 4096)
        if count * m * n * k <= MOST_PRODUCTS // 4 and count * max(m * n, n * k, m * k) <= MOST_ELEMENTS:
            return (count,), (m, n, k)


def _fp8(kind: str, source: random.Random) -> UsedCase:
    m, n, k = sizes_of(source, multiple=16)
    name = f"{m}x{n}x{k} fp8 nt"

    def make() -> Any:
        g = generator_of(kind, name)
        a = matrix((m, k), torch.float8_e4m3fn, g, by_columns=False)
        b = matrix((k, n), torch.float8_e4m3fn, g, by_columns=True)
        one = torch.ones((), device="cuda")

        def theirs() -> Tensor:
            return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        def expected() -> tuple[Tensor, Tensor]:
            bare: dict[str, Any] = {"alpha": 1.0, "beta": 0.0, "bias": None, "c": None, "activation": None}
            return _reference(a, b, k, torch.bfloat16, unit=2.0**-14, **bare)

        return theirs, _Ours(a, b, {}), expected

    return UsedCase(kind, name, make)


def _int8(kind: str, source: random.Random) -> UsedCase:
    m, n, k = sizes_of(source, multiple=16)
    m = max(m, 17)  # torch._int_mm takes no fewer rows
    name = f"{m}x{n}x{k} int8 nt"

    def make() -> Any:
        g = generator_of(kind, name)
        a = torch.randint(-128, 128, (m, k), device="cuda", generator=g, dtype=torch.int8)
        b = torch.randint(-128, 128, (n, k), device="cuda", generator=g, dtype=torch.int8).t()

        def expected() -> tuple[Tensor, Tensor]:
            exact = a.double() @ b.double()
            return exact, torch.zeros_like(exact)

        return partial(torch._int_mm, a, b), _Ours(a, b, {}), expected

    return UsedCase(kind, name, make)


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


def gated(kind: str, source: random.Random) -> UsedCase:
    """A gated pair, silu(x @ gate) * (x @ up), beside torch's four calls."""
    dtype = source.choice(HALF)
    m, n, k = sizes_of(source)
    name = f"{m}x{n}x{k} {NAMES[dtype]}"

    def make() -> Any:
        g = generator_of(kind, name)
        x = matrix((m, k), dtype, g, by_columns=False) / math.sqrt(k)
        gate, up = (matrix((k, n), dtype, g, by_columns=True) for _ in range(2))

        def theirs() -> Tensor:
            return functional.silu(torch.matmul(x, gate)) * torch.matmul(x, up)

        def ours(kernel: str) -> Tensor:
            out: Tensor = gated_matmul(x, gate, up, kernel=kernel)
            return out

        def expected() -> tuple[Tensor, Tensor]:
            wide, half = x.double(), HALF_UNITS[dtype]
            sums = [wide @ each.double() for each in (gate, up)]
            # Of each sum: fp32's additions, and its rounding, which torch's calls and a composition have.
            errors = [
                2 * math.sqrt(k) * 2.0**-23 * (wide.abs() @ each.double().abs()) + half * z.abs()
                for each, z in zip((gate, up), sums, strict=True)
            ]
            factor = functional.silu(sums[0])
            exact = factor * sums[1]
            # silu grows at most 1.1 times as fast as its argument, and is rounded once more.
            of_factor = 1.1 * errors[0] + half * factor.abs()
            most = of_factor * (sums[1].abs() + errors[1]) + factor.abs() * errors[1] + half * exact.abs()
            return exact, 1.01 * most + 2.0**-24

        return theirs, ours, expected

    return UsedCase(kind, name, make)


#: Makers of cases by kind.
KINDS: dict[str, Callable[[str, random.Random], UsedCase]] = {
    "plain": _product,
    "bias": partial(_product, with_bias=True),
    "relu": partial(_product, with_bias=True, activation="relu"),
    "gelu": partial(_product, with_bias=True, activation="gelu"),
    "silu": partial(_product, with_bias=True, activation="silu"),
    "addmm": partial(_product, with_c=True),
    "batch": partial(_product, batched=True),
    "fp32": partial(_product, dtype=torch.float32),
    "tf32": partial(_product, dtype=torch.float32, tf32=True),
    "fp8": _fp8,
    "int8": _int8,
    "training": training,
    "training_gelu": partial(training, activation="gelu"),
    "layer": layer,
    "layer_gelu": partial(layer, activation="gelu"),
    "own": own_epilogue,
    "gated": gated,
}
