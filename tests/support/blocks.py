"""Small blocks with the structures of the models of transformers, as modules of their own; (B, T, 32) in and out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, INNER, HEADS = 32, 48, 4


class Conv1D(nn.Module):
    """The linear layer of GPT-2 in transformers: weight (in, out)."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight, self.bias = nn.Parameter(torch.empty(nx, nf)), nn.Parameter(torch.zeros(nf))
        nn.init.normal_(self.weight, std=0.2)

    def forward(self, x: Tensor) -> Tensor:
        """x @ weight + bias."""
        shape = (*x.shape[:-1], self.nf)
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(shape)


class Attention(nn.Module):
    """Attention with separate projections; fewer heads of keys than of queries where `groups` says so."""

    def __init__(self, *, bias: bool = True, groups: int = 1, of_keys: bool = True) -> None:
        super().__init__()
        width = WIDTH // groups
        self.q_proj, self.k_proj = nn.Linear(WIDTH, WIDTH, bias), nn.Linear(WIDTH, width, bias and of_keys)
        self.v_proj, self.o_proj = nn.Linear(WIDTH, width, bias), nn.Linear(WIDTH, WIDTH, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Attend to all positions."""
        q, k, v = (p(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for p in self._projections())
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        out = functional.scaled_dot_product_attention(q, k, v)
        result: Tensor = self.o_proj(out.transpose(1, 2).flatten(-2))
        return result

    def _projections(self) -> tuple[nn.Module, ...]:
        return self.q_proj, self.k_proj, self.v_proj


class FusedAttention(nn.Module):
    """GPT-2's: one `Conv1D` for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = Conv1D(3 * WIDTH, WIDTH), Conv1D(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Attend to earlier positions."""
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.c_attn(x).split(WIDTH, dim=2))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        result: Tensor = self.c_proj(out.transpose(1, 2).flatten(-2))
        return result


class Gated(nn.Module):
    """down(act(gate(x)) * up(x)): Llama, Qwen, an expert of Mixtral, T5 1.1."""

    def __init__(self, activation: nn.Module, width: int = WIDTH, inner: int = INNER) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down_proj, self.act_fn = nn.Linear(inner, width, bias=False), activation

    def forward(self, x: Tensor) -> Tensor:
        """The gated pair."""
        result: Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return result


class Mlp(nn.Module):
    """Two layers with an activation between them: BERT, ViT, Whisper, and GPT-2 with its `Conv1D`."""

    def __init__(
        self, activation: nn.Module, layer: Callable[[int, int], nn.Module] = nn.Linear, width: int = WIDTH,
        inner: int = INNER,
    ) -> None:  # fmt: skip
        super().__init__()
        self.fc1, self.act, self.fc2 = layer(width, inner), activation, layer(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """The layers in order."""
        result: Tensor = self.fc2(self.act(self.fc1(x)))
        return result


class Experts(nn.Module):
    """Mixtral's: a router, and gated experts of which every token takes two."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 4, bias=False)
        self.experts = nn.ModuleList(Gated(nn.SiLU()) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Weighted results of the two best experts of each token."""
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        shares = x.new_zeros(*x.shape[:-1], 4).scatter(-1, chosen, weights)
        return sum((shares[..., i, None] * expert(x) for i, expert in enumerate(self.experts)), torch.zeros_like(x))


class Block(nn.Module):
    """Attention and what follows it, each with a residual and a norm before it."""

    def __init__(self, attention: nn.Module, rest: nn.Module, norm: Callable[[int], nn.Module] = nn.LayerNorm) -> None:
        super().__init__()
        self.attention, self.rest, self.first, self.second = attention, rest, norm(WIDTH), norm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """One layer of a model."""
        x = x + self.attention(self.first(x))
        result: Tensor = x + self.rest(self.second(x))
        return result


BLOCKS: dict[str, Callable[[], nn.Module]] = {
    "llama": lambda: Block(Attention(bias=False, groups=2), Gated(nn.SiLU()), nn.RMSNorm),
    "qwen": lambda: Block(Attention(groups=2), Gated(nn.SiLU()), nn.RMSNorm),
    "mixtral": lambda: Block(Attention(bias=False, groups=2), Experts(), nn.RMSNorm),
    "bert": lambda: Block(Attention(), Mlp(nn.GELU())),
    "vit": lambda: Block(Attention(), nn.Sequential(nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH))),
    "t5": lambda: Block(Attention(bias=False), Gated(nn.GELU("tanh")), nn.RMSNorm),
    "whisper": lambda: Block(Attention(of_keys=False), Mlp(nn.GELU())),
    "gpt2": lambda: Block(FusedAttention(), Mlp(nn.GELU("tanh"), lambda inner, outer: Conv1D(outer, inner))),
}
