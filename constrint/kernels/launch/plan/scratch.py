"""Memory that launches need beside their operands: partial sums, copies, and counters that blocks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

#: Counters for launches inside captured graphs, which keep theirs for the life of the process.
CAPTURED_COUNTERS = 1 << 18
#: Fewest counters of a stream.
LEAST_COUNTERS = 4096


class Scratch:
    """Allocates memory for one launch, as tensors."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Allocate uninitialised memory."""
        return torch.empty(tuple(shape), dtype=dtype, device=device)

    def zeros(self, num: int, device: torch.device) -> Tensor:
        """Allocate (num,) int32 zeros, which the launch may change."""
        return torch.zeros(num, dtype=torch.int32, device=device)

    def counters(self, num: int, device: torch.device) -> Tensor:
        """Return (num,) int32 zeros, which the launch has to leave at zero."""
        return COUNTERS.take(device, num)


#: Scratch memory that torch allocates at every launch.
TORCH_SCRATCH = Scratch()


@dataclass
class NotedScratch(Scratch):
    """Records every request, so that a plan can serve it at every call; see `recipe.py`."""

    fresh: list[Tensor] = field(default_factory=list)
    zeroed: list[Tensor] = field(default_factory=list)
    counted: list[Tensor] = field(default_factory=list)

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """See `Scratch`."""
        self.fresh.append(torch.empty(tuple(shape), dtype=dtype, device=device))
        return self.fresh[-1]

    def zeros(self, num: int, device: torch.device) -> Tensor:
        """See `Scratch`."""
        self.zeroed.append(torch.empty(num, dtype=torch.int32, device=device))
        return self.zeroed[-1]

    def counters(self, num: int, device: torch.device) -> Tensor:
        """See `Scratch`."""
        self.counted.append(torch.empty(num, dtype=torch.int32, device=device))
        return self.counted[-1]


class Counters:
    """Zeroed counters for split-K: every launch leaves them at zero, so one set serves a stream for good."""

    def __init__(self) -> None:
        self._of_stream: dict[tuple[int, int], Tensor] = {}
        self._captured: dict[int, tuple[Tensor, int]] = {}

    def take(self, device: torch.device, num: int) -> Tensor:
        """`num` counters that no other launch uses at the same time."""
        if device.type != "cuda":  # Triton's interpreter on the CPU, or tensors without data
            return torch.zeros(num, dtype=torch.int32, device=device)
        index = torch.cuda.current_device() if device.index is None else device.index
        return self._take(index, torch.cuda.current_stream(index).cuda_stream, num)

    def address(self, index: int, stream: int, num: int) -> int:
        """Return the address of `num` counters for a launch on `stream`, the device's current stream."""
        return int(self._take(index, stream, num).data_ptr())

    def _take(self, index: int, stream: int, num: int) -> Tensor:
        if torch.cuda.is_current_stream_capturing():
            return self._take_captured(index, num)
        counters = self._of_stream.get((index, stream))
        if counters is None or counters.numel() < num:
            with torch.cuda.device(index):
                counters = torch.zeros(max(num, LEAST_COUNTERS), dtype=torch.int32, device="cuda")
                self._of_stream[index, stream] = counters
                if index not in self._captured:
                    self._captured[index] = (torch.zeros(CAPTURED_COUNTERS, dtype=torch.int32, device="cuda"), 0)
                    # Zeroed before any other stream may capture a launch that relies on it.
                    torch.cuda.current_stream(index).synchronize()
        return counters

    def _take_captured(self, index: int, num: int) -> Tensor:
        pool, used = self._captured.get(index, (None, 0))
        if pool is None or used + num > pool.numel():
            return torch.zeros(num, dtype=torch.int32, device=torch.device("cuda", index))
        self._captured[index] = (pool, used + num)
        return pool[used : used + num]


COUNTERS = Counters()
