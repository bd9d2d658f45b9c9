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
    # 84 kernels, error 7.3%, 25.5%; 3 of 74 clean excluded, 0 of 10 spilling kept
    "gfx1100": RegisterModel(
        estimate={"base": 4192, "accumulators": 75, "persistent": 1836, "split": 75, "words_a": 57, "unpipelined_a":
            101, "words_b": 34, "unpipelined_b": 48, "whole_a": 96, "step_b": 129, "whole_b": 54},
        bound={"base": 11963, "accumulators": 45, "persistent": 4021, "pipelined": 4955, "unpipelined_a": 630,
            "words_b": 41, "unpipelined_b": 39, "whole_b": 64},
    ),
    # 84 kernels, error 8.3%, 23.9%; 1 of 76 clean excluded, 0 of 8 spilling kept
    "gfx1201": RegisterModel(
        estimate={"base": 2802, "accumulators": 78, "persistent": 867, "split": 417, "pipelined": 1094, "words_a": 50,
            "words_b": 75, "unpipelined_b": 43, "whole_a": 45, "whole_b": 87, "is_bytes": 258, "byte_whole_a": 44},
        bound={"base": 5744, "accumulators": 66, "persistent": 1941, "pipelined": 3033, "words_a": 92, "unpipelined_a":
            64, "words_b": 81, "unpipelined_b": 117, "is_bytes": 2286},
    ),
    # 49 kernels, error 8.4%, 46.7%; 1 of 47 clean excluded, 0 of 2 spilling kept
    "gfx908": RegisterModel(
        estimate={"base": 989, "accumulators": 62, "persistent": 1728, "split_accumulators": 4, "pipelined": 1371,
            "words_a": 109, "words_b": 106, "unpipelined_b": 94, "step_b": 20, "whole_b": 26, "byte_whole_a": 83},
        bound={"base": 2391, "accumulators": 61, "pipelined": 6301, "unpipelined_a": 1, "loads_a": 192, "loads_b": 140,
            "step_a": 285, "whole_a": 27, "step_b": 204, "is_bytes": 3899, "byte_step_b": 260},
    ),
    # 406 kernels, error 10.3%, 31.5%; 25 of 385 clean excluded, 0 of 21 spilling kept
    "gfx90a": RegisterModel(
        estimate={"base": 1454, "accumulators": 93, "persistent": 1237, "split_accumulators": 37, "pipelined": 971,
            "words_a": 9, "loads_a": 571, "words_b": 191, "whole_a": 5, "whole_b": 37, "elements_a": 248, "elements_b":
            27},
        bound={"base": 1070, "accumulators": 80, "persistent": 760, "split": 4232, "split_accumulators": 90,
            "pipelined": 3980, "words_a": 283, "loads_a": 4, "words_b": 112, "step_a": 342, "whole_a": 176, "step_b":
            342, "is_bytes": 352, "elements_a": 78, "elements_b": 84},
    ),
    # 431 kernels, error 8.3%, 22.4%; 21 of 413 clean excluded, 0 of 18 spilling kept
    "gfx942": RegisterModel(
        estimate={"base": 1143, "accumulators": 95, "persistent": 1458, "split": 754, "pipelined": 1286, "words_a": 27,
            "loads_a": 342, "words_b": 99, "loads_b": 268, "whole_a": 94, "whole_b": 31, "byte_whole_a": 24,
            "elements_a": 187, "ragged_a": 23, "elements_b": 102},
        bound={"base": 10521, "accumulators": 161, "split": 1974, "words_a": 59, "loads_a": 725, "words_b": 199,
            "unpipelined_b": 140, "elements_a": 109, "elements_b": 32},
    ),
    # 338 kernels, error 9.5%, 26.7%; 53 of 290 clean excluded, 0 of 48 spilling kept
    "gfx950": RegisterModel(
        estimate={"base": 1785, "accumulators": 105, "persistent": 861, "split": 462, "split_accumulators": 27,
            "pipelined": 754, "words_a": 34, "unpipelined_a": 14, "loads_a": 54, "words_b": 51, "unpipelined_b": 41,
            "whole_a": 87, "bytes_b": 13, "elements_a": 186, "elements_b": 145, "ragged_b": 408},
        bound={"base": 5878, "split_accumulators": 65, "pipelined": 5221, "loads_a": 1712, "loads_b": 945, "whole_a":
            121, "elements_a": 227, "elements_b": 233},
    ),
    # 1651 kernels, error 11.3%, 31.4%; 195 of 1345 clean excluded, 0 of 306 spilling kept
    "mma": RegisterModel(
        estimate={"base": 2157, "accumulators": 122, "persistent": 1524, "split": 413, "words_a": 66, "words_b": 21,
            "step_a": 112, "whole_a": 12, "step_b": 68, "whole_b": 32, "bytes_b": 21, "byte_whole_b": 70,
            "byte_whole_a": 8, "elements_a": 181, "ragged_a": 48, "ragged_accumulators": 47, "elements_b": 146,
            "ragged_b": 197},
        bound={"base": 3504, "accumulators": 90, "persistent": 4292, "split_accumulators": 67, "words_a": 113,
            "loads_b": 311, "step_a": 214, "whole_a": 4, "step_b": 125, "wide_step_a": 83, "is_bytes": 1337,
            "byte_step_b": 353, "byte_whole_a": 46, "elements_a": 149, "elements_b": 227},
    ),
    # 419 kernels, error 10.1%, 27.9%; 36 of 350 clean excluded, 0 of 69 spilling kept
    "mma sm_100": RegisterModel(
        estimate={"base": 2191, "accumulators": 101, "persistent": 1377, "split": 339, "words_a": 60, "unpipelined_a":
            21, "words_b": 55, "step_a": 121, "step_b": 108, "byte_whole_b": 57, "byte_whole_a": 24, "widened_step": 29,
            "ragged_accumulators": 29, "elements_a": 157, "elements_b": 131, "ragged_b": 236},
        bound={"base": 4479, "accumulators": 121, "persistent": 5317, "split_accumulators": 28, "loads_a": 453,
            "words_b": 62, "whole_a": 2, "bytes_b": 47, "byte_whole_a": 77, "wide_whole_b": 1, "elements_a": 197,
            "ragged_a": 1059, "elements_b": 161},
    ),
    # 96 kernels, error 6.1%, 21.8%; 2 of 75 clean excluded, 0 of 21 spilling kept
    "mma sm_120": RegisterModel(
        estimate={"base": 2264, "accumulators": 116, "persistent": 1282, "unpipelined_a": 13, "loads_a": 203, "whole_a":
            37, "step_b": 151, "bytes_b": 92},
        bound={"base": 7858, "accumulators": 74, "persistent": 4363, "words_a": 25, "words_b": 16, "whole_a": 54,
            "step_b": 175, "bytes_b": 68, "wide_step_a": 66},
    ),
    # 679 kernels, error 9.4%, 27.5%; 70 of 548 clean excluded, 0 of 131 spilling kept
    "mma sm_80": RegisterModel(
        estimate={"base": 1870, "accumulators": 106, "persistent": 1608, "split": 379, "words_a": 64, "words_b": 21,
            "step_a": 158, "whole_a": 18, "step_b": 203, "whole_b": 27, "wide_step_a": 23, "bytes_b": 95, "byte_step_b":
            216, "byte_whole_b": 49, "byte_whole_a": 21, "elements_a": 198, "elements_b": 199, "ragged_b": 470},
        bound={"base": 3579, "accumulators": 69, "persistent": 2897, "split_accumulators": 77, "words_a": 84, "loads_a":
            78, "loads_b": 361, "step_a": 347, "step_b": 147, "wide_step_a": 13, "bytes_b": 3, "byte_step_b": 421,
            "byte_whole_a": 74, "elements_a": 174, "elements_b": 219, "ragged_b": 75},
    ),
    # 378 kernels, error 10.7%, 29.2%; 26 of 307 clean excluded, 0 of 71 spilling kept
    "mma sm_90": RegisterModel(
        estimate={"base": 2327, "accumulators": 138, "persistent": 1542, "split": 439, "words_a": 18, "unpipelined_a":
            1, "loads_a": 97, "words_b": 30, "whole_a": 29, "step_b": 15, "whole_b": 23, "bytes_b": 76, "byte_whole_b":
            49, "byte_whole_a": 3, "elements_a": 149, "ragged_a": 454, "ragged_accumulators": 54, "elements_b": 159},
        bound={"base": 6602, "accumulators": 70, "persistent": 3773, "split_accumulators": 19, "words_a": 70,
            "unpipelined_a": 9, "unpipelined_b": 43, "step_b": 117, "whole_b": 48, "bytes_b": 83, "is_bytes": 1461,
            "byte_whole_b": 2, "wide_step_a": 275, "wide_step_b": 31, "wide_whole_b": 13, "elements_a": 146, "ragged_a":
            1330, "ragged_accumulators": 54, "elements_b": 102},
    ),
    # 192 kernels, error 8.6%, 29.2%; 6 of 132 clean excluded, 0 of 60 spilling kept
    "tcgen05": RegisterModel(
        estimate={"base": 1104, "accumulators": 70, "persistent": 1318, "split": 56, "split_accumulators": 53,
            "loads_a": 79, "loads_b": 37, "whole_a": 50, "step_b": 60, "is_bytes": 682, "wide_step_a": 42,
            "wide_step_b": 97, "wide_whole_b": 22, "elements_a": 256, "elements_b": 477},
        bound={"base": 15540, "persistent": 5018, "split_accumulators": 71, "unpipelined_a": 16, "loads_a": 98,
            "step_b": 135, "wide_step_a": 122, "wide_step_b": 96, "elements_a": 33, "elements_b": 322, "ragged_b": 270},
    ),
    # 192 kernels, error 8.6%, 29.2%; 6 of 132 clean excluded, 0 of 60 spilling kept
    "tcgen05 sm_100": RegisterModel(
        estimate={"base": 1104, "accumulators": 70, "persistent": 1318, "split": 56, "split_accumulators": 53,
            "loads_a": 79, "loads_b": 37, "whole_a": 50, "step_b": 60, "is_bytes": 682, "wide_step_a": 42,
            "wide_step_b": 97, "wide_whole_b": 22, "elements_a": 256, "elements_b": 477},
        bound={"base": 15540, "persistent": 5018, "split_accumulators": 71, "unpipelined_a": 16, "loads_a": 98,
            "step_b": 135, "wide_step_a": 122, "wide_step_b": 96, "elements_a": 33, "elements_b": 322, "ragged_b": 270},
    ),
    # 245 kernels, error 8.1%, 27.5%; 14 of 177 clean excluded, 0 of 68 spilling kept
    "wgmma": RegisterModel(
        estimate={"base": 1983, "accumulators": 109, "persistent": 1105, "split": 407, "split_accumulators": 5,
            "unpipelined_a": 36, "loads_a": 176, "loads_b": 71, "whole_a": 26, "whole_b": 8, "is_bytes": 155,
            "byte_whole_b": 20, "wide_step_a": 35, "wide_whole_b": 36, "elements_a": 290, "ragged_a": 25, "elements_b":
            303},
        bound={"base": 4067, "accumulators": 74, "persistent": 1596, "split": 696, "split_accumulators": 12, "words_b":
            91, "unpipelined_b": 8, "whole_a": 56, "step_b": 59, "whole_b": 2, "is_bytes": 4406, "byte_step_b": 62,
            "wide_step_a": 333, "wide_whole_b": 32, "elements_a": 249, "elements_b": 114},
    ),
    # 245 kernels, error 8.1%, 27.5%; 14 of 177 clean excluded, 0 of 68 spilling kept
    "wgmma sm_90": RegisterModel(
        estimate={"base": 1983, "accumulators": 109, "persistent": 1105, "split": 407, "split_accumulators": 5,
            "unpipelined_a": 36, "loads_a": 176, "loads_b": 71, "whole_a": 26, "whole_b": 8, "is_bytes": 155,
            "byte_whole_b": 20, "wide_step_a": 35, "wide_whole_b": 36, "elements_a": 290, "ragged_a": 25, "elements_b":
            303},
        bound={"base": 4067, "accumulators": 74, "persistent": 1596, "split": 696, "split_accumulators": 12, "words_b":
            91, "unpipelined_b": 8, "whole_a": 56, "step_b": 59, "whole_b": 2, "is_bytes": 4406, "byte_step_b": 62,
            "wide_step_a": 333, "wide_whole_b": 32, "elements_a": 249, "elements_b": 114},
    ),
}
# fmt: on
