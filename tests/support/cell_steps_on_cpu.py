"""Steps of cells in CUDA C++ as g++ compiles them.

All cells are one library, each in a namespace of its own; instructions are the same functions of the CPU, in fp32.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from constrint.kernels.rnn.cells import RecurrentCell
from constrint.kernels.rnn.generated.cuda import cuda_macros, cuda_text

SOURCE = Path(__file__).parents[2] / "constrint" / "kernels" / "rnn" / "cuda" / "source" / "cells.cuh"
_HEAD = """#include <cmath>
#define __device__
#define __forceinline__ inline
#define DTYPE 3
constexpr bool IS_WIDE = true;
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float fast_tanh(float x) { return std::tanh(x); }
"""
#: Arrays hold one element of work after the other; `w` and `of` are ignored without parameters.
_CALLS = """
extern "C" void {name}_forward(int number, const float* p, float* s, const float* w) {{
  for (int i = 0; i < number; ++i) {{
    auto& own = *reinterpret_cast<const float(*)[4]>(p + 4 * i);
    auto& states = *reinterpret_cast<float(*)[STATES]>(s + STATES * i);
    step_forward(own, states{w_forward});
  }}
}}
extern "C" void {name}_backward(
    int number, const float* p, const float* q, const float* c, float* d, const float* w, float* grads, float* of) {{
  for (int i = 0; i < number; ++i) {{
    float before[4] = {{}}, after[4] = {{}};
    for (int s = 0; s < STATES; ++s) before[s] = q[STATES * i + s], after[s] = c[STATES * i + s];
    auto& own = *reinterpret_cast<const float(*)[4]>(p + 4 * i);
    const Known known = know(own, before, after{w_know}, false);
    step_backward(known, false, *reinterpret_cast<float(*)[STATES]>(d + STATES * i),
                  *reinterpret_cast<float(*)[4]>(grads + 4 * i){w_step});
  }}
}}
"""


def text_of(name: str, cell: RecurrentCell) -> str:
    """One cell's functions in a namespace, with calls that other languages can make."""
    shared = re.sub(r"#pragma once|#include.*", "", SOURCE.read_text(encoding="utf-8"))
    macros, own = cuda_macros(cell.step), "".join(cuda_text(cell.step, each) for each in ("forward", "backward"))
    has = cell.num_params > 0
    row = f"*reinterpret_cast<const float(*)[{cell.num_params}]>(w + {cell.num_params} * i)"
    of = f", *reinterpret_cast<float(*)[{cell.num_params}]>(of + {cell.num_params} * i)"
    given = f", {row}" if has else ""
    calls = _CALLS.format(name=name, w_forward=given, w_know=given, w_step=of if has else "")
    defined = "".join(f"#undef {key}\n#define {key} {value}\n" for key, value in macros.items())
    return f"{defined}namespace {name} {{\nconstexpr int STATES = {cell.num_states};\n{shared}{own}{calls}}}\n"


def built(cells: Mapping[str, RecurrentCell], folder: Path) -> ctypes.CDLL:
    """The library with the steps of cells by name."""
    text = _HEAD + "".join(text_of(name, cell) for name, cell in cells.items())
    (folder / "steps.cc").write_text(text, encoding="utf-8")
    subprocess.run(
        ["g++", "-O1", "-std=c++17", "-shared", "-fPIC", "-w", "steps.cc", "-o", "steps.so"], cwd=folder, check=True
    )
    return ctypes.CDLL(str(folder / "steps.so"))


def forward(library: ctypes.CDLL, name: str, p: Tensor, s: Tensor, w: Tensor) -> Tensor:
    """States (n, S) after a step, from slots (n, 4), states (n, S) and parameters (n, P) in fp32."""
    s = s.clone()
    getattr(library, f"{name}_forward")(len(p), *map(_address, (p, s, w)))
    return s


def backward(
    library: ctypes.CDLL, name: str, p: Tensor, q: Tensor, c: Tensor, d: Tensor, w: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the slots (n, 4), of the states before (n, S) and of the parameters (n, P)."""
    d, grads, of = d.clone(), torch.zeros_like(p), torch.zeros_like(w)
    getattr(library, f"{name}_backward")(len(p), *map(_address, (p, q, c, d, w, grads, of)))
    return grads, d, of


def _address(tensor: Tensor) -> ctypes.c_void_p:
    assert tensor.is_contiguous()
    return ctypes.c_void_p(tensor.data_ptr())
