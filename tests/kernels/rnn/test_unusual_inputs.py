"""Inputs that recurrent layers may go wrong on: what is right stays within its bound, what is careless does not."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra [torch]: torch is not installed")

import torch

from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.cells import BUILT_IN
from constrint.kernels.rnn.reference import rnn_reference
from constrint.kernels.rnn.spec import workload_of
from constrint.select import KernelSpec, Workload
from constrint.select.candidate import CompiledKernel
from constrint.tune.check import Case

GPU = load_gpu("h200")
SIZES = (4, 32, 2, 64)
KINDS = range(4)


def case(cell: str, dtype: str, kind: int, direction: str = "forward") -> tuple[KernelSpec, Workload, Case]:
    workload = workload_of(cell, SIZES, dtype, direction)
    spec = load_spec(f"{workload.operation}.cuda")
    return spec, workload, Case(spec, GPU, workload, device="cpu", seed=7, unusual=kind)


class Computed:
    """A launch that writes given states."""

    def __init__(self, outputs: Any, states: Any) -> None:
        self._outputs, self._states = outputs, states

    def run(self) -> None:
        self._outputs["states"].copy_(self._states)

    def compile(self, gpu: GpuModel) -> CompiledKernel:
        raise NotImplementedError


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("cell", list(BUILT_IN))
def test_what_rounds_its_states_once_a_step_is_right_on_every_kind(cell: str, dtype: str) -> None:
    for kind in KINDS:
        _, _, one = case(cell, dtype, kind)
        wx, r, bias = (one.inputs[name] for name in ("wx", "r", "bias"))
        states = rnn_reference(cell, wx, r, bias, stored=wx.dtype)[0]
        assert torch.isfinite(states).all()
        assert one.check([Computed(one.outputs, states)]) < 0.5


def test_a_tanh_that_overflows_is_right_on_random_inputs_and_wrong_on_saturating_ones() -> None:
    def errors(kind: int) -> float:
        _, _, one = case("elman", "fp32", kind)
        wx, r, bias = (one.inputs[name] for name in ("wx", "r", "bias"))
        h, states = torch.zeros(SIZES[0], SIZES[2], SIZES[3]), []
        for step in range(SIZES[1]):
            before = wx[:, step, 0] + torch.einsum("nij,bnj->bni", r[0], h) + bias[0]
            power = torch.exp(2 * before)
            h = (power - 1) / (power + 1)
            states.append(h)
        return one.check([Computed(one.outputs, torch.stack(states, dim=1)[None])])

    assert [errors(kind) <= 1.0 for kind in (0, 1)] == [True, False]


def test_kinds_differ_as_they_are_said_to() -> None:
    random, large, scattered, tiny = (case("lstm", "bf16", kind)[2].inputs["wx"].float() for kind in KINDS)
    assert large.abs().max() > 88
    assert torch.equal(large, 32 * random)
    assert torch.equal(tiny, random / 256)
    assert 0.02 < (scattered != 0).float().mean() < 0.04
    assert torch.equal(scattered[scattered != 0], random[scattered != 0])
    again = case("lstm", "bf16", 4)[2].inputs["wx"].float()
    assert torch.equal(again, random)


@pytest.mark.parametrize("cell", list(BUILT_IN))
def test_backward_what_a_forward_pass_left_belongs_to_the_inputs(cell: str) -> None:
    plain, scattered, sparse, tiny = (case(cell, "fp32", kind, "backward")[2].inputs for kind in KINDS)
    assert torch.equal(plain["states"], scattered["states"])
    assert 0.02 < (scattered["grad0"] != 0).float().mean() < 0.04
    for one in (plain, sparse, tiny):
        assert torch.equal(one["states"], rnn_reference(cell, one["wx"], one["r"], one["bias"])[0])
    assert not torch.equal(plain["saved"], sparse["saved"])
    assert tiny["wx"].abs().max() < 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_backward_exact_gradients_are_right_and_those_of_other_states_are_wrong(kind: int) -> None:
    spec, workload, one = case("gru", "fp32", kind, "backward")
    exact = spec.reference(workload, one.inputs)

    class Gradients(Computed):
        def run(self) -> None:
            for name, value in exact.items():
                self._outputs[name].copy_(value * self._states)

    assert one.check([Gradients(one.outputs, 1.0)]) < 0.5
    assert one.check([Gradients(one.outputs, 1.01)]) > 1
