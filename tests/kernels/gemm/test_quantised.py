"""Weights of 4 and 8 bits in groups: packing, the product on the CPU, and what the kernel compiles to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.needs import missing_packages, needs_nvrtc

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch

from constrint.errors import UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.quantised import QuantisedWeight, quantise, quantised_matmul
from constrint.kernels.gemm.quantised.launch import PARAMETERS
from constrint.kernels.gemm.quantised.shape import READ
from constrint.kernels.gemm.quantised.stream.shape import PARAMETERS as PARAMETERS_OF_STREAM
from constrint.kernels.gemm.quantised.stream.shape import VARIABLES, launched_registers, share_of, smem_bytes
from constrint.kernels.launch.cuda.nvrtc import compile_cuda
from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.solve import enumerate_space

SPEC = load_spec("quantised_gemm.cuda")
STREAM = load_spec("quantised_gemm.stream")
DTYPES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("bits", "group"), [(4, 64), (4, 128), (4, 2048), (8, 32), (8, 128)])
def test_what_was_packed_is_what_the_weight_is(bits: int, group: int, dtype: torch.dtype) -> None:
    torch.manual_seed(bits + group)
    n, k = 150, 700
    groups = -(-k // group)
    numbers, zeros = torch.randint(0, 1 << bits, (n, k)), torch.randint(0, 1 << bits, (n, groups))
    scales = torch.rand(n, groups) + 0.1
    weight = QuantisedWeight.of(numbers, scales, zeros, bits=bits, group=group, dtype=dtype)
    of_group = torch.arange(k) // group
    expected = (numbers - zeros[:, of_group]).double() * scales.to(dtype).double()[:, of_group]
    assert torch.equal(weight.dense(torch.float64), expected)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_lane_finds_its_numbers_where_the_kernel_reads_them(bits: int) -> None:
    """Lane 4 g + j of a warp has rows g and g + 8; which of its 16 bytes is what, as `kernel.cu` widens them."""
    n, k, read = 128, 2 * READ[bits], READ[bits]
    numbers = torch.randint(0, 1 << bits, (n, k))
    packed = QuantisedWeight.of(numbers, torch.ones(n, 1), bits=bits, group=READ[bits] * 2).packed
    depth = packed.numel() * 32 // bits // n
    words = packed.view(n // 16, depth // read, 32, 4).long() & 0xFFFFFFFF
    for tile, at, lane in ((0, 0, 0), (3, 1, 17), (7, 0, 31)):
        g, j = lane // 4, lane % 4
        own = words[tile, at, lane]
        for step in range(read // 16):
            for pair in range(4):  # registers of the instruction: rows g, g + 8, g, g + 8
                row = 16 * tile + g + 8 * (pair % 2)
                for half in range(2):
                    along = 4 * step + 2 * (pair // 2) + half
                    if bits == 4:
                        seen = own[step] >> 4 * pair + 16 * half & 15
                        k_at = read * at + 16 * j + along
                    else:
                        seen = own[2 * step + pair % 2] >> 8 * (2 * (pair // 2) + half) & 255
                        k_at = read * at + 8 * j + along
                    assert int(seen) == int(numbers[row, k_at])


def test_rounding_to_groups_is_off_by_half_a_step() -> None:
    weight = torch.randn(64, 300)
    for bits in (4, 8):
        packed = quantise(weight, bits=bits, group=64)
        step = (weight.max() - weight.min()) / ((1 << bits) - 1)
        assert (packed.dense(torch.float32) - weight).abs().max() <= 0.75 * step


def test_the_product_on_the_cpu() -> None:
    weight, x = quantise(torch.randn(70, 200)), torch.randn(2, 3, 200).bfloat16()
    out = quantised_matmul(x, weight, torch.ones(70))
    expected = x.float() @ weight.dense(torch.float32).T + 1
    assert out.shape == (2, 3, 70)
    torch.testing.assert_close(out.float(), expected, rtol=2e-2, atol=2e-2)
    assert quantised_matmul(torch.randn(40, 200).bfloat16(), weight).shape == (40, 70)


def test_bad_weights_and_operands_are_refused() -> None:
    numbers, scales = torch.randint(0, 16, (8, 128)), torch.ones(8, 1)
    for arguments, told in (
        ({"bits": 5}, "4 or 8 bits"),
        ({"group": 96}, "power of two"),
        ({"scales": torch.ones(8, 2)}, r"scales are \(8, 1\)"),
        ({"numbers": numbers + 1}, "numbers are from 0 to 15"),
        ({"numbers": numbers.float()}, "whole numbers"),
    ):
        with pytest.raises(UsageError, match=told):
            QuantisedWeight.of(**({"numbers": numbers, "scales": scales} | arguments))
    weight = QuantisedWeight.of(numbers, scales)
    with pytest.raises(UsageError, match=r"\(..., 128\)"):
        quantised_matmul(torch.ones(1, 64).bfloat16(), weight)
    with pytest.raises(UsageError, match="float16"):
        quantised_matmul(torch.ones(1, 128).half(), weight)


@needs_nvrtc
@pytest.mark.parametrize(("m", "bits", "group"), [(1, 4, 128), (16, 4, 64), (16, 8, 128)])
def test_nothing_spills(m: int, bits: int, group: int) -> None:
    gpu = load_gpu("h200")
    asked = Workload("quantised_gemm", {"m": m, "n": 256, "k": 2048}, "bf16", {"bits": bits, "group": group})
    names = list(PARAMETERS)
    columns, _ = enumerate_space(SPEC.problem(gpu, asked)).project(names)
    rows = list(zip(*(columns[name].tolist() for name in names), strict=True))
    # The fullest of all: none that holds less is near the registers' end.
    fullest = sorted(rows, key=lambda row: (row[2] * row[3], row[0] * row[1]))[-6:] + rows[:: max(1, len(rows) // 12)]
    newest = [row for row in rows if row[6] and (row[7] or bits == 8)]  # X in turns, zeros of sums
    for row in fullest + sorted(newest, key=lambda row: row[0] * row[1])[-4:] + newest[:: max(1, len(newest) // 4)]:
        config = dict(zip(names, row, strict=True))
        assert SPEC.compile(gpu, asked, config).spill_bytes == 0, config


@needs_nvrtc
@pytest.mark.parametrize(("m", "bits", "group"), [(1, 4, 128), (16, 4, 64), (16, 4, 2048), (16, 8, 128)])
def test_nothing_of_the_streaming_kernel_spills(m: int, bits: int, group: int) -> None:
    gpu = load_gpu("h200")
    asked = Workload("quantised_gemm", {"m": m, "n": 28672, "k": 8192}, "bf16", {"bits": bits, "group": group})
    names = list(STREAM.problem(gpu, asked).variables)
    columns, _ = enumerate_space(STREAM.problem(gpu, asked)).project(names)
    rows = list(zip(*(columns[name].tolist() for name in names), strict=True))
    configs = [dict(zip(names, row, strict=True)) for row in rows]
    full = sorted(configs, key=lambda v: (launched_registers(gpu, VARIABLES).value(v), -v["rows"], -v["tiles"]))
    for config in full[:6] + configs[:: len(configs) // 4]:
        assert STREAM.compile(gpu, asked, config).spill_bytes == 0, config


def test_a_ring_takes_what_an_sm_has_and_clusters_take_one_pass() -> None:
    gpu = load_gpu("h200")
    asked = Workload("quantised_gemm", {"m": 16, "n": 4096, "k": 14336}, "bf16", {"bits": 4, "group": 128})
    columns, _ = enumerate_space(STREAM.problem(gpu, asked)).project(list(PARAMETERS_OF_STREAM))
    taken = columns["rows"] * columns["row_warps"]
    assert smem_bytes(gpu, VARIABLES, 16, 4096, 4, 128).columns(columns).max() <= gpu.sm.max_smem_bytes_per_block
    assert (taken >= share_of(gpu, 4096, VARIABLES).columns(columns))[columns["split_k"] > 1].all()
    assert set(columns["split_k"].tolist()) == {1, 2, 4, 8}


@needs_nvrtc
def test_a_kernel_reads_the_length_of_a_row_where_knowing_it_spills() -> None:
    gpu = load_gpu("h200")
    config = {"rows": 7, "tiles": 2, "warps": 8, "resident": 1, "split_k": 1, "stages": 0, "x_turns": 0}
    config["of_sums"] = 0
    asked = Workload("quantised_gemm", {"m": 16, "n": 14336, "k": 4096}, "bf16", {"bits": 4, "group": 128})
    inputs = SPEC.inputs(gpu, asked)
    (launch,) = SPEC.launches(gpu, asked, config, inputs, SPEC.outputs(gpu, asked, inputs))
    source = launch.source  # type: ignore[attr-defined]
    assert source.macros["READS"] == 64
    knows = compile_cuda(gpu, replace(source, sparing={}))
    assert knows.spill_bytes, "it spills under the releases of NVRTC that were tried, 13.0 and 13.5"
    assert compile_cuda(gpu, source).spill_bytes < knows.spill_bytes
