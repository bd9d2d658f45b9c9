"""Weights of the register estimate, written by `benchmarks/fit_gemm_registers.py`.

Do not edit: compile a new sample and fit again.
"""

from __future__ import annotations

from collections.abc import Mapping

from constrint.kernels.gemm.registers import RegisterModel

REGISTER_MODELS: Mapping[str, RegisterModel] = {
    # Fitted to kernels compiled by Triton 3.9.0; median and 90th percentile of the relative error.
    # 11 kernels, error 5.4%, 17.4%
    "fma": RegisterModel(base=3098, accumulators=299, words_a=0, words_b=0, fragment=10, persistent=0),
    # 73 kernels, error 9.8%, 24.8%
    "gfx1100": RegisterModel(base=4998, accumulators=78, words_a=169, words_b=137, fragment=35, persistent=1513),
    # 74 kernels, error 10.9%, 26.2%
    "gfx1201": RegisterModel(base=4405, accumulators=67, words_a=161, words_b=180, fragment=25, persistent=888),
    # 46 kernels, error 15.6%, 48.7%
    "gfx908": RegisterModel(base=1944, accumulators=71, words_a=100, words_b=178, fragment=0, persistent=2050),
    # 51 kernels, error 12.3%, 30.4%
    "gfx90a": RegisterModel(base=2712, accumulators=84, words_a=173, words_b=171, fragment=25, persistent=1737),
    # 78 kernels, error 13.7%, 31.9%
    "gfx942": RegisterModel(base=2919, accumulators=81, words_a=173, words_b=264, fragment=62, persistent=1204),
    # 43 kernels, error 10.5%, 28.2%
    "gfx950": RegisterModel(base=3338, accumulators=104, words_a=130, words_b=27, fragment=0, persistent=1014),
    # 300 kernels, error 10.2%, 30.6%
    "mma": RegisterModel(base=2894, accumulators=136, words_a=88, words_b=43, fragment=45, persistent=1463),
    # 45 kernels, error 15.4%, 32.9%
    "tcgen05": RegisterModel(base=1788, accumulators=98, words_a=71, words_b=63, fragment=0, persistent=2776),
    # 65 kernels, error 7.9%, 25.5%
    "wgmma": RegisterModel(base=2391, accumulators=110, words_a=63, words_b=59, fragment=4, persistent=1469),
}
