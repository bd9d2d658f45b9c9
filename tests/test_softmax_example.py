"""A kernel from outside the package plugs in: the softmax of examples/softmax in every command, and its numbers."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from constrint.cli.app import main

ROOT = Path(__file__).parents[1]
FILE = ROOT / "examples" / "softmax" / "softmax.py"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs the extra [torch]: the kernel is written in Triton"
)
EACH_GPU = pytest.mark.parametrize("gpu", ["h200", "mi300x"])

#: Runs one configuration after the other in Triton's interpreter, against the reference.
NUMERICS = """
import sys, torch
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel
from constrint.select import Workload
spec = load_kernel(sys.argv[1]).implementations[0]
gpu = load_gpu("h200")
for m, n in ((1, 1), (7, 13), (33, 100), (5, 1025)):
    for dtype, error in (("fp32", 1e-6), ("fp16", 1e-3), ("bf16", 1e-2)):
        for tile_m in (1, 4):
            workload = Workload("softmax", {"m": m, "n": n}, dtype)
            config = {"tile_m": tile_m, "tile_n": 1 << (n - 1).bit_length(), "num_warps": 4}
            inputs = spec.inputs(gpu, workload, device="cpu")
            outputs = spec.outputs(gpu, workload, inputs)
            outputs["y"].fill_(float("nan"))
            for launch in spec.launches(gpu, workload, config, inputs, outputs):
                launch.run()
            wanted = spec.reference(workload, inputs)["y"]
            torch.testing.assert_close(outputs["y"].double(), wanted, rtol=error, atol=error)
            print("right", m, n, dtype, tile_m)
"""


def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> str:
    """The output of a command on the softmax."""
    words = [*map(str, arguments), "--kernel", f"{FILE}:SPEC"]
    monkeypatch.setattr(sys, "argv", ["constrint", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert not ended.value.code, printed.err
    assert "Traceback" not in printed.err
    return printed.out


def test_it_is_short() -> None:
    text = FILE.read_text()
    assert len(text.splitlines()) < 60
    body = re.search(r"^class .*?(?=^\S)", text, flags=re.MULTILINE | re.DOTALL)
    own = body[0] if body else text
    assert sum(bool(line.strip()) for line in own.splitlines()) < 25


@EACH_GPU
def test_every_command_takes_it(capsys: Any, monkeypatch: Any, gpu: str) -> None:
    shown = call(capsys, monkeypatch, "solve", "--gpu", gpu, "--m", 512, "--n", 3000)
    assert shown.startswith("softmax m=512 n=3000 bf16 on ")
    assert "best: tile_m=" in shown
    shown = call(capsys, monkeypatch, "explain", "--gpu", gpu)
    assert "rows of a block" in shown
    assert "no thread is without work" in shown
    every, strict = (
        json.loads(call(capsys, monkeypatch, "count", "--gpu", gpu, "--json", *more))["results"][0]
        for more in ((), ("--strict",))
    )
    assert 0 < strict["num_valid"] <= every["num_valid"] == every["num_product"] == 25
    assert strict["num_valid"] < 25 or gpu == "mi300x"
    asked = ("why-not", "--gpu", gpu, "tile_m=16", "tile_n=2048", "num_warps=1", "--n", 2048)
    shown = call(capsys, monkeypatch, *asked)
    assert "valid: it breaks no rule that prunes" in shown
    assert "spills (estimated): spills(num_warps, tile_m, tile_n) <= limit(num_warps)" in shown
    shown = call(capsys, monkeypatch, *asked, "--strict")
    assert "fits if tile_m <= " in shown
    shown = " ".join(call(capsys, monkeypatch, "solve", "--help").split())
    assert "--m <int> Rows. [default: 4096]" in shown
    assert "--n <int> Columns. [default: 1024]" in shown


@pytest.mark.slow
@EACH_GPU
@pytest.mark.parametrize(("n", "dtype"), [(1000, "bf16"), (1024, "fp16"), (8192, "fp32"), (300, "fp32")])
def test_what_is_compiled_is_what_was_predicted(capsys: Any, monkeypatch: Any, gpu: str, n: int, dtype: str) -> None:
    document = json.loads(
        call(capsys, monkeypatch, "verify", "--gpu", gpu, "--n", n, "--dtype", dtype, "--top", 4, "--json")
    )
    for result in document["results"]:
        modelled, compiled = result["modelled"], result["compiled"]
        assert result["problem"] == ""
        assert compiled["smem_bytes_per_block"] <= modelled["smem_bytes_per_block"]
        assert compiled["spill_bytes_per_thread"] == 0
        off = modelled["registers_per_thread"] - compiled["registers_per_thread"]
        assert abs(off) <= 8 + 0.35 * compiled["registers_per_thread"], result


def test_its_numbers_are_right_on_ragged_sizes() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", NUMERICS, f"{FILE}:SPEC"], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("right") == 24


def test_rows_that_tie_and_rules_without_a_kind_are_said_in_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = call(capsys, monkeypatch, "solve", "--gpu", "h200")
    assert "\nrows 1 to 10 tie at " in out
    assert "spill = chance that registers go to memory" in out
    assert "tie at" not in call(capsys, monkeypatch, "solve", "--gpu", "h200", "--top", 1)
    lines = call(capsys, monkeypatch, "explain", "--gpu", "h200").splitlines()
    assert next(line.split()[1] for line in lines if line.startswith("busy ")) == "stated"
    assert "stated: its kernel asks for it" in lines[-1]
