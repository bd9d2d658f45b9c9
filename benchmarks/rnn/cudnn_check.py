"""Say whose fault it is where a layer on cuDNN comes out wrong: cuDNN's, an algorithm's of it, or our call's.

    python -m benchmarks.rnn.cudnn_check                 # needs a GPU; under a minute
    python -m benchmarks.rnn.cudnn_check --out check.csv

Each layer is run in several ways on the same random weights and inputs, and compared with torch's own in fp64 on the
CPU: outputs and last states, and the gradients of a weighted sum of them.

| way | what runs |
|---|---|
| torch | `torch.nn`, whose parameters lie in one buffer as cuDNN wants them |
| torch, apart | the same with parameters that lie apart, so that torch copies them together at the call |
| torch, packed | the same on a packed sequence of equal lengths, which only the standard algorithm takes |
| ours | all layers in one call of `cudnn.launch.run_layers`, as a module would if it were not refused |
| ours, one by one | a call for each layer |
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from benchmarks.harness.table import Table, described
from constrint.kernels.rnn.cudnn.launch import CudnnCall, run_layers

CELLS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "elman": nn.RNN}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
#: Inputs and units: the narrow ones go to the algorithm for small layers, forward up to 192 and backward up to 128
#: units of an LSTM or GRU; the last ones are multiples of the persistent algorithm's 128 units.
SIZES = ((24, 40), (64, 64), (128, 128), (160, 160), (200, 200), (256, 256))
STEPS, SEQUENCES = 16, 16
#: Errors beyond this share of the largest value are no rounding; 16-bit layers on the CPU stay below a fifth of it.
WRONG = {"fp32": 1e-3, "fp16": 1e-2, "bf16": 8e-2}
COLUMNS = (
    "cell",
    "dtype",
    "inputs",
    "units",
    "layers",
    "directions",
    "way",
    "forward_error",
    "gradient_error",
    "verdict",
)

Run = Callable[[nn.Module, Tensor], list[Tensor]]


class Layers(NamedTuple):
    """What is run: a cell, a dtype, sizes, the number of layers, and that of directions."""

    cell: str
    dtype: str
    inputs: int
    units: int
    layers: int
    directions: int


def flat(value: Any) -> list[Tensor]:
    """The tensors of nested tuples."""
    return [value] if isinstance(value, Tensor) else [tensor for part in value for tensor in flat(part)]


def as_torch_does(module: nn.Module, x: Tensor) -> list[Tensor]:
    """A module as it is."""
    return flat(module(x))


def packed(module: nn.Module, x: Tensor) -> list[Tensor]:
    """A module on a packed sequence of equal lengths."""
    output, last = module(pack_padded_sequence(x, torch.full((x.shape[1],), x.shape[0])))
    return [output.data.view(x.shape[0], x.shape[1], -1), *flat(last)]


def ours(module: Any, x: Tensor) -> list[Tensor]:
    """All layers in one call."""
    return _run(module, x, list(module.parameters()), module.num_layers)


def one_by_one(module: Any, x: Tensor) -> list[Tensor]:
    """A call for each layer."""
    weights = list(module.parameters())
    per_layer = len(weights) // module.num_layers
    ends = []
    for first in range(0, len(weights), per_layer):
        x, *last = _run(module, x, weights[first : first + per_layer], 1)
        ends.append(last)
    return [x, *(torch.cat(parts) for parts in zip(*ends, strict=True))]


def _run(module: Any, x: Tensor, weights: list[Tensor], num_layers: int) -> list[Tensor]:
    cell = {"RNN_TANH": "elman"}.get(module.mode, module.mode.lower())
    sizes = cell, x.shape[-1], module.hidden_size, num_layers, module.bidirectional
    call = CudnnCall(*sizes, bias=True, batch_first=False, trains=True, is_exact=x.dtype == torch.float32)
    h = x.new_zeros((num_layers * (1 + module.bidirectional), x.shape[1], module.hidden_size))
    return [t for t in run_layers(call, x, weights, h, h.clone() if cell == "lstm" else None) if t is not None]


def everything(run: Run, module: nn.Module, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Results, and the gradients of a weighted sum of them by inputs and parameters."""
    x = x.detach().requires_grad_()
    results = run(module, x)
    loss = torch.stack([(result.double() * (place + 1)).sin().sum() for place, result in enumerate(results)]).sum()
    return [result.detach() for result in results], list(torch.autograd.grad(loss, [x, *module.parameters()]))


def error(found: list[Tensor], exact: list[Tensor]) -> float:
    """The largest error as a share of the largest value."""
    pairs = zip(found, exact, strict=True)
    return max(float((one.double().cpu() - right).abs().max() / right.abs().max()) for one, right in pairs)


def apart(module: nn.Module) -> nn.Module:
    """The same module with parameters that lie apart."""
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()
    return module


def ways(layers: Layers) -> Iterator[tuple[str, float, float]]:
    """How far off each way is, forward and backward."""
    torch.manual_seed(7)
    cell, dtype, inputs, units, num_layers, directions = layers
    options: dict[str, Any] = {"num_layers": num_layers, "bidirectional": directions == 2}
    module = CELLS[cell](inputs, units, **options, device="cuda", dtype=DTYPES[dtype])
    exact = CELLS[cell](inputs, units, **options, dtype=torch.float64)
    exact.load_state_dict(module.state_dict())
    x = torch.randn(STEPS, SEQUENCES, inputs, device="cuda").to(DTYPES[dtype])
    right = everything(as_torch_does, exact, x.double().cpu())
    every: list[tuple[str, Run]] = [("torch", as_torch_does), ("torch, packed", packed), ("ours", ours)]
    every += [("ours, one by one", one_by_one), ("torch, apart", as_torch_does)]
    for name, run in every:
        used = apart(module) if name == "torch, apart" else module
        found = everything(run, used, x)
        yield name, error(found[0], right[0]), error(found[1], right[1])


def verdict(name: str, wrong: set[str]) -> str:
    """What a wrong way says, by which others are wrong, too."""
    if name not in wrong:
        return "right"
    if not name.startswith("ours"):
        return "cuDNN's own" if "torch, packed" in wrong else "of an algorithm that packed sequences do not use"
    return "as torch's" if "torch" in wrong else "of our call"


def main() -> None:
    """Run every layer in every way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a CSV file to write")
    args = parser.parse_args()
    cudnn: Any = torch.backends.cudnn
    cudnn.allow_tf32 = False
    warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
    num_wrong = 0
    with Table(args.out, COLUMNS, f"{described()}, cudnn {cudnn.version()}") as table:
        for dtype, cell, (inputs, units), num_layers, directions in product(DTYPES, CELLS, SIZES, (1, 2), (1, 2)):
            layers = Layers(cell, dtype, inputs, units, num_layers, directions)
            found = list(ways(layers))
            wrong = {name for name, *errors in found if not max(errors) <= WRONG[dtype]}
            for name, forward, gradient in found:
                said = verdict(name, wrong)
                row = dict(zip(COLUMNS, (cell, dtype, *layers[2:], name, forward, gradient, said), strict=True))
                table.add(**row)
                num_wrong += said != "right"
                if said != "right":
                    print(*layers, name, f"forward {forward:.1e}, gradients {gradient:.1e}: {said}", flush=True)
    print(f"{num_wrong} ways are wrong")


if __name__ == "__main__":
    main()
