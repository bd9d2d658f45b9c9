"""Activations of the kernels in CUDA C++ and in Triton on the CPU, and their exact values."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from constrint.kernels.gemm.cuda.source import FOLDER
from constrint.kernels.gemm.epilogue.activations import NUMBERS
from constrint.kernels.gemm.epilogue.compiled import OUTPUTS
from tests.support.shared import files_once

#: Instructions that activations take, and the CPU's in their place.
ACTIVATING = {
    'asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));': "y = exp2f(x);",
    'asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));': "y = 1.0f / x;",
    'asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(most));': "y = x > most ? most : x;",
    'asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(0.0f));': "y = x < 0.0f ? 0.0f : x;",
    'asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));': "y = tanhf(x);",
}
#: The relative errors of these instructions on the GPU, as PTX states them; flushed results beside them.
POWER_ERROR, RECIPROCAL_ERROR, TANH_ERROR = 2.0**-22, 2.0**-23, 2.0**-10.987
#: Types of outputs whose activations are compiled.
ROUNDED = ("bf16", "fp16", "fp32")
#: Before the functions, for g++, and each of them.
BEFORE = """#include <cmath>
#define __device__
#define __forceinline__ inline
"""
EACH = """
#define OUT {out}
#define ACTIVATION {activation}
namespace of_{name} {{
{text}
}}
extern "C" void {name}(float* x, long long number) {{
  for (long long i = 0; i < number; ++i) x[i] = of_{name}::activate(x[i]);
}}
#undef OUT
#undef ACTIVATION
"""


def device_text() -> str:
    """The functions of `epilogue.cuh` from the first instruction to `activate`, for the CPU."""
    text = (FOLDER / "epilogue.cuh").read_text(encoding="utf-8")
    start, end = text.index("// Instructions of the unit for special"), text.index("// The result of a sum at")
    text = text[start:end]
    for ptx, plain in ACTIVATING.items():
        assert text.count(ptx) == 1, ptx
        text = text.replace(ptx, plain)
    return text


def _compile(folder: Path) -> None:
    """Every activation before every type of output, as functions of one library."""
    text = BEFORE + "".join(
        EACH.format(out=OUTPUTS[output], activation=number, name=f"{name}_{output}", text=device_text())
        for name, number in NUMBERS.items()
        for output in ROUNDED
    )
    (folder / "activate.cc").write_text(text, encoding="utf-8")
    options = ["-O2", "-w", "-std=c++17", "-mfma", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["g++", *options, "activate.cc", "-o", "activate.so"], cwd=folder, check=True)


def in_cuda(x: NDArray[np.float32], activation: str, output: str) -> NDArray[np.float32]:
    """What `activate` of the kernels in CUDA C++ makes of numbers, before they are rounded to the output's type."""
    made: NDArray[np.float32] = np.ascontiguousarray(x, dtype=np.float32).copy()
    library = ctypes.CDLL(str(files_once("activations", _compile) / "activate.so"))
    library[f"{activation}_{output}"](ctypes.c_void_p(made.ctypes.data), ctypes.c_longlong(len(made)))
    return made


def _sigmoid(x: Tensor) -> Tensor:
    exact: Tensor = torch.special.expit(x)
    return exact


#: Exact values in fp64, with a small relative error however small they are.
EXACT: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": lambda x: x * torch.exp(torch.special.log_ndtr(x)),
    "silu": lambda x: x * _sigmoid(x),
    "gelu_tanh": lambda x: x * _sigmoid(2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)),
    "sigmoid": _sigmoid,
    "quick_gelu": lambda x: x * _sigmoid(1.702 * x),
    "relu2": lambda x: torch.relu(x) ** 2,
    "tanh": torch.tanh,
}


@cache
def numbers() -> NDArray[np.float32]:
    """Every finite number of bf16 and of fp16, and a million of fp32 spread over exponents and over [-20, 20]."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    short = torch.cat([bits.view(torch.bfloat16).float(), bits.view(torch.float16).float()])
    draw = np.random.default_rng(7)
    exponents = np.exp2(draw.uniform(-40, 8, 400_000)) * draw.choice((-1.0, 1.0), 400_000)
    dense = np.linspace(-20, 20, 600_001)
    return np.concatenate([short[short.isfinite()].numpy(), exponents, dense]).astype(np.float32, copy=False)


def unit_of(exact: Tensor, output: str) -> Tensor:
    """The distance of neighbouring numbers of the output's type around exact values."""
    digits, least = {"bf16": (7, -126), "fp16": (10, -14), "fp32": (23, -126)}[output]
    exponent = torch.floor(torch.log2(exact.abs().clamp_min(2.0**least)))
    return torch.exp2(exponent.clamp_min(least) - digits)
