"""Weights of the register estimate, in hundredths of a register; written by `benchmarks/fit_gemm_registers.py`.

Do not edit: compile a new sample and fit again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: Depth of one operand fragment, in bytes along K.
FRAGMENT_BYTES = 64


class RegisterModel(NamedTuple):
    """registers * 100 = base + accumulators * acc + words_a * A + words_b * B + fragment * F + persistent * p."""

    base: int
    accumulators: int
    words_a: int
    words_b: int
    fragment: int
    persistent: int


REGISTER_MODELS: Mapping[str, RegisterModel] = {
    # Fitted to kernels compiled by Triton 3.9.0; median and 90th percentile of the relative error.
    # 11 kernels, error 9.9%, 13.3%
    "fma": RegisterModel(base=3593, accumulators=355, words_a=0, words_b=0, fragment=10, persistent=0),
    # 73 kernels, error 8.6%, 23.8%
    "gfx1100": RegisterModel(base=4786, accumulators=67, words_a=153, words_b=140, fragment=48, persistent=2620),
    # 78 kernels, error 8.6%, 20.8%
    "gfx1201": RegisterModel(base=3771, accumulators=71, words_a=144, words_b=174, fragment=54, persistent=1170),
    # 50 kernels, error 16.3%, 37.2%
    "gfx908": RegisterModel(base=2390, accumulators=61, words_a=105, words_b=115, fragment=29, persistent=1826),
    # 47 kernels, error 9.1%, 37.1%
    "gfx90a": RegisterModel(base=2649, accumulators=91, words_a=210, words_b=199, fragment=10, persistent=1598),
    # 74 kernels, error 14.4%, 25.5%
    "gfx942": RegisterModel(base=3452, accumulators=76, words_a=163, words_b=225, fragment=44, persistent=435),
    # 51 kernels, error 9.8%, 28.2%
    "gfx950": RegisterModel(base=2364, accumulators=92, words_a=103, words_b=93, fragment=56, persistent=1739),
    # 300 kernels, error 12.0%, 26.3%
    "mma": RegisterModel(base=2934, accumulators=132, words_a=83, words_b=59, fragment=29, persistent=1291),
    # 35 kernels, error 16.9%, 27.3%
    "tcgen05": RegisterModel(base=1398, accumulators=100, words_a=86, words_b=22, fragment=13, persistent=1752),
    # 58 kernels, error 10.6%, 17.0%
    "wgmma": RegisterModel(base=2217, accumulators=107, words_a=87, words_b=78, fragment=8, persistent=546),
}
