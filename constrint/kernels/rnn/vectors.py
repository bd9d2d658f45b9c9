"""Tensors that kernels in CUDA C++ read by vectors of 16 bytes, and what stands in memory that blocks exchange.

Nothing of it belongs to one implementation.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from constrint.kernels.rnn.interface import RnnInputs

#: Tensors begin at multiples of this many bytes.
VECTOR_BYTES = 16
#: What stands in exchanged memory until it is written: two NaNs that no result has.
UNWRITTEN = 0xFFFFFFFF


def is_ready(tensor: Tensor) -> bool:
    """Whether kernels can read a tensor whose last dimensions are contiguous as it is."""
    return tensor.data_ptr() % VECTOR_BYTES == 0


def ready(tensor: Tensor) -> Tensor:
    """The tensor, or a copy at an address that vectors can be read from."""
    tensor = tensor.contiguous()
    return tensor if is_ready(tensor) else tensor.clone()


def wx_is_ready(wx: Tensor) -> bool:
    """Whether kernels can read wx in place: steps of time and of the batch keep vectors whole."""
    vector = VECTOR_BYTES // wx.element_size()
    return is_ready(wx) and all(stride % vector == 0 for stride in wx.stride()[:2])


def with_ready_wx(inputs: RnnInputs) -> RnnInputs:
    """With wx where kernels can read it."""
    return inputs if wx_is_ready(inputs.wx) else replace(inputs, wx=inputs.wx.contiguous().clone())
