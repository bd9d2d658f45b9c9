"""Cells that are written in Python get kernels: generated steps against autograd in fp64 and against built-in ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs torch", allow_module_level=True)

import torch

from constrint.errors import UnknownNameError, UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import importable_name, load_kernel, load_spec
from constrint.kernels.rnn.candidates import decide_layer
from constrint.kernels.rnn.cells import BUILT_IN, CELLS
from constrint.kernels.rnn.generated.backend import GeneratedBackend
from constrint.kernels.rnn.generated.pointwise import reference_step
from constrint.kernels.rnn.generated.register import recurrent_cell, register_cell
from constrint.kernels.rnn.language.graph import CellDefinition
from constrint.kernels.rnn.language.trace import cell, sigmoid, tanh
from constrint.kernels.rnn.spec import workload_of
from tests.support.defined_cells import OWN, SAME, draw_call, worst
from tests.support.interpreter import interpreted
from tests.support.shared import SharedResults

CASES: dict[str, dict[str, Any]] = {
    f"{name}, {how}": {"cell": name, "how": how, "sizes": [2, 4, 1, dim], "optional": True}
    for name in OWN
    for how, dim in (("whole", 20), ("exchange", 16), ("steps", 5))
    if how != "exchange" or name in ("peephole", "cifg", "atr")
}
CASES["peephole, as it is tuned"] = {"cell": "peephole", "how": "as tuned"}
FILE = """
from constrint.kernels.rnn.language.trace import cell, sigmoid, tanh

@cell(gates=("u", "c"), states=("h",))
def kept(g, s):
    u = sigmoid({scale} * g.u)
    return dict(h=u * s.h + (1 - u) * tanh(g.c))
"""


@pytest.fixture(scope="module")
def errors(shared_results: SharedResults) -> dict[str, tuple[float, float]]:
    function = "tests.support.interpreted_cells:generated_errors"
    return dict(shared_results.once(function, lambda: interpreted(function, CASES)))


@pytest.mark.parametrize("name", CASES)
def test_triton_kernels_with_generated_steps_equal_autograd(name: str, errors: dict[str, tuple[float, float]]) -> None:
    assert max(errors[name]) <= 1.0


@pytest.mark.parametrize("name", OWN)
def test_the_loop_in_pytorch_equals_autograd_over_the_steps_that_were_written(name: str) -> None:
    by_loop = GeneratedBackend("alternating", "alternating")
    for optional in (False, True):
        call, upstream = draw_call(OWN[name], (3, 6, 2, 5), torch.float64, 1, optional=optional)
        made = by_loop.forward(call, saves=True)
        assert max(worst(call, upstream, made, by_loop.backward(call, made, *upstream))) <= 1.0


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_generated_steps_in_cuda_equal_the_built_in_ones_and_autograd(tmp_path: Path) -> None:
    from tests.support import cell_steps_on_cpu as steps

    defined = {name: register_cell(definition) for name, definition in (SAME | OWN).items()}
    library = steps.built(defined | {f"built_in_{name}": BUILT_IN[name] for name in SAME}, tmp_path)
    draw = torch.Generator().manual_seed(5)
    number = 257
    for name, kind in defined.items():
        definition = kind.definition
        assert definition is not None

        def random(columns: int) -> torch.Tensor:
            return torch.randn((number, columns), generator=draw)

        p, q, w = random(4), random(kind.num_states), random(kind.num_params)
        if name == "slstm":
            q[:, 2] = q[:, 2].abs() + 1
            q[::7, 2] = 0  # an empty state
        c = steps.forward(library, name, p, q, w)
        d = random(kind.num_states)
        found = steps.backward(library, name, p, q, c, d, w)
        exact = [x.double().requires_grad_() for x in (p, q, w)]
        new = reference_step(definition, exact[0].unbind(1), exact[1].unbind(1), exact[2].t())
        torch.testing.assert_close(c.double(), torch.stack(new, 1).detach(), rtol=1e-5, atol=1e-5)
        total = sum((x * y).sum() for x, y in zip(new, d.double().unbind(1), strict=True))
        wanted = torch.autograd.grad(total, exact, allow_unused=True, materialize_grads=True)  # type: ignore[arg-type]
        for ours, theirs in zip((found[0][:, : kind.num_slots], *found[1:]), wanted, strict=True):
            torch.testing.assert_close(ours.double(), theirs[:, : ours.shape[1]], rtol=2e-4, atol=2e-4)
        if name in SAME:
            torch.testing.assert_close(c, steps.forward(library, f"built_in_{name}", p, q, w), rtol=1e-6, atol=1e-6)
            beside = steps.backward(library, f"built_in_{name}", p, q, c, d, w)
            for ours, theirs in zip(found, beside, strict=True):
                used = slice(0, kind.num_slots if ours is found[0] else None)
                torch.testing.assert_close(ours[:, used], theirs[:, used], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SAME)
def test_a_built_in_cell_that_is_written_again_asks_for_the_same_work(name: str) -> None:
    mine, theirs = recurrent_cell(SAME[name]), BUILT_IN[name]
    for fact in ("num_gates", "num_slots", "num_states", "recurrent_slots", "forward_specials", "backward_specials"):
        assert getattr(mine, fact) == getattr(theirs, fact), fact
    assert mine.num_loads("backward") == theirs.num_loads("backward")
    assert mine.is_exponential == theirs.is_exponential


@pytest.mark.parametrize("gpu", ["h200", "mi300x"])
def test_a_layer_of_a_cell_is_decided_for_a_named_gpu(gpu: str) -> None:
    name = register_cell(OWN["peephole"]).name
    decision = decide_layer(workload_of(name, (16, 1024, 1, 256), "bf16"), load_gpu(gpu), projected=True)
    by_default = {"h200": "cuda", "mi300x": "triton"}[gpu]
    assert [step.kernel for step in decision.program.steps] == [f"{name}.{by_default}", f"{name}-backward.{by_default}"]


@pytest.mark.parametrize(
    ("kernel", "gpu", "dtype"),
    [("three_states-backward.triton", "mi300x", "fp16"), ("peephole-backward.cuda", "h200", "bf16")],
)
def test_a_cell_compiles_for_a_gpu_that_is_not_here(kernel: str, gpu: str, dtype: str) -> None:
    if missing_packages("triton"):
        pytest.skip("needs triton")
    cell_name, _, implementation = kernel.partition("-backward.")
    spec = load_spec(f"{register_cell(OWN[cell_name]).name}-backward.{implementation}")
    model = load_gpu(gpu)
    workload = spec.compiled_as(workload_of(spec.cell.name, (16, 64, 1, 64), dtype, "backward"))  # type: ignore[attr-defined]
    from constrint.select.rank import rank

    config = rank(spec, model, workload, top=1).candidates[0].config
    compiled = spec.compile(model, workload, dict(config))
    assert compiled.spill_bytes == 0
    assert compiled.registers_per_thread > 16


def test_a_file_names_cells_their_directions_and_implementations(tmp_path: Path) -> None:
    path = tmp_path / "cells.py"
    path.write_text(FILE.format(scale=1), encoding="utf-8")
    forward, backward = load_kernel(f"{path}:kept"), load_kernel(f"{path}:kept-backward")
    assert [spec.name for spec in forward.implementations] == ["cuda", "wgmma", "triton", "alternating"]
    assert backward.name == f"{forward.name}-backward"
    (alone,) = load_kernel(f"{path}:kept-backward.triton").implementations
    assert alone.full_name == f"{forward.name}-backward.triton"
    assert importable_name(alone) == f"{path}:kept-backward.triton"
    with pytest.raises(UnknownNameError, match="no_such"):
        load_kernel(f"{path}:kept.no_such")


def test_a_changed_cell_is_another_operation_and_the_same_one_has_the_same_code_elsewhere(tmp_path: Path) -> None:
    """Cubins, Triton's binaries and plans are found by the text and by the operation's name."""
    asked = (
        "import sys; from hashlib import sha256\n"
        "from constrint.kernels.registry import load_file\n"
        "from pathlib import Path\n"
        "from constrint.kernels.rnn.generated.cuda import cuda_text\n"
        "from constrint.kernels.rnn.generated.triton import triton_text\n"
        "for file in sys.argv[1:]:\n"
        "    cell = load_file(Path(file), file).kept\n"
        "    directions = 'forward', 'backward'\n"
        "    text = ''.join(write(cell, each) for write in (cuda_text, triton_text) for each in directions)\n"
        "    print(cell.operation, sha256(text.encode()).hexdigest())\n"
    )
    files = [tmp_path / f"{name}.py" for name in ("first", "again", "changed")]
    for file, scale in zip(files, (1, 1, 2), strict=True):
        file.write_text(FILE.format(scale=scale), encoding="utf-8")
    runs = [
        subprocess.run(
            [sys.executable, "-c", asked, *map(str, some)], capture_output=True, text=True, check=True
        ).stdout
        for some in (files[:1], files[1:])
    ]
    first, (again, changed) = runs[0].splitlines()[0], runs[1].splitlines()
    assert first == again
    assert {*first.split()}.isdisjoint(changed.split())


def _five_gates() -> CellDefinition:
    @cell(gates=("a", "b", "c", "d", "e"), states=("h",))
    def five(g: Any, s: Any) -> dict[str, Any]:
        return {"h": tanh(g.a + g.b + g.c + g.d + g.e)}

    return five


def _first_apart() -> CellDefinition:
    @cell(gates=("n", "z"), states=("h",), apart=("n",))
    def first_apart(g: Any, s: Any) -> dict[str, Any]:
        return {"h": tanh(g.n.input * g.n.recurrent) * sigmoid(g.z)}

    return first_apart


def _late() -> CellDefinition:
    @cell(gates=("z", "a"), states=("h",), apart=("a",))
    def late(g: Any, s: Any) -> dict[str, Any]:
        return {"h": tanh(g.a.input + g.a(sigmoid(g.z) * s.h))}

    return late


def _masked() -> CellDefinition:
    @cell(gates=("a",), states=("h",), inputs={"keep": "unit"})
    def masked(g: Any, s: Any, p: Any, x: Any) -> dict[str, Any]:
        return {"h": x.keep * s.h + (1 - x.keep) * tanh(g.a)}

    return masked


@pytest.mark.parametrize(
    ("make", "words"),
    [(_five_gates, "up to 4 pre-act"), (_first_apart, "the last one"), (_late, "later product"), (_masked, "keep")],
)
def test_what_fused_kernels_cannot_compute_is_said(make: Any, words: str) -> None:
    before = set(CELLS)
    definition = make()
    with pytest.raises(UnsupportedError, match=words):
        register_cell(definition)
    assert set(CELLS) == before
