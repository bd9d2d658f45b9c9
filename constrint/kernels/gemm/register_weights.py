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
        bound={"base": 14240, "accumulators": 56, "persistent": 4956, "unpipelined_a": 119, "words_b": 21, "whole_b":
            124},
    ),
    # 84 kernels, error 8.1%, 24.3%; 2 of 76 clean excluded, 0 of 8 spilling kept
    "gfx1201": RegisterModel(
        estimate={"base": 3765, "accumulators": 74, "persistent": 649, "split": 417, "words_a": 36, "loads_a": 66,
            "words_b": 116, "whole_a": 61, "whole_b": 57, "is_bytes": 649, "byte_whole_a": 25},
        bound={"base": 8704, "accumulators": 71, "persistent": 1965, "words_a": 84, "unpipelined_a": 43, "words_b": 82,
            "unpipelined_b": 71, "is_bytes": 2509},
    ),
    # 84 kernels, error 9.4%, 43.1%; 10 of 76 clean excluded, 0 of 8 spilling kept
    "gfx908": RegisterModel(
        estimate={"base": 1827, "accumulators": 50, "persistent": 2287, "split": 492, "split_accumulators": 12,
            "words_a": 118, "words_b": 156, "whole_b": 20, "byte_whole_a": 82},
        bound={"base": 8447, "accumulators": 97, "persistent": 1980, "split": 1873, "loads_a": 94, "step_a": 164,
            "is_bytes": 3245, "byte_step_b": 494},
    ),
    # 424 kernels, error 8.6%, 29.8%; 48 of 373 clean excluded, 0 of 51 spilling kept
    "gfx90a": RegisterModel(
        estimate={"base": 1503, "accumulators": 90, "persistent": 2045, "split_accumulators": 5, "words_a": 80,
            "loads_a": 306, "loads_b": 728, "whole_a": 28, "step_b": 29, "whole_b": 55, "byte_whole_a": 18,
            "elements_a": 189, "ragged_a": 192, "elements_b": 155},
        bound={"base": 1911, "accumulators": 159, "persistent": 2306, "loads_a": 907, "words_b": 133, "loads_b": 421,
            "whole_b": 78, "byte_step_b": 18, "byte_whole_a": 103, "elements_a": 216, "elements_b": 132},
    ),
    # 453 kernels, error 10.5%, 24.2%; 88 of 409 clean excluded, 1 of 44 spilling kept
    "gfx942": RegisterModel(
        estimate={"base": 2278, "accumulators": 95, "persistent": 1340, "loads_a": 467, "words_b": 139, "loads_b": 27,
            "whole_a": 67, "whole_b": 27, "byte_whole_b": 11, "byte_whole_a": 47, "wide_step_b": 5, "wide_whole_b": 6,
            "elements_a": 200, "elements_b": 66},
        bound={"base": 2913, "accumulators": 172, "persistent": 7089, "words_b": 26, "unpipelined_b": 197, "loads_b":
            755, "whole_a": 201, "whole_b": 45, "wide_step_a": 805, "elements_a": 141, "elements_b": 97},
    ),
    # 378 kernels, error 7.1%, 25.0%; 44 of 305 clean excluded, 1 of 73 spilling kept
    "gfx950": RegisterModel(
        estimate={"base": 2068, "accumulators": 102, "persistent": 1551, "unpipelined_a": 2, "loads_a": 66, "words_b":
            67, "unpipelined_b": 25, "step_a": 48, "whole_a": 95, "bytes_b": 2, "elements_a": 169, "ragged_a": 136,
            "elements_b": 129, "ragged_b": 657},
        bound={"base": 3945, "accumulators": 129, "split_accumulators": 1, "unpipelined_b": 1, "whole_a": 147,
            "whole_b": 37, "is_bytes": 1669, "elements_a": 232, "elements_b": 143},
    ),
    # 1690 kernels, error 10.6%, 28.5%; 240 of 1306 clean excluded, 0 of 384 spilling kept
    "mma": RegisterModel(
        estimate={"base": 2208, "accumulators": 105, "persistent": 1273, "split": 114, "words_a": 69, "words_b": 10,
            "step_a": 146, "whole_a": 14, "step_b": 90, "whole_b": 39, "wide_step_a": 9, "bytes_b": 62, "byte_whole_b":
            31, "byte_whole_a": 2, "ragged_accumulators": 22, "elements_a": 168, "ragged_a": 120, "elements_b": 211},
        bound={"base": 4325, "accumulators": 133, "persistent": 5929, "split_accumulators": 13, "words_a": 92,
            "unpipelined_a": 26, "words_b": 42, "whole_a": 26, "step_b": 167, "wide_step_a": 69, "wide_whole_b": 19,
            "bytes_b": 81, "byte_step_b": 215, "byte_whole_a": 83, "elements_a": 188, "elements_b": 239, "ragged_b":
            256},
    ),
    # 297 kernels, error 10.0%, 26.5%; 30 of 236 clean excluded, 0 of 61 spilling kept
    "mma sm_100": RegisterModel(
        estimate={"base": 2045, "accumulators": 99, "persistent": 1376, "split_accumulators": 3, "words_a": 36,
            "unpipelined_a": 43, "words_b": 18, "step_a": 146, "whole_a": 19, "step_b": 86, "whole_b": 23, "bytes_b":
            57, "is_bytes": 225, "byte_whole_a": 17, "widened_step": 2, "elements_a": 140, "ragged_a": 580,
            "ragged_accumulators": 4, "elements_b": 168},
        bound={"base": 5984, "accumulators": 115, "persistent": 2198, "split": 1, "words_a": 82, "unpipelined_a": 26,
            "words_b": 52, "step_a": 46, "step_b": 39, "bytes_b": 60, "byte_whole_a": 17, "elements_a": 172,
            "elements_b": 165},
    ),
    # 96 kernels, error 6.1%, 21.8%; 2 of 75 clean excluded, 0 of 21 spilling kept
    "mma sm_120": RegisterModel(
        estimate={"base": 2264, "accumulators": 116, "persistent": 1282, "unpipelined_a": 13, "loads_a": 203, "whole_a":
            37, "step_b": 151, "bytes_b": 92},
        bound={"base": 5438, "accumulators": 82, "persistent": 4786, "words_a": 25, "words_b": 15, "whole_a": 75,
            "step_b": 236, "bytes_b": 75, "wide_step_a": 51},
    ),
    # 747 kernels, error 8.7%, 26.7%; 87 of 567 clean excluded, 0 of 180 spilling kept
    "mma sm_80": RegisterModel(
        estimate={"base": 2132, "accumulators": 100, "persistent": 1396, "split": 139, "split_accumulators": 2,
            "words_a": 73, "step_a": 131, "whole_a": 13, "step_b": 188, "whole_b": 47, "wide_step_a": 29, "bytes_b":
            125, "byte_step_b": 243, "byte_whole_b": 19, "ragged_accumulators": 13, "elements_a": 183, "elements_b":
            208, "ragged_b": 182},
        bound={"base": 3277, "accumulators": 116, "persistent": 5323, "split": 81, "words_a": 91, "unpipelined_a": 31,
            "loads_b": 130, "step_a": 58, "whole_a": 33, "step_b": 311, "wide_step_a": 63, "bytes_b": 91, "is_bytes":
            457, "byte_step_b": 181, "byte_whole_a": 87, "elements_a": 206, "elements_b": 196, "ragged_b": 516},
    ),
    # 471 kernels, error 8.9%, 25.1%; 48 of 363 clean excluded, 0 of 108 spilling kept
    "mma sm_90": RegisterModel(
        estimate={"base": 2570, "accumulators": 126, "persistent": 975, "words_a": 60, "words_b": 53, "step_a": 55,
            "whole_a": 18, "step_b": 7, "bytes_b": 14, "byte_whole_b": 86, "widened_step": 11, "ragged_accumulators":
            34, "elements_a": 186, "ragged_a": 302, "elements_b": 204},
        bound={"base": 4674, "accumulators": 72, "persistent": 4459, "split": 19, "split_accumulators": 3, "words_a":
            77, "unpipelined_a": 50, "loads_a": 16, "words_b": 51, "unpipelined_b": 19, "step_b": 257, "whole_b": 2,
            "byte_step_b": 27, "byte_whole_b": 100, "wide_step_a": 57, "wide_whole_b": 60, "ragged_accumulators": 50,
            "elements_a": 139, "ragged_a": 1548, "elements_b": 175},
    ),
    # 114 kernels, error 7.5%, 32.0%; 13 of 99 clean excluded, 0 of 15 spilling kept
    "tcgen05": RegisterModel(
        estimate={"base": 1648, "accumulators": 84, "persistent": 1464, "split_accumulators": 36, "loads_b": 26,
            "whole_a": 60, "step_b": 20, "is_bytes": 96, "byte_step_b": 36, "wide_step_a": 212, "wide_step_b": 42,
            "wide_whole_b": 20, "elements_a": 196},
        bound={"base": 10231, "accumulators": 31, "split": 354, "split_accumulators": 23, "loads_b": 32, "step_a": 818,
            "whole_b": 5, "byte_whole_b": 18, "wide_step_b": 28, "wide_whole_b": 10, "elements_a": 44},
    ),
    # 114 kernels, error 7.5%, 32.0%; 13 of 99 clean excluded, 0 of 15 spilling kept
    "tcgen05 sm_100": RegisterModel(
        estimate={"base": 1648, "accumulators": 84, "persistent": 1464, "split_accumulators": 36, "loads_b": 26,
            "whole_a": 60, "step_b": 20, "is_bytes": 96, "byte_step_b": 36, "wide_step_a": 212, "wide_step_b": 42,
            "wide_whole_b": 20, "elements_a": 196},
        bound={"base": 10231, "accumulators": 31, "split": 354, "split_accumulators": 23, "loads_b": 32, "step_a": 818,
            "whole_b": 5, "byte_whole_b": 18, "wide_step_b": 28, "wide_whole_b": 10, "elements_a": 44},
    ),
    # 241 kernels, error 7.5%, 22.9%; 25 of 188 clean excluded, 0 of 53 spilling kept
    "wgmma": RegisterModel(
        estimate={"base": 2168, "accumulators": 104, "persistent": 1008, "split": 122, "split_accumulators": 1,
            "unpipelined_a": 44, "loads_a": 199, "words_b": 32, "step_a": 3, "whole_a": 10, "whole_b": 8, "bytes_b": 3,
            "is_bytes": 49, "byte_whole_b": 25, "wide_step_a": 40, "wide_whole_b": 31, "elements_a": 277, "ragged_a":
            366, "elements_b": 212},
        bound={"base": 3740, "accumulators": 84, "persistent": 1574, "split": 2914, "split_accumulators": 9, "words_a":
            53, "unpipelined_a": 8, "words_b": 49, "step_a": 358, "whole_a": 6, "is_bytes": 3478, "byte_step_b": 22,
            "wide_step_a": 123, "wide_whole_b": 37, "elements_a": 114, "elements_b": 219},
    ),
    # 241 kernels, error 7.5%, 22.9%; 25 of 188 clean excluded, 0 of 53 spilling kept
    "wgmma sm_90": RegisterModel(
        estimate={"base": 2168, "accumulators": 104, "persistent": 1008, "split": 122, "split_accumulators": 1,
            "unpipelined_a": 44, "loads_a": 199, "words_b": 32, "step_a": 3, "whole_a": 10, "whole_b": 8, "bytes_b": 3,
            "is_bytes": 49, "byte_whole_b": 25, "wide_step_a": 40, "wide_whole_b": 31, "elements_a": 277, "ragged_a":
            366, "elements_b": 212},
        bound={"base": 3740, "accumulators": 84, "persistent": 1574, "split": 2914, "split_accumulators": 9, "words_a":
            53, "unpipelined_a": 8, "words_b": 49, "step_a": 358, "whole_a": 6, "is_bytes": 3478, "byte_step_b": 22,
            "wide_step_a": 123, "wide_whole_b": 37, "elements_a": 114, "elements_b": 219},
    ),
}
# fmt: on
