"""Compiling for a named GPU without one: what comes back is what the binary states; `constrint verify` judges it."""

from __future__ import annotations

import builtins
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from constrint.errors import UnsupportedError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel, load_spec
from constrint.model import Var
from constrint.select import Workload, rank
from constrint.tune.compile import TritonSource, compile_triton

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs the extra [torch]: triton is not installed"
)
KERNEL = load_spec("gemm.pointer")
WORKLOAD = Workload("gemm", {"m": 1024, "n": 1024, "k": 1024}, "bf16")
CONFIG = {
    "tile_m": 64,
    "tile_n": 64,
    "tile_k": 32,
    "num_warps": 4,
    "num_stages": 2,
    "split_k": 1,
    "persistent": 0,
    "group_m": 8,
    "matrix_instr_nonkdim": 16,
    "waves_per_eu": 0,
    "kpack": 1,
    "xcd_chunk": 512,
}
GLUON = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def copy(x, y, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    gl.store(y + at, gl.load(x + at, mask=at < n), mask=at < n)
"""


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target", "instruction"),
    [
        ("h200", "sm_90", "wgmma.mma_async m64n64k16"),
        ("b200", "sm_100", "tcgen05.mma kind::f16"),
        ("a100", "sm_80", "mma.sync m16n8k16"),
        ("mi300x", "gfx942", "v_mfma_f32_16x16x16_bf16"),
        ("mi355x", "gfx950", "v_mfma_f32_16x16x32_bf16"),
        ("7900xtx", "gfx1100", "v_wmma_f32_16x16x16_bf16"),
    ],
)
def test_a_config_compiles_to_the_instruction_and_the_memory_that_the_model_says(
    name: str, target: str, instruction: str
) -> None:
    gpu = load_gpu(name)
    variables = {param.name: Var(param.name) for param in KERNEL.params(gpu, WORKLOAD)}
    config = {name: CONFIG[name] for name in variables}
    compiled = KERNEL.compile(gpu, WORKLOAD, config)
    assert (compiled.target, compiled.instruction, compiled.spill_bytes) == (target, instruction, 0)
    use = KERNEL.use(gpu, WORKLOAD, variables)
    assert use is not None
    predicted = use.smem_bytes.value(config)
    assert compiled.smem_bytes <= predicted <= 1.07 * compiled.smem_bytes
    assert 20 <= compiled.registers_per_thread <= 255


@needs_triton
def test_a_kernel_that_the_compiler_refuses_says_so() -> None:
    gpu, workload = load_gpu("h200"), Workload("gemm", WORKLOAD.sizes, "fp8")
    config = {param.name: CONFIG[param.name] for param in KERNEL.params(gpu, workload)} | {"tile_k": 16}
    with pytest.raises(UnsupportedError, match=r"triton .* refuses the kernel for sm_90: .*K >= 32"):
        KERNEL.compile(gpu, workload, config)


def test_without_triton_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "triton":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UsageError, match=r"pip install 'constrint\[torch\]'"):
        compile_triton(load_gpu("h200"), TritonSource(None, {}, {}, frozenset(), {}))


def run_verify(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    from constrint.cli.app import main

    monkeypatch.setattr(sys, "argv", ["constrint", "verify", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@needs_triton
@pytest.mark.slow
def test_verify_prints_predicted_beside_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--gpu", "mi300x", "--top", "2", "--set", "tile_m=64", "--set", "tile_n=64")
    assert not run_verify(*arguments, "--json", monkeypatch=monkeypatch)
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "constrint.verify/2"
    assert len(document["results"]) == 2
    for result in document["results"]:
        modelled, compiled = result["modelled"], result["compiled"]
        assert modelled["smem_bytes_per_block"] == compiled["smem_bytes_per_block"]
        assert compiled["instruction"].startswith("v_mfma")
        assert compiled["blocks_per_sm"] >= 1
        assert result["problem"] == ""
    assert not run_verify(*arguments, monkeypatch=monkeypatch)
    printed = capsys.readouterr().out
    assert "LDS exact for 2 of 2" in printed
    assert "0 of 2 spill (expected 0.0), 0 with a problem" in printed
    first = printed.splitlines()[printed.splitlines().index("") + 2].split()
    assert any(re.fullmatch(r"(<1|\d+)%/no", cell) for cell in first), "the chance to spill / what was compiled"
    assert "v_mfma_f32_16x16x16_bf16" in printed


@needs_triton
@pytest.mark.slow
def test_a_kernel_in_gluon_compiles_and_leaves_stderr_empty(tmp_path: Path) -> None:
    """Gluon's bindings complain when their process exits."""
    path = tmp_path / "copy.py"
    path.write_text(GLUON)
    program = "import sys; from constrint.cli.app import main; sys.exit(main())"
    asked = ["compile", f"{path}:copy", "--gpu", "h200", "--signature", "*fp32,*fp32,i32", "--constants", "BLOCK=512"]
    done = subprocess.run([sys.executable, "-c", program, *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "H200-SXM" in done.stdout


def test_first_choices_are_the_ones_that_solve_ranks() -> None:
    """verify compiles what solve prints: the ranking is one and the same call."""
    gpu = load_gpu("mi300x")
    operation = load_kernel("gemm")
    first = rank(operation, gpu, WORKLOAD, top=2).candidates
    again = rank(operation, gpu, WORKLOAD, top=2).candidates
    assert [c.config for c in first] == [c.config for c in again]
