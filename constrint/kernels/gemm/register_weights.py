"""Weights of the register estimate and bound, written by `benchmarks/fit_gemm_registers.py`.

Do not edit: compile a new sample and fit again. Compiled by Triton 3.9.0; the comments give kernels, median and
90th percentile of the estimate's relative error, clean kernels that the bound excludes, spilling ones that it does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from constrint.kernels.gemm.registers import RegisterModel

# fmt: off
REGISTER_MODELS: Mapping[str, RegisterModel] = {
    # 28 kernels, error 1.5%, 12.2%; 0 of 11 clean excluded, 0 of 17 spilling kept
    "fma": RegisterModel(
        estimate={"base": 2703, "accumulators": 212, "operands": 13},
        bound={"base": 1767, "accumulators": 205, "operands": 17},
    ),
    # 84 kernels, error 7.3%, 25.5%; 5 of 74 clean excluded, 0 of 10 spilling kept
    "gfx1100": RegisterModel(
        estimate={"base": 4192, "accumulators": 75, "persistent": 1836, "split": 75, "words_a": 57, "unpipelined_a":
            101, "words_b": 34, "unpipelined_b": 48, "whole_a": 96, "step_b": 129, "whole_b": 54},
        bound={"base": 10462, "accumulators": 53, "persistent": 4818, "pipelined": 5004, "unpipelined_a": 704,
            "words_b": 38, "unpipelined_b": 18, "whole_b": 94},
    ),
    # 84 kernels, error 8.3%, 23.9%; 2 of 76 clean excluded, 0 of 8 spilling kept
    "gfx1201": RegisterModel(
        estimate={"base": 2802, "accumulators": 78, "persistent": 867, "split": 417, "pipelined": 1094, "words_a": 50,
            "words_b": 75, "unpipelined_b": 43, "whole_a": 45, "whole_b": 87, "is_bytes": 258, "byte_whole_a": 44},
        bound={"base": 4370, "accumulators": 71, "persistent": 1965, "pipelined": 4334, "words_a": 84, "unpipelined_a":
            69, "words_b": 82, "unpipelined_b": 195, "is_bytes": 2509},
    ),
    # 49 kernels, error 8.4%, 46.7%; 1 of 47 clean excluded, 0 of 2 spilling kept
    "gfx908": RegisterModel(
        estimate={"base": 989, "accumulators": 62, "persistent": 1728, "split_accumulators": 4, "pipelined": 1371,
            "words_a": 109, "words_b": 106, "unpipelined_b": 94, "step_b": 20, "whole_b": 26, "byte_whole_a": 83},
        bound={"base": 1714, "accumulators": 56, "pipelined": 6827, "unpipelined_a": 23, "loads_a": 147, "loads_b": 120,
            "step_a": 319, "whole_a": 30, "step_b": 284, "is_bytes": 4466, "byte_step_b": 297},
    ),
    # 320 kernels, error 10.8%, 33.3%; 29 of 301 clean excluded, 0 of 19 spilling kept
    "gfx90a": RegisterModel(
        estimate={"base": 1499, "accumulators": 91, "persistent": 1192, "split_accumulators": 40, "pipelined": 914,
            "words_a": 11, "loads_a": 573, "words_b": 197, "whole_b": 48, "elements_a": 250, "elements_b": 24},
        bound={"accumulators": 74, "persistent": 2182, "split": 4932, "split_accumulators": 103, "pipelined": 4625,
            "words_a": 183, "words_b": 35, "unpipelined_b": 8, "step_a": 132, "whole_a": 277, "step_b": 554, "whole_b":
            20, "is_bytes": 1473, "byte_whole_a": 24, "elements_a": 120, "elements_b": 77},
    ),
    # 297 kernels, error 8.1%, 23.3%; 19 of 282 clean excluded, 0 of 15 spilling kept
    "gfx942": RegisterModel(
        estimate={"base": 1214, "accumulators": 95, "persistent": 1359, "split": 643, "pipelined": 1161, "words_a": 26,
            "loads_a": 358, "words_b": 34, "loads_b": 453, "whole_a": 92, "whole_b": 53, "byte_whole_a": 4,
            "wide_step_b": 31, "elements_a": 190, "elements_b": 144},
        bound={"base": 11048, "accumulators": 173, "split": 2271, "words_a": 180, "words_b": 159, "unpipelined_b": 209,
            "loads_b": 157, "elements_a": 79, "elements_b": 40},
    ),
    # 230 kernels, error 8.9%, 26.4%; 18 of 219 clean excluded, 0 of 11 spilling kept
    "gfx950": RegisterModel(
        estimate={"base": 1656, "accumulators": 97, "persistent": 803, "split": 547, "split_accumulators": 12,
            "pipelined": 1050, "words_a": 51, "unpipelined_a": 2, "loads_a": 59, "unpipelined_b": 67, "loads_b": 199,
            "step_a": 31, "whole_a": 79, "elements_a": 183, "elements_b": 163, "ragged_b": 170},
        bound={"base": 5053, "accumulators": 85, "split_accumulators": 8, "pipelined": 5304, "unpipelined_a": 91,
            "loads_a": 64, "words_b": 40, "unpipelined_b": 45, "loads_b": 744, "is_bytes": 3697, "elements_a": 231,
            "elements_b": 259},
    ),
    # 1458 kernels, error 11.3%, 31.5%; 176 of 1193 clean excluded, 0 of 265 spilling kept
    "mma": RegisterModel(
        estimate={"base": 1974, "accumulators": 105, "persistent": 1524, "split": 398, "words_a": 69, "words_b": 22,
            "step_a": 144, "whole_a": 13, "step_b": 114, "whole_b": 28, "bytes_b": 15, "byte_whole_b": 79,
            "byte_whole_a": 7, "elements_a": 179, "ragged_a": 57, "ragged_accumulators": 56, "elements_b": 136,
            "ragged_b": 170},
        bound={"base": 4428, "accumulators": 131, "persistent": 5100, "split_accumulators": 39, "words_a": 107,
            "loads_b": 81, "whole_a": 7, "step_b": 183, "whole_b": 26, "wide_step_a": 15, "bytes_b": 4, "is_bytes": 497,
            "byte_step_b": 203, "byte_whole_a": 97, "elements_a": 205, "elements_b": 212},
    ),
    # 389 kernels, error 10.0%, 28.2%; 38 of 325 clean excluded, 0 of 64 spilling kept
    "mma sm_100": RegisterModel(
        estimate={"base": 2166, "accumulators": 101, "persistent": 1350, "split": 261, "words_a": 55, "unpipelined_a":
            21, "words_b": 62, "step_a": 127, "whole_a": 1, "step_b": 98, "byte_whole_b": 55, "byte_whole_a": 30,
            "widened_step": 32, "ragged_accumulators": 47, "elements_a": 154, "elements_b": 108, "ragged_b": 463},
        bound={"base": 4554, "accumulators": 132, "persistent": 4637, "split_accumulators": 30, "words_a": 116,
            "words_b": 54, "bytes_b": 20, "byte_whole_a": 136, "ragged_accumulators": 46, "elements_a": 148, "ragged_a":
            1855, "elements_b": 92, "ragged_b": 1341},
    ),
    # 96 kernels, error 6.1%, 21.8%; 2 of 75 clean excluded, 0 of 21 spilling kept
    "mma sm_120": RegisterModel(
        estimate={"base": 2264, "accumulators": 116, "persistent": 1282, "unpipelined_a": 13, "loads_a": 203, "whole_a":
            37, "step_b": 151, "bytes_b": 92},
        bound={"base": 5438, "accumulators": 82, "persistent": 4786, "words_a": 25, "words_b": 15, "whole_a": 75,
            "step_b": 236, "bytes_b": 75, "wide_step_a": 51},
    ),
    # 536 kernels, error 9.5%, 28.2%; 46 of 441 clean excluded, 0 of 95 spilling kept
    "mma sm_80": RegisterModel(
        estimate={"base": 1993, "accumulators": 106, "persistent": 1604, "split": 362, "words_a": 67, "words_b": 19,
            "step_a": 132, "whole_a": 18, "step_b": 194, "whole_b": 30, "wide_step_a": 20, "byte_step_b": 218,
            "byte_whole_b": 155, "byte_whole_a": 12, "elements_a": 200, "elements_b": 193, "ragged_b": 821},
        bound={"base": 4973, "accumulators": 117, "persistent": 3841, "words_a": 59, "loads_b": 282, "step_a": 167,
            "step_b": 130, "wide_step_a": 184, "bytes_b": 40, "is_bytes": 51, "byte_step_b": 283, "byte_whole_a": 118,
            "elements_a": 179, "ragged_accumulators": 20, "elements_b": 210},
    ),
    # 358 kernels, error 10.6%, 29.5%; 23 of 287 clean excluded, 0 of 71 spilling kept
    "mma sm_90": RegisterModel(
        estimate={"base": 2361, "accumulators": 137, "persistent": 1497, "split": 420, "words_a": 26, "unpipelined_a":
            2, "loads_a": 73, "words_b": 27, "whole_a": 28, "step_b": 16, "whole_b": 25, "bytes_b": 74, "byte_whole_b":
            53, "elements_a": 151, "ragged_a": 386, "ragged_accumulators": 53, "elements_b": 159},
        bound={"base": 6554, "accumulators": 71, "persistent": 3612, "split_accumulators": 17, "words_a": 78,
            "unpipelined_a": 11, "unpipelined_b": 41, "step_b": 162, "whole_b": 46, "bytes_b": 86, "is_bytes": 1378,
            "wide_step_a": 382, "wide_whole_b": 14, "elements_a": 132, "ragged_a": 708, "ragged_accumulators": 82,
            "elements_b": 69, "ragged_b": 753},
    ),
    # 141 kernels, error 9.6%, 30.4%; 5 of 118 clean excluded, 0 of 23 spilling kept
    "tcgen05": RegisterModel(
        estimate={"base": 1070, "accumulators": 76, "persistent": 1332, "split": 122, "split_accumulators": 48,
            "loads_a": 105, "loads_b": 34, "whole_a": 42, "step_b": 56, "is_bytes": 689, "wide_step_a": 60,
            "wide_step_b": 77, "wide_whole_b": 25, "elements_a": 256, "elements_b": 487},
        bound={"base": 11678, "persistent": 6430, "split_accumulators": 72, "unpipelined_a": 22, "loads_a": 238,
            "whole_a": 22, "step_b": 190, "wide_step_b": 60, "wide_whole_b": 1, "elements_a": 107, "elements_b": 378},
    ),
    # 141 kernels, error 9.6%, 30.4%; 5 of 118 clean excluded, 0 of 23 spilling kept
    "tcgen05 sm_100": RegisterModel(
        estimate={"base": 1070, "accumulators": 76, "persistent": 1332, "split": 122, "split_accumulators": 48,
            "loads_a": 105, "loads_b": 34, "whole_a": 42, "step_b": 56, "is_bytes": 689, "wide_step_a": 60,
            "wide_step_b": 77, "wide_whole_b": 25, "elements_a": 256, "elements_b": 487},
        bound={"base": 11678, "persistent": 6430, "split_accumulators": 72, "unpipelined_a": 22, "loads_a": 238,
            "whole_a": 22, "step_b": 190, "wide_step_b": 60, "wide_whole_b": 1, "elements_a": 107, "elements_b": 378},
    ),
    # 200 kernels, error 8.3%, 26.6%; 14 of 165 clean excluded, 0 of 35 spilling kept
    "wgmma": RegisterModel(
        estimate={"base": 2076, "accumulators": 104, "persistent": 1046, "split": 277, "words_a": 36, "unpipelined_a":
            28, "loads_a": 39, "loads_b": 19, "whole_a": 23, "whole_b": 13, "is_bytes": 152, "byte_whole_b": 24,
            "wide_step_a": 31, "wide_whole_b": 36, "elements_a": 281, "elements_b": 299},
        bound={"base": 4419, "accumulators": 88, "persistent": 2355, "split": 3465, "words_a": 77, "words_b": 75,
            "unpipelined_b": 47, "is_bytes": 2431, "byte_step_b": 101, "wide_step_a": 194, "wide_whole_b": 39,
            "elements_a": 251, "elements_b": 102, "ragged_b": 460},
    ),
    # 200 kernels, error 8.3%, 26.6%; 14 of 165 clean excluded, 0 of 35 spilling kept
    "wgmma sm_90": RegisterModel(
        estimate={"base": 2076, "accumulators": 104, "persistent": 1046, "split": 277, "words_a": 36, "unpipelined_a":
            28, "loads_a": 39, "loads_b": 19, "whole_a": 23, "whole_b": 13, "is_bytes": 152, "byte_whole_b": 24,
            "wide_step_a": 31, "wide_whole_b": 36, "elements_a": 281, "elements_b": 299},
        bound={"base": 4419, "accumulators": 88, "persistent": 2355, "split": 3465, "words_a": 77, "words_b": 75,
            "unpipelined_b": 47, "is_bytes": 2431, "byte_step_b": 101, "wide_step_a": 194, "wide_whole_b": 39,
            "elements_a": 251, "elements_b": 102, "ragged_b": 460},
    ),
}
# fmt: on
