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
        bound={"base": 5740, "accumulators": 72, "persistent": 6297, "pipelined": 6911, "unpipelined_a": 814, "words_b":
            77, "unpipelined_b": 89, "whole_b": 81},
    ),
    # 84 kernels, error 8.3%, 23.9%; 1 of 76 clean excluded, 0 of 8 spilling kept
    "gfx1201": RegisterModel(
        estimate={"base": 2802, "accumulators": 78, "persistent": 867, "split": 417, "pipelined": 1094, "words_a": 50,
            "words_b": 75, "unpipelined_b": 43, "whole_a": 45, "whole_b": 87, "is_bytes": 258, "byte_whole_a": 44},
        bound={"base": 12684, "accumulators": 66, "persistent": 1482, "pipelined": 1912, "words_a": 4, "unpipelined_a":
            108, "words_b": 65, "unpipelined_b": 33},
    ),
    # 49 kernels, error 8.4%, 46.7%; 1 of 47 clean excluded, 0 of 2 spilling kept
    "gfx908": RegisterModel(
        estimate={"base": 989, "accumulators": 62, "persistent": 1728, "split_accumulators": 4, "pipelined": 1371,
            "words_a": 109, "words_b": 106, "unpipelined_b": 94, "step_b": 20, "whole_b": 26, "byte_whole_a": 83},
        bound={"base": 2850, "accumulators": 50, "split": 1923, "pipelined": 5709, "unpipelined_a": 5, "loads_b": 129,
            "step_a": 677, "step_b": 373, "is_bytes": 3088},
    ),
    # 406 kernels, error 10.3%, 31.5%; 32 of 385 clean excluded, 0 of 21 spilling kept
    "gfx90a": RegisterModel(
        estimate={"base": 1454, "accumulators": 93, "persistent": 1237, "split_accumulators": 37, "pipelined": 971,
            "words_a": 9, "loads_a": 571, "words_b": 191, "whole_a": 5, "whole_b": 37, "elements_a": 248, "elements_b":
            27},
        bound={"accumulators": 43, "persistent": 532, "split": 4184, "split_accumulators": 101, "pipelined": 4489,
            "words_a": 333, "words_b": 65, "step_a": 371, "whole_a": 249, "step_b": 547, "is_bytes": 1101, "elements_a":
            76, "elements_b": 77, "ragged_b": 156},
    ),
    # 431 kernels, error 8.3%, 22.4%; 30 of 413 clean excluded, 0 of 18 spilling kept
    "gfx942": RegisterModel(
        estimate={"base": 1143, "accumulators": 95, "persistent": 1458, "split": 754, "pipelined": 1286, "words_a": 27,
            "loads_a": 342, "words_b": 99, "loads_b": 268, "whole_a": 94, "whole_b": 31, "byte_whole_a": 24,
            "elements_a": 187, "ragged_a": 23, "elements_b": 102},
        bound={"base": 11194, "accumulators": 185, "split": 2882, "words_a": 67, "loads_a": 426, "words_b": 173,
            "unpipelined_b": 265, "elements_a": 91, "elements_b": 18},
    ),
    # 338 kernels, error 9.5%, 26.7%; 56 of 290 clean excluded, 0 of 48 spilling kept
    "gfx950": RegisterModel(
        estimate={"base": 1785, "accumulators": 105, "persistent": 861, "split": 462, "split_accumulators": 27,
            "pipelined": 754, "words_a": 34, "unpipelined_a": 14, "loads_a": 54, "words_b": 51, "unpipelined_b": 41,
            "whole_a": 87, "bytes_b": 13, "elements_a": 186, "elements_b": 145, "ragged_b": 408},
        bound={"base": 5187, "split_accumulators": 70, "pipelined": 6776, "loads_a": 2079, "loads_b": 985, "whole_a":
            122, "elements_a": 251, "elements_b": 251},
    ),
    # 1651 kernels, error 11.3%, 31.4%; 268 of 1345 clean excluded, 0 of 306 spilling kept
    "mma": RegisterModel(
        estimate={"base": 2157, "accumulators": 122, "persistent": 1524, "split": 413, "words_a": 66, "words_b": 21,
            "step_a": 112, "whole_a": 12, "step_b": 68, "whole_b": 32, "bytes_b": 21, "byte_whole_b": 70,
            "byte_whole_a": 8, "elements_a": 181, "ragged_a": 48, "ragged_accumulators": 47, "elements_b": 146,
            "ragged_b": 197},
        bound={"base": 2381, "accumulators": 80, "persistent": 4329, "split_accumulators": 74, "words_a": 140,
            "loads_a": 9, "loads_b": 364, "step_a": 320, "whole_a": 13, "step_b": 179, "wide_step_a": 11, "is_bytes":
            467, "byte_step_b": 537, "byte_whole_a": 41, "elements_a": 162, "elements_b": 267},
    ),
    # 419 kernels, error 10.1%, 27.9%; 45 of 350 clean excluded, 0 of 69 spilling kept
    "mma sm_100": RegisterModel(
        estimate={"base": 2191, "accumulators": 101, "persistent": 1377, "split": 339, "words_a": 60, "unpipelined_a":
            21, "words_b": 55, "step_a": 121, "step_b": 108, "byte_whole_b": 57, "byte_whole_a": 24, "widened_step": 29,
            "ragged_accumulators": 29, "elements_a": 157, "elements_b": 131, "ragged_b": 236},
        bound={"base": 3878, "accumulators": 130, "persistent": 5763, "split_accumulators": 47, "loads_a": 596,
            "words_b": 58, "bytes_b": 55, "byte_whole_a": 94, "wide_whole_b": 8, "ragged_accumulators": 8, "elements_a":
            213, "ragged_a": 1120, "elements_b": 169},
    ),
    # 96 kernels, error 6.1%, 21.8%; 2 of 75 clean excluded, 0 of 21 spilling kept
    "mma sm_120": RegisterModel(
        estimate={"base": 2264, "accumulators": 116, "persistent": 1282, "unpipelined_a": 13, "loads_a": 203, "whole_a":
            37, "step_b": 151, "bytes_b": 92},
        bound={"base": 3836, "accumulators": 86, "persistent": 5232, "words_a": 24, "unpipelined_a": 9, "words_b": 5,
            "whole_a": 92, "step_b": 323, "bytes_b": 74},
    ),
    # 679 kernels, error 9.4%, 27.5%; 89 of 548 clean excluded, 0 of 131 spilling kept
    "mma sm_80": RegisterModel(
        estimate={"base": 1870, "accumulators": 106, "persistent": 1608, "split": 379, "words_a": 64, "words_b": 21,
            "step_a": 158, "whole_a": 18, "step_b": 203, "whole_b": 27, "wide_step_a": 23, "bytes_b": 95, "byte_step_b":
            216, "byte_whole_b": 49, "byte_whole_a": 21, "elements_a": 198, "elements_b": 199, "ragged_b": 470},
        bound={"base": 1414, "accumulators": 40, "persistent": 3885, "split_accumulators": 76, "words_a": 120,
            "loads_a": 20, "loads_b": 574, "step_a": 546, "step_b": 217, "byte_step_b": 699, "byte_whole_a": 22,
            "elements_a": 168, "elements_b": 266, "ragged_b": 549},
    ),
    # 378 kernels, error 10.7%, 29.2%; 28 of 307 clean excluded, 0 of 71 spilling kept
    "mma sm_90": RegisterModel(
        estimate={"base": 2327, "accumulators": 138, "persistent": 1542, "split": 439, "words_a": 18, "unpipelined_a":
            1, "loads_a": 97, "words_b": 30, "whole_a": 29, "step_b": 15, "whole_b": 23, "bytes_b": 76, "byte_whole_b":
            49, "byte_whole_a": 3, "elements_a": 149, "ragged_a": 454, "ragged_accumulators": 54, "elements_b": 159},
        bound={"base": 6258, "accumulators": 83, "persistent": 3833, "split_accumulators": 26, "words_a": 17,
            "unpipelined_a": 8, "loads_a": 216, "unpipelined_b": 56, "step_b": 68, "whole_b": 62, "bytes_b": 78,
            "is_bytes": 514, "byte_step_b": 86, "wide_step_a": 276, "wide_step_b": 44, "wide_whole_b": 20, "elements_a":
            147, "ragged_a": 1458, "ragged_accumulators": 64, "elements_b": 109},
    ),
    # 192 kernels, error 8.6%, 29.2%; 10 of 132 clean excluded, 0 of 60 spilling kept
    "tcgen05": RegisterModel(
        estimate={"base": 1104, "accumulators": 70, "persistent": 1318, "split": 56, "split_accumulators": 53,
            "loads_a": 79, "loads_b": 37, "whole_a": 50, "step_b": 60, "is_bytes": 682, "wide_step_a": 42,
            "wide_step_b": 97, "wide_whole_b": 22, "elements_a": 256, "elements_b": 477},
        bound={"base": 10108, "persistent": 7997, "split_accumulators": 111, "unpipelined_a": 10, "loads_a": 112,
            "step_a": 43, "whole_a": 18, "step_b": 204, "byte_step_b": 5, "wide_step_a": 227, "wide_step_b": 136,
            "elements_a": 51, "elements_b": 513},
    ),
    # 192 kernels, error 8.6%, 29.2%; 10 of 132 clean excluded, 0 of 60 spilling kept
    "tcgen05 sm_100": RegisterModel(
        estimate={"base": 1104, "accumulators": 70, "persistent": 1318, "split": 56, "split_accumulators": 53,
            "loads_a": 79, "loads_b": 37, "whole_a": 50, "step_b": 60, "is_bytes": 682, "wide_step_a": 42,
            "wide_step_b": 97, "wide_whole_b": 22, "elements_a": 256, "elements_b": 477},
        bound={"base": 10108, "persistent": 7997, "split_accumulators": 111, "unpipelined_a": 10, "loads_a": 112,
            "step_a": 43, "whole_a": 18, "step_b": 204, "byte_step_b": 5, "wide_step_a": 227, "wide_step_b": 136,
            "elements_a": 51, "elements_b": 513},
    ),
    # 245 kernels, error 8.1%, 27.5%; 19 of 177 clean excluded, 0 of 68 spilling kept
    "wgmma": RegisterModel(
        estimate={"base": 1983, "accumulators": 109, "persistent": 1105, "split": 407, "split_accumulators": 5,
            "unpipelined_a": 36, "loads_a": 176, "loads_b": 71, "whole_a": 26, "whole_b": 8, "is_bytes": 155,
            "byte_whole_b": 20, "wide_step_a": 35, "wide_whole_b": 36, "elements_a": 290, "ragged_a": 25, "elements_b":
            303},
        bound={"base": 2734, "accumulators": 75, "persistent": 1098, "split": 2257, "split_accumulators": 3, "words_a":
            10, "words_b": 50, "unpipelined_b": 60, "whole_a": 77, "step_b": 121, "is_bytes": 5703, "wide_step_a": 306,
            "wide_whole_b": 48, "elements_a": 271, "elements_b": 78},
    ),
    # 245 kernels, error 8.1%, 27.5%; 19 of 177 clean excluded, 0 of 68 spilling kept
    "wgmma sm_90": RegisterModel(
        estimate={"base": 1983, "accumulators": 109, "persistent": 1105, "split": 407, "split_accumulators": 5,
            "unpipelined_a": 36, "loads_a": 176, "loads_b": 71, "whole_a": 26, "whole_b": 8, "is_bytes": 155,
            "byte_whole_b": 20, "wide_step_a": 35, "wide_whole_b": 36, "elements_a": 290, "ragged_a": 25, "elements_b":
            303},
        bound={"base": 2734, "accumulators": 75, "persistent": 1098, "split": 2257, "split_accumulators": 3, "words_a":
            10, "words_b": 50, "unpipelined_b": 60, "whole_a": 77, "step_b": 121, "is_bytes": 5703, "wide_step_a": 306,
            "wide_whole_b": 48, "elements_a": 271, "elements_b": 78},
    ),
}
# fmt: on
