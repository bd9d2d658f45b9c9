"""The pass of a user's epilogue, built by g++ and run on the CPU; and how far its results may be off."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constrint.kernels.gemm.cuda.source import FOLDER as GEMM_FOLDER
from constrint.kernels.gemm.traced.expression import ACC, Expression
from constrint.kernels.gemm.traced.launch import FOLDER
from constrint.kernels.gemm.traced.reference import FUNCTIONS
from constrint.kernels.launch.cuda import CudaLaunch
from tests.support.cuda_gemm_on_cpu import ENDS

#: Unit roundoffs of types of results, and half of the least step between two values of fp16 next to 0.
ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
LEAST_OF_FP16 = 2.0**-25
#: Errors of the activations in kernels for 16 bits, as shares of a rounding: a sixteenth of a unit in the last place
#: (`tests/kernels/gemm/test_activations.py` proves it), an eighth for tanh. Beside that, errors of
#: torch's own functions, and of those for 32 bits: of an argument or a value, whichever is larger, in units of fp32's
#: rounding.
ACTIVATION_SHARE, TANH_SHARE, WIDE_UNITS = 1 / 8, 1 / 4, 16.0
APPROXIMATED = ("gelu", "silu", "gelu_tanh", "sigmoid", "quick_gelu", "relu2", "tanh")
#: Errors of functions of CUDA's library and of the unit for special functions, in units of fp32's rounding; exp takes
#: its argument rounded, times log2(e), up to 2^7 large.
UNITS = {"exp": 2.0**9, "log": 8.0, "erf": 8.0, "rsqrt": 8.0, "sqrt": 4.0, "div": 8.0}
ABOUT_CPU = """
#include <cmath>
#include <cstring>
#define __device__
#define __global__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(threads)
#define __align__(bytes) alignas(bytes)
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
template <typename T> static T __ldg(const T* from) { return *from; }
static float __uint_as_float(unsigned bits) { float y; std::memcpy(&y, &bits, 4); return y; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static unsigned bf16_of(float x) {
  unsigned bits; std::memcpy(&bits, &x, 4);
  if (x != x) return 0x7FFF;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
static unsigned packed_on_cpu(float low, float high) { return bf16_of(low) | bf16_of(high) << 16; }
static void load_sums(unsigned, float (&)[1]) {}
static void load_sums(unsigned, float (&)[4]) {}
struct { int x; } blockIdx, threadIdx;
"""


def run_pass(launch: CudaLaunch, folder: Path, change: tuple[str, str] = ("", "")) -> None:
    """Run a pass of bf16 or fp32, built with a change of the text of its kernel."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (GEMM_FOLDER / "epilogue.cuh", FOLDER / "pass.cu"):
        text = name.read_text(encoding="utf-8")
        for before, after in ENDS.items() if name.suffix == ".cuh" else [change] if change[0] else []:
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        (folder / name.name).write_text(text, encoding="utf-8")
    values = launch.arguments[2:]
    types = [
        "int" if isinstance(v, np.int32) else "long long" if isinstance(v, np.int64) else "const void*" for v in values
    ]
    taken = "".join(f", ({kind}) n[{2 + i}]" for i, kind in enumerate(types))
    body = f"""{ABOUT_CPU}{launch.source.text}
extern "C" void run(int blocks, const long long* n) {{
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < {launch.block[0]}; ++threadIdx.x)
      epilogue_pass((const void*) n[0], (out_t*) n[1]{taken});
}}
"""
    (folder / "main.cc").write_text(body, encoding="utf-8")
    macros = [f"-D{name}={value}" for name, value in launch.source.macros.items()]
    options = ["-O1", "-w", "-std=c++17", "-shared", "-fPIC", "-fno-strict-aliasing"]
    subprocess.run(["g++", *options, *macros, "main.cc", "-o", "pass.so"], cwd=folder, check=True)
    numbers = np.array([int(v.data_ptr()) if hasattr(v, "data_ptr") else int(v) for v in launch.arguments], np.int64)
    ctypes.CDLL(str(folder / "pass.so")).run(launch.grid[0], ctypes.c_void_p(numbers.ctypes.data))


def exact_and_bound(
    expression: Expression, acc: Tensor, operands: Mapping[str, Tensor], kind: torch.dtype, acc_error: Any
) -> tuple[Tensor, Tensor]:
    """The exact result, and how far a kernel may be off: errors of all steps, carried to the result, and a rounding.

    Args:
        expression: The epilogue, smooth near the values.
        acc: The exact sum (M, N), fp64.
        operands: By name.
        kind: The type of the result.
        acc_error: How far the kernel's sum may be off.
    """
    rounding, least = ROUNDING[kind], LEAST_OF_FP16 if kind == torch.float16 else 0.0
    values: list[Tensor] = []
    parts: list[tuple[Tensor, Tensor | float]] = []
    for step in expression.steps:
        args = [values[at] for at in step.args]
        if step.op == "operand":
            value = acc if step.name == ACC else operands[step.name].double()
        elif step.op == "constant":
            value = torch.tensor(step.value, dtype=torch.float64)
        else:
            value = FUNCTIONS[step.op](*args)
        if step.kind == "n":
            error: Any = value.abs() * UNITS.get(step.op, 2.0) * 2.0**-24 + 2.0**-30
            if step.op in APPROXIMATED:
                error = error + WIDE_UNITS * 2.0**-24 * torch.maximum(args[0].abs(), value.abs())
            if step.op in APPROXIMATED and kind != torch.float32:
                share = {"tanh": TANH_SHARE}.get(step.op, ACTIVATION_SHARE)
                error = error + share * (rounding * value.abs()).clamp(min=least)
            error = acc_error if step.op == "operand" and step.name == ACC else error
            shift = torch.zeros(acc.shape, dtype=torch.float64, device=acc.device, requires_grad=True)
            parts.append((shift, error))
            value = value + shift
        values.append(value)
    exact = values[-1].detach()
    slopes = torch.autograd.grad(values[-1].sum(), [shift for shift, _ in parts], allow_unused=True)
    used = [(slope, error) for slope, (_, error) in zip(slopes, parts, strict=True) if slope is not None]
    carried: Any = sum(slope.abs() * error for slope, error in used)
    # Errors of the first order; those of the second are far below a hundredth of these.
    return exact, (1.01 * (carried + (rounding * exact.abs()).clamp(min=least)) + 2.0**-30).detach()
