"""Training in `benchmarks.gemm.used`: forward and backward passes of products, and of layers of `constrint.nn`."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
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
    size_of,
)
from constrint.kernels.gemm import linear, matmul, op
from constrint.kernels.gemm.backward.plans import BACKWARD
from constrint.kernels.gemm.backward.run import key_of_all
from constrint.kernels.gemm.linear import LINEARS, end_of
from constrint.kernels.gemm.operator import PLAIN, PLANS
from constrint.nn import Linear


class Step:
    """Forward and backward of `matmul`, which returns the gradient of the weights."""

    def __init__(
        self,
        forward: Callable[[str], Tensor],
        leaves: Sequence[Tensor],
        upstream: Tensor,
        activation: str | None = None,
        *,
        is_layer: bool = False,
    ) -> None:
        self._forward, self._leaves, self._upstream = forward, leaves, upstream
        self._activation, self._is_layer = activation, is_layer

    def note(self) -> str:
        """Programs of the forward and of the backward pass, with the times of their trials."""
        x, weight, *biases = self._leaves
        bias = biases[0] if biases else None
        # Activations but relu are applied to the sum that is kept for the gradients.
        kept = None if self._activation is None else torch.empty_like(self._upstream)
        key = key_of_all(self._activation, None if bias is None else bias.dtype, is_linear=self._is_layer)
        right = weight if self._is_layer else weight.t()
        forward = (LINEARS if self._is_layer else PLANS).note(PLAIN, x, right, bias, None)
        nodes = (linear if self._is_layer else op).RECORDED.note(end_of(self._activation), x, right, bias, None)
        return (
            f"{nodes or 'our nodes'}; forward {forward}; backward {BACKWARD.note(key, self._upstream, x, right, kept)}"
        )

    def __call__(self, kernel: str) -> Tensor:
        """Both passes; the gradient of the weights."""
        for leaf in self._leaves:
            leaf.grad = None
        out: Any = self._forward(kernel)
        out.backward(self._upstream)
        gradient = self._leaves[1].grad
        assert gradient is not None
        return gradient


def _training_sizes(source: random.Random) -> tuple[int, int, int]:
    while True:
        m, n, k = source.choice((256, 512, 1000, 2048, 4096, 8192, 16384)), size_of(source, 256), size_of(source, 256)
        if m * n * k <= MOST_PRODUCTS // 4 and max(m * n, n * k, m * k) <= MOST_ELEMENTS:
            return m, n, k


def _gradient_in_fp64(leaves: Sequence[Tensor], upstream: Tensor, activation: str | None) -> tuple[Tensor, Tensor]:
    """The gradient of the weight, the second leaf, and its bound."""
    with torch.enable_grad():
        x, weight, *bias = (leaf.detach().double().requires_grad_() for leaf in leaves)
        z = functional.linear(x, weight, *bias)
        end: Any = ACTIVATIONS[activation](z) if activation else z
        end.backward(upstream.double())
    gradient: Any = weight.grad
    # g' is rounded once, from a pre-activation that is rounded once, and the sum once.
    terms = upstream.double().abs().t() @ leaves[0].detach().double().abs()
    most = HALF_UNITS[upstream.dtype] * (8 * terms / math.sqrt(upstream.shape[0]) + 2 * gradient.abs()) + 2.0**-20
    return gradient, most


def training(kind: str, source: random.Random, *, activation: str | None = None) -> UsedCase:
    """`matmul` on the transposed weight beside torch's linear: a forward and a backward pass."""
    dtype = source.choice(HALF)
    m, n, k = _training_sizes(source)
    with_bias = activation is not None
    name = f"{m}x{n}x{k} {NAMES[dtype]}"

    def make() -> Any:
        g = generator_of(kind, name)
        x = (matrix((m, k), dtype, g, by_columns=False) / math.sqrt(k)).requires_grad_()
        weight = matrix((n, k), dtype, g, by_columns=False).requires_grad_()
        bias = torch.randn(n, device="cuda", generator=g).to(dtype).requires_grad_() if with_bias else None
        upstream = torch.randn(m, n, device="cuda", generator=g).to(dtype)
        leaves = [x, weight, *([bias] if bias is not None else [])]

        def theirs(_: str) -> Tensor:
            out = functional.linear(x, weight, bias)
            return ACTIVATIONS[activation](out) if activation else out

        def ours(kernel: str) -> Tensor:
            return matmul(x, weight.t(), bias, activation=activation, kernel=kernel)

        return (
            partial(Step(theirs, leaves, upstream), ""),
            Step(ours, leaves, upstream, activation),
            partial(_gradient_in_fp64, leaves, upstream, activation),
        )

    return UsedCase(kind, name, make)


def layer(kind: str, source: random.Random, *, activation: str | None = None) -> UsedCase:
    """A linear layer of `constrint.nn` beside that of torch, with its bias: a forward and a backward pass."""
    dtype = source.choice(HALF)
    m, n, k = _training_sizes(source)
    name = f"{m}x{n}x{k} {NAMES[dtype]}"

    def make() -> Any:
        g = generator_of(kind, name)
        x = (matrix((m, k), dtype, g, by_columns=False) / math.sqrt(k)).requires_grad_()
        ours = Linear(k, n, device="cuda", dtype=dtype, activation=activation)
        same = torch.nn.Linear(k, n, device="cuda", dtype=dtype)
        same.weight, same.bias = ours.weight, ours.bias
        upstream = torch.randn(m, n, device="cuda", generator=g).to(dtype)
        leaves = [x, ours.weight, ours.bias]
        end = (lambda out: out) if activation is None else ACTIVATIONS[activation]
        theirs = partial(Step(lambda _: end(same(x)), leaves, upstream), "")
        return (
            theirs,
            Step(lambda _: ours(x), leaves, upstream, activation, is_layer=True),
            partial(_gradient_in_fp64, leaves, upstream, activation),
        )

    return UsedCase(kind, name, make)
