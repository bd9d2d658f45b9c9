"""Recurrent kernels in Triton's interpreter, run by `tests.support.interpreter`: how far off are they?

Every function takes a case read from JSON and returns relative errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from constrint.choose import Decision, Program, Request, Step
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.alternating import cost, graphs
from constrint.kernels.rnn.alternating.loop import loop_backward, loop_forward
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.gradients import gradients_of_slots, input_gradient
from constrint.kernels.rnn.interface import BackwardTensors, ForwardOutputs, RnnInputs, RnnUpstream
from constrint.kernels.rnn.reference import rnn_reference
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.triton.launch import TritonBackend
from constrint.kernels.rnn.triton.layer import padded_head_dim
from constrint.kernels.rnn.weights.launch import is_one_product, weight_launches

H200 = load_gpu("h200")


def fused_errors(case: dict[str, Any]) -> tuple[float, float]:
    """The fused kernels of one configuration against the reference in double precision: of states, of gradients."""
    cell, dtype = CELLS[case["cell"]], getattr(torch, case["dtype"])
    batch, time, heads, dim = case["sizes"]
    gates, states = cell.num_gates, cell.num_states
    generator = torch.Generator().manual_seed(case["seed"])

    def draw(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator)

    wx = draw(batch, time, gates, heads, dim).to(dtype)
    if case["time_major"]:
        wx = wx.transpose(0, 1).contiguous().transpose(0, 1)
    r = (draw(gates, heads, dim, dim) / dim**0.5).to(dtype)
    b = 0.3 * draw(gates, heads, dim).to(dtype) if case["bias"] else None
    initial = 0.5 * draw(states, batch, heads, dim) if case["initial"] else None
    if initial is not None and cell.name == "slstm":
        initial[2] = initial[2].abs() + 1.0
    lengths = torch.randint(0, time + 1, (batch,), generator=generator) if case["lengths"] else None
    reset = torch.rand((batch, time), generator=generator) < 0.2 if case["reset"] else None
    # In 16 bits the gradient of a stabiliser is ill-posed: max() flips with the rounding.
    only_h = dtype != torch.float32
    grad = draw(states, batch, time, heads, dim).to(dtype)
    grad_last = draw(states, batch, heads, dim)
    if only_h:
        grad[1:], grad_last[1:] = 0, 0
    given = {name: x for name, x in {"wx": wx, "r": r, "b": b, "initial": initial}.items() if x is not None}
    exact = {name: x.double().requires_grad_(True) for name, x in given.items()}
    out, last = rnn_reference(cell.name, **exact, lengths=lengths, reset=reset, clip=case["clip"])
    wanted = torch.autograd.grad((out * grad.double()).sum() + (last * grad_last.double()).sum(), list(exact.values()))
    name = {"float32": "fp32", "float16": "fp16"}[case["dtype"]]
    sizes = batch, time, heads, padded_head_dim(dim)
    workload, kernel = workload_of(cell.name, sizes, name), cell.name + ".triton"
    choice = Decision(
        Request(kernel, workload, None), Program(kernel, (Step("forward", kernel, case["config"], workload),))
    )
    inputs = RnnInputs(cell.name, wx, r, b, initial, lengths, reset)
    if case["planned"]:
        forward, ends, gradients = _planned(inputs, choice, grad, grad_last, clip=case["clip"], only_h=only_h)
        gradient_error = _largest(_difference(g, w) for g, w in zip(gradients, wanted, strict=True))
        return max(_difference(forward, out), _difference(ends, last)), gradient_error
    saved = TritonBackend().forward(inputs, choice, save_gates=case["save"])
    upstream = _of_first_state(grad, grad_last) if only_h else RnnUpstream(tuple(grad), tuple(grad_last))
    found = TritonBackend().backward(inputs, saved, upstream, choice, clip=case["clip"])
    gradients = [g for g in (found.wx, found.r, found.b, found.initial) if g is not None]
    return _difference(saved.states, out), _largest(_difference(g, w) for g, w in zip(gradients, wanted, strict=True))


def _planned(
    inputs: RnnInputs, choice: Decision, grad: Tensor, grad_last: Tensor, *, clip: float, only_h: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """All states, the last ones and the gradients, by the launches of a plan, into memory that holds NaN."""
    wx, b, initial, kind = inputs.wx, inputs.b, inputs.initial, inputs.kind
    batch, time, _, heads, dim = wx.shape

    def poisoned(*shape: int, dtype: torch.dtype = wx.dtype) -> Tensor:
        return torch.full(shape, math.nan, dtype=dtype)

    states, end_h = poisoned(kind.num_states, batch, time, heads, dim), poisoned(batch, heads, dim)
    made = ForwardOutputs(states, poisoned(*wx.shape), end_h, poisoned(kind.num_states - 1, batch, heads, dim))
    start = None if initial is None else initial[0].to(wx.dtype)
    for each in TritonBackend().plan_forward(inputs, start, made, choice, Scratch()):
        each.run()
    assert made.gates is not None
    back = BackwardTensors(
        states=states,
        gates=made.gates,
        grad_states=(grad[0], *(None if only_h else other for other in grad[1:])),
        grad_last=grad_last.float(),
        slots=poisoned(batch, time, kind.num_slots, heads, dim),
        initial=poisoned(kind.num_states, batch, heads, dim, dtype=torch.float32),
        before=None if is_one_product(heads, dim, wx.element_size(), H200) else poisoned(batch, time, heads, dim),
    )
    launches = TritonBackend().plan_backward(inputs, back, choice, Scratch(), clip=clip, only_h=only_h)
    for each in launches:
        each.run()
    if back.before is None:
        of_r, of_b = torch.full_like(inputs.r, math.nan), None if b is None else torch.full_like(b, math.nan)
        for each in weight_launches(kind, back.slots, states[0], initial, of_r, of_b, H200, Scratch()):
            each.run()
        found: tuple[Tensor, Tensor | None, Tensor | None] = input_gradient(kind, back.slots), of_r, of_b
    else:
        found = gradients_of_slots(kind, back.slots, back.before, inputs.r.dtype, True, b)
    given = (*found, back.initial if initial is not None else None)
    assert made.end_rest is not None
    return states, torch.cat([end_h[None], made.end_rest]), [gradient for gradient in given if gradient is not None]


def alternating_errors(case: dict[str, Any]) -> dict[str, float]:
    """The alternating back-end against the same recurrence in PyTorch, by what is compared."""
    cost.MAX_STEPS = 4  # several chunks, the last one not full
    torch.manual_seed(case["seed"])
    cell, (batch, time, heads, dim) = case["cell"], case["sizes"]
    gates, states = CELLS[cell].num_gates, CELLS[cell].num_states
    dtype = getattr(torch, case["dtype"])
    full = case["optional"]
    initial = torch.randn(states, batch, heads, dim) if full else None
    if initial is not None and cell == "slstm":
        initial[2] = initial[2].abs() + 1.5
    inputs = RnnInputs(
        cell,
        torch.randn(batch, time, gates, heads, dim).to(dtype),
        (torch.randn(gates, heads, dim, dim) / (2 * dim**0.5)).to(dtype),
        torch.randn(gates, heads, dim) if full else None,
        initial,
        torch.tensor([time, 0, 3, 5][:batch], dtype=torch.int32) if full else None,
        torch.rand(batch, time) < 0.3 if full else None,
    )
    every = tuple(torch.randn(batch, time, heads, dim).to(dtype) for _ in range(states))
    last = tuple(torch.randn(batch, heads, dim).to(dtype) for _ in range(states))
    only_first = RnnUpstream((every[0], *[None] * (states - 1)), (None,) * states)
    upstream, clip = (RnnUpstream(every, last), 0.05) if full else (only_first, 0.0)
    found, expected = (f(inputs, save_gates=True) for f in (graphs.graph_forward, loop_forward))
    pairs: dict[str, tuple[Any, Any]] = {
        "states": (found.states, expected.states),
        "gates": (found.gates, expected.gates),
    }
    # From the same saved tensors, so that each direction is compared on its own; with stored and recomputed gates.
    for name, saved in (("stored", expected), ("recomputed", type(expected)(expected.states, None))):
        a, b = (f(inputs, saved, upstream, clip=clip) for f in (graphs.graph_backward, loop_backward))
        for field in ("wx", "r", "b", "initial"):
            if getattr(b, field) is not None:
                pairs[f"{name} {field}"] = getattr(a, field), getattr(b, field)
    # Past a sequence's end pre-activations are nobody's business.
    if inputs.lengths is not None:
        runs = (torch.arange(time) < inputs.lengths[:, None])[:, :, None, None, None]
        ours, theirs = pairs["gates"]
        pairs["gates"] = torch.where(runs, ours, 0), torch.where(runs, theirs, 0)
    return {
        name: float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1e-30))
        for name, (a, b) in pairs.items()
    }


def spec_error(case: dict[str, Any]) -> float:
    """One kernel as its spec launches it on its own inputs, against the spec's reference."""
    spec = load_spec(case["kernel"])
    gpu, workload = H200, workload_of(case["cell"], (3, 4, 2, 16), "fp32", case["direction"])
    inputs = spec.inputs(gpu, workload, device="cpu", seed=1)
    outputs = spec.outputs(gpu, workload, inputs)
    for step in spec.launches(gpu, workload, case["config"], inputs, outputs):
        step.run()
    exact = spec.reference(workload, inputs)
    return _largest(float((outputs[n].double() - x).norm() / x.norm().clamp(min=1e-9)) for n, x in exact.items())


def _of_first_state(grad: Tensor, grad_last: Tensor) -> RnnUpstream:
    others = [None] * (len(grad) - 1)
    return RnnUpstream((grad[0], *others), (grad_last[0], *others))


def _largest(errors: Iterable[float]) -> float:
    """The largest error; NaN if one is: the built-in `max` passes over it."""
    return float(torch.tensor(list(errors)).max())


def _difference(actual: Tensor, expected: Tensor) -> float:
    return float((actual.double() - expected).norm() / expected.norm())
