"""Weights of 4 or 8 bits in groups along K, packed in the order in which the quantised GEMM reads them. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.kernels.gemm.quantised.shape import READ, padded, takes

#: What is added to a number of four bits where it is widened, by the type of X.
BEYOND = {torch.bfloat16: 128, torch.float16: 1024}


@dataclass(frozen=True)
class QuantisedWeight:
    """W (N, K) = (numbers - zeros) * scales, packed.

    Args:
        packed: Numbers as int32, in the order of the kernel.
        scales: Of each group and row a scale (low half) and a zero (high half), as int32 (N / 16, groups, 16).
        n, k: Rows and columns of W.
        bits: Bits of a number, 4 or 8.
        group: Numbers along K that share a scale and a zero.
        dtype: Type of X and of scales.
    """

    packed: Tensor
    scales: Tensor
    n: int
    k: int
    bits: int
    group: int
    dtype: torch.dtype = torch.bfloat16

    @staticmethod
    def of(
        numbers: Tensor,  # (N, K), whole numbers from 0 to 2^bits - 1
        scales: Tensor,  # (N, groups)
        zeros: Tensor | None = None,  # (N, groups), whole numbers of the same range; None: 2^(bits - 1)
        *,
        bits: int = 4,
        group: int = 128,
        dtype: torch.dtype = torch.bfloat16,
    ) -> QuantisedWeight:
        """Pack numbers of groups along K.

        Raises:
            UsageError: For bits, groups, shapes, types and numbers that do not go together.
        """
        if dtype not in BEYOND or not takes(bits, group):
            raise UsageError(
                f"quantised weights have 4 or 8 bits, groups of a power of two times {READ} numbers, and scales of "
                f"bf16 or fp16, got {bits}, {group} and {dtype}."
            )
        if numbers.dim() != 2 or numbers.is_floating_point():
            raise UsageError(
                f"quantised weights are a matrix of whole numbers, got {numbers.dtype} {tuple(numbers.shape)}."
            )
        n, k = numbers.shape
        groups, top = -(-k // group), (1 << bits) - 1
        zeros = torch.full_like(scales, 1 << (bits - 1)) if zeros is None else zeros
        for name, tensor in (("scales", scales), ("zeros", zeros)):
            if tuple(tensor.shape) != (n, groups):
                raise UsageError(f"quantised weights: {name} are ({n}, {groups}), got {tuple(tensor.shape)}.")
        for name, tensor in (("numbers", numbers), ("zeros", zeros)):
            if tensor.device.type != "meta" and tensor.numel() and (tensor.min() < 0 or tensor.max() > top):
                raise UsageError(f"quantised weights: {name} are from 0 to {top}.")
        rows, depth = padded(n, k, bits)
        whole = torch.zeros((rows, depth), dtype=torch.int32, device=numbers.device)
        whole[:n, :k] = numbers.int()
        all_groups = -(-depth // group)
        both = torch.zeros((rows, all_groups), dtype=torch.int32, device=numbers.device)
        both[:n, :groups] = _joined(scales.to(dtype), zeros.int(), bits)
        lying = both.view(rows // 16, 16, all_groups).transpose(1, 2).contiguous()
        return QuantisedWeight(_packed(whole, bits), lying, n, k, bits, group, dtype)

    def dense(self, dtype: torch.dtype) -> Tensor:
        """W (N, K) in a type, from the packed form."""
        whole = _unpacked(self.packed, *padded(self.n, self.k, self.bits), self.bits)[: self.n, : self.k]
        both = self.scales.transpose(1, 2).reshape(-1, self.scales.shape[1])[: self.n]
        scales = (both & 0xFFFF).to(torch.int16).view(self.dtype).to(dtype)
        high = both >> 16 & 0xFFFF
        zeros = (
            -high.to(torch.int16).view(self.dtype).to(dtype) - BEYOND[self.dtype] if self.bits == 4 else high.to(dtype)
        )
        of_group = torch.arange(self.k, device=both.device) // self.group
        return (whole.to(dtype) - zeros[:, of_group]) * scales[:, of_group]


def quantise(
    weight: Tensor,  # (N, K)
    *,
    bits: int = 4,
    group: int = 128,
    dtype: torch.dtype = torch.bfloat16,
) -> QuantisedWeight:
    """Round a matrix to numbers of groups along K, each with the scale and the zero of its least and largest number."""
    n, k = weight.shape
    groups, top = -(-k // group), (1 << bits) - 1
    wide = torch.nn.functional.pad(weight.float(), (0, groups * group - k)).view(n, groups, group)
    low, high = wide.amin(2).clamp(max=0.0), wide.amax(2).clamp(min=0.0)
    scales = ((high - low) / top).clamp(min=1e-8).to(dtype)
    zeros = (-low / scales.float()).round().clamp(0, top).int()
    numbers = (wide / scales.float()[:, :, None]).round() + zeros[:, :, None]
    numbers = numbers.clamp(0, top).int().view(n, groups * group)[:, :k]
    return QuantisedWeight.of(numbers, scales, zeros, bits=bits, group=group, dtype=dtype)


def random_weight(
    n: int, k: int, bits: int, group: int, dtype: torch.dtype, *, device: Any, generator: Any = None
) -> QuantisedWeight:
    """Random numbers, scales and zeros; without data on `meta`."""
    groups, top = -(-k // group), 1 << bits
    numbers, zeros = (torch.randint(0, top, (n, w), device=device, generator=generator) for w in (k, groups))
    scales = torch.rand((n, groups), device=device, generator=generator) * 0.05 + 0.01
    return QuantisedWeight.of(numbers, scales, zeros, bits=bits, group=group, dtype=dtype)


def random_operands(
    m: int, n: int, k: int, bits: int, group: int, dtype: str, *, device: Any, seed: int
) -> dict[str, Tensor]:
    """X (M, K), and a random weight's packed numbers and scales, by name; without data on `meta`."""
    generator = None if torch.device(device).type == "meta" else torch.Generator(device).manual_seed(seed)
    kind = torch.bfloat16 if dtype == "bf16" else torch.float16
    x = torch.randn((m, k), device=device, generator=generator).to(kind)
    weight = random_weight(n, k, bits, group, kind, device=device, generator=generator)
    return {"x": x, "packed": weight.packed, "scales": weight.scales}


def exact_product(x: Tensor, packed: Tensor, scales: Tensor, n: int, k: int, bits: int, group: int) -> Tensor:
    """x @ W^T in fp64."""
    weight = QuantisedWeight(packed, scales, n, k, bits, group, x.dtype)
    return x.double() @ weight.dense(torch.float64).T


def _joined(scales: Tensor, zeros: Tensor, bits: int) -> Tensor:
    """A scale in the low half of a word; in the high half what is added to a widened number, or the zero itself."""
    low = scales.contiguous().view(torch.int16).int() & 0xFFFF
    if bits == 4:
        added = (-zeros - BEYOND[scales.dtype]).to(scales.dtype)
        return low | added.view(torch.int16).int() << 16
    return low | zeros << 16


def _packed(whole: Tensor, bits: int) -> Tensor:
    """Numbers (rows, depth) in the order of the kernel, as (words,) int32.

    A lane has 16 bytes of 16 rows and `READ` numbers along K: lane 4 g + j has those of rows g and g + 8.
    """
    rows, depth = whole.shape
    read = READ[bits]
    if bits == 4:
        # row = 8 h + g; k = 16 j + 4 t + 2 p + e: word t, four bits at place 4 e + 2 p + h.
        seen = whole.view(rows // 16, 2, 8, depth // read, 4, 4, 2, 2)
        lying = seen.permute(0, 3, 2, 4, 5, 7, 6, 1).reshape(-1, 8)
    else:
        # row = 8 h + g; k = 8 j + 4 s + e: word 2 s + h, byte e.
        seen = whole.view(rows // 16, 2, 8, depth // read, 4, 2, 4)
        lying = seen.permute(0, 3, 2, 4, 5, 1, 6).reshape(-1, 4)
    shifts = torch.arange(lying.shape[1], device=whole.device, dtype=torch.int32) * bits
    words = (lying.long() << shifts.long()).sum(1)
    # The same 32 bits, as a signed number.
    return ((words + (1 << 31)) % (1 << 32) - (1 << 31)).to(torch.int32)


def _unpacked(packed: Tensor, rows: int, depth: int, bits: int) -> Tensor:
    """Numbers (rows, depth) from their packed form."""
    read, places = READ[bits], 32 // bits
    shifts = torch.arange(places, device=packed.device, dtype=torch.int32) * bits
    lying = packed[:, None] >> shifts & ((1 << bits) - 1)
    if bits == 4:
        seen = lying.view(rows // 16, depth // read, 8, 4, 4, 2, 2, 2)
        return seen.permute(0, 7, 2, 1, 3, 4, 6, 5).reshape(rows, depth)
    seen = lying.view(rows // 16, depth // read, 8, 4, 2, 2, 4)
    return seen.permute(0, 5, 2, 1, 3, 4, 6).reshape(rows, depth)
