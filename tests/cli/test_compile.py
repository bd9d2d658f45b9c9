"""`constrint compile` in this process: what it says of a user's kernel, and of everything that a user may get wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.support.needs import needs_triton

pytestmark = needs_triton

KERNELS = """
import torch
import triton
import triton.language as tl

print("a line that the file prints")
DEVICE = triton.runtime.driver.active.get_active_torch_device()
IS_HIP = triton.runtime.driver.active.get_current_target().backend == "hip"
if torch.cuda.is_available():
    torch.zeros(1, device="cuda")


@triton.jit
def product(a, b, c, k, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr = 32):
    rows, columns, depth = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, DEPTH)
    a_tile = a + rows[:, None] * stride + depth[None, :]
    b_tile = b + depth[:, None] * stride + columns[None, :]
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(0, tl.cdiv(k, DEPTH)):
        sums = tl.dot(tl.load(a_tile), tl.load(b_tile), sums)
        a_tile += DEPTH
        b_tile += DEPTH * stride
    tl.store(c + rows[:, None] * stride + columns[None, :], sums.to(tl.float16))


@triton.jit
def two_products(a, b, c, k, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    rows, columns, depth = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, DEPTH)
    a_tile = a + rows[:, None] * stride + depth[None, :]
    b_tile = b + depth[:, None] * stride + columns[None, :]
    first, second = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(0, tl.cdiv(k, DEPTH)):
        x, y = tl.load(a_tile), tl.load(b_tile)
        first, second = tl.dot(x, y, first), tl.dot(x + 1, y, second)
        a_tile += DEPTH
        b_tile += DEPTH * stride
    tl.store(c + rows[:, None] * stride + columns[None, :], (first * second).to(tl.float16))


@triton.autotune([triton.Config({"BLOCK": 256}, num_warps=4), triton.Config({"BLOCK": 512}, num_warps=8)], key=["n"])
@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.heuristics({"IS_EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def computed(x, n, IS_EVEN: tl.constexpr):
    if IS_EVEN:
        tl.store(x, n)


@triton.jit
def broken(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), no_such_name)


def plain(x):
    return x
"""
PRODUCT = "*fp16,*fp16,*fp16,i32:16,i32:16"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / f"kernels_of_{tmp_path.name}.py"
    path.write_text(KERNELS)
    return path


def test_a_kernel_is_compiled_for_two_gpus_that_are_not_here(run: Call, file: Path) -> None:
    gpus = ("--gpu", "mi300x", "--gpu", "h200", "--option", "waves_per_eu=2")
    constants = ("--constants", "ROWS=64,COLUMNS=64,128", "--num-warps", "4", "--num-stages", "3")
    code, out, err = run("compile", f"{file}:product", *gpus, "--signature", PRODUCT, *constants, "--json")
    assert code == 0, err
    assert "a line that the file prints" in err
    document = json.loads(out)
    assert document["schema"] == "constrint.compile/1"
    kernels = document["kernels"]
    assert [(k["target"], k["constants"]["COLUMNS"]) for k in kernels] == [
        ("gfx942", 64), ("gfx942", 128), ("sm_90", 64), ("sm_90", 128),
    ]  # fmt: skip
    amd, nvidia = kernels[1], kernels[3]
    # One of three stages waits in registers on AMD; wgmma reads all of them in place: bytes of A and B, 32 deep.
    assert amd["compiled"]["smem_bytes_per_block"] == 2 * (64 + 128) * 32 * 2
    assert nvidia["compiled"]["smem_bytes_per_block"] == 3 * (64 + 128) * 32 * 2
    assert (amd["compiled"]["threads_per_block"], nvidia["compiled"]["threads_per_block"]) == (256, 128)
    assert all(name.startswith("v_mfma_f32_") for name in amd["instructions"]["matrix"])
    assert list(nvidia["instructions"]["matrix"]) == ["wgmma.mma_async.sync.m64n128k16.f32.f16.f16"]
    assert sum(nvidia["instructions"]["asynchronous copies"].values()) > 0
    assert amd["options"]["waves_per_eu"] == 2
    assert all(k["compiled"]["blocks_per_sm"] >= 1 and not k["problem"] for k in kernels)


def test_what_cannot_be_launched_ends_with_1_and_says_why(run: Call, file: Path) -> None:
    constants = ("--constants", "ROWS=128,COLUMNS=256,DEPTH=64", "--num-warps", "8", "--num-stages", "3")
    code, out, _ = run("compile", f"{file}:product", "--gpu", "mi300x", "--signature", PRODUCT, *constants)
    assert code == 1
    assert "takes 98,304 bytes of LDS, a block has 65,536" in out
    assert "v_mfma_f32_" in out
    assert "buffer_load" in out or "global_load" in out


def test_tensor_memory_is_a_limit_too(run: Call, file: Path) -> None:
    constants = ("--constants", "ROWS=128,COLUMNS=256,DEPTH=64", "--num-warps", "8")
    code, out, _ = run("compile", f"{file}:two_products", "--gpu", "b200", "--signature", PRODUCT, *constants)
    assert code == 1
    assert "columns of tensor memory, an SM has 512" in out


def test_a_kernel_brings_the_configurations_of_its_autotuner(run: Call, file: Path) -> None:
    asked = ("compile", f"{file}:scale", "--gpu", "a100", "--signature", "*fp32,*fp32,i32:16")
    code, out, err = run(*asked, "--format", "csv")
    assert code == 0, err
    lines = [line.split(",") for line in out.splitlines()]
    columns = [lines[0].index(name) for name in ("BLOCK", "num_warps", "threads_per_block")]
    assert [[line[at] for at in columns] for line in lines[1:]] == [["256", "4", "128"], ["512", "8", "256"]]
    code, out, _ = run(*asked, "--constants", "BLOCK=1024", "--json")
    (only,) = json.loads(out)["kernels"]
    assert only["constants"] == {"BLOCK": 1024}
    assert only["instructions"]["global loads"] == {"ld.global.v4.b32": 2}


def test_a_size_that_is_no_multiple_of_16_compiles_to_narrower_accesses(run: Call, file: Path) -> None:
    asked = ("compile", f"{file}:scale", "--gpu", "a100", "--constants", "BLOCK=1024", "--json", "--signature")
    _, out, _ = run(*asked, "n=i32, x=*fp32:1, y=*fp32:1")
    (only,) = json.loads(out)["kernels"]
    assert list(only["instructions"]["global loads"]) == ["ld.global.b32"]


def test_assembly_is_printed_or_written(run: Call, file: Path, tmp_path: Path) -> None:
    asked = ("compile", f"{file}:scale", "--signature", "*fp32,*fp32,i32:16", "--constants", "BLOCK=1024")
    code, out, _ = run(*asked, "--gpu", "a100", "--asm", "ptx")
    assert code == 0
    assert out.lstrip().startswith("//")
    assert ".target sm_80" in out
    _, out, _ = run(*asked, "--gpu", "a100", "--asm", "sass")
    assert "LDG.E.128" in out
    written = tmp_path / "scale.s"
    code, out, _ = run(*asked, "--gpu", "mi300x", "--asm", "amdgcn", "--output", str(written))
    assert "\t.amdgcn_target" in written.read_text()
    assert "MI300X" in out
    code, _, err = run(*asked, "--gpu", "mi300x", "--asm", "ptx")
    assert (code, "unknown form 'ptx'. Known: amdgcn" in err) == (2, True)
    code, _, err = run(*asked, "--gpu", "a100", "--asm", "ptx", "--num-warps", "4,8")
    assert (code, "--asm takes one GPU and one value of each constant; these are 2 kernels" in err) == (2, True)
    code, _, err = run(*asked, "--gpu", "a100", "--output", str(written))
    assert (code, "--output takes the assembly" in err) == (2, True)


def test_what_triton_refuses_is_told_in_its_own_words(run: Call, file: Path) -> None:
    code, out, err = run(
        "compile", f"{file}:broken", "--gpu", "h200", "--signature", "*fp32", "--constants", "BLOCK=64"
    )
    assert code == 1
    assert "no_such_name is not defined" in out
    assert "tl.store(x + tl.arange(0, BLOCK), no_such_name)" in out
    assert "Traceback" not in out + err


SCALE = ("--gpu", "h200", "--constants", "BLOCK=64", "--signature")


@pytest.mark.parametrize(
    ("function", "arguments", "told"),
    [
        ("no_such", (*SCALE, "*fp32"), "unknown function 'no_such'"),
        ("plain", (*SCALE, "*fp32"), "a function of triton.jit is compiled, got function"),
        ("", (*SCALE, "*fp32"), "the file has several: product, two_products, scale, computed, broken"),
        ("scale", (*SCALE, "*fp32"), "signature of scale has 1 entries for 3 arguments: x, y, n"),
        ("scale", (*SCALE, "*fp32,*fp32,i32,i32"), "signature of scale has 4 entries for 3 arguments"),
        ("scale", (*SCALE, "*fp23,*fp32,i32"), "unknown type '*fp23'. Nearest:"),
        ("scale", (*SCALE, "z=*fp32,*fp32,i32"), "unknown argument 'z'"),
        ("scale", (*SCALE, "*fp32,*fp32,i32:8"), "Triton knows no other multiple"),
        (
            "product",
            ("--gpu", "h200", "--signature", PRODUCT),
            "constants ROWS, COLUMNS have no values: state ROWS=VALUE, COLUMNS=VALUE",
        ),
        ("computed", ("--gpu", "h200", "--signature", "*i32,i32"), "triton.heuristics computes IS_EVEN"),
        ("scale", ("--gpu", "h200", "--constants", "BLOK=64", "--signature", "*fp32"), "unknown argument 'BLOK'. Near"),
        ("scale", ("--gpu", "h200", "--constants", "64", "--signature", "*fp32"), "--constants takes NAME=VALUE"),
        ("scale", (*SCALE, "*fp32,*fp32,i32", "--option", "kpac=2"), "unknown option 'kpac'"),
        ("scale", (*SCALE, "*fp32,*fp32,i32", "--option", "kpack=2"), "Triton's back-end cuda does not have it"),
        ("scale", (*SCALE, "*fp32,*fp32,i32", "--num-warps", "x"), "--num-warps takes a whole number from 1"),
        ("scale", ("--gpu", "h2", *SCALE, "*fp32,*fp32,i32"), "unknown GPU 'h2'"),
    ],
)
def test_mistakes_are_told_in_one_line(
    run: Call, file: Path, function: str, arguments: tuple[str, ...], told: str
) -> None:
    code, out, err = run("compile", f"{file}:{function}" if function else file, *arguments)
    assert (code, out) == (2, "")
    assert told in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no such Python file"),
        ("import no_such_package", "line 1: ModuleNotFoundError: No module named 'no_such_package'"),
        ("def f(:", "line 1: SyntaxError"),
        ("x = 1\nraise SystemExit(3)", "the file ended the program when it was imported (3)"),
        ("\n\n1 / 0", "line 3: ZeroDivisionError: division by zero"),
        ("f = 1", "the file has none"),
    ],
)
def test_a_file_that_cannot_be_had_is_told_in_one_line(run: Call, tmp_path: Path, text: str | None, told: str) -> None:
    path = tmp_path / f"file_of_{tmp_path.name}.py"
    if text is not None:
        path.write_text(text)
    code, out, err = run("compile", str(path), *SCALE, "*fp32")
    assert (code, out) == (2, "")
    assert told in err


def test_the_driver_is_as_it_was_before(run: Call, file: Path) -> None:
    from triton.runtime.driver import driver

    before = dict(vars(driver))
    run("compile", f"{file}:plain", *SCALE, "*fp32")
    assert vars(driver) == before
