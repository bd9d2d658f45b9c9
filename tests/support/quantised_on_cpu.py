"""The quantised GEMM, built by g++ and run on the CPU thread by thread; see `cuda_on_cpu/`. Copies end at once."""

from __future__ import annotations

import ctypes
import random
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.quantised.launch import FOLDERS, quantised_launches
from constrint.kernels.gemm.quantised.stream.launch import stream_launches
from constrint.kernels.gemm.quantised.weights import QuantisedWeight
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from tests.support.skinny_on_cpu import COMPILER, CONVERSIONS, HEADERS

H200 = load_gpu("h200")
OWN = Path(__file__).with_name("quantised_on_cpu")
ONES = {"IS_BF16": "0x3f803f80u", "IS_FP16": "0x3c003c00u"}
#: Patterns of PTX in the kernel, and the CPU's functions in their place.
PTX = (
    (r'asm volatile\("ld\.global\.cs.*?"l"\(from\)\);', "if (!is_stray(from, 16)) std::memcpy(&x, from, 16);"),
    (
        r'#if IS_BF16\n  asm\("mma.*?"r"\(first\), "r"\(second\)\);',
        "multiply_matrices(sums, w[0], w[1], w[2], w[3], first, second);",
    ),
    (r'asm\("fma\.rn\.bf16x2.*?"r"\(less\)\);', "made = fused(high, 0x3f803f80u, less);"),
    (r'asm\("fma\.rn\.f16x2.*?"r"\(less\.sixteenth\)\);', "made = fused(high, 0x2c002c00u, less.sixteenth);"),
    (r'asm\("add\.rn\.f16x2.*?"r"\(less\.less\)\);', "made = fused(high, 0x3c003c00u, less.less);"),
    (r'asm\("add\.rn\.f16x2.*?"r"\(0x63806380u\)\);', "made.sixteenth = fused(less, 0x3c003c00u, 0x63806380u);"),
    (r'asm\("cvt\.rn\.b?f16x2\.f32.*?"f"\(first\)\);', "made = narrowed(first, second);"),
    (r'asm\("cvt\.f32\.f16.*?0xffffu\)\)\);', "made = widened(static_cast<unsigned short>(both & 0xffffu));"),
    (
        r'asm volatile\("cp\.async\.cg.*?: "memory"\);',
        "copy_16(to + (row * kTiles + i) * 512, from + (row * s.reads + i) * 32);",
    ),
    (
        r'asm volatile\("cp\.async\.ca.*?: "memory"\);',
        "copy_16(to + ((i * kNarrow + j) * kParts + part) * 512, from + i * kTile + part * 8, bytes);",
    ),
    (r'asm volatile\("cp\.async\.(?:commit|wait)_group.*?\);\n', "\n"),
    (r"\bPlace\b", "WarpPlace"),  # the header has another one
    (r"extern __shared__ __align__\(16\) float shares\[\];", "float* const shares = reinterpret_cast<float*>(memory);"),
    (r"extern __shared__ __align__\(128\) unsigned char memory\[\];", ""),
)


def launch_of(x: Tensor, weight: QuantisedWeight, out: Tensor, config: Mapping[str, int]) -> CudaLaunch:
    """The launch of out = x @ W^T on an H200, by the kernel whose parameters these are."""
    launches = stream_launches if "row_warps" in config else quantised_launches
    (launch,) = launches(H200, x, weight, out, config)
    return launch


def built(launch: CudaLaunch, folder: Path) -> ctypes.CDLL:
    """Its kernel as a library."""
    folder.mkdir(exist_ok=True)
    numbers = (FOLDERS[0] / "numbers.cuh").read_text(encoding="utf-8")
    texts = {"kernel.cc": '#include "before.cuh"\n' + launch.source.text, "numbers.cuh": numbers}
    for name, text in texts.items():
        for pattern, plain in PTX:
            text = re.sub(pattern, lambda _, plain=plain: plain, text, flags=re.DOTALL)  # type: ignore[misc]
        (folder / name).write_text(text, encoding="utf-8")
    for ours in (HEADERS / "cuda.h", HEADERS / "instructions.cuh", *OWN.iterdir()):
        shutil.copy(ours, folder)
    (folder / "types.cuh").write_text("#pragma once\nconstexpr int kElement = 2;\ntypedef float sum_t;\n")
    shared = (FOLDERS[1] / "epilogue.cuh").read_text(encoding="utf-8")
    for ptx, plain in CONVERSIONS.items():
        shared = shared.replace(ptx, plain)
    (folder / "epilogue.cuh").write_text(shared, encoding="utf-8")
    macros = [f"-D{name}={int(value)}" for name, value in launch.source.macros.items()]
    macros.append(f"-DFUNCTION={launch.source.function}")
    kind = [f"-DDTYPE={int(launch.source.macros['IS_BF16'])}"]
    command = [*COMPILER, "-shared", *kind, *macros, "main.cc", "-o", "kernel.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


def run_on_cpu(library: ctypes.CDLL, launch: CudaLaunch, blocks: int, seed: int) -> int:
    """Run so many blocks of a launch in a random order; how many loads were of no operand."""
    packed, scales, x, out, bias, *rest = launch.arguments
    *numbers, mask, x_stride, out_stride = (int(each) for each in rest)
    order = np.array(random.Random(seed).sample(range(blocks), blocks), np.int32)
    told = np.array(numbers, np.int32)
    spans = np.array([number for t in (packed, scales, x, bias) for number in _span(t)], np.uint64)
    addresses = [ctypes.c_void_p(None if t is None else t.data_ptr()) for t in (packed, scales, x, out, bias)]
    strays: int = library.run(
        blocks, ctypes.c_void_p(order.ctypes.data), *addresses, ctypes.c_void_p(told.ctypes.data),
        ctypes.c_uint(mask), ctypes.c_longlong(x_stride), ctypes.c_longlong(out_stride),
        ctypes.c_void_p(spans.ctypes.data),
    )  # fmt: skip
    return strays


def _span(t: Any) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of that after its last one."""
    if not isinstance(t, torch.Tensor):
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr(), t.data_ptr() + (last + 1) * t.element_size()
