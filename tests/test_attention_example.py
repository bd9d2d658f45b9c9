"""A third kernel from outside the package: attention in the commands, its resources as compiled, and its numbers."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import constrint
from constrint.cli.app import main
from tests.support.interpreter import interpreted
from tests.support.needs import needs_gpu, needs_triton

ROOT = Path(__file__).parents[1]
FILE = ROOT / "examples" / "attention" / "attention.py"
EACH_GPU = pytest.mark.parametrize("gpu", ["h200", "mi300x"])


def call(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *arguments: object,
    ends: tuple[int, ...] = (0,),
) -> str:
    """The output of a command on the attention, which ends with one of these codes."""
    monkeypatch.setattr(sys, "argv", ["constrint", *map(str, arguments), "--kernel", f"{FILE}:SPEC"])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert (ended.value.code or 0) in ends, printed.err
    return printed.out


def test_the_statement_of_its_space_is_short() -> None:
    body = re.search(r"^class Attention.*?(?=^    def grid)", FILE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert body is not None
    assert sum(bool(line.strip()) for line in body[0].splitlines()) < 40


@needs_triton
@EACH_GPU
def test_commands_take_it(capsys: Any, monkeypatch: Any, gpu: str) -> None:
    shown = call(capsys, monkeypatch, "solve", "--gpu", gpu, "--length", 2048, "--kv-heads", 4)
    assert shown.startswith("attention batch=4 heads=32 kv_heads=4 length=2048 head_dim=128 bf16 on ")
    assert "best: tile_m=" in shown
    assert "each warp has 16 rows of scores" in call(capsys, monkeypatch, "explain", "--gpu", gpu)


@needs_triton
def test_a_causal_call_is_predicted_to_take_half_the_time() -> None:
    whole, causal = (
        constrint.rank(f"{FILE}:SPEC", "h200", causal=value, top=1).candidates[0].cost.seconds for value in (0, 1)
    )
    assert 0.45 * whole < causal < 0.55 * whole


@needs_triton
@pytest.mark.slow
@EACH_GPU
@pytest.mark.parametrize("head_dim", [64, 128])
def test_what_is_compiled_is_what_was_predicted(capsys: Any, monkeypatch: Any, gpu: str, head_dim: int) -> None:
    given = ("--gpu", gpu, "--head-dim", head_dim, "--top", 4, "--json")
    for result in json.loads(call(capsys, monkeypatch, "verify", *given, ends=(0, 1)))["results"]:
        modelled, compiled = result["modelled"], result["compiled"]
        assert compiled["smem_bytes_per_block"] <= modelled["smem_bytes_per_block"]
        off = modelled["registers_per_thread"] - compiled["registers_per_thread"]
        assert abs(off) <= 16 + 0.25 * compiled["registers_per_thread"], result


def error_of(case: dict[str, Any]) -> float:
    """The largest error against fp64, over the largest expected magnitude; NaN where a value is missing."""
    import torch

    from constrint.hwmodels import load_gpu
    from constrint.kernels.registry import load_kernel
    from constrint.select import Workload

    spec, gpu = load_kernel(f"{FILE}:SPEC").implementations[0], load_gpu("h200")
    sizes = {name: case[name] for name in ("batch", "heads", "kv_heads", "length", "head_dim")}
    workload = Workload("attention", sizes, case["dtype"], {"causal": case["causal"]})
    torch.manual_seed(0)
    inputs = spec.inputs(gpu, workload, device=case.get("device", "cpu"))
    outputs = spec.outputs(gpu, workload, inputs)
    outputs["out"].fill_(float("nan"))
    config = {"tile_m": case["tile_m"], "tile_n": case["tile_n"], "num_warps": 4, "num_stages": 2}
    for launch in spec.launches(gpu, workload, config, inputs, outputs):
        launch.run()
    wanted = spec.reference(workload, inputs)["out"]
    return float((outputs["out"].double() - wanted).abs().max() / wanted.abs().max())


#: Batch, heads, heads of keys, positions, elements of a head; tiles.
SHAPES = [
    (1, 1, 1, 1, 64, 64, 32),
    (2, 4, 2, 77, 64, 64, 32),
    (1, 3, 1, 130, 128, 64, 128),
    (1, 2, 2, 128, 128, 128, 64),
]
NAMES = ("batch", "heads", "kv_heads", "length", "head_dim", "tile_m", "tile_n")
CASES = {
    f"{'x'.join(map(str, shape))} causal={causal}": {
        **dict(zip(NAMES, shape, strict=True)),
        "causal": causal,
        "dtype": "fp16",
    }
    for shape in SHAPES
    for causal in (0, 1)
}


def test_its_numbers_are_right_in_the_interpreter() -> None:
    errors = interpreted("tests.test_attention_example:error_of", CASES)
    assert set(errors) == set(CASES)
    for name, error in errors.items():
        assert error <= 2e-3, name


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_its_numbers_are_right_on_the_gpu(dtype: str) -> None:
    for name, case in CASES.items():
        assert error_of({**case, "dtype": dtype, "device": "cuda"}) <= 1e-2, name
