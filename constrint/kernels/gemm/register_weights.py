"""Weights of the register estimate and bound, written by `benchmarks/fit_gemm_registers.py`.

Do not edit: compile a new sample and fit again. Compiled by Triton 3.9.0 and 3.6.0; the comments give the median and
the 90th percentile of the estimate's relative error, clean kernels that the bound excludes, spilling ones it does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from constrint.kernels.gemm.registers import RegisterModel

# fmt: off
REGISTER_MODELS: Mapping[str, RegisterModel] = {
    # 9 counts, error 3.3%, 26.2%; 4 of 11 clean excluded, 0 of 28 spilling kept
    "fma": RegisterModel(
        estimate={"accumulators": 372, "base": 1681, "operands": 13},
        bound={},
        margins=(156, 156),
        ragged_margins=(156, 156),
    ),
    # 64 counts, error 3.1%, 24.8%; 13 of 66 clean excluded, 0 of 17 spilling kept
    "gfx1 wmma 16": RegisterModel(
        estimate={"accumulators": 85, "base": 1701, "end_accumulators": 60, "end_base": 2508, "end_partials": 76,
            "end_persistent": 4825, "end_persistent_accumulators": 11, "end_split": 2865, "end_split_accumulators": 75,
            "loads_a": 316, "narrow_a": 271, "persistent_whole_a": 78, "persistent_whole_b": 127, "pipelined": 724,
            "pipelined_a": 79, "pipelined_b": 107, "ragged_a": 21, "ragged_b": 21, "step_b": 60, "unpipelined_a": 66,
            "unpipelined_b": 132, "whole_a": 95},
        bound={},
        margins=(145, 150),
        ragged_margins=(156, 156),
    ),
    # 12 counts, error 0.6%, 1.5%; 4 of 13 clean excluded, 0 of 6 spilling kept
    "gfx1 wmma fp8": RegisterModel(
        estimate={"accumulators": 74, "base": 2296, "end_accumulators": 43, "end_base": 1661, "end_partials": 118,
            "end_persistent": 1081, "end_ragged": 457, "end_ragged_accumulators": 19, "end_split": 477,
            "end_split_accumulators": 11, "gathered_step_b": 6, "loads_a": 313, "loads_b": 90, "narrow_b": 325,
            "persistent": 1756, "persistent_loads_a": 73, "persistent_loads_b": 493, "pipelined": 147, "pipelined_b":
            10, "step_b": 319},
        bound={"unpipelined_a": 480},
        margins=(156, 156),
        ragged_margins=(156, 156),
    ),
    # 34 counts, error 1.6%, 12.3%; 9 of 35 clean excluded, 0 of 7 spilling kept
    "gfx1 wmma int8": RegisterModel(
        estimate={"accumulators": 110, "base": 2579, "end_accumulators": 21, "end_base": 1495, "end_partials": 102,
            "end_split": 2242, "end_split_accumulators": 30, "loads_a": 33, "narrow_a": 80, "narrow_b": 63,
            "persistent_whole_b": 115, "pipelined": 163, "pipelined_b": 95, "ragged_a": 779, "step_a": 103, "step_b":
            26, "unpipelined_a": 186, "unpipelined_b": 116, "whole_a": 70},
        bound={},
        margins=(156, 156),
        ragged_margins=(156, 156),
    ),
    # 908 counts, error 9.7%, 39.1%; 176 of 1062 clean excluded, 0 of 79 spilling kept
    "gfx9 mfma 16": RegisterModel(
        estimate={"accumulators": 92, "base": 2018, "end_accumulators": 146, "end_base": 680, "end_partials": 93,
            "end_persistent": 2618, "end_ragged_accumulators": 5, "end_split": 2538, "end_split_accumulators": 31,
            "loads_a": 171, "loads_b": 86, "narrow_a": 194, "narrow_b": 118, "persistent": 370,
            "persistent_accumulators": 14, "persistent_loads_a": 22, "persistent_loads_b": 133, "persistent_narrow_a":
            175, "pipelined": 799, "pipelined_a": 75, "pipelined_b": 100, "unpipelined_a": 32, "unpipelined_b": 128,
            "whole_a": 68},
        bound={"accumulators": 74, "end_accumulators": 240, "end_partials": 333, "end_split": 9728, "narrow_b": 537,
            "pipelined": 1187, "ragged_a": 554, "step_a": 1180, "unpipelined_b": 185},
        margins=(97, 101),
        ragged_margins=(179, 211),
    ),
    # 236 counts, error 9.6%, 33.3%; 55 of 266 clean excluded, 0 of 26 spilling kept
    "gfx9 mfma fp8": RegisterModel(
        estimate={"accumulators": 116, "base": 1171, "end_accumulators": 18, "end_base": 2725, "end_partials": 101,
            "end_ragged": 245, "end_ragged_accumulators": 27, "end_split": 678, "end_split_accumulators": 5,
            "gathered_step_b": 23, "loads_a": 34, "loads_b": 242, "narrow_a": 155, "narrow_b": 100, "persistent": 500,
            "persistent_loads_a": 15, "persistent_narrow_a": 40, "pipelined": 1259, "pipelined_a": 83, "pipelined_b":
            27, "ragged_a": 796, "unpipelined_a": 164, "unpipelined_b": 90, "whole_a": 73},
        bound={"accumulators": 152, "end_partials": 392, "end_split": 10035, "end_split_accumulators": 157,
            "persistent_accumulators": 44, "pipelined_a": 235, "unpipelined_a": 754, "unpipelined_b": 2012, "whole_a":
            117},
        margins=(107, 300),
        ragged_margins=(156, 300),
    ),
    # 443 counts, error 11.3%, 37.9%; 46 of 518 clean excluded, 0 of 46 spilling kept
    "gfx9 mfma int8": RegisterModel(
        estimate={"accumulators": 56, "base": 1701, "end_accumulators": 156, "end_base": 980, "end_partials": 12,
            "end_persistent": 7, "end_persistent_accumulators": 3, "end_split": 1629, "end_split_accumulators": 44,
            "gathered_step_b": 76, "loads_a": 187, "loads_b": 147, "narrow_a": 215, "narrow_b": 144,
            "persistent_accumulators": 41, "persistent_loads_a": 134, "persistent_narrow_b": 186, "persistent_whole_b":
            5, "pipelined": 748, "pipelined_a": 59, "pipelined_b": 90, "step_b": 74, "unpipelined_a": 76,
            "unpipelined_b": 118, "whole_a": 97},
        bound={"end_partials": 213, "end_persistent_accumulators": 240, "narrow_a": 311, "narrow_b": 325},
        margins=(131, 116),
        ragged_margins=(136, 198),
    ),
    # 106 counts, error 7.8%, 30.8%; 17 of 122 clean excluded, 0 of 8 spilling kept
    "gfx9 mfma tf32": RegisterModel(
        estimate={"accumulators": 109, "base": 1259, "end_accumulators": 21, "end_base": 2916, "end_partials": 41,
            "end_persistent": 340, "end_persistent_accumulators": 15, "end_split": 2356, "end_split_accumulators": 14,
            "gathered_whole_b": 42, "loads_a": 39, "loads_b": 243, "persistent_whole_b": 6, "pipelined": 781,
            "pipelined_a": 101, "pipelined_b": 112, "ragged_a": 65, "ragged_b": 65, "unpipelined_a": 48,
            "unpipelined_b": 98, "whole_a": 95, "whole_b": 11},
        bound={},
        margins=(193, 204),
        ragged_margins=(156, 156),
    ),
    # 420 counts, error 7.1%, 20.4%; 68 of 514 clean excluded, 0 of 91 spilling kept
    "sm_8x mma 16": RegisterModel(
        estimate={"accumulators": 119, "base": 1776, "end_accumulators": 56, "end_base": 1381,
            "end_ragged_accumulators": 58, "end_split": 2021, "end_split_accumulators": 93, "loads_a": 338, "loads_b":
            259, "narrow_a": 258, "narrow_b": 173, "persistent": 726, "persistent_loads_a": 96, "persistent_loads_b":
            159, "persistent_narrow_a": 3, "persistent_narrow_b": 223, "pipelined": 537, "ragged_a": 202, "ragged_b":
            204, "step_a": 163, "step_b": 124, "unpipelined_a": 37, "whole_a": 5},
        bound={"accumulators": 84, "persistent_accumulators": 44, "step_a": 358, "step_b": 530},
        margins=(103, 156),
        ragged_margins=(138, 156),
    ),
    # 165 counts, error 8.6%, 25.9%; 58 of 215 clean excluded, 0 of 84 spilling kept
    "sm_8x mma int8": RegisterModel(
        estimate={"accumulators": 53, "base": 546, "end_accumulators": 92, "end_base": 1507, "end_persistent": 5054,
            "end_persistent_accumulators": 48, "end_ragged": 3259, "end_ragged_accumulators": 75, "end_split": 1492,
            "end_split_accumulators": 162, "gathered_step_a": 273, "gathered_step_b": 406, "gathered_whole_b": 115,
            "loads_a": 218, "loads_b": 297, "narrow_a": 136, "narrow_b": 150, "persistent": 1257, "persistent_loads_b":
            18, "persistent_narrow_b": 55, "pipelined": 538, "step_a": 228, "step_b": 283, "unpipelined_a": 99,
            "unpipelined_b": 34, "whole_b": 31},
        bound={"narrow_b": 478},
        margins=(116, 156),
        ragged_margins=(146, 156),
    ),
    # 192 counts, error 6.2%, 20.8%; 26 of 238 clean excluded, 0 of 38 spilling kept
    "sm_8x mma tf32": RegisterModel(
        estimate={"accumulators": 119, "base": 745, "end_accumulators": 142, "end_base": 3740, "end_persistent": 520,
            "end_ragged": 214, "end_ragged_accumulators": 54, "end_split": 8, "end_split_accumulators": 103,
            "gathered_step_a": 143, "gathered_step_b": 209, "gathered_whole_b": 4, "loads_a": 331, "loads_b": 185,
            "persistent": 876, "persistent_accumulators": 13, "persistent_loads_a": 4, "persistent_loads_b": 118,
            "persistent_whole_b": 18, "pipelined": 1857, "ragged_a": 234, "ragged_b": 275, "unpipelined_a": 178,
            "unpipelined_b": 1},
        bound={"end_split": 5730, "end_split_accumulators": 301, "gathered_whole_b": 98, "persistent": 2295,
            "persistent_accumulators": 279, "persistent_loads_b": 57, "persistent_whole_b": 40},
        margins=(99, 116),
        ragged_margins=(138, 156),
    ),
    # 267 counts, error 7.5%, 22.2%; 38 of 310 clean excluded, 0 of 62 spilling kept
    "sm_9x mma 16": RegisterModel(
        estimate={"accumulators": 111, "base": 2498, "end_accumulators": 135, "end_base": 2507,
            "end_persistent_accumulators": 20, "end_ragged_accumulators": 60, "end_split": 801,
            "end_split_accumulators": 32, "loads_a": 239, "loads_b": 228, "narrow_a": 253, "narrow_b": 133,
            "persistent_loads_a": 66, "persistent_loads_b": 360, "ragged_a": 200, "ragged_b": 186, "step_b": 85,
            "unpipelined_a": 56, "whole_a": 15, "whole_b": 4},
        bound={"end_split_accumulators": 239, "loads_a": 781, "ragged_a": 5610},
        margins=(135, 123),
        ragged_margins=(162, 156),
    ),
    # 256 counts, error 6.0%, 14.9%; 38 of 308 clean excluded, 0 of 16 spilling kept
    "sm_9x mma descriptor 16": RegisterModel(
        estimate={"accumulators": 105, "base": 1065, "end_split": 3, "persistent_whole_a": 3, "persistent_whole_b": 2,
            "pipelined": 1067, "step_b": 47, "whole_a": 101, "whole_b": 4},
        bound={"persistent": 2422, "step_b": 805, "whole_b": 38},
        margins=(123, 156),
        ragged_margins=(156, 156),
    ),
    # 26 counts, error 2.5%, 6.0%; 4 of 26 clean excluded, 0 of 0 spilling kept
    "sm_9x mma descriptor fp8": RegisterModel(
        estimate={"accumulators": 49, "base": 70, "end_accumulators": 85, "end_base": 2605, "end_persistent": 419,
            "end_split_accumulators": 71, "persistent": 70, "persistent_whole_a": 42, "pipelined": 120, "step_a": 109,
            "step_b": 445, "whole_a": 25},
        bound={},
        margins=(156, 156),
        ragged_margins=(156, 156),
    ),
    # 170 counts, error 7.5%, 20.0%; 2 of 190 clean excluded, 0 of 1 spilling kept
    "sm_9x mma descriptor int8": RegisterModel(
        estimate={"accumulators": 106, "base": 1166, "end_accumulators": 33, "end_base": 923, "end_persistent": 11,
            "end_split": 2174, "end_split_accumulators": 82, "persistent": 169, "persistent_accumulators": 17,
            "persistent_whole_b": 5, "pipelined": 1161, "whole_a": 11, "whole_b": 20},
        bound={},
        margins=(125, 136),
        ragged_margins=(156, 156),
    ),
    # 188 counts, error 5.5%, 19.3%; 25 of 233 clean excluded, 0 of 2 spilling kept
    "sm_9x mma descriptor tf32": RegisterModel(
        estimate={"accumulators": 150, "base": 1041, "end_base": 2709, "end_persistent": 999, "end_split": 240,
            "end_split_accumulators": 136, "persistent": 642, "pipelined": 1043, "step_b": 10, "whole_b": 3},
        bound={"step_b": 478},
        margins=(121, 130),
        ragged_margins=(156, 156),
    ),
    # 130 counts, error 6.0%, 15.7%; 12 of 158 clean excluded, 0 of 10 spilling kept
    "sm_9x mma descriptor widened fp8": RegisterModel(
        estimate={"accumulators": 89, "base": 1254, "end_accumulators": 49, "end_base": 1087, "end_persistent": 1,
            "end_persistent_accumulators": 2, "end_split": 2132, "end_split_accumulators": 101,
            "persistent_accumulators": 13, "pipelined": 1212, "step_b": 118, "whole_a": 100, "whole_b": 23},
        bound={"persistent_accumulators": 181, "persistent_whole_a": 93, "persistent_whole_b": 24},
        margins=(118, 156),
        ragged_margins=(156, 156),
    ),
    # 9 counts, error 0.0%, 1.0%; 2 of 9 clean excluded, 0 of 1 spilling kept
    "sm_9x mma fp8": RegisterModel(
        estimate={"accumulators": 73, "end_base": 3, "end_ragged": 51, "end_ragged_accumulators": 1, "gathered_step_a":
            98, "gathered_step_b": 159, "gathered_whole_a": 51, "gathered_whole_b": 15, "loads_b": 552, "narrow_a": 194,
            "narrow_b": 1527, "ragged_a": 850, "ragged_b": 1565, "step_a": 94, "step_b": 142, "unpipelined_a": 303,
            "unpipelined_b": 38, "whole_a": 51, "whole_b": 15},
        bound={},
        margins=(156, 156),
        ragged_margins=(156, 156),
    ),
    # 108 counts, error 5.8%, 23.5%; 34 of 137 clean excluded, 0 of 30 spilling kept
    "sm_9x mma int8": RegisterModel(
        estimate={"accumulators": 36, "base": 1546, "end_accumulators": 89, "end_base": 620, "end_ragged": 3006,
            "end_ragged_accumulators": 136, "end_split": 831, "end_split_accumulators": 160, "gathered_step_a": 82,
            "gathered_step_b": 98, "gathered_whole_b": 185, "loads_a": 118, "narrow_a": 43, "narrow_b": 120,
            "persistent_loads_a": 193, "persistent_whole_b": 108, "ragged_a": 232, "ragged_b": 916, "step_a": 203,
            "step_b": 91, "unpipelined_a": 1, "unpipelined_b": 132, "whole_b": 51},
        bound={"narrow_a": 44, "persistent_narrow_a": 44, "unpipelined_a": 781},
        margins=(136, 156),
        ragged_margins=(157, 158),
    ),
    # 130 counts, error 5.1%, 22.7%; 23 of 156 clean excluded, 0 of 34 spilling kept
    "sm_9x mma tf32": RegisterModel(
        estimate={"accumulators": 98, "base": 2504, "end_accumulators": 172, "end_base": 1461, "end_persistent": 616,
            "end_persistent_accumulators": 171, "end_ragged": 1391, "end_ragged_accumulators": 53, "end_split": 1567,
            "end_split_accumulators": 35, "gathered_whole_a": 3, "gathered_whole_b": 8, "loads_a": 321, "loads_b": 146,
            "persistent_loads_a": 29, "persistent_loads_b": 207, "pipelined": 377, "step_b": 107, "unpipelined_a": 42},
        bound={"gathered_whole_a": 57, "loads_b": 323, "ragged_a": 2601, "unpipelined_a": 229},
        margins=(137, 115),
        ragged_margins=(156, 156),
    ),
    # 131 counts, error 6.2%, 21.9%; 25 of 147 clean excluded, 0 of 25 spilling kept
    "sm_9x mma widened fp8": RegisterModel(
        estimate={"accumulators": 81, "base": 2197, "end_accumulators": 12, "end_base": 180, "end_persistent": 3851,
            "end_persistent_accumulators": 121, "end_ragged": 3860, "end_ragged_accumulators": 105, "gathered_step_b":
            78, "loads_a": 212, "loads_b": 173, "narrow_a": 234, "narrow_b": 43, "persistent": 5,
            "persistent_accumulators": 22, "persistent_loads_b": 307, "persistent_narrow_a": 109, "persistent_narrow_b":
            55, "ragged_a": 833, "ragged_b": 109, "step_a": 190, "step_b": 67, "unpipelined_a": 15, "unpipelined_b": 72,
            "whole_a": 21, "whole_b": 80},
        bound={},
        margins=(137, 156),
        ragged_margins=(156, 156),
    ),
    # 35 counts, error 2.5%, 15.6%; 12 of 43 clean excluded, 0 of 4 spilling kept
    "sm_9x tcgen05 16": RegisterModel(
        estimate={"base": 1236, "end_accumulators": 114, "end_base": 1167, "end_persistent_accumulators": 66,
            "end_ragged": 2276, "end_split": 705, "end_split_accumulators": 56, "loads_a": 464, "loads_b": 316,
            "persistent": 807, "persistent_loads_a": 352, "pipelined": 781, "ragged_a": 99, "ragged_b": 99},
        bound={"end_ragged": 24140, "end_ragged_accumulators": 7, "end_split_accumulators": 195},
        margins=(156, 156),
        ragged_margins=(156, 243),
    ),
    # 52 counts, error 6.2%, 20.0%; 8 of 57 clean excluded, 0 of 3 spilling kept
    "sm_9x tcgen05 descriptor 16": RegisterModel(
        estimate={"accumulators": 80, "base": 540, "end_accumulators": 80, "end_base": 1077, "end_persistent": 1348,
            "end_persistent_accumulators": 20, "end_split": 344, "end_split_accumulators": 85, "persistent": 1345,
            "persistent_accumulators": 20, "pipelined": 540},
        bound={},
        margins=(156, 124),
        ragged_margins=(156, 156),
    ),
    # 35 counts, error 5.6%, 25.0%; 1 of 40 clean excluded, 0 of 1 spilling kept
    "sm_9x tcgen05 descriptor fp8": RegisterModel(
        estimate={"accumulators": 78, "base": 536, "end_accumulators": 26, "end_base": 780, "end_persistent": 1264,
            "end_persistent_accumulators": 34, "end_split": 1515, "end_split_accumulators": 87, "persistent": 254,
            "pipelined": 536},
        bound={},
        margins=(121, 156),
        ragged_margins=(156, 156),
    ),
    # 33 counts, error 3.6%, 13.7%; 4 of 34 clean excluded, 0 of 0 spilling kept
    "sm_9x tcgen05 descriptor int8": RegisterModel(
        estimate={"base": 619, "end_accumulators": 100, "end_base": 711, "end_persistent": 84,
            "end_persistent_accumulators": 29, "end_split": 1540, "end_split_accumulators": 58, "persistent": 1575,
            "pipelined": 604},
        bound={},
        margins=(156, 123),
        ragged_margins=(156, 156),
    ),
    # 32 counts, error 2.9%, 32.4%; 4 of 34 clean excluded, 0 of 0 spilling kept
    "sm_9x tcgen05 descriptor tf32": RegisterModel(
        estimate={"accumulators": 98, "base": 462, "end_base": 824, "end_persistent": 3424, "end_split": 1279,
            "end_split_accumulators": 159, "persistent": 159, "persistent_accumulators": 18, "pipelined": 461},
        bound={},
        margins=(156, 120),
        ragged_margins=(156, 156),
    ),
    # 19 counts, error 0.8%, 2.9%; 11 of 21 clean excluded, 0 of 3 spilling kept
    "sm_9x tcgen05 fp8": RegisterModel(
        estimate={"accumulators": 90, "end_accumulators": 54, "end_base": 795, "end_persistent": 43,
            "end_persistent_accumulators": 8, "end_ragged": 1765, "end_split": 1108, "end_split_accumulators": 111,
            "gathered_step_a": 104, "gathered_whole_a": 15, "loads_a": 265, "loads_b": 20, "narrow_a": 269, "narrow_b":
            780, "persistent": 2, "persistent_loads_a": 1, "persistent_loads_b": 146, "persistent_whole_b": 31,
            "ragged_b": 32, "step_a": 129, "unpipelined_a": 9, "unpipelined_b": 144, "whole_a": 5},
        bound={},
        margins=(300, 300),
        ragged_margins=(300, 300),
    ),
    # 22 counts, error 1.8%, 29.2%; 6 of 23 clean excluded, 0 of 11 spilling kept
    "sm_9x tcgen05 int8": RegisterModel(
        estimate={"base": 44, "end_accumulators": 194, "end_persistent": 740, "end_persistent_accumulators": 24,
            "end_split_accumulators": 60, "gathered_step_a": 268, "gathered_step_b": 185, "loads_a": 252, "narrow_a":
            63, "narrow_b": 2349, "persistent_loads_b": 491, "persistent_whole_b": 31, "pipelined": 3, "ragged_a": 326,
            "ragged_b": 233, "step_a": 260, "unpipelined_a": 149, "whole_a": 17},
        bound={},
        margins=(276, 276),
        ragged_margins=(276, 276),
    ),
    # 18 counts, error 2.4%, 19.9%; 14 of 19 clean excluded, 0 of 5 spilling kept
    "sm_9x tcgen05 tf32": RegisterModel(
        estimate={"accumulators": 19, "end_accumulators": 92, "end_persistent": 2928, "end_persistent_accumulators": 66,
            "end_ragged_accumulators": 100, "end_split_accumulators": 108, "gathered_whole_a": 235, "gathered_whole_b":
            4, "loads_a": 173, "loads_b": 473, "persistent_loads_a": 55, "persistent_loads_b": 599,
            "persistent_whole_b": 40, "ragged_a": 230, "ragged_b": 232, "step_a": 120},
        bound={},
        margins=(300, 300),
        ragged_margins=(300, 300),
    ),
    # 58 counts, error 3.1%, 14.8%; 11 of 70 clean excluded, 0 of 4 spilling kept
    "sm_9x wgmma 16": RegisterModel(
        estimate={"accumulators": 74, "base": 1594, "end_accumulators": 125, "end_base": 2610, "end_ragged": 311,
            "end_ragged_accumulators": 45, "end_split": 48, "end_split_accumulators": 44, "loads_a": 320, "loads_b":
            330, "narrow_a": 8, "narrow_b": 692, "persistent": 741, "persistent_loads_a": 326, "persistent_narrow_a":
            98, "persistent_narrow_b": 786, "pipelined": 346, "ragged_a": 545, "ragged_b": 573, "unpipelined_a": 3,
            "unpipelined_b": 16},
        bound={},
        margins=(125, 131),
        ragged_margins=(156, 156),
    ),
    # 88 counts, error 3.1%, 10.0%; 2 of 112 clean excluded, 0 of 6 spilling kept
    "sm_9x wgmma descriptor 16": RegisterModel(
        estimate={"accumulators": 100, "base": 1301, "end_accumulators": 49, "end_base": 1005, "end_persistent": 672,
            "end_persistent_accumulators": 67, "end_split": 1707, "end_split_accumulators": 62, "persistent": 23,
            "pipelined": 1300},
        bound={},
        margins=(112, 120),
        ragged_margins=(156, 156),
    ),
    # 54 counts, error 3.3%, 16.0%; 3 of 77 clean excluded, 0 of 16 spilling kept
    "sm_9x wgmma descriptor fp8": RegisterModel(
        estimate={"accumulators": 160, "base": 876, "end_accumulators": 128, "end_base": 2363, "end_persistent": 100,
            "end_persistent_accumulators": 8, "end_split_accumulators": 38, "pipelined": 875},
        bound={"accumulators": 238, "base": 120, "end_split_accumulators": 239},
        margins=(128, 122),
        ragged_margins=(156, 156),
    ),
    # 35 counts, error 2.0%, 13.6%; 2 of 66 clean excluded, 0 of 0 spilling kept
    "sm_9x wgmma descriptor int8": RegisterModel(
        estimate={"accumulators": 100, "base": 1289, "end_accumulators": 48, "end_base": 1060, "end_persistent": 1562,
            "end_persistent_accumulators": 59, "end_split": 1943, "end_split_accumulators": 78, "persistent": 23,
            "persistent_accumulators": 7, "pipelined": 1312},
        bound={},
        margins=(156, 125),
        ragged_margins=(156, 156),
    ),
    # 49 counts, error 3.1%, 11.7%; 0 of 69 clean excluded, 0 of 2 spilling kept
    "sm_9x wgmma descriptor tf32": RegisterModel(
        estimate={"accumulators": 100, "base": 1307, "end_accumulators": 54, "end_base": 1002, "end_persistent": 226,
            "end_persistent_accumulators": 59, "end_split": 1787, "end_split_accumulators": 66, "persistent": 8,
            "pipelined": 1303},
        bound={"end_split_accumulators": 240},
        margins=(156, 135),
        ragged_margins=(156, 156),
    ),
    # 34 counts, error 1.4%, 8.9%; 18 of 36 clean excluded, 0 of 6 spilling kept
    "sm_9x wgmma fp8": RegisterModel(
        estimate={"base": 999, "end_accumulators": 180, "end_base": 1904, "end_persistent": 1067,
            "end_persistent_accumulators": 47, "end_ragged": 541, "end_ragged_accumulators": 134,
            "end_split_accumulators": 53, "gathered_step_b": 139, "gathered_whole_a": 36, "gathered_whole_b": 3,
            "loads_a": 277, "narrow_a": 68, "narrow_b": 667, "persistent_loads_a": 433, "persistent_narrow_a": 62,
            "persistent_narrow_b": 182, "pipelined": 1214, "step_b": 264, "unpipelined_a": 320, "unpipelined_b": 450,
            "whole_a": 3, "whole_b": 7},
        bound={},
        margins=(242, 242),
        ragged_margins=(242, 242),
    ),
    # 18 counts, error 1.2%, 11.3%; 21 of 28 clean excluded, 0 of 11 spilling kept
    "sm_9x wgmma int8": RegisterModel(
        estimate={"accumulators": 22, "base": 612, "end_accumulators": 59, "end_base": 1180, "end_persistent": 272,
            "end_persistent_accumulators": 1, "end_ragged": 68, "end_ragged_accumulators": 24, "end_split": 1189,
            "end_split_accumulators": 152, "gathered_step_a": 157, "gathered_step_b": 63, "gathered_whole_b": 37,
            "loads_a": 161, "narrow_a": 152, "narrow_b": 1112, "persistent": 398, "persistent_accumulators": 3,
            "persistent_loads_a": 13, "persistent_loads_b": 184, "persistent_whole_a": 6, "persistent_whole_b": 3,
            "pipelined": 591, "ragged_a": 538, "ragged_b": 158, "step_a": 145, "step_b": 65, "whole_b": 32},
        bound={},
        margins=(253, 253),
        ragged_margins=(253, 253),
    ),
    # 18 counts, error 1.9%, 13.8%; 20 of 33 clean excluded, 0 of 5 spilling kept
    "sm_9x wgmma tf32": RegisterModel(
        estimate={"accumulators": 94, "base": 122, "end_accumulators": 67, "end_base": 1306, "end_persistent": 4,
            "end_persistent_accumulators": 21, "end_split": 1566, "end_split_accumulators": 104, "gathered_step_b": 78,
            "gathered_whole_b": 28, "loads_a": 161, "loads_b": 1200, "persistent": 162, "persistent_accumulators": 20,
            "persistent_loads_a": 81, "persistent_loads_b": 162, "persistent_whole_a": 9, "persistent_whole_b": 10,
            "pipelined": 237, "step_a": 272, "unpipelined_a": 71},
        bound={},
        margins=(257, 257),
        ragged_margins=(257, 257),
    ),
    # 47 counts, error 9.1%, 51.5%; 5 of 49 clean excluded, 0 of 1 spilling kept
    "gfx908 mfma 16": RegisterModel(
        estimate={"accumulators": 85, "base": 1886, "end_accumulators": 142, "end_base": 619, "end_partials": 90,
            "end_persistent": 2617, "end_split": 2399, "end_split_accumulators": 24, "loads_a": 177, "loads_b": 58,
            "narrow_a": 141, "narrow_b": 102, "persistent": 351, "persistent_accumulators": 1, "persistent_loads_a": 51,
            "persistent_loads_b": 101, "pipelined": 685, "pipelined_a": 53, "pipelined_b": 87, "ragged_a": 42,
            "ragged_b": 42, "unpipelined_a": 28, "unpipelined_b": 118, "whole_a": 57},
        bound={},
        margins=(156, 156),
        ragged_margins=(156, 156),
    ),
    # 351 counts, error 8.2%, 35.1%; 88 of 409 clean excluded, 0 of 35 spilling kept
    "gfx90a mfma 16": RegisterModel(
        estimate={"accumulators": 84, "base": 1996, "end_accumulators": 147, "end_base": 662, "end_partials": 93,
            "end_persistent": 2722, "end_ragged_accumulators": 4, "end_split": 2493, "end_split_accumulators": 34,
            "loads_a": 174, "loads_b": 105, "narrow_a": 193, "narrow_b": 95, "persistent": 146,
            "persistent_accumulators": 23, "persistent_loads_a": 24, "persistent_loads_b": 94, "persistent_narrow_a":
            178, "pipelined": 815, "pipelined_a": 88, "pipelined_b": 137, "unpipelined_a": 35, "unpipelined_b": 128,
            "whole_a": 69, "whole_b": 3},
        bound={"end_partials": 320, "end_split": 10752, "end_split_accumulators": 224, "narrow_b": 400, "pipelined":
            1365, "ragged_a": 5646, "step_a": 361, "whole_a": 251},
        margins=(147, 209),
        ragged_margins=(182, 209),
    ),
    # 160 counts, error 7.8%, 30.0%; 23 of 193 clean excluded, 0 of 22 spilling kept
    "gfx90a mfma int8": RegisterModel(
        estimate={"accumulators": 54, "base": 1628, "end_accumulators": 156, "end_base": 972, "end_partials": 11,
            "end_persistent": 7, "end_persistent_accumulators": 3, "end_split": 1600, "end_split_accumulators": 45,
            "gathered_step_b": 69, "gathered_whole_b": 12, "loads_a": 202, "loads_b": 175, "narrow_a": 209, "narrow_b":
            151, "persistent": 140, "persistent_accumulators": 43, "persistent_loads_a": 145, "persistent_narrow_b":
            200, "pipelined": 627, "pipelined_a": 55, "pipelined_b": 121, "step_b": 69, "unpipelined_a": 80,
            "unpipelined_b": 116, "whole_a": 87, "whole_b": 5},
        bound={"end_partials": 213},
        margins=(140, 156),
        ragged_margins=(134, 201),
    ),
    # 228 counts, error 6.6%, 26.8%; 29 of 271 clean excluded, 0 of 22 spilling kept
    "gfx942 mfma 16": RegisterModel(
        estimate={"accumulators": 93, "base": 2069, "end_accumulators": 145, "end_base": 671, "end_partials": 92,
            "end_persistent": 2759, "end_ragged_accumulators": 10, "end_split": 2530, "end_split_accumulators": 35,
            "loads_a": 203, "loads_b": 145, "narrow_a": 157, "narrow_b": 118, "persistent": 55,
            "persistent_accumulators": 9, "persistent_loads_a": 67, "persistent_loads_b": 197, "persistent_whole_a": 7,
            "persistent_whole_b": 9, "pipelined": 842, "pipelined_a": 83, "pipelined_b": 117, "step_b": 19,
            "unpipelined_a": 23, "unpipelined_b": 133, "whole_a": 76, "whole_b": 6},
        bound={"end_partials": 207, "end_ragged": 12544},
        margins=(127, 133),
        ragged_margins=(150, 211),
    ),
    # 111 counts, error 7.4%, 28.9%; 14 of 128 clean excluded, 0 of 10 spilling kept
    "gfx942 mfma fp8": RegisterModel(
        estimate={"accumulators": 114, "base": 1202, "end_accumulators": 19, "end_base": 2745, "end_partials": 101,
            "end_ragged": 230, "end_ragged_accumulators": 27, "end_split": 754, "end_split_accumulators": 8,
            "gathered_step_b": 21, "gathered_whole_a": 2, "gathered_whole_b": 11, "loads_a": 64, "loads_b": 253,
            "narrow_a": 144, "narrow_b": 91, "persistent": 156, "persistent_accumulators": 24, "persistent_loads_b": 45,
            "persistent_narrow_a": 20, "persistent_whole_a": 1, "persistent_whole_b": 28, "pipelined": 1274,
            "pipelined_a": 98, "pipelined_b": 48, "ragged_a": 740, "step_b": 11, "unpipelined_a": 163, "unpipelined_b":
            107, "whole_a": 74, "whole_b": 10},
        bound={"accumulators": 93, "end_partials": 363, "end_split": 11330, "end_split_accumulators": 152,
            "pipelined_a": 235, "step_a": 704, "unpipelined_a": 608, "unpipelined_b": 331},
        margins=(116, 300),
        ragged_margins=(156, 156),
    ),
    # 121 counts, error 9.8%, 25.8%; 9 of 142 clean excluded, 0 of 10 spilling kept
    "gfx942 mfma int8": RegisterModel(
        estimate={"accumulators": 57, "base": 1827, "end_accumulators": 158, "end_base": 1031, "end_partials": 11,
            "end_persistent": 7, "end_persistent_accumulators": 3, "end_split": 1692, "end_split_accumulators": 46,
            "gathered_step_b": 71, "gathered_whole_a": 7, "gathered_whole_b": 14, "loads_a": 170, "loads_b": 188,
            "narrow_a": 210, "narrow_b": 124, "persistent": 135, "persistent_accumulators": 41, "persistent_loads_b":
            89, "persistent_whole_b": 7, "pipelined": 770, "pipelined_a": 71, "pipelined_b": 105, "step_b": 89,
            "unpipelined_a": 71, "unpipelined_b": 123, "whole_a": 104, "whole_b": 13},
        bound={"end_persistent_accumulators": 240, "narrow_a": 352, "narrow_b": 304},
        margins=(138, 120),
        ragged_margins=(139, 156),
    ),
    # 106 counts, error 7.8%, 30.8%; 10 of 122 clean excluded, 0 of 8 spilling kept
    "gfx942 mfma tf32": RegisterModel(
        estimate={"accumulators": 109, "base": 1260, "end_accumulators": 21, "end_base": 2915, "end_partials": 41,
            "end_persistent": 341, "end_persistent_accumulators": 15, "end_split": 2353, "end_split_accumulators": 14,
            "gathered_whole_b": 42, "loads_a": 39, "loads_b": 243, "persistent_whole_b": 6, "pipelined": 780,
            "pipelined_a": 101, "pipelined_b": 112, "ragged_a": 66, "ragged_b": 66, "unpipelined_a": 48,
            "unpipelined_b": 98, "whole_a": 95, "whole_b": 11},
        bound={"end_partials": 213},
        margins=(156, 156),
        ragged_margins=(156, 156),
    ),
    # 282 counts, error 6.2%, 44.8%; 40 of 333 clean excluded, 0 of 21 spilling kept
    "gfx950 mfma 16": RegisterModel(
        estimate={"accumulators": 95, "base": 2068, "end_accumulators": 142, "end_base": 680, "end_partials": 96,
            "end_persistent": 2603, "end_persistent_accumulators": 3, "end_ragged": 178, "end_split": 2540,
            "end_split_accumulators": 25, "loads_a": 165, "loads_b": 72, "narrow_a": 211, "narrow_b": 164, "persistent":
            162, "persistent_accumulators": 2, "persistent_loads_a": 43, "persistent_loads_b": 152,
            "persistent_narrow_a": 97, "pipelined": 761, "pipelined_a": 36, "pipelined_b": 67, "ragged_a": 71,
            "ragged_b": 71, "step_a": 11, "step_b": 2, "unpipelined_a": 29, "unpipelined_b": 129, "whole_a": 62},
        bound={"accumulators": 85, "end_accumulators": 240, "end_partials": 358, "end_split": 8704, "pipelined_a": 45,
            "step_a": 1216},
        margins=(98, 101),
        ragged_margins=(149, 156),
    ),
    # 125 counts, error 8.6%, 33.9%; 27 of 138 clean excluded, 0 of 16 spilling kept
    "gfx950 mfma fp8": RegisterModel(
        estimate={"accumulators": 114, "base": 1127, "end_accumulators": 17, "end_base": 2701, "end_partials": 101,
            "end_ragged": 255, "end_ragged_accumulators": 25, "end_split": 641, "end_split_accumulators": 4,
            "gathered_step_b": 5, "loads_a": 37, "loads_b": 239, "narrow_a": 162, "narrow_b": 100, "persistent": 578,
            "persistent_loads_a": 11, "persistent_narrow_a": 23, "persistent_whole_a": 8, "pipelined": 1231,
            "pipelined_a": 64, "pipelined_b": 23, "ragged_a": 799, "ragged_b": 154, "unpipelined_a": 161,
            "unpipelined_b": 79, "whole_a": 70},
        bound={"accumulators": 152, "end_partials": 429, "end_split": 8321, "end_split_accumulators": 163,
            "persistent_accumulators": 44, "unpipelined_a": 416, "unpipelined_b": 2064, "whole_a": 176},
        margins=(111, 300),
        ragged_margins=(156, 211),
    ),
    # 140 counts, error 12.7%, 33.4%; 11 of 160 clean excluded, 0 of 12 spilling kept
    "gfx950 mfma int8": RegisterModel(
        estimate={"accumulators": 56, "base": 1665, "end_accumulators": 153, "end_base": 1053, "end_partials": 19,
            "end_persistent": 5, "end_persistent_accumulators": 3, "end_ragged": 261, "end_ragged_accumulators": 9,
            "end_split": 1766, "end_split_accumulators": 41, "gathered_step_b": 40, "loads_a": 177, "loads_b": 95,
            "narrow_a": 230, "narrow_b": 158, "persistent": 80, "persistent_accumulators": 43, "persistent_loads_a":
            223, "persistent_loads_b": 31, "persistent_narrow_b": 91, "pipelined": 718, "pipelined_a": 38,
            "pipelined_b": 64, "ragged_a": 49, "ragged_b": 6, "step_b": 51, "unpipelined_a": 83, "unpipelined_b": 119,
            "whole_a": 86},
        bound={"end_partials": 175},
        margins=(146, 118),
        ragged_margins=(130, 211),
    ),
    # 131 counts, error 7.5%, 21.0%; 18 of 151 clean excluded, 0 of 32 spilling kept
    "sm_100 mma 16": RegisterModel(
        estimate={"accumulators": 112, "base": 2527, "end_accumulators": 135, "end_base": 2508,
            "end_persistent_accumulators": 20, "end_ragged_accumulators": 55, "end_split": 794,
            "end_split_accumulators": 31, "loads_a": 233, "loads_b": 223, "narrow_a": 297, "narrow_b": 133,
            "persistent_loads_a": 66, "persistent_loads_b": 361, "persistent_whole_b": 2, "ragged_a": 202, "ragged_b":
            188, "step_a": 3, "step_b": 86, "unpipelined_a": 59, "whole_a": 14, "whole_b": 4},
        bound={"end_split_accumulators": 239},
        margins=(134, 117),
        ragged_margins=(154, 156),
    ),
    # 137 counts, error 5.4%, 13.8%; 9 of 163 clean excluded, 0 of 7 spilling kept
    "sm_100 mma descriptor 16": RegisterModel(
        estimate={"accumulators": 105, "base": 1036, "end_split": 3, "persistent_whole_a": 2, "persistent_whole_b": 2,
            "pipelined": 1038, "step_b": 53, "whole_a": 101, "whole_b": 4},
        bound={},
        margins=(132, 156),
        ragged_margins=(156, 156),
    ),
    # 77 counts, error 8.3%, 18.8%; 0 of 84 clean excluded, 0 of 1 spilling kept
    "sm_100 mma descriptor int8": RegisterModel(
        estimate={"accumulators": 104, "base": 1149, "end_accumulators": 32, "end_base": 898, "end_persistent": 11,
            "end_split": 2126, "end_split_accumulators": 80, "persistent": 139, "persistent_accumulators": 14,
            "persistent_whole_b": 3, "pipelined": 1144, "whole_a": 11, "whole_b": 19},
        bound={"persistent_whole_b": 120},
        margins=(119, 115),
        ragged_margins=(156, 156),
    ),
    # 88 counts, error 6.1%, 16.7%; 12 of 109 clean excluded, 0 of 1 spilling kept
    "sm_100 mma descriptor tf32": RegisterModel(
        estimate={"accumulators": 150, "base": 1033, "end_base": 2652, "end_persistent": 836, "end_split": 179,
            "end_split_accumulators": 136, "persistent": 596, "pipelined": 1035, "step_b": 6, "whole_b": 3},
        bound={"step_b": 117, "whole_b": 45},
        margins=(115, 156),
        ragged_margins=(156, 156),
    ),
    # 69 counts, error 6.5%, 17.7%; 6 of 82 clean excluded, 0 of 6 spilling kept
    "sm_100 mma descriptor widened fp8": RegisterModel(
        estimate={"accumulators": 88, "base": 1250, "end_accumulators": 48, "end_base": 1052, "end_persistent": 1,
            "end_persistent_accumulators": 2, "end_split": 2060, "end_split_accumulators": 100,
            "persistent_accumulators": 13, "persistent_whole_b": 1, "pipelined": 1208, "step_a": 1, "step_b": 115,
            "whole_a": 100, "whole_b": 22},
        bound={},
        margins=(124, 156),
        ragged_margins=(156, 156),
    ),
    # 55 counts, error 8.8%, 27.2%; 19 of 72 clean excluded, 0 of 11 spilling kept
    "sm_100 mma int8": RegisterModel(
        estimate={"accumulators": 36, "base": 1481, "end_accumulators": 89, "end_base": 620, "end_ragged": 3007,
            "end_ragged_accumulators": 136, "end_split": 832, "end_split_accumulators": 160, "gathered_step_a": 71,
            "gathered_step_b": 93, "gathered_whole_b": 184, "loads_a": 100, "narrow_a": 92, "narrow_b": 119,
            "persistent_loads_a": 215, "persistent_loads_b": 49, "persistent_whole_b": 102, "ragged_a": 354, "ragged_b":
            966, "step_a": 194, "step_b": 89, "unpipelined_a": 5, "unpipelined_b": 135, "whole_b": 51},
        bound={},
        margins=(144, 156),
        ragged_margins=(156, 156),
    ),
    # 69 counts, error 4.5%, 22.9%; 11 of 84 clean excluded, 0 of 19 spilling kept
    "sm_100 mma tf32": RegisterModel(
        estimate={"accumulators": 96, "base": 2491, "end_accumulators": 171, "end_base": 1446, "end_persistent": 612,
            "end_persistent_accumulators": 169, "end_ragged": 1353, "end_ragged_accumulators": 58, "end_split": 1548,
            "end_split_accumulators": 34, "gathered_whole_a": 4, "gathered_whole_b": 7, "loads_a": 330, "loads_b": 147,
            "persistent_loads_a": 38, "persistent_loads_b": 271, "persistent_whole_b": 5, "pipelined": 351, "step_b":
            102, "unpipelined_a": 41, "unpipelined_b": 1, "whole_a": 1},
        bound={},
        margins=(135, 156),
        ragged_margins=(156, 156),
    ),
    # 75 counts, error 5.4%, 24.2%; 18 of 84 clean excluded, 0 of 13 spilling kept
    "sm_100 mma widened fp8": RegisterModel(
        estimate={"accumulators": 84, "base": 2128, "end_accumulators": 12, "end_base": 182, "end_persistent": 3875,
            "end_persistent_accumulators": 122, "end_ragged": 3860, "end_ragged_accumulators": 105, "gathered_step_b":
            68, "loads_a": 210, "loads_b": 175, "narrow_a": 232, "narrow_b": 39, "persistent_accumulators": 33,
            "persistent_loads_b": 296, "persistent_narrow_a": 114, "persistent_narrow_b": 57, "ragged_a": 825,
            "ragged_b": 160, "step_a": 190, "step_b": 63, "unpipelined_a": 16, "unpipelined_b": 83, "whole_a": 19,
            "whole_b": 77},
        bound={},
        margins=(156, 156),
        ragged_margins=(156, 156),
    ),
    # 52 counts, error 6.2%, 20.0%; 1 of 57 clean excluded, 0 of 3 spilling kept
    "sm_100 tcgen05 descriptor 16": RegisterModel(
        estimate={"accumulators": 80, "base": 541, "end_accumulators": 80, "end_base": 1078, "end_persistent": 1347,
            "end_persistent_accumulators": 20, "end_split": 344, "end_split_accumulators": 85, "persistent": 1344,
            "persistent_accumulators": 20, "pipelined": 541},
        bound={},
        margins=(156, 112),
        ragged_margins=(156, 156),
    ),
    # 388 counts, error 7.0%, 20.1%; 54 of 475 clean excluded, 0 of 84 spilling kept
    "sm_80 mma 16": RegisterModel(
        estimate={"accumulators": 120, "base": 1793, "end_accumulators": 56, "end_base": 1381,
            "end_ragged_accumulators": 58, "end_split": 2021, "end_split_accumulators": 93, "loads_a": 335, "loads_b":
            254, "narrow_a": 249, "narrow_b": 168, "persistent": 638, "persistent_loads_a": 84, "persistent_loads_b":
            218, "persistent_narrow_a": 9, "persistent_narrow_b": 236, "pipelined": 525, "ragged_a": 205, "ragged_b":
            207, "step_a": 166, "step_b": 127, "unpipelined_a": 37, "whole_a": 5, "whole_b": 1},
        bound={"accumulators": 84, "persistent_accumulators": 44, "step_a": 358, "step_b": 530},
        margins=(102, 156),
        ragged_margins=(135, 156),
    ),
    # 157 counts, error 8.7%, 25.9%; 57 of 202 clean excluded, 0 of 78 spilling kept
    "sm_80 mma int8": RegisterModel(
        estimate={"accumulators": 54, "base": 538, "end_accumulators": 93, "end_base": 1516, "end_persistent": 5046,
            "end_persistent_accumulators": 47, "end_ragged": 3400, "end_ragged_accumulators": 71, "end_split": 1504,
            "end_split_accumulators": 165, "gathered_step_a": 271, "gathered_step_b": 409, "gathered_whole_b": 116,
            "loads_a": 218, "loads_b": 298, "narrow_a": 139, "narrow_b": 150, "persistent": 1251, "persistent_loads_b":
            16, "persistent_narrow_b": 49, "pipelined": 537, "step_a": 226, "step_b": 288, "unpipelined_a": 99,
            "unpipelined_b": 34, "whole_b": 30},
        bound={"narrow_b": 478},
        margins=(116, 156),
        ragged_margins=(149, 156),
    ),
    # 177 counts, error 6.2%, 20.4%; 23 of 223 clean excluded, 0 of 38 spilling kept
    "sm_80 mma tf32": RegisterModel(
        estimate={"accumulators": 118, "base": 754, "end_accumulators": 143, "end_base": 3750, "end_persistent": 519,
            "end_ragged": 217, "end_ragged_accumulators": 53, "end_split": 19, "end_split_accumulators": 104,
            "gathered_step_a": 143, "gathered_step_b": 209, "gathered_whole_b": 4, "loads_a": 329, "loads_b": 184,
            "persistent": 873, "persistent_accumulators": 13, "persistent_loads_a": 3, "persistent_loads_b": 121,
            "persistent_whole_b": 20, "pipelined": 1863, "ragged_a": 246, "ragged_b": 287, "unpipelined_a": 178,
            "unpipelined_b": 2},
        bound={"end_split": 5730, "end_split_accumulators": 301, "gathered_whole_b": 98, "persistent": 2295,
            "persistent_accumulators": 279, "persistent_loads_b": 57, "persistent_whole_b": 40},
        margins=(99, 115),
        ragged_margins=(146, 156),
    ),
    # 128 counts, error 7.5%, 22.1%; 18 of 151 clean excluded, 0 of 26 spilling kept
    "sm_90 mma 16": RegisterModel(
        estimate={"accumulators": 111, "base": 2463, "end_accumulators": 135, "end_base": 2507,
            "end_persistent_accumulators": 20, "end_ragged_accumulators": 72, "end_split": 803,
            "end_split_accumulators": 33, "loads_a": 253, "loads_b": 232, "narrow_a": 247, "narrow_b": 128,
            "persistent_accumulators": 1, "persistent_loads_a": 76, "persistent_loads_b": 326, "ragged_a": 214,
            "ragged_b": 200, "step_b": 84, "unpipelined_a": 50, "whole_a": 16, "whole_b": 4},
        bound={"loads_a": 956},
        margins=(136, 156),
        ragged_margins=(156, 156),
    ),
    # 87 counts, error 4.4%, 14.7%; 15 of 112 clean excluded, 0 of 9 spilling kept
    "sm_90 mma descriptor 16": RegisterModel(
        estimate={"accumulators": 104, "base": 1168, "end_split": 3, "persistent": 65, "persistent_whole_a": 1,
            "persistent_whole_b": 3, "pipelined": 1170, "step_a": 2, "step_b": 46, "whole_a": 101, "whole_b": 4},
        bound={"persistent": 2422, "step_b": 805, "whole_b": 38},
        margins=(118, 156),
        ragged_margins=(156, 156),
    ),
    # 65 counts, error 6.5%, 16.7%; 3 of 78 clean excluded, 0 of 0 spilling kept
    "sm_90 mma descriptor int8": RegisterModel(
        estimate={"accumulators": 106, "base": 1166, "end_accumulators": 35, "end_base": 937, "end_persistent": 11,
            "end_split": 2207, "end_split_accumulators": 85, "persistent": 204, "persistent_accumulators": 21,
            "persistent_whole_a": 2, "persistent_whole_b": 8, "pipelined": 1161, "step_b": 1, "whole_a": 11, "whole_b":
            21},
        bound={},
        margins=(122, 156),
        ragged_margins=(156, 156),
    ),
    # 73 counts, error 5.6%, 21.0%; 9 of 97 clean excluded, 0 of 1 spilling kept
    "sm_90 mma descriptor tf32": RegisterModel(
        estimate={"accumulators": 150, "base": 1050, "end_base": 2740, "end_persistent": 992, "end_split": 311,
            "end_split_accumulators": 135, "persistent": 706, "persistent_accumulators": 1, "pipelined": 1052, "step_b":
            14, "whole_b": 2},
        bound={},
        margins=(117, 156),
        ragged_margins=(156, 156),
    ),
    # 61 counts, error 6.4%, 12.1%; 6 of 76 clean excluded, 0 of 4 spilling kept
    "sm_90 mma descriptor widened fp8": RegisterModel(
        estimate={"accumulators": 89, "base": 1277, "end_accumulators": 50, "end_base": 1117, "end_persistent": 1,
            "end_persistent_accumulators": 2, "end_split": 2186, "end_split_accumulators": 102,
            "persistent_accumulators": 13, "pipelined": 1235, "step_b": 118, "whole_a": 101, "whole_b": 24},
        bound={},
        margins=(116, 156),
        ragged_margins=(156, 156),
    ),
    # 51 counts, error 5.3%, 16.9%; 15 of 63 clean excluded, 0 of 18 spilling kept
    "sm_90 mma int8": RegisterModel(
        estimate={"accumulators": 35, "base": 1576, "end_accumulators": 89, "end_base": 620, "end_ragged": 3011,
            "end_ragged_accumulators": 136, "end_split": 831, "end_split_accumulators": 160, "gathered_step_a": 87,
            "gathered_step_b": 98, "gathered_whole_a": 2, "gathered_whole_b": 188, "loads_a": 119, "narrow_a": 29,
            "narrow_b": 113, "persistent": 199, "persistent_loads_a": 222, "persistent_whole_b": 111, "pipelined": 15,
            "ragged_a": 150, "ragged_b": 903, "step_a": 210, "step_b": 90, "unpipelined_a": 18, "unpipelined_b": 131,
            "whole_a": 3, "whole_b": 52},
        bound={"unpipelined_a": 956},
        margins=(129, 156),
        ragged_margins=(156, 157),
    ),
    # 60 counts, error 5.3%, 23.5%; 12 of 71 clean excluded, 0 of 15 spilling kept
    "sm_90 mma tf32": RegisterModel(
        estimate={"accumulators": 100, "base": 2514, "end_accumulators": 173, "end_base": 1471, "end_persistent": 657,
            "end_persistent_accumulators": 192, "end_ragged": 1458, "end_ragged_accumulators": 49, "end_split": 1589,
            "end_split_accumulators": 36, "gathered_step_a": 3, "gathered_step_b": 7, "gathered_whole_a": 2,
            "gathered_whole_b": 9, "loads_a": 306, "loads_b": 145, "persistent_accumulators": 4, "persistent_loads_a":
            12, "persistent_loads_b": 199, "pipelined": 411, "step_a": 1, "step_b": 115, "unpipelined_a": 31},
        bound={"gathered_whole_a": 188, "ragged_a": 6525, "unpipelined_a": 239},
        margins=(124, 156),
        ragged_margins=(156, 156),
    ),
    # 56 counts, error 5.4%, 19.2%; 11 of 63 clean excluded, 0 of 12 spilling kept
    "sm_90 mma widened fp8": RegisterModel(
        estimate={"accumulators": 81, "base": 2257, "end_accumulators": 12, "end_base": 180, "end_persistent": 3855,
            "end_persistent_accumulators": 121, "end_ragged": 3861, "end_ragged_accumulators": 105, "gathered_step_a":
            4, "gathered_step_b": 90, "gathered_whole_b": 1, "loads_a": 202, "loads_b": 170, "narrow_a": 223,
            "narrow_b": 40, "persistent_accumulators": 17, "persistent_loads_b": 357, "persistent_narrow_a": 109,
            "persistent_narrow_b": 55, "pipelined": 74, "ragged_a": 844, "ragged_b": 107, "step_a": 192, "step_b": 72,
            "unpipelined_a": 16, "unpipelined_b": 68, "whole_a": 21, "whole_b": 81},
        bound={},
        margins=(126, 156),
        ragged_margins=(156, 156),
    ),
    # 58 counts, error 3.1%, 14.8%; 12 of 70 clean excluded, 0 of 4 spilling kept
    "sm_90 wgmma 16": RegisterModel(
        estimate={"accumulators": 74, "base": 1594, "end_accumulators": 125, "end_base": 2610, "end_ragged": 312,
            "end_ragged_accumulators": 45, "end_split": 47, "end_split_accumulators": 44, "loads_a": 320, "loads_b":
            330, "narrow_a": 8, "narrow_b": 692, "persistent": 741, "persistent_loads_a": 326, "persistent_narrow_a":
            98, "persistent_narrow_b": 788, "pipelined": 346, "ragged_a": 545, "ragged_b": 573, "unpipelined_a": 3,
            "unpipelined_b": 16},
        bound={"end_split_accumulators": 239},
        margins=(134, 117),
        ragged_margins=(156, 156),
    ),
    # 88 counts, error 3.1%, 10.0%; 2 of 112 clean excluded, 0 of 6 spilling kept
    "sm_90 wgmma descriptor 16": RegisterModel(
        estimate={"accumulators": 100, "base": 1301, "end_accumulators": 49, "end_base": 1005, "end_persistent": 672,
            "end_persistent_accumulators": 67, "end_split": 1706, "end_split_accumulators": 62, "persistent": 23,
            "pipelined": 1300},
        bound={},
        margins=(109, 119),
        ragged_margins=(156, 156),
    ),
    # 54 counts, error 3.3%, 16.0%; 4 of 77 clean excluded, 0 of 16 spilling kept
    "sm_90 wgmma descriptor fp8": RegisterModel(
        estimate={"accumulators": 160, "base": 876, "end_accumulators": 128, "end_base": 2365, "end_persistent": 100,
            "end_persistent_accumulators": 8, "end_split_accumulators": 38, "pipelined": 875},
        bound={"accumulators": 239, "end_split_accumulators": 239},
        margins=(130, 125),
        ragged_margins=(156, 156),
    ),
    # 49 counts, error 3.1%, 11.7%; 0 of 69 clean excluded, 0 of 2 spilling kept
    "sm_90 wgmma descriptor tf32": RegisterModel(
        estimate={"accumulators": 100, "base": 1306, "end_accumulators": 54, "end_base": 1004, "end_persistent": 225,
            "end_persistent_accumulators": 59, "end_split": 1790, "end_split_accumulators": 66, "persistent": 10,
            "pipelined": 1302},
        bound={"end_split_accumulators": 240},
        margins=(156, 131),
        ragged_margins=(156, 156),
    ),
}
# fmt: on
