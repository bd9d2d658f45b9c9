"""Memory that is filled with one word before or between kernels: a launch like any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.select.candidate import CompiledKernel

#: Bytes of a word, the unit by which memory is filled.
WORD_BYTES = 4


@dataclass(frozen=True)
class FillLaunch:
    """Fills all memory of a tensor with one word, in the order in which the launches stand.

    Args:
        tensor: The tensor: contiguous, whole words of four bytes, at an address that is a multiple of four.
        value: The word, as an unsigned number: 0xFFFFFFFF is NaN in fp32, fp16 and bf16, and -1 in int32.
    """

    tensor: Any
    value: int = 0

    @property
    def num_words(self) -> int:
        """Words of four bytes.

        Raises:
            UsageError: When they are not whole ones, or the tensor is not contiguous, or the word is too large.
        """
        if not 0 <= self.value < 1 << 32:
            raise UsageError(f"a tensor is filled with a word from 0 to 0xFFFFFFFF, got {self.value}.")
        tensor, element = self.tensor, self.tensor.element_size()
        size, start = tensor.numel() * element, tensor.storage_offset() * element
        if not tensor.is_contiguous() or size % WORD_BYTES or start % WORD_BYTES:
            raise UsageError(
                f"only contiguous tensors of whole words of {WORD_BYTES} bytes are filled, got {tuple(tensor.shape)} "
                f"of {tensor.dtype}: {size} bytes from byte {start} of its memory on, with strides "
                f"{tuple(tensor.stride())}. Allocate a few elements more."
            )
        return int(size // WORD_BYTES)

    def run(self) -> None:
        """Enqueue it on the current stream of its tensor's device."""
        words = self.num_words
        if words:
            fill_words(self.tensor, 0, words, self.value)

    def compile(self, gpu: GpuModel) -> CompiledKernel:
        """Refuse: a fill has no code.

        Raises:
            UsageError: Always.
        """
        raise UsageError("a fill has no code that could be compiled; state the launch of the kernel last.")


def fill_words(tensor: Any, first_byte: int, words: int, value: int) -> None:
    """Fill words of a tensor's memory, from `first_byte` bytes after its first element on."""
    import torch

    storage = tensor.untyped_storage()
    first = tensor.storage_offset() * tensor.element_size() + first_byte
    whole = torch.empty(0, dtype=torch.int32, device=tensor.device).set_(storage, first // WORD_BYTES, (words,), (1,))
    whole.fill_(value - (1 << 32) if value >> 31 else value)
