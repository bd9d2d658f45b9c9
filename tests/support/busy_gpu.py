"""Programs on a GPU that others use, too, or that is interrupted; each of its own process, since it might hang.

python -m tests.support.busy_gpu NAME       # a function of this file; the last line is what it found, as JSON
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from constrint.choose import Decision
from constrint.errors import ConstrintError
from constrint.flashrnn import rnn
from constrint.kernels.launch import policy
from constrint.kernels.launch.cuda import CudaLaunch, CudaSource
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn import fused
from constrint.kernels.rnn.spec import workload_of
from constrint.tune.check import Tolerance, error_over_bound
from tests.support.placed_layers import gpu_here, usual_dims

ROOT = Path(__file__).parents[2]
#: Keeps a block on its SM for so many nanoseconds.
HOLD = CudaSource(
    """
    extern "C" __global__ void hold(int* out, long long nanoseconds) {
      extern __shared__ int kept[];
      long long start, now;
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
      do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
      if (kept[0] == 42 && now == start) out[0] = 1;
    }
    """,
    "hold",
    name="hold.cu",
)
#: Shared memory that leaves none of our blocks room on the SM, and how long an SM is held.
HELD_BYTES, HELD_S = 200_000, 0.3
ROUNDS = 8
BATCH, TIME, LONG = 16, 64, 20_000


def arguments(dim: int, *, time: int = TIME, seed: int = 0, device: str = "cuda") -> tuple[Tensor, Tensor]:
    """Projected inputs and weights of an LSTM in bf16, which want gradients."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator)

    drawn = draw(BATCH, time, 4, 1, dim), draw(4, 1, dim, dim) / dim**0.5
    wx, r = (tensor.to(torch.bfloat16).to(device).requires_grad_() for tensor in drawn)
    return wx, r


def train(wx: Tensor, r: Tensor, backend: str = "cuda") -> tuple[Tensor, Tensor]:
    """States and the gradient of the inputs, on the current stream; waits for them."""
    states, _ = rnn(wx, r, backend=backend)
    (gradient,) = torch.autograd.grad(states[0].float().square().sum(), wx)
    torch.cuda.current_stream(wx.device).synchronize()
    return states.detach(), gradient


def both_ways(wx: Tensor, r: Tensor, backend: str = "cuda") -> list[Tensor]:
    """The same on the CPU."""
    return [tensor.cpu() for tensor in train(wx, r, backend)]


def forward(wx: Tensor, r: Tensor) -> Tensor:
    """States by the CUDA kernels, without a gradient."""
    with torch.no_grad():
        return rnn(wx, r, backend="cuda")[0].cpu()


def are_same(one: list[Tensor], other: list[Tensor]) -> bool:
    """Whether all bits are."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def dims() -> list[int]:
    """A layer of each placement, as the model places them; the last one, of the grid, twice."""
    by_placement = usual_dims(gpu_here().name)
    return [dim for _, dim in sorted(by_placement.items())] + [max(by_placement.values())]


def threads_on_streams() -> dict[str, Any]:
    """Layers of every placement at once, each in a thread and on a stream of its own."""
    operands = [arguments(dim, seed=seed) for seed, dim in enumerate(dims())]
    expected = [both_ways(*each) for each in operands]
    same = [0] * len(operands)

    def work(place: int) -> None:
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            for _ in range(ROUNDS):
                same[place] += are_same(both_ways(*operands[place]), expected[place])

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(operands))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"same": same, "of": ROUNDS}


def devices() -> dict[str, Any]:
    """The same layers on every device, one after the other and at once, none of them the current device."""
    torch.cuda.set_device(0)
    names = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    same = []
    for dim in dims():
        operands = [arguments(dim, device=name) for name in names]
        expected, *others = [both_ways(*each) for each in operands]
        same += [are_same(expected, other) for other in others]
        states = [rnn(*each, backend="cuda")[0] for each in operands]
        same += [torch.equal(each.detach().cpu(), expected[0]) for each in states]
    return {"same": sum(same), "of": len(same)}


def hold_launch(num_sms: int) -> CudaLaunch:
    """A kernel that keeps so many SMs for a while."""
    out: Any = torch.zeros(1, dtype=torch.int32, device="cuda")
    seconds = np.int64(int(1e9 * HELD_S))
    return CudaLaunch(gpu_here(), HOLD, (num_sms,), (32,), (out, seconds), smem_bytes=HELD_BYTES)


def _seconds_of_each(operands: list[Any], expected: list[Any], holding: Any) -> dict[str, Any]:
    same, took = [], []
    for each, right in zip(operands, expected, strict=True):
        holding()
        started = time.perf_counter()
        same.append(are_same(both_ways(*each), right))
        took.append(round(time.perf_counter() - started, 3))
    return {"same": sum(same), "of": len(same), "seconds": took}


def beside_a_stream() -> dict[str, Any]:
    """Layers while a kernel on another stream holds most SMs, so that a grid has to wait for them."""
    operands = [arguments(dim, seed=seed) for seed, dim in enumerate(dims())]
    expected = [both_ways(*each) for each in operands]
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    launch = hold_launch(torch.cuda.get_device_properties(0).multi_processor_count - 8)

    def holding() -> None:
        with torch.cuda.stream(side):
            launch.run()

    return _seconds_of_each(operands, expected, holding)


def beside_a_process() -> dict[str, Any]:
    """Layers while another process holds every SM over and over."""
    operands = [arguments(dim, seed=seed) for seed, dim in enumerate(dims())]
    expected = [both_ways(*each) for each in operands]
    other = start("hold_for_ever")
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "holding\n", "the other process did not begin"
        return _seconds_of_each(operands, expected, lambda: None)
    finally:
        other.kill()
        other.wait()


def hold_for_ever() -> None:
    """Hold every SM until the process is ended."""
    launch = hold_launch(torch.cuda.get_device_properties(0).multi_processor_count)
    launch.run()
    print("holding", flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        launch.run()
        torch.cuda.synchronize()


@contextmanager
def as_a_slice(num_sms: int) -> Iterator[None]:
    """Let the GPU say that it has so many SMs, as a MIG slice would."""
    whole = torch.cuda.get_device_properties(0)
    facts = {name: getattr(whole, name) for name in dir(whole) if not name.startswith("_")}
    slice_of = SimpleNamespace(**facts | {"multi_processor_count": num_sms})
    with mock.patch.object(torch.cuda, "get_device_properties", return_value=slice_of):
        yield


def on_a_slice() -> dict[str, Any]:
    """A layer of the grid on what says that it has 16 SMs, and one that no 16 blocks hold; alternating is right."""
    wx, r = arguments(dims()[-1])  # asks for the model while the GPU is whole: a slice has a name of its own
    expected = both_ways(wx, r, "alternating")
    with as_a_slice(16), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = both_ways(wx, r)
        large, weights = arguments(8192, time=2)
        states, _ = rnn(large, weights)
        torch.cuda.synchronize()
        try:
            rnn(large, weights, backend="cuda")
            refused = ""
        except ConstrintError as why:
            refused = str(why)
    error = max(float((a.float() - b.float()).abs().max()) for a, b in zip(found, expected, strict=True))
    said = [str(each.message) for each in told]
    return {"error": error, "finite": bool(states.isfinite().all()), "told": said, "refused": refused}


@contextmanager
def choices_noted() -> Iterator[list[str]]:
    """A list of what is launched where a call is made for the first time: the kernel's name and its configuration."""
    noted: list[str] = []
    launches = policy.launch_what_fits

    def noting(*args: Any, **options: Any) -> Decision:
        choice = launches(*args, **options)
        noted.append(f"{choice.kernel} {dict(choice.config)}")
        return choice

    with mock.patch.object(policy, "launch_what_fits", noting), mock.patch.object(fused, "launch_what_fits", noting):
        yield noted


def in_a_green_context() -> dict[str, Any]:
    """Layers in a context of 16 SMs, of which the device's properties say nothing: each runs or is refused.

    Where a layer does not fit as it was launched outside, other blocks have other shares of it. Of each layer: what was
    launched outside and inside (the same where nothing else was chosen), whether all bits are the same, the greatest
    difference, and that over the error that rounding explains of one of both.
    """
    from torch.cuda.green_contexts import GreenContext

    operands = [arguments(dim, seed=seed) for seed, dim in enumerate(dims())]
    with choices_noted() as noted:
        expected, outside = [], []
        for each in operands:
            expected.append(forward(*each))
            outside.append(noted[-1] if noted else "")
        context: Any = GreenContext.create(num_sms=16, device_id=0)
        outcomes: list[dict[str, Any]] = []
        context.set_context()
        try:
            for each, right, config in zip(operands, expected, outside, strict=True):
                outcome = {"dim": each[0].shape[-1], "outside": config, "inside": config}
                first = len(noted)
                try:
                    outcome |= _compared(forward(*each), right)
                except Exception as error:
                    outcome["refused"] = str(error)
                outcome["inside"] = noted[-1] if len(noted) > first else config
                outcomes.append(outcome)
        finally:
            context.pop_context()
    return {"outcomes": outcomes, "same_again": torch.equal(forward(*operands[0]), expected[0])}


def _compared(found: Tensor, right: Tensor) -> dict[str, Any]:
    """How far states (S, B, T, N, D) are from those of another launch; both may round as often as is tolerated."""
    _, batch, time, heads, dim = right.shape
    workload = workload_of("lstm", (batch, time, heads, dim), "bf16")
    tolerance = Tolerance.of(load_spec("lstm.cuda"), workload)
    difference = (found.double() - right.double()).abs().max()
    over = error_over_bound(found, right.double(), tolerance)
    return {"same": torch.equal(found, right), "difference": float(difference), "over_bound": over}


def long_arguments(dim: int) -> tuple[Tensor, Tensor]:
    """Those of a layer that takes a tenth of a second or so."""
    wx = torch.randn((BATCH, LONG, 4, 1, dim), device="cuda", dtype=torch.bfloat16).requires_grad_()
    return wx, arguments(dim)[1]


def interrupted() -> dict[str, Any]:
    """Long calls, and calls of new signatures, that the keyboard interrupts; after each a layer is run and compared."""
    operands = [arguments(dim) for dim in dims()[:3]]
    expected = [both_ways(*each) for each in operands]
    long = [long_arguments(dim) for dim in dims()[:3]]
    new_times = itertools.count(3)
    caught, same = 0, 0
    for turn in range(6):
        try:
            print("running", flush=True)
            while True:
                train(*(long[turn % 3] if turn < 3 else arguments(64, time=next(new_times))))
        except KeyboardInterrupt:
            caught += 1
        same += all(are_same(both_ways(*each), right) for each, right in zip(operands, expected, strict=True))
    return {"caught": caught, "same": same, "of": 6}


def start(name: str) -> subprocess.Popen[str]:
    """Start one of these programs; it keeps nothing on disk, so that it chooses and compiles anew."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "CONSTRINT_CACHE": "0"}
    command = [sys.executable, "-m", "tests.support.busy_gpu", name]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)


PROGRAMS = {
    function.__name__: function
    for function in (
        *(threads_on_streams, devices, beside_a_stream, beside_a_process, hold_for_ever, on_a_slice),
        *(in_a_green_context, interrupted),
    )
}

if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]]()))
