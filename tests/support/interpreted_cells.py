"""Generated steps in Triton's interpreter, run by `tests.support.interpreter`: errors over their bounds."""

from __future__ import annotations

from typing import Any

import torch

from constrint.choose import Decision, Program, Request, Step
from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.alternating import cost, graphs
from constrint.kernels.rnn.generated.backend import GeneratedBackend, inputs_of
from constrint.kernels.rnn.generated.register import register_cell, specs_of
from constrint.kernels.rnn.interface import ForwardOutputs, RnnUpstream
from constrint.kernels.rnn.language.backends import CellGradients, CellResults
from constrint.kernels.rnn.op import last_states
from constrint.kernels.rnn.spec import SUFFIX, workload_of
from constrint.kernels.rnn.triton.launch import TritonBackend
from tests.support.defined_cells import OWN, SAME, draw_call, worst

CONFIG = {"tile_batch": 16, "row_split": 1, "split_depth": 0, "num_warps": 4, "num_stages": 1}


def generated_errors(case: dict[str, Any]) -> tuple[float, ...]:
    """A cell by the fused kernel, with the exchange or without, or by kernels of one step: values, gradients."""
    if case["how"] == "as tuned":
        return tuple(_spec_error(case["cell"], direction) for direction in SUFFIX)
    cost.MAX_STEPS = 3  # several graphs, the last one not full
    definition, sizes = (OWN | SAME)[case["cell"]], tuple(case["sizes"])
    call, upstream = draw_call(definition, sizes, torch.float32, 3, optional=case["optional"])
    cell, inputs = register_cell(definition), inputs_of(call)
    kernel = f"{cell.name}.triton"
    workload = workload_of(cell.name, (*sizes[:3], -(-sizes[3] // 16) * 16), "fp32")
    config = {**CONFIG, **({"exchange": 1} if case["how"] == "exchange" else {})}
    step = Step("forward", kernel, config, workload)
    choice = Decision(Request(kernel, workload, None), Program(kernel, (step,)))
    by_steps, fused = case["how"] == "steps", TritonBackend()
    rest = (None,) * (cell.num_states - 1) if upstream[1] is None else tuple(upstream[1])
    gradients = RnnUpstream((upstream[0], *rest), tuple(upstream[2]))
    made: ForwardOutputs
    if by_steps:
        made = graphs.graph_forward(inputs, save_gates=True)
        found = graphs.graph_backward(inputs, made, gradients, clip=0.0)
    else:
        made = fused.forward(inputs, choice, save_gates=True)
        found = fused.backward(inputs, made, gradients, choice, clip=0.0)
    of_parameters = GeneratedBackend.of_parameters(call, found.params)
    results = CellResults(made.states[0], made.states[1:], last_states(inputs, made.states), made.gates)
    return worst(call, upstream, results, CellGradients(found.wx, found.r, found.b, found.initial, of_parameters, ()))


def _spec_error(name: str, direction: str) -> float:
    """The kernel on the inputs that a trial runs with, against the trial's reference, in 64 roundings of fp32."""
    cell = register_cell(OWN[name])
    (spec,) = (each for each in specs_of(cell, direction) if each.name == "triton")
    gpu, workload = load_gpu("h200"), workload_of(cell.name, (2, 3, 1, 16), "fp32", direction)
    inputs = spec.inputs(gpu, workload, device="cpu", seed=1)
    outputs = spec.outputs(gpu, workload, inputs)
    for launch in spec.launches(gpu, workload, {**CONFIG, "recompute": 0}, inputs, outputs):
        launch.run()
    exact = spec.reference(workload, inputs)
    errors = [float((outputs[key].double() - x).norm() / x.norm()) for key, x in exact.items()]
    return max(errors) / (64 * 2.0**-24)
