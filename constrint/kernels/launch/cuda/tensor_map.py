"""Tensor maps: how the TMA unit of Hopper and later loads boxes of a matrix, as an argument of a kernel in CUDA C++.

The kernel takes it by value: `const __grid_constant__ TensorMap map`, 128 bytes aligned to 64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from constrint.errors import UsageError

#: The driver's numbers of element types, and the bytes of an element.
ELEMENTS = {"uint8": (0, 1), "fp16": (6, 2), "fp32": (7, 4), "bf16": (9, 2), "tf32": (11, 4)}
#: The driver's numbers of swizzles, by their width in bytes.
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
#: Bytes of a map, and the type of one among arguments.
MAP_BYTES = 128
MAP = np.dtype(f"V{MAP_BYTES}")
#: Alignment in bytes of a matrix's first element and of its rows.
ROW_BYTES = 16
#: Rows and columns of a box, at most.
MAX_BOX = 256
#: Up to this version drivers mark maps of small tensors wrongly (CUTLASS and Triton correct it, too).
MARKING_VERSION, SMALL_BYTES, MARK = 13010, 128 * 1024, np.uint64(1 << 21)


@dataclass(frozen=True)
class TensorMap:
    """A matrix that the TMA unit loads from, with zeros beyond its edges.

    Args:
        tensor: The tensor that holds the matrix; only its address and device matter.
        element: The type of an element, a key of `ELEMENTS`; tf32 is fp32, rounded as it is loaded.
        shape: Rows, and elements of a row, which follow each other in memory.
        stride: Elements from one row to the next.
        box: Rows and elements of each that are loaded at once.
        swizzle: Bytes of a row of a box by which shared memory is swizzled: 0, 32, 64 or 128.
        batch: Matrices of this shape, and elements from one to the next, as a third axis of the map; None: one matrix
            without such an axis. A box lies in one matrix.
    """

    tensor: Any
    element: str
    shape: tuple[int, int]
    stride: int
    box: tuple[int, int]
    swizzle: int = 128
    batch: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        size = ELEMENTS[self.element][1]
        if self.stride * size % ROW_BYTES or self.stride < 1 or self.tensor.data_ptr() % ROW_BYTES:
            raise UsageError(
                f"the TMA unit loads rows at multiples of {ROW_BYTES} bytes, got rows {self.stride} elements of {size} "
                f"bytes apart, from the address {self.tensor.data_ptr():#x} on. Copy the tensor."
            )
        if self.batch is not None and (self.batch[0] < 1 or self.batch[1] < 1 or self.batch[1] * size % ROW_BYTES):
            raise UsageError(
                f"the TMA unit loads matrices at multiples of {ROW_BYTES} bytes, got {self.batch[0]} matrices "
                f"{self.batch[1]} elements of {size} bytes apart. Copy the tensor."
            )
        if not all(1 <= side <= MAX_BOX for side in self.box):
            raise UsageError(f"the TMA unit loads boxes of up to {MAX_BOX} rows and elements, got {self.box}.")

    def data_ptr(self) -> int:
        """The address of the matrix."""
        return int(self.tensor.data_ptr())

    @property
    def device(self) -> Any:
        """The device of the matrix."""
        return self.tensor.device

    @property
    def facts(self) -> tuple[Any, ...]:
        """Everything but the address, as plans of the compiled core take it."""
        number, size = ELEMENTS[self.element]
        box, shape, strides = self._axes
        return number, size, SWIZZLES[self.swizzle], 0, box, shape, strides

    @property
    def _axes(self) -> tuple[list[int], list[int], list[int]]:
        """The box, the shape and the strides in elements, the slowest axis first."""
        box, shape, strides = list(self.box), list(self.shape), [self.stride, 1]
        if self.batch is None:
            return box, shape, strides
        matrices, step = self.batch
        return [1, *box], [matrices, *shape], [step, *strides]

    def encoded(self, address: int | None = None) -> np.ndarray[Any, Any]:
        """The map as the driver encodes it, for this address or another one.

        Raises:
            UsageError: When the driver refuses it.
        """
        from cuda.bindings import driver

        number, size = ELEMENTS[self.element]
        kinds = driver.CUtensorMapDataType
        box, shape, strides = self._axes
        error, encoded = driver.cuTensorMapEncodeTiled(
            kinds(number),
            len(shape),
            self.data_ptr() if address is None else address,
            [driver.cuuint64_t(length) for length in reversed(shape)],
            [driver.cuuint64_t(stride * size) for stride in reversed(strides[:-1])],
            [driver.cuuint32_t(side) for side in reversed(box)],
            [driver.cuuint32_t(1)] * len(shape),
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle(SWIZZLES[self.swizzle]),
            # The compiled core sets the same.
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        if error != driver.CUresult.CUDA_SUCCESS:
            raise UsageError(f"the driver makes no map of {self}: {error.name}")
        words = np.array([int(word) for word in encoded.opaque], dtype=np.uint64)
        _, version = driver.cuDriverGetVersion()
        spanned = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
        if version <= MARKING_VERSION and spanned * size < SMALL_BYTES:
            words[1] &= ~MARK
        return np.frombuffer(words.tobytes(), MAP)
