"""CUDA C++ through NVRTC: compiled for GPUs that are not here, kept on disk, macros that cannot reach beyond theirs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from constrint.errors import RESIDENT, CompileError, UnsupportedError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.cuda import CudaSource, compile_cuda, loaded, nvrtc
from constrint.kernels.launch.cuda.nvrtc import definitions, header_digest
from constrint.select import Workload
from constrint.select.rank import rank
from tests.support.cuda_kernels import ROTATE, Rotate
from tests.support.needs import needs_gpu, needs_nvrtc, needs_torch

ROOT = Path(__file__).parents[3]
H200, A100 = load_gpu("h200"), load_gpu("a100")
WORKLOAD = Workload("rotate", {"n": 4096}, "fp32")
MARKER = """
#define TEXT_OF(value) #value
#define TEXT(value) TEXT_OF(value)
extern "C" __device__ char marker[] = TEXT(VALUE);
extern "C" __global__ void kernel(char* out) { out[threadIdx.x] = marker[threadIdx.x]; }
"""


@needs_nvrtc
@pytest.mark.parametrize(("gpu", "target"), [(H200, "sm_90a"), (A100, "sm_80")])
def test_what_a_kernel_takes_is_read_back(gpu: Any, target: str) -> None:
    source = ROTATE.cuda_source(WORKLOAD, {"THREADS": 128})
    binary = compile_cuda(gpu, source)
    assert binary.cubin.startswith(b"\x7fELF")
    assert binary.symbol.encode() in binary.cubin
    assert "rotate" in binary.symbol
    assert 4 <= binary.registers <= 40
    assert (binary.spill_bytes, binary.smem_bytes) == (0, 0)
    static = "__global__ void kernel(float* out) { __shared__ float part[SIZE]; part[threadIdx.x] = out[0]; " + (
        "__syncthreads(); out[threadIdx.x] = part[SIZE - 1 - threadIdx.x]; }"
    )
    assert compile_cuda(gpu, CudaSource(static, "kernel", {"SIZE": 96})).smem_bytes == 4 * 96


@needs_nvrtc
def test_what_spills_is_told() -> None:
    text = """__global__ void kernel(float* out) {
      float sums[64];
      #pragma unroll
      for (int i = 0; i < 64; ++i) sums[i] = out[i * 32 + threadIdx.x];
      for (int step = 0; step < 8; ++step) {
        #pragma unroll
        for (int i = 0; i < 64; ++i) sums[i] += sums[(i + 7) % 64] * sums[(i + 13) % 64];
      }
      #pragma unroll
      for (int i = 0; i < 64; ++i) out[i * 32 + threadIdx.x] = sums[i];
    }"""
    tight = compile_cuda(H200, CudaSource(text, "kernel", options=("--maxrregcount=32",)))
    roomy = compile_cuda(H200, CudaSource(text, "kernel"))
    assert tight.registers <= 32
    assert tight.spill_bytes > 0
    assert roomy.spill_bytes == 0
    assert roomy.registers > 64


@needs_nvrtc
def test_what_spills_is_compiled_again_sparing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    text = """__global__ void kernel(float* out) {
      float sums[SUMS];
      #pragma unroll
      for (int i = 0; i < SUMS; ++i) sums[i] = out[i * 32 + threadIdx.x];
      for (int step = 0; step < 8; ++step) {
        #pragma unroll
        for (int i = 0; i < SUMS; ++i) sums[i] += sums[(i + 7) % SUMS] * sums[(i + 13) % SUMS];
      }
      #pragma unroll
      for (int i = 0; i < SUMS; ++i) out[i * 32 + threadIdx.x] = sums[i];
    }"""
    compiled, times = nvrtc._compiled, []

    def counted(source: CudaSource, *more: Any) -> Any:
        times.append(source.macros["SUMS"])
        return compiled(source, *more)

    monkeypatch.setattr(nvrtc, "_compiled", counted)

    def compile_with(number: int, sparing: int | None) -> Any:
        nvrtc._BINARIES.clear()
        again = {} if sparing is None else {"SUMS": sparing}
        return compile_cuda(H200, CudaSource(text, "kernel", {"SUMS": number}, ("--maxrregcount=32",), sparing=again))

    spilling, clean = compile_with(64, None), compile_with(4, None)
    assert spilling.spill_bytes > 0
    assert clean.spill_bytes == 0
    times.clear()
    assert compile_with(64, 4) == clean == compile_with(64, 4)
    assert times == [64, 4], "and kept"
    times.clear()
    assert compile_with(64, 200) == spilling
    assert times == [64, 200]
    times.clear()
    assert compile_with(4, 64) == clean
    assert times == [4]


@needs_nvrtc
@needs_torch
def test_a_spec_is_ranked_and_compiled_without_a_gpu() -> None:
    ranking = rank(ROTATE, H200, WORKLOAD, compile=3)
    assert {candidate.config["THREADS"] for candidate in ranking.candidates} == {64, 128, 1024}
    for candidate in ranking.candidates:
        compiled = candidate.resources.compiled if candidate.resources else None
        assert compiled is not None
        assert compiled.target == "sm_90a"
        assert compiled.smem_bytes == 4 * candidate.config["THREADS"]
        assert compiled.compiler.startswith("nvrtc ")
    with pytest.raises(UnsupportedError, match="MI300X: ways to compile CUDA C\\+\\+"):
        ROTATE.compile(load_gpu("mi300x"), WORKLOAD, {"THREADS": 128})


@needs_nvrtc
@pytest.mark.parametrize(
    ("text", "function", "told"),
    [
        ("__global__ void kernel(int* out) { out[0] = missing; }", "kernel", r'kernel\.cu\(1\): error: .*"missing"'),
        ("__global__ void kernel(int* out) {}", "colonel", 'identifier "colonel" is undefined'),
        ('#include "nowhere.h"\n__global__ void kernel() {}', "kernel", "error: (could not|cannot) open source file"),
        (
            "__global__ void kernel(float* o) { __shared__ float s[99999]; s[threadIdx.x] = *o; "
            "__syncthreads(); *o = s[1]; }",
            "kernel",
            "too much",
        ),
    ],
)
def test_the_compilers_first_error_is_told(text: str, function: str, told: str) -> None:
    with pytest.raises(CompileError, match=told) as caught:
        compile_cuda(H200, CudaSource(text, function))
    assert "refuses the kernel for sm_90a" in str(caught.value)
    assert "\n" not in str(caught.value)


@needs_nvrtc
@pytest.mark.parametrize(
    "value",
    ["f(1, 2); }", 'a "b c" $(touch x) `id`', "-I/etc --version", "%s %n {0}", "x && y || z", "'c'", "1 -DOTHER=2"],
)
def test_the_value_of_a_macro_is_nothing_but_its_value(value: str) -> None:
    binary = compile_cuda(H200, CudaSource(MARKER, "kernel", {"VALUE": value}))
    # The preprocessor puts one space for several.
    assert " ".join(value.split()).encode() in binary.cubin


def test_values_of_macros_are_written_as_c_reads_them() -> None:
    written = definitions({"A": 3, "B": -0.25, "C": True, "D": False, "E": "float4", "F": ""}, "k.cu")
    assert written == ["-DA=3", "-DB=-0.25", "-DC=1", "-DD=0", "-DE=float4", "-DF="]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, 1) for name in ("", "1X", "X -DY", "X=1", "é")),
        *(("X", value) for value in ("1\n#error", "a\0b", "\u2028", float("nan"), float("inf"), None, [1])),
    ],
)
def test_what_no_macro_can_be_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=r"k\.cu: "):
        definitions({name: value}, "k.cu")


@needs_nvrtc
def test_a_kernel_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "sizes.h").write_text('#include "more.h"\n')
    (tmp_path / "more.h").write_text("#define SIZE 3\n")
    text = '#include "sizes.h"\n__global__ void kernel(float* out) { out[SIZE] = NUMBER; }'
    times: list[str] = []
    compiled = nvrtc._compiled

    def counted(*given: Any) -> Any:
        times.append("compiled")
        return compiled(*given)

    monkeypatch.setattr(nvrtc, "_compiled", counted)

    def compile_with(number: int) -> Any:
        return compile_cuda(H200, CudaSource(text, "kernel", {"NUMBER": number}, folders=(tmp_path,)))

    first = compile_with(1)
    assert compile_with(1) == first
    assert len(times) == 1
    assert compile_with(2).cubin != first.cubin
    assert compile_cuda(A100, CudaSource(text, "kernel", {"NUMBER": 1}, folders=(tmp_path,))) != first
    assert len(times) == 3
    (tmp_path / "more.h").write_text("#define SIZE 4\n")
    assert compile_with(1).cubin != first.cubin
    assert len(times) == 4
    for path in (tmp_path / "cache").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:40])
    assert compile_with(1).symbol == first.symbol
    assert len(times) == 4
    nvrtc._BINARIES.clear()  # as in a new process
    assert compile_with(1).symbol == first.symbol
    assert len(times) == 5
    nvrtc._BINARIES.clear()
    assert compile_with(1).symbol == first.symbol
    assert len(times) == 5
    monkeypatch.setenv("CONSTRINT_CACHE", "0")
    nvrtc._BINARIES.clear()
    assert compile_with(1) is compile_with(1)
    assert len(times) == 6


def test_headers_count_with_what_they_include(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('#include "b.h"\n#include <cuda_fp16.h>\n')
    (tmp_path / "b.h").write_text('#include "a.h"\n')
    before = header_digest('#include "a.h"', [tmp_path])
    assert before == header_digest('  #  include "a.h"', [tmp_path])
    assert before != header_digest("", [tmp_path])
    (tmp_path / "b.h").write_text('#include "a.h"\nint x;\n')
    assert before != header_digest('#include "a.h"', [tmp_path])


def test_a_log_without_the_kernel_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="does not say what kernel takes"):
        nvrtc.figures_of("ptxas info    : Compiling entry function 'other' for 'sm_90a'\nUsed 3 registers", "kernel")


@needs_torch
@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ({"arguments": {"out": "pointer", "m": "int32"}}, "the argument 'm' is no input, output, size"),
        ({"arguments": {"n": "pointer"}}, "n is declared a pointer, so it has to be a tensor, got int"),
        ({"arguments": {"in": "int32"}}, "in is declared 'int32', which takes a number, got Tensor"),
        ({"arguments": {"n": "int"}, "source": "missing.cu"}, r"cannot read the CUDA source missing\.cu"),
        ({"arguments": {"n": "integer"}}, "n has the type 'integer'; write 'pointer' or numpy's name"),
        ({"arguments": {"n": "int8"}}, "n is 4096, which int8 does not hold"),
    ],
)
def test_arguments_that_cannot_be_are_told(stated: dict[str, Any], told: str) -> None:
    spec = Rotate()
    for name, value in stated.items():
        setattr(spec, name, value)
    inputs = spec.inputs(H200, WORKLOAD)
    with pytest.raises(UsageError, match=told):
        spec.launches(H200, WORKLOAD, {"THREADS": 64}, inputs, spec.outputs(H200, WORKLOAD, inputs))


@needs_torch
@needs_nvrtc
def test_without_a_gpu_a_launch_says_what_it_needs() -> None:
    inputs = ROTATE.inputs(H200, WORKLOAD, device="cpu")
    (launch,) = ROTATE.launches(H200, WORKLOAD, {"THREADS": 64}, inputs, ROTATE.outputs(H200, WORKLOAD, inputs))
    with pytest.raises(UsageError, match="runs on tensors of a GPU, got the device cpu"):
        launch.run()


@needs_nvrtc
@pytest.mark.parametrize(
    ("version", "told"),
    [(12_080, r"one of CUDA 12\.8, which loads nothing that nvrtc 13\.7 compiles"), (13_000, "^$"), (14_020, "^$")],
)
def test_a_driver_that_is_too_old_is_told_before_anything_is_compiled(
    version: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuda.bindings import driver

    monkeypatch.setattr(loaded, "nvrtc_version", lambda: "nvrtc 13.7")
    monkeypatch.setattr(driver, "cuDriverGetVersion", lambda: (driver.CUresult.CUDA_SUCCESS, version))
    assert re.search(told, loaded.obstacle.__wrapped__())


def test_what_is_not_installed_is_an_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise UsageError("compiling CUDA C++ needs NVRTC")

    monkeypatch.setattr(loaded, "nvrtc_version", missing)
    assert loaded.obstacle.__wrapped__() == "compiling CUDA C++ needs NVRTC"


@needs_torch
@needs_nvrtc
@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler, which makes a driver that only prints")
def test_a_launch_hands_the_driver_what_was_asked_for(tmp_path: Path) -> None:
    source = ROOT / "tests" / "support" / "fake_libcuda.cpp"
    subprocess.run(["c++", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", source, "-ldl"], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.faked_launches"],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    address, numbers = 0xDEADBEEF00, [0xDEADBEEF00, 0, -7, 2.5]
    first = ["launch", [2, 3, 1], [64, 2, 1], 60_000, 0xABC, [], numbers]
    most = ["attribute", 8, 232_448]  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert said[:13] == [
        ["load", "ELF"],
        ["function", "kernel"],
        ["global", "weights"],
        ["copy", 0x1234, address, 16],
        most,
        first,
        first,
        # Without constants the kernel is loaded once, whatever its launches take.
        ["load", "ELF"],
        ["function", "kernel"],
        ["launch", [5, 1, 1], [32, 1, 1], 0, 0xABC, [], numbers],
        most,
        ["attribute", 14, 1],  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        # Clusters of sixteen blocks, spread over the SMs.
        ["launch", [32, 1, 1], [64, 1, 1], 60_000, 0xABC, [[4, 16], [5, 1]], numbers],
    ]
    assert said[13] == ["launch", [8, 1, 1], [64, 1, 1], 90_000, 0xABC, [[2, 1], [4, 8], [5, 1]], numbers]
    assert [one[:4] for one in said[14:17]] == [
        ["does not fit", "threads", 2048, 1024],
        ["does not fit", "shared memory", 300_000, 232_448],
        ["does not fit", RESIDENT, 0, 0],
    ]
    assert said[17:] == [["error", "the driver refuses the launch: CUDA_ERROR_INVALID_VALUE"]]


@pytest.mark.gpu
@needs_gpu
@needs_nvrtc
@pytest.mark.parametrize("spare_bytes", [0, 100_000])
def test_results_on_the_gpu(spare_bytes: int) -> None:
    import numpy as np
    import torch

    from constrint.kernels.launch.device import gpu_of
    from constrint.launch import prepare_cuda
    from constrint.tune.measure import Timer

    gpu = gpu_of(torch.device("cuda"))
    if gpu is None or spare_bytes + 4096 > gpu.sm.max_smem_bytes_per_block:
        pytest.skip("needs a GPU with a model and so much shared memory")
    spec = Rotate()
    spec.spare_bytes = spare_bytes
    for threads in (64, 128, 1024):
        inputs = spec.inputs(gpu, WORKLOAD, device="cuda")
        outputs = spec.outputs(gpu, WORKLOAD, inputs)
        (launch,) = spec.launches(gpu, WORKLOAD, {"THREADS": threads}, inputs, outputs)
        expected = (inputs["in"] * 2.5).view(-1, threads).flip(1).reshape(-1)
        launch.run()
        torch.testing.assert_close(outputs["out"], expected)
        outputs["out"].zero_()
        Timer().graph(launch.run)()
        torch.cuda.synchronize()
        torch.testing.assert_close(outputs["out"], expected)
        outputs["out"].zero_()
        given = (outputs["out"], inputs["in"], np.int32(4096), np.float32(2.5))
        handle = int(launch.handle())  # type: ignore[attr-defined]
        prepared = prepare_cuda(handle, (4096 // threads,), (threads,), *given, shared_bytes=4 * threads + spare_bytes)
        prepared(*given)
        torch.testing.assert_close(outputs["out"], expected)
