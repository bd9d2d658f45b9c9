"""Head dimensions that the fused kernels do not take: padded, run, cropped, with the loop in PyTorch as the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.needs import missing_packages

if missing_packages("triton"):
    pytest.skip("needs the extra [torch]: triton", allow_module_level=True)

from constrint.choose import Decision, Program, Request, Step
from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.rnn import edges
from constrint.kernels.rnn.alternating import loop
from constrint.kernels.rnn.alternating.loop import loop_backward, loop_forward
from constrint.kernels.rnn.cells import BUILT_IN, CELLS
from constrint.kernels.rnn.fused import FusedBackend
from constrint.kernels.rnn.interface import ForwardOutputs, RnnInputs, RnnUpstream
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.triton.layer import padded_head_dim
from constrint.select.candidate import Config
from constrint.select.spec import Launch


@dataclass
class Call:
    """A launch that calls a function."""

    function: Callable[[], None]

    def run(self) -> None:
        self.function()

    def compile(self, gpu: Any) -> Any:
        raise NotImplementedError


class LoopBackend(FusedBackend):
    """Takes heads of 16 units and multiples of it, and computes them by a loop of PyTorch calls."""

    def __init__(self, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cell, self.monkeypatch = cell, monkeypatch
        kernel = f"{cell}.triton"
        request = Request(kernel, workload_of(cell, (3, 6, 2, 16), "fp32"), None)
        self.choice = Decision(request, Program(kernel, (Step("forward", kernel),)))

    def padded(self, head_dim: int, dtype: torch.dtype) -> int:
        return padded_head_dim(head_dim)

    def loop(
        self, direction: str, choice: Decision, config: Config, tensors: Any, scratch: Scratch, **options: Any
    ) -> Sequence[Launch]:
        assert choice is self.choice
        assert tensors["wx"].shape[-1] % 16 == 0
        return [Call(lambda: (self._forward if direction == "forward" else self._backward)(tensors, **options))]

    def _inputs(self, tensors: Any) -> RnnInputs:
        reset, lengths, order = tensors["reset"], tensors["lengths"], tensors["rows"]
        assert torch.equal(lengths[order.long()], lengths.sort(descending=True).values)
        wx, r, bias, initial = (tensors.get(name) for name in ("wx", "r", "bias", "initial"))
        return RnnInputs(self.cell, wx, r, bias, initial, lengths, reset.bool())

    def _forward(self, tensors: Any) -> None:
        saved = loop_forward(self._inputs(tensors), save_gates=True)
        tensors["states"].copy_(saved.states)
        tensors["saved"].copy_(saved.gates)

    def _backward(self, tensors: Any, *, clip: float, only_h: bool) -> None:
        """The gradients of the slots are those that the loop makes its results of."""
        kind, seen = CELLS[self.cell], list[tuple[Tensor, Tensor | None]]()
        results = loop._gradients

        def noted(inputs: RnnInputs, before: Tensor, d_p: Tensor, d_candidate: Tensor | None, carry: Any) -> Any:
            seen.append((d_p, d_candidate))
            return results(inputs, before, d_p, d_candidate, carry)

        upstream = RnnUpstream(
            tuple(tensors[f"grad{state}"] for state in range(kind.num_states)), tuple(tensors["grad_last"])
        )
        with self.monkeypatch.context() as patch:
            patch.setattr(loop, "_gradients", noted)
            saved = ForwardOutputs(tensors["states"], tensors["saved"])
            found = loop_backward(self._inputs(tensors), saved, upstream, clip=clip)
        (d_p, d_candidate), slots = seen[0], tensors["grad_slots"]
        slots[:, :, list(kind.recurrent_slots)] = d_p.permute(2, 0, 3, 1, 4).to(slots.dtype)
        if d_candidate is not None:
            slots[:, :, -2] = d_candidate.permute(2, 0, 1, 3)
        tensors["grad_initial"].copy_(found.initial)


def resized(source: Tensor, target: Tensor, fill: float = 0.0) -> Call:
    """The copy of `edges.resize_launch` in PyTorch calls."""

    def copy() -> None:
        shared = min(source.shape[-1], target.shape[-1])
        target.fill_(fill)
        target[..., :shared] = source[..., :shared]

    return Call(copy)


def resized_weights(source: Tensor, target: Tensor) -> Call:
    """The copy of `edges.resize_weights_launch` in PyTorch calls."""

    def copy() -> None:
        target.zero_()
        target[..., : source.shape[-2], : source.shape[-1]] = source

    return Call(copy)


@pytest.mark.parametrize("dim", [16, 5, 33])
@pytest.mark.parametrize("cell", BUILT_IN)
def test_padded_units_leave_no_trace(cell: str, dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "resize_launch", resized)
    monkeypatch.setattr(edges, "resize_weights_launch", resized_weights)
    torch.manual_seed(1)
    kind = CELLS[cell]
    initial = torch.randn(kind.num_states, 3, 2, dim, dtype=torch.float32)
    if cell == "slstm":
        initial[2] = initial[2].abs() + 1.5
    inputs = RnnInputs(
        cell,
        torch.randn(3, 6, kind.num_gates, 2, dim, dtype=torch.float32),
        torch.randn(kind.num_gates, 2, dim, dim, dtype=torch.float32) / dim**0.5,
        torch.randn(kind.num_gates, 2, dim, dtype=torch.float32),
        initial,
        torch.tensor([6, 0, 4], dtype=torch.int32),
        torch.rand(3, 6) < 0.3,
    )
    upstream = RnnUpstream(
        (torch.randn(3, 6, 2, dim, dtype=torch.float32), *(None,) * (kind.num_states - 1)),
        tuple(torch.randn(3, 2, dim, dtype=torch.float32) for _ in range(kind.num_states)),
    )
    padded = LoopBackend(cell, monkeypatch)
    found = padded.forward(inputs, padded.choice, save_gates=True)
    expected = loop_forward(inputs, save_gates=True)
    torch.testing.assert_close(found.states, expected.states)
    torch.testing.assert_close(found.gates, expected.gates)
    gradients = padded.backward(inputs, found, upstream, padded.choice, clip=0.1)
    right = loop_backward(inputs, expected, upstream, clip=0.1)
    for name in ("wx", "r", "b", "initial"):
        tensor = getattr(gradients, name)
        torch.testing.assert_close(tensor, getattr(right, name))
        assert tensor.is_contiguous()
    assert padded_head_dim(dim) % 16 == 0
    assert 0 <= padded_head_dim(dim) - dim < 16
