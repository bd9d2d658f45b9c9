"""The kernels for many sequences, built by g++ and run on the CPU thread by thread; see `grid_on_cpu/`."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.fused import UNWRITTEN
from constrint.kernels.rnn.generated.cuda import cuda_text
from constrint.kernels.rnn.gradients import recompute_gates, states_before
from constrint.kernels.rnn.reference import rnn_reference
from constrint.kernels.rnn.wgmma.launch import WgmmaBuild, source_of
from constrint.kernels.rnn.wgmma.shape import CELLS_SOURCE, SOURCE
from constrint.kernels.rnn.wgmma_partial import launch as partial
from constrint.kernels.rnn.wgmma_partial.shape import SOURCE as PARTIAL_SOURCE
from tests.support.grid import HEADERS, built_on_grid

H200 = load_gpu("h200")
#: Headers of the cells that are no instructions; the CPU's own stand for the others.
SHARED = ("cells.cuh", "shape.cuh")
#: What the CPU's header has in its place.
SHARED_MEMORY = "extern __shared__ __align__(1024) unsigned char shared_memory[];"
#: Threads take so many turns, in any run here, before they are taken to wait for each other in vain.
MOST_TURNS = 8_000_000


class Mistake(NamedTuple):
    """A mistake that a run can make.

    Args:
        file: The source.
        text: What stands there, once: a statement or an expression.
        instead: What is run in its place.
    """

    file: str
    text: str
    instead: str

    def switched(self, number: int, right: str) -> str:
        """What does the one or the other."""
        if self.text.rstrip().endswith(";"):
            return f"if (fibers::mistake == {number}) {{ {self.instead} }} else {{ {right} }}"
        return f"(fibers::mistake == {number} ? {self.instead} : {right})"


@dataclass(frozen=True)
class Case:
    """A layer and a configuration.

    Args:
        cell, batch, time, heads, dim, dtype: The layer.
        config: The kernel's parameters; with `targets` those of the kernel that exchanges partial sums.
        optional: Whether it has initial states, lengths and resets; backward gradients of all states, too.
        direction: "forward" or "backward".
    """

    cell: str
    batch: int
    time: int
    heads: int
    dim: int
    dtype: str
    config: Mapping[str, int]
    optional: bool = False
    direction: str = "forward"


@dataclass(frozen=True)
class Result:
    """Whether threads waited in vain, and the largest errors of states and of pre-activations (infinite for a NaN)."""

    is_stuck: bool
    states: float
    gates: float


def built(case: Case, folder: Path, mistakes: Sequence[Mistake] = ()) -> ctypes.CDLL:
    """The kernel as a library that can make one of the mistakes, by its number from 1 on."""
    files: dict[str, str] = {}
    for path in (*SOURCE.iterdir(), *PARTIAL_SOURCE.iterdir(), *(CELLS_SOURCE / name for name in SHARED)):
        text = path.read_text(encoding="utf-8").replace(SHARED_MEMORY, "")
        switched: dict[str, str] = {}
        for number, mistake in enumerate(mistakes, 1):
            if mistake.file == path.name:
                assert text.count(mistake.text) == 1, mistake
                switched[mistake.text] = mistake.switched(number, switched.get(mistake.text, mistake.text))
        for right, either in switched.items():
            text = text.replace(right, either)
        files[path.name] = text
    files |= {
        name: (HEADERS / name).read_text(encoding="utf-8") for name in ("ptx.cuh", "instructions.cuh", "whole.cuh")
    }
    files["step.cuh"] = cuda_text(CELLS[case.cell].step, case.direction)
    main = "main.cc" if case.direction == "forward" else "backward.cc"
    files["main.cc"] = (HEADERS / main).read_text(encoding="utf-8")
    return built_on_grid(files, _source(case).source.macros, folder)


def _source(case: Case) -> WgmmaBuild:
    build = partial.source_of if "targets" in case.config else source_of
    return build(CELLS[case.cell], case.dim, case.dtype, tuple(sorted(case.config.items())), case.direction)


def run(library: ctypes.CDLL, case: Case, seed: int, mistake: int = 0) -> Result:
    """Run it on random inputs, in an order of threads that the seed decides; with a mistake, or with none (0)."""
    cell, draw = CELLS[case.cell], torch.Generator().manual_seed(seed)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[case.dtype]
    batch, time, heads, dim = case.batch, case.time, case.heads, case.dim

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw)

    # Steps of the batch are longer than what they hold, as those of a part of a larger tensor.
    wx = random(batch, time + 1, cell.num_gates, heads, dim).to(dtype)[:, :time]
    r = (random(cell.num_gates, heads, dim, dim) / dim**0.5).to(dtype)
    bias = (0.3 * random(cell.num_gates, heads, dim)).to(dtype)
    initial = lengths = rows = reset = None
    if case.optional:
        initial = random(cell.num_states, batch, heads, dim)
        if cell.is_exponential:
            initial[2] = initial[2].abs() + 1
        lengths = torch.randint(0, time + 1, (batch,), generator=draw).to(torch.int32)
        rows = torch.argsort(lengths, descending=True, stable=True).to(torch.int32)
        reset = (torch.rand((batch, time), generator=draw) < 0.1).to(torch.int32)
    states = torch.full((cell.num_states, batch, time, heads, dim), torch.nan).to(dtype)
    saved = torch.full((batch, time, cell.num_gates, heads, dim), torch.nan).to(dtype)
    groups = heads * -(-batch // case.config["tile_batch"])
    exchange = _aligned(groups * _source(case).ring_bytes // 4)
    tensors = [wx, r, bias, initial, states, saved, rows, lengths, reset, exchange]
    addresses = [ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in tensors]
    strides = [ctypes.c_longlong(stride) for stride in wx.stride()[:2]]
    blocks = groups * dim // case.config["units"]
    sizes = batch, time, heads, 0
    is_stuck = bool(library.run(mistake, blocks, seed, ctypes.c_longlong(MOST_TURNS), *addresses, *sizes, *strides))
    exact = [None if tensor is None else tensor.double() for tensor in (wx, r, bias, initial)]
    is_reset = None if reset is None else reset.bool()
    expected = rnn_reference(case.cell, *exact, lengths=lengths, reset=is_reset)[0]  # type: ignore[arg-type]
    before = states_before(states[0], initial, is_reset)
    gates = recompute_gates(cell, wx.float(), r.float(), bias.float(), before.float())
    inside = torch.ones((batch, time), dtype=torch.bool)
    if lengths is not None:
        inside = torch.arange(time)[None] < lengths[:, None]
    return Result(is_stuck, _largest(states.double() - expected), _largest((saved.float() - gates)[inside]))


def run_backward(library: ctypes.CDLL, case: Case, seed: int, mistake: int = 0) -> Result:
    """The same of the backward kernel: the errors of gradients of pre-activations, and of the initial states'."""
    cell, draw = CELLS[case.cell], torch.Generator().manual_seed(seed)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[case.dtype]
    batch, time, heads, dim = case.batch, case.time, case.heads, case.dim

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw)

    wx = random(batch, time + 1, cell.num_gates, heads, dim).to(dtype)[:, :time]
    r = (random(cell.num_gates, heads, dim, dim) / dim**0.5).to(dtype)
    initial = random(cell.num_states, batch, heads, dim)
    if cell.is_exponential:
        initial[2] = initial[2].abs() + 1
    lengths = rows = reset = grad_last = None
    given = [random(batch, time, heads, dim).to(dtype)]
    if case.optional:
        lengths = torch.randint(0, time + 1, (batch,), generator=draw).to(torch.int32)
        rows = torch.argsort(lengths, descending=True, stable=True).to(torch.int32)
        reset = (torch.rand((batch, time), generator=draw) < 0.1).to(torch.int32)
        grad_last = random(cell.num_states, batch, heads, dim)
        given += [random(batch, time, heads, dim).to(dtype) for _ in range(cell.num_states - 1)]
    is_reset = None if reset is None else reset.bool()
    exact_wx, exact_initial = (tensor.double().requires_grad_() for tensor in (wx, initial))
    states, last = rnn_reference(case.cell, exact_wx, r.double(), None, exact_initial, lengths=lengths, reset=is_reset)
    loss = sum((state * grad.double()).sum() for state, grad in zip(states, given, strict=False))
    if grad_last is not None:
        loss = loss + (torch.stack(tuple(last)) * grad_last.double()).sum()
    expected = torch.autograd.grad(loss, (exact_wx, exact_initial))
    rounded = states.detach().to(dtype)
    saved = recompute_gates(cell, wx, r, None, states_before(rounded[0], initial, is_reset))
    slots = torch.full((batch, time, cell.num_slots, heads, dim), torch.nan).to(dtype)
    of_initial = torch.full(initial.shape, torch.nan)
    groups = heads * -(-batch // case.config["tile_batch"])
    exchange = _aligned(groups * _source(case).ring_bytes // 4)
    tensors = [*given, *[None] * (4 - len(given)), grad_last, wx, r, initial, rounded, saved, slots, of_initial]
    tensors += [rows, lengths, reset, exchange]
    addresses = [ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in tensors]
    strides = [ctypes.c_longlong(stride) for stride in wx.stride()[:2]]
    blocks = groups * dim // case.config["units"]
    begin = mistake, blocks, seed, ctypes.c_longlong(MOST_TURNS)
    sizes = ctypes.c_float(0.0), int(len(given) == 1 and grad_last is None), batch, time, heads, 0
    is_stuck = bool(library.run(*begin, *addresses, *sizes, *strides))
    of_wx = slots[:, :, : cell.num_gates].double()
    return Result(is_stuck, _largest(of_wx - expected[0]), _largest(of_initial.double() - expected[1]))


def _largest(difference: Tensor) -> float:
    return float(difference.abs().nan_to_num(nan=torch.inf).max()) if difference.numel() else 0.0


def _aligned(words: int) -> Tensor:
    """Words of ones at a multiple of 16 bytes."""
    every = torch.full((words + 4,), UNWRITTEN - (1 << 32), dtype=torch.int32)
    first = -(every.data_ptr() // 4) % 4
    return every[first : first + words]
