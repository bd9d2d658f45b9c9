"""Chunks: K steps on buffers of their own, recorded once as a CUDA graph and kept by key."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

AnyKey = TypeVar("AnyKey", bound=Hashable)
AnyChunk = TypeVar("AnyChunk", bound="GraphChunk")


class GraphChunk(ABC):
    """The buffers of K steps, and the graph that runs them.

    Args:
        dtype: Type of buffers that name none.
        device: Where they lie.
        num_steps: K.
        batch: Sequences.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device, num_steps: int, batch: int) -> None:
        self._dtype, self._device = dtype, device
        self.graph: Any = None
        self.remaining = self.new(batch, dtype=torch.int32)
        self.reset = self.new(num_steps + 1, batch, dtype=torch.int8)

    def new(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A buffer of zeros."""
        return torch.zeros(shape, dtype=dtype or self._dtype, device=self._device)

    @abstractmethod
    def enqueue_one(self) -> None:
        """Enqueue a single step, which compiles the kernels."""

    @abstractmethod
    def enqueue_all(self) -> None:
        """Enqueue all steps."""

    def capture(self) -> None:
        """Compile the kernels and capture all steps; runs before the buffers hold anything."""
        make_stream: Callable[[], torch.cuda.Stream] = torch.cuda.Stream
        here, side = torch.cuda.current_stream(), make_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            self.enqueue_one()
            graph = torch.cuda.CUDAGraph()
            # Gradients run in autograd's thread; other threads are not affected.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                self.enqueue_all()
            finally:
                graph.capture_end()
        here.wait_stream(side)
        self.graph = graph

    def run(self) -> None:
        """Run all steps."""
        if self.graph is None:
            self.enqueue_all()
        else:
            self.graph.replay()

    def set_masks(self, lengths: Tensor | None, time: int, resets: Tensor | None, start: int) -> None:
        """Steps left in each row, and where rows start anew.

        Args:
            lengths: (B,) steps of each sequence; None for all.
            time: Steps of the whole sequence.
            resets: (T + K + 1, B); None for none.
            start: The chunk's first step in the sequence.
        """
        if lengths is None:
            self.remaining.fill_(time - start)
        else:
            torch.sub(lengths, start, out=self.remaining)
        if resets is None:
            self.reset.zero_()
        else:
            self.reset.copy_(resets[start : start + len(self.reset)])


class KeptChunks(Generic[AnyKey]):
    """Recorded chunks by key; the least recently used one goes first.

    Args:
        most: Chunks that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[AnyKey, GraphChunk] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, make: Callable[[AnyKey], AnyChunk], key: AnyKey, device: torch.device) -> AnyChunk:
        """The chunk of a key, or a new one; without a graph on the CPU (the interpreter) and inside a capture."""
        if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return make(key)
        with self._lock:
            chunk: Any = self._kept.pop(key, None)
            if chunk is None:
                chunk = make(key)
                chunk.capture()
            self._kept[key] = chunk
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        recorded: AnyChunk = chunk
        return recorded
