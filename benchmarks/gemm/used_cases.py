"""Cases of `benchmarks.gemm.used`: what a user of torch writes, and the same by `matmul`; one entry a kind."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from constrint.errors import ConstrintError
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.backward.plans import BACKWARD
from constrint.kernels.gemm.operator import PLAIN, PLANS

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


@dataclass
class UsedCase:
    """One case.

    Args:
        kind: Its kind.
        name: Its sizes and layout.
        make: Makes the operands, and returns the call of torch, ours by the name of a kernel, and the reference, which
            returns one tensor in fp64 with the greatest error that an element may have.
    """

    kind: str
    name: str
    make: Callable[[], tuple[Run, Callable[[str], Any], Callable[[], tuple[Tensor, Tensor]]]]
    _made: Any = field(default=None, repr=False)
    _expected: Any = field(default=None, repr=False)

    def _operands(self) -> Any:
        if self._made is None:
            self._made = self.make()
        return self._made

    def calls(self, each: Sequence[str]) -> dict[str, Run]:
        """Torch's call, ours, and ours by the name of each kernel."""
        theirs, ours, _ = self._operands()
        return {"torch": theirs, "ours": partial(ours, "auto")} | {name: partial(ours, name) for name in each}

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
        if isinstance(ours, _Step):
            return ours.note()
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


def drawn(kind: str, count: int, seed: int) -> Iterator[UsedCase]:
    """Cases of a kind, drawn by a seed."""
    source = random.Random(zlib.crc32(kind.encode()) ^ seed)
    for _ in range(count):
        yield KINDS[kind](kind, source)


# Sizes.


def _size(source: random.Random, least: int = 64, most: int = 16384, multiple: int = 8) -> int:
    if source.random() < 0.5:
        return source.choice([size for size in USUAL if least <= size <= most])
    return max(least, round(math.exp(source.uniform(math.log(least), math.log(most))) / multiple) * multiple)


def _rows(source: random.Random, most: int = 16384) -> int:
    if source.random() < 0.6:
        return source.choice([rows for rows in ROWS if rows <= most])
    return round(math.exp(source.uniform(0.0, math.log(most))))


def _sizes(source: random.Random, **limits: int) -> tuple[int, int, int]:
    while True:
        m, n, k = _rows(source), _size(source, **limits), _size(source, **limits)
        if m * n * k <= MOST_PRODUCTS and max(m * n, n * k, m * k) <= MOST_ELEMENTS:
            return m, n, k


def _generator(*key: object) -> torch.Generator:
    return torch.Generator(device="cuda").manual_seed(zlib.crc32(repr(key).encode()))


def _matrix(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, *, by_columns: bool) -> Tensor:
    """Normal values scaled by the contracted dimension's root, by rows or by columns."""
    if by_columns:
        shape = (*shape[:-2], shape[-1], shape[-2])
    drawn_values = torch.randn(shape, device="cuda", dtype=torch.float32, generator=generator)
    values = drawn_values.to(dtype)
    return values.mT if by_columns else values


# Products.


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


#: Half a unit in the last place of a type, relative, at most: half of `torch.finfo(dtype).eps`.
HALF_UNITS = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}


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
        m, n, k = _sizes(source)
    by_columns = source.random() < 0.6  # weights of a linear layer
    broadcast = batched and source.random() < 0.15
    name = f"{'x'.join(map(str, (*batch, m, n, k)))} {NAMES[dtype]} {'nt' if by_columns else 'nn'}"
    name += " shared b" if broadcast else ""

    def make() -> Any:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        g = _generator(kind, name)
        a = _matrix((*batch, m, k), dtype, g, by_columns=False) / math.sqrt(k)
        b = _matrix((k, n) if broadcast else (*batch, k, n), dtype, g, by_columns=by_columns)
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
            m, n, k = 1, _size(source, 64, 4096), _size(source, 64, 4096)
        else:
            m, n, k = _rows(source, 2048), _size(source, 64, 4096), _size(source, 64, 4096)
        if count * m * n * k <= MOST_PRODUCTS // 4 and count * max(m * n, n * k, m * k) <= MOST_ELEMENTS:
            return (count,), (m, n, k)


def _fp8(kind: str, source: random.Random) -> UsedCase:
    m, n, k = _sizes(source, multiple=16)
    name = f"{m}x{n}x{k} fp8 nt"

    def make() -> Any:
        g = _generator(kind, name)
        a = _matrix((m, k), torch.float8_e4m3fn, g, by_columns=False)
        b = _matrix((k, n), torch.float8_e4m3fn, g, by_columns=True)
        one = torch.ones((), device="cuda")

        def theirs() -> Tensor:
            return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        def expected() -> tuple[Tensor, Tensor]:
            bare: dict[str, Any] = {"alpha": 1.0, "beta": 0.0, "bias": None, "c": None, "activation": None}
            return _reference(a, b, k, torch.bfloat16, unit=2.0**-14, **bare)

        return theirs, _Ours(a, b, {}), expected

    return UsedCase(kind, name, make)


def _int8(kind: str, source: random.Random) -> UsedCase:
    m, n, k = _sizes(source, multiple=16)
    m = max(m, 17)  # torch._int_mm takes no fewer rows
    name = f"{m}x{n}x{k} int8 nt"

    def make() -> Any:
        g = _generator(kind, name)
        a = torch.randint(-128, 128, (m, k), device="cuda", generator=g, dtype=torch.int8)
        b = torch.randint(-128, 128, (n, k), device="cuda", generator=g, dtype=torch.int8).t()

        def expected() -> tuple[Tensor, Tensor]:
            exact = a.double() @ b.double()
            return exact, torch.zeros_like(exact)

        return partial(torch._int_mm, a, b), _Ours(a, b, {}), expected

    return UsedCase(kind, name, make)


class _Step:
    """Forward and backward of `matmul`, which returns the gradient of the weights."""

    def __init__(
        self,
        forward: Callable[[str], Tensor],
        leaves: Sequence[Tensor],
        upstream: Tensor,
        activation: str | None = None,
    ) -> None:
        self._forward, self._leaves, self._upstream = forward, leaves, upstream
        self._activation = activation

    def note(self) -> str:
        """Programs of the forward and of the backward pass, with the times of their trials."""
        x, weight, *biases = self._leaves
        bias = biases[0] if biases else None
        # Activations but relu are applied to the sum that is kept for the gradients.
        kept = None if self._activation is None else torch.empty_like(self._upstream)
        key = 1.0, self._activation, True, True, None if bias is None else bias.dtype, False, False, "auto"
        forward = PLANS.note(PLAIN, x, weight.t(), bias, None)
        return f"forward {forward}; backward {BACKWARD.note(key, self._upstream, x, weight.t(), kept)}"

    def __call__(self, kernel: str) -> Tensor:
        for leaf in self._leaves:
            leaf.grad = None
        out: Any = self._forward(kernel)
        out.backward(self._upstream)
        gradient = self._leaves[1].grad
        assert gradient is not None
        return gradient


def _training(kind: str, source: random.Random, *, activation: str | None = None) -> UsedCase:
    dtype = source.choice(HALF)
    while True:
        m, n, k = source.choice((256, 512, 1000, 2048, 4096, 8192, 16384)), _size(source, 256), _size(source, 256)
        if m * n * k <= MOST_PRODUCTS // 4 and max(m * n, n * k, m * k) <= MOST_ELEMENTS:
            break
    with_bias = activation is not None
    name = f"{m}x{n}x{k} {NAMES[dtype]}"

    def make() -> Any:
        g = _generator(kind, name)
        x = (_matrix((m, k), dtype, g, by_columns=False) / math.sqrt(k)).requires_grad_()
        weight = _matrix((n, k), dtype, g, by_columns=False).requires_grad_()
        bias = torch.randn(n, device="cuda", generator=g).to(dtype).requires_grad_() if with_bias else None
        upstream = torch.randn(m, n, device="cuda", generator=g).to(dtype)
        leaves = [x, weight, *([bias] if bias is not None else [])]

        def theirs(_: str) -> Tensor:
            out = functional.linear(x, weight, bias)
            return ACTIVATIONS[activation](out) if activation else out

        def ours(kernel: str) -> Tensor:
            return matmul(x, weight.t(), bias, activation=activation, kernel=kernel)

        def expected() -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
                z = functional.linear(wide[0], wide[1], wide[2] if with_bias else None)
                end: Any = ACTIVATIONS[activation](z) if activation else z
                end.backward(upstream.double())
            gradient: Any = wide[1].grad
            # g' is rounded once, from a pre-activation that is rounded once, and the sum once.
            terms = upstream.double().abs().t() @ x.detach().double().abs()
            return gradient, HALF_UNITS[dtype] * (8 * terms / math.sqrt(m) + 2 * gradient.abs()) + 2.0**-20

        return partial(_Step(theirs, leaves, upstream), ""), _Step(ours, leaves, upstream, activation), expected

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
    "training": _training,
    "training_gelu": partial(_training, activation="gelu"),
}
