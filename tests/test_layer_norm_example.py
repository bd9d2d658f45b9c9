"""A second kernel from outside the package: layer norm in the commands, through the decorator, and its numbers."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from constrint.cli.app import main
from tests.support.interpreter import interpreted
from tests.support.needs import needs_gpu, needs_triton

ROOT = Path(__file__).parents[1]
FILE = ROOT / "examples" / "layer_norm" / "layer_norm.py"
EACH_GPU = pytest.mark.parametrize("gpu", ["h200", "mi300x"])


def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> str:
    """The output of a command on the layer norm."""
    monkeypatch.setattr(sys, "argv", ["constrint", *map(str, arguments), "--kernel", f"{FILE}:SPEC"])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert not ended.value.code, printed.err
    return printed.out


def test_it_is_short() -> None:
    body = re.search(r"^class .*?(?=^SPEC)", FILE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert body is not None
    assert sum(bool(line.strip()) for line in body[0].splitlines()) < 30


@needs_triton
@EACH_GPU
def test_commands_take_it(capsys: Any, monkeypatch: Any, gpu: str) -> None:
    shown = call(capsys, monkeypatch, "solve", "--gpu", gpu, "--m", 512, "--n", 3000)
    assert shown.startswith("layer_norm m=512 n=3000 bf16 on ")
    assert "best: tile_m=" in shown
    assert "rows of a block" in call(capsys, monkeypatch, "explain", "--gpu", gpu)


@needs_triton
@pytest.mark.slow
@EACH_GPU
@pytest.mark.parametrize(("n", "dtype"), [(1000, "bf16"), (1024, "fp32"), (300, "fp32")])
def test_what_is_compiled_is_what_was_predicted(capsys: Any, monkeypatch: Any, gpu: str, n: int, dtype: str) -> None:
    given = ("--gpu", gpu, "--n", n, "--dtype", dtype, "--top", 3, "--json")
    for result in json.loads(call(capsys, monkeypatch, "verify", *given))["results"]:
        modelled, compiled = result["modelled"], result["compiled"]
        assert result["problem"] == ""
        assert compiled["smem_bytes_per_block"] <= modelled["smem_bytes_per_block"]
        assert compiled["spill_bytes_per_thread"] == 0
        off = modelled["registers_per_thread"] - compiled["registers_per_thread"]
        assert abs(off) <= 8 + 0.4 * compiled["registers_per_thread"], result


def wrong_share(case: dict[str, Any]) -> float:
    """The largest error of the example's own function, called as a user calls it, over the tolerance."""
    import torch

    example: Any = import_module("examples.layer_norm.layer_norm")

    torch.manual_seed(0)
    dtype = getattr(torch, case["dtype"])
    on = {"dtype": dtype, "device": case.get("device", "cpu")}
    x, weight, bias = (
        torch.randn(case["m"], case["n"], **on),
        torch.randn(case["n"], **on),
        torch.randn(case["n"], **on),
    )
    y = example.layer_norm(x, weight, bias)
    expected = torch.nn.functional.layer_norm(x.double(), (case["n"],), weight.double(), bias.double())
    assert example.tuned.best_config.kwargs["tile_n"] >= case["n"]
    bound = 1e-5 + 2 * torch.finfo(dtype).eps * expected.abs()
    return float(((y.double() - expected).abs() / bound).max())


SHAPES = [(1, 2), (7, 13), (33, 100), (5, 1025)]
CASES = {f"{m}x{n} {dtype}": {"m": m, "n": n, "dtype": dtype} for m, n in SHAPES for dtype in ("float32", "float16")}


def test_its_numbers_are_right_through_the_decorator() -> None:
    shares = interpreted("tests.test_layer_norm_example:wrong_share", CASES)
    assert set(shares) == set(CASES)
    for name, share in shares.items():
        assert share <= 1.0, name


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_its_numbers_are_right_on_the_gpu(dtype: str) -> None:
    for m, n in (*SHAPES, (4096, 1024), (300, 8192)):
        assert wrong_share({"m": m, "n": n, "dtype": dtype, "device": "cuda"}) <= 1.0, (m, n)
