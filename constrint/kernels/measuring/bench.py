"""A bench on a device of torch's: copies, products of its library, the smallest kernel; and on a CPU for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from constrint.tune.measure import Timer

#: Rough times of the smallest kernel and of a long read, from which the number of calls in a run follows.
LAUNCH_ABOUT_S, READ_ABOUT_S = 2e-6, 3e-3
#: Calls of the library that warm the device up: clocks and temperatures under load are those that count.
WARM_UP = 20


class TorchBench:
    """Implements `Bench` on one of torch's devices.

    Args:
        device: `cuda:0`, say; `cpu` times by the clock and reads by a sum.
        num_blocks: Blocks that read at once: a few for each SM.
    """

    def __init__(self, device: str, num_blocks: int) -> None:
        import torch

        self._torch: Any = torch
        self._device = device
        self._num_blocks = num_blocks
        self._timer = Timer(device)

    def copy_s(self, num_bytes: int) -> float:
        """Time `copy_` between two buffers."""
        source = self._torch.zeros(num_bytes // 4, dtype=self._torch.int32, device=self._device)
        target = self._torch.empty_like(source)
        return self._warm(lambda: target.copy_(source), num_bytes / 1e12)

    def read_s(self, num_bytes: int, repeats: int) -> float:
        """Time the kernel; the repeats are dealt to the blocks."""
        torch = self._torch
        source = torch.ones(num_bytes // 4, dtype=torch.int32, device=self._device)
        if self._device == "cpu":
            return self._warm(source.sum, READ_ABOUT_S) * repeats
        from constrint.kernels.measuring.kernel import BLOCK, read

        whole = source[: source.numel() // BLOCK * BLOCK]
        sums = torch.empty(self._num_blocks, dtype=torch.int32, device=self._device)
        each = max(1, repeats // self._num_blocks)
        seconds = self._warm(lambda: read(whole, sums, each), READ_ABOUT_S)
        bytes_read = int(whole.numel()) * 4 * each * self._num_blocks
        return seconds * num_bytes * repeats / bytes_read

    def product_s(self, dtype: str, size: int) -> float | None:
        """Time the library's product; None where torch refuses the dtype on this device."""
        make: Callable[[int], Callable[[], object]] | None = {
            "bf16": self._half("bfloat16"),
            "fp16": self._half("float16"),
            "fp8": self._fp8,
            "int8": self._int8,
        }.get(dtype)
        if make is None:
            return None
        try:
            call = make(size)
            for _ in range(WARM_UP if self._device != "cpu" else 1):
                call()
            self._timer.synchronize()
        except (RuntimeError, AttributeError, ValueError, NotImplementedError):
            return None  # torch says in its own words that it has no such product here
        return self._warm(call, 2 * size**3 / 1e14)

    def launch_s(self) -> float:
        """Time a kernel on one element, many of them back to back in a graph."""
        one = self._torch.zeros(1, device=self._device)
        return self._warm(lambda: one.add_(1.0), LAUNCH_ABOUT_S)

    def _warm(self, call: Callable[[], object], about_s: float) -> float:
        return self._timer.warm([call], about_s)[0].median_s

    def _half(self, name: str) -> Callable[[int], Callable[[], object]]:
        def make(size: int) -> Callable[[], object]:
            a, b = (self._random(size).to(getattr(self._torch, name)) for _ in range(2))
            return lambda: self._torch.mm(a, b)

        return make

    def _fp8(self, size: int) -> Callable[[], object]:
        torch = self._torch
        kind = torch.float8_e4m3fnuz if _is_fnuz(torch, self._device) else torch.float8_e4m3fn
        a, b = (self._random(size).to(kind) for _ in range(2))
        one = torch.ones((), device=self._device)
        return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    def _int8(self, size: int) -> Callable[[], object]:
        torch = self._torch
        a, b = (torch.randint(-8, 8, (size, size), dtype=torch.int8, device=self._device) for _ in range(2))
        return lambda: torch._int_mm(a, b)

    def _random(self, size: int) -> Any:
        return self._torch.randn(size, size, device=self._device)


def _is_fnuz(torch: Any, device: str) -> bool:
    """Whether fp8 has the layout of gfx942, which has no infinities and no negative zero."""
    return getattr(torch.cuda.get_device_properties(device), "gcnArchName", "").startswith("gfx94")
