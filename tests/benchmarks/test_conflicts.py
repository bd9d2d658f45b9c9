"""The conflict report reads Triton's compiled layouts: published facts come out of it, and spoilt layouts show."""

from __future__ import annotations

import re
from typing import Any

import pytest

from benchmarks import conflicts
from benchmarks.conflicts import Compiled, compiled, print_summary, rows_of
from benchmarks.harness.shared_accesses import SharedAccess, shared_accesses
from constrint import solve_layout
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.spec import gemm_spec
from constrint.kernels.launch.triton import TritonLaunch
from constrint.select import Workload
from constrint.tune.compile import BuiltKernel, build_triton
from tests.support.needs import missing_packages, needs_nvrtc

pytestmark = pytest.mark.skipif(bool(missing_packages("torch", "triton")), reason="needs torch and triton")
#: Parameters that the tests do not vary.
PLAIN = {"split_k": 1, "persistent": 0, "group_m": 8, "waves_per_eu": 0, "kpack": 1, "xcd_chunk": 0, "num_stages": 2}


def built(gpu: GpuModel, sizes: dict[str, int], **config: Any) -> BuiltKernel:
    spec = gemm_spec("gemm.pointer")
    workload = Workload("gemm", sizes, "bf16", {})
    names = spec.problem(gpu, workload).names
    whole = {name: {**PLAIN, **config}[name] for name in names}
    inputs = spec.inputs(gpu, workload)
    (launch,) = spec.launches(gpu, workload, whole, inputs, spec.outputs(gpu, workload, inputs))
    assert isinstance(launch, TritonLaunch)
    return build_triton(gpu, launch.source())


def in_loop(accesses: list[SharedAccess], kind: str) -> list[SharedAccess]:
    return [access for access in accesses if access.is_in_loop and access.kind == kind]


@pytest.mark.parametrize(("rows", "tile_m", "tile_n", "tile_k"), [(16, 128, 128, 32), (32, 64, 256, 64)])
def test_tritons_padding_on_gfx950_is_free_of_conflicts_and_has_the_bytes_of_the_solved_one(
    rows: int, tile_m: int, tile_n: int, tile_k: int
) -> None:
    gpu, shape = load_gpu("mi355x"), {16: "16x16x32", 32: "32x32x16"}[rows]
    kernel = built(
        gpu, {"m": 4096, "n": 4096, "k": 4096}, tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, num_warps=4,
        matrix_instr_nonkdim=rows,
    )  # fmt: skip
    reads = in_loop(shared_accesses(kernel.asm["ttgir"], gpu), "read")
    assert [access.how for access in reads] == ["128 bits", "ds_read_b64_tr_b16"]
    assert all(access.conflicts(gpu).is_free for access in reads)
    a = solve_layout(gpu, tile_m, tile_k, "bf16", ["copy_rows", f"mfma_{shape}"], form="padding", interval=1024)
    across = ["copy_rows", f"ds_read_b64_tr_b16_{shape}"]
    b = solve_layout(gpu, tile_k, tile_n, "bf16", across, form="padding", interval=1024)
    theirs = re.findall(r"padded_shared<\[512:\+(\d+)\]", kernel.asm["ttgir"].split("module")[0])
    assert sorted(2 * int(pad) for pad in theirs) == sorted({a.layout.pad, b.layout.pad}) or theirs == ["16", "16"]
    # Two stages of each operand, one interval's padding left out at the end of each.
    operands = [2 * plain + each.layout.pad * (2 * plain // 1024 - 1) for each, plain in
                ((a, tile_m * tile_k * 2), (b, tile_k * tile_n * 2))]  # fmt: skip
    assert kernel.taken.smem_bytes == -(-max(operands) // 16) * 16 + min(operands)


@pytest.mark.parametrize(("kpack", "counted"), [(1, 0), (2, 20_971_520)])
def test_the_conflicts_that_a_counter_saw_on_an_mi300x_come_out(kpack: int, counted: int) -> None:
    gpu, sizes = load_gpu("mi300x"), {"m": 4096, "n": 4096, "k": 512}
    kernel = built(
        gpu, sizes, tile_m=256, tile_n=256, tile_k=64, num_warps=8, kpack=kpack, matrix_instr_nonkdim=16
    )  # fmt: skip
    accesses = shared_accesses(kernel.asm["ttgir"], gpu)
    a_step = sum(int(access.conflicts(gpu).beyond_least.sum()) for access in accesses if access.is_in_loop)
    blocks, steps, launches = 16 * 16, 512 // 64, 40
    assert a_step * blocks * steps * launches == counted


def test_a_layout_without_swizzle_shows_its_conflicts() -> None:
    gpu = load_gpu("a100")
    sizes = {"m": 4096, "n": 4096, "k": 4096}
    text = built(gpu, sizes, tile_m=128, tile_n=128, tile_k=32, num_warps=4, num_stages=3).asm["ttgir"]
    accesses = shared_accesses(text, gpu)
    assert {access.how for access in in_loop(accesses, "read")} == {"ldmatrix"}
    assert all(access.conflicts(gpu).is_free for access in accesses)
    spoilt = shared_accesses(re.sub(r"maxPhase = \d+", "maxPhase = 1", text), gpu)
    assert {int(access.conflicts(gpu).degree.max()) for access in in_loop(spoilt, "read")} == {4, 8}
    spec, workload = gemm_spec("gemm.pointer"), Workload("gemm", sizes, "bf16", {})
    rows = list(rows_of(Compiled(gpu, spec, workload, {"tile_m": 128}, tuple(spoilt))))
    assert {row["degree"] for row in rows if row["how"] == "ldmatrix"} == {"4", "8"}


def test_a_layout_that_a_kernel_refuses_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(conflicts, "accesses_of", lambda *_: [])
    (spec,) = conflicts.kernels_named(["gemm.cdna"])
    looked_at = [each.workload.options for each in compiled(load_gpu("mi300x"), spec, ["bf16"], 1)]
    assert [options.get("transpose_b") for options in looked_at] == [1]
    assert "gemm.cdna bf16 transpose_a=1: " in capsys.readouterr().err
    print_summary([], ["gemm.cuda"])
    assert "no access of shared memory was looked at in gemm.cuda" in capsys.readouterr().out


@needs_nvrtc
@pytest.mark.parametrize(
    ("options", "turned"),
    [
        ({}, 1),
        ({"transpose_a": 1, "transpose_b": 1}, 0),
        ({"three_pass": 1}, 1),
        ({"three_pass": 1, "transpose_b": 1}, 1),
    ],
)
def test_the_inner_loop_of_fp32_reads_rows_without_conflicts_in_every_layout(
    options: dict[str, int], turned: int
) -> None:
    gpu, (spec,) = load_gpu("h200"), conflicts.kernels_named(["gemm.fp32"])
    workload = Workload("gemm", {"m": 512, "n": 512, "k": 512}, "tf32", options)
    sides = {"tile_m": 64, "tile_n": 128} if turned else {"tile_m": 128, "tile_n": 64}
    config = {**sides, "tile_k": 32, "num_stages": 4, "consumers": 2, "turned": turned, "split_k": 1}
    reads = in_loop(conflicts.accesses_of(gpu, spec, workload, config), "read")
    assert len(reads) >= 6
    assert {int(access.conflicts(gpu).degree.max()) for access in reads} == {1}
