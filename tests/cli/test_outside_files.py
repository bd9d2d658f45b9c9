"""Kernels as other projects write them: parts of packages, launches at import, heuristics, many arguments."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.support.needs import needs_triton

pytestmark = needs_triton

#: A package whose own code cannot run here; its modules can.
PACKAGE = {
    "library/__init__.py": "VERSION = '3'\nimport no_such_package\n",
    "library/ops/__init__.py": "WIDTH = 64\n",
    "library/ops/sizes.py": "import torch\nBLOCK = 128 * (torch.cuda.get_device_capability()[0] // 9)\n",
    "library/ops/scale.py": """
from __future__ import annotations

import triton
import triton.language as tl

from library.ops import WIDTH
from . import sizes
from .sizes import BLOCK as block


@triton.jit
def scale(x_ptr, y_ptr, x_stride, y_stride, n, BLOCK: tl.constexpr = sizes.BLOCK, WIDTH: tl.constexpr = WIDTH):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at * y_stride, WIDTH * tl.load(x_ptr + at * x_stride, mask=at < n), mask=at < n)
""",
}
#: A file that looks for a GPU, reads the command line, and launches.
SCRIPT = """
import argparse
import no_such_benchmark
import torch
import triton
import triton.language as tl

argparse.ArgumentParser().parse_args()
DEVICE = triton.runtime.driver.active.get_active_torch_device()
SMS = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)["multiprocessor_count"]
workspace = torch.empty(1024, device="cuda", dtype=torch.uint8).cuda()
handle = open("/no/such/library.so")


@triton.heuristics({
    "HAS_BIAS": lambda args: args["bias_ptr"] is not None,
    "EVEN": lambda args: args["N"] % args["BLOCK"] == 0,
    "num_warps": lambda args: 8 if args["BLOCK"] >= 1024 else 4,
})
@triton.jit
def shift(x_ptr, bias_ptr, y_ptr, N, SMS: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr,
          HAS_BIAS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at) if EVEN else tl.load(x_ptr + at, mask=at < N)
    if HAS_BIAS:
        x += tl.load(bias_ptr + at, mask=at < N)
    tl.store(y_ptr + at, x + SMS, mask=at < N)


shift[(1,)](workspace, None, workspace, 1024, SMS, BLOCK=1024)
raise RuntimeError("no GPU after all")
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "library" / "ops" / "scale.py"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / f"script_{tmp_path.name}.py"
    path.write_text(SCRIPT)
    return path


def test_a_part_of_a_package_is_compiled_without_the_package(run: Call, library: Path) -> None:
    named = ("--signature", "n=i32,*_stride=i32:16,*_ptr=*fp32", "--gpu", "h200", "--gpu", "mi300x", "--json")
    code, out, err = run("compile", f"{library}:scale", *named)
    assert (code, err) == (0, "")
    assert [one["gpu"] for one in json.loads(out)["kernels"]] == ["H200-SXM", "MI300X"]
    # The modules are those of one GPU, and the next command has another.
    assert not [name for name in sys.modules if name.partition(".")[0] == "library"]
    code, out, err = run("compile", f"{library}:scale", *named[:2], "--gpu", "t4")
    assert code == 1
    assert "refuses the kernel for sm_75" in out + err  # a BLOCK of 0 on compute capability 7.5


def test_a_name_of_the_package_itself_runs_its_code(run: Call, library: Path) -> None:
    library.write_text(
        library.read_text().replace("from library.ops import WIDTH", "from library import VERSION as WIDTH")
    )
    code, _, err = run("compile", f"{library}:scale", "--signature", "*=*fp32", "--gpu", "h200")
    assert code == 2
    assert "No module named 'no_such_package'" in err


def test_statements_that_fail_are_left_out_and_named(run: Call, script: Path) -> None:
    signature = ("--signature", "*_ptr=*fp32,N=4096", "--constants", "SMS=1,BLOCK=1024", "--json")
    code, out, err = run("compile", f"{script}:shift", "--gpu", "h200", *signature)
    assert code == 0, err
    assert "line 3: ModuleNotFoundError: No module named 'no_such_benchmark'" in err
    assert "line 12: FileNotFoundError" in err
    assert "workspace" not in err
    assert json.loads(out)["kernels"][0]["compiled"]["threads_per_block"] == 256  # the heuristic's 8 warps


def test_a_kernel_that_is_not_defined_tells_its_failure_and_the_first(run: Call, script: Path) -> None:
    script.write_text(script.read_text().replace("@triton.jit", "@triton.no_such_decorator"))
    code, out, err = run("compile", f"{script}:shift", "--gpu", "h200", "--signature", "*=*fp32")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert (
        "line 21: AttributeError: module 'triton' has no attribute 'no_such_decorator'; before it, line 3: Mod" in err
    )


@pytest.mark.parametrize(
    ("signature", "told"),
    [
        ("*_ptr=*fp32,N=i32", "triton.heuristics computes EVEN from a call's arguments"),
        ("*_ptr=*fp32", "Give each a type"),
        ("*_ptr=*fp31,N=i32", "unknown type '*fp31'"),
        ("*_ptr=*fp32:8,N=i32", "Triton knows no other multiple"),
    ],
)
def test_patterns_and_heuristics_say_what_is_missing(run: Call, script: Path, signature: str, told: str) -> None:
    given = ("--gpu", "h200", "--signature", signature, "--constants", "SMS=1,BLOCK=1024")
    code, out, err = run("compile", f"{script}:shift", *given)
    assert (code, out) == (2, "")
    assert told in err


def test_a_pointer_that_is_none_is_absent_for_heuristics(run: Call, script: Path) -> None:
    given = ("--gpu", "h200", "--constants", "SMS=1,BLOCK=512", "--json", "--signature")
    loads = []
    for bias in ("bias_ptr=None", "bias_ptr=*fp32"):
        code, out, err = run("compile", f"{script}:shift", *given, f"{bias},*_ptr=*fp32,N=4096")
        assert code == 0, err
        loads.append(sum(json.loads(out)["kernels"][0]["instructions"]["global loads"].values()))
    assert loads[0] < loads[1]


def test_the_first_of_the_files_own_list(run: Call, tmp_path: Path) -> None:
    path = tmp_path / f"listed_{tmp_path.name}.py"
    configs = "[triton.Config({'BLOCK': 2 ** n}, num_warps=4) for n in range(7, 12)]"
    path.write_text(
        "import triton\nimport triton.language as tl\n\n\n"
        f"@triton.autotune({configs}, key=['n'])\n@triton.jit\ndef fill(x, n, BLOCK: tl.constexpr):\n"
        "    at = tl.arange(0, BLOCK)\n    tl.store(x + at, 1.0, mask=at < n)\n"
    )
    code, out, err = run(
        "compile", f"{path}:fill", "--gpu", "h200", "--signature", "*fp32,i32", "--configs", "2", "--json"
    )
    assert code == 0, err
    assert [one["constants"]["BLOCK"] for one in json.loads(out)["kernels"]] == [128, 256]
