"""Weights of the register estimate and bound, written by `benchmarks/fit_gemm_registers.py`.

Do not edit: compile a new sample and fit again. Compiled by Triton 3.9.0 and 3.6.0; the comments give the median and
the 90th percentile of the estimate's relative error, clean kernels that the bound excludes, spilling ones it does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from constrint.kernels.gemm.registers import RegisterModel

# fmt: off
REGISTER_MODELS: Mapping[str, RegisterModel] = {
    # 20 counts, error 5.6%, 19.4%; 8 of 22 clean excluded, 0 of 45 spilling kept
    "fma": RegisterModel(
        estimate={"accumulators": 267, "base": 2094, "operands": 13},
        bound={},
        margins=(142, 150),
    ),
    # 74 counts, error 7.6%, 27.0%; 16 of 75 clean excluded, 0 of 9 spilling kept
    "gfx1 wmma 16": RegisterModel(
        estimate={"accumulators": 11, "base": 3267, "end_accumulators": 139, "end_base": 3716,
            "end_persistent_accumulators": 45, "persistent": 84, "persistent_whole_a": 44, "pipelined": 587,
            "pipelined_a": 67, "pipelined_b": 148, "step_a": 182, "step_b": 92, "unpipelined_a": 59, "unpipelined_b":
            141, "whole_a": 102},
        bound={},
        margins=(150, 146),
    ),
    # 22 counts, error 2.1%, 17.7%; 5 of 23 clean excluded, 0 of 5 spilling kept
    "gfx1 wmma fp8": RegisterModel(
        estimate={"base": 1889, "end_accumulators": 148, "end_base": 2074, "gathered_step_a": 169, "gathered_step_b":
            19, "gathered_whole_b": 132, "loads_a": 13, "persistent": 512, "persistent_whole_a": 115,
            "persistent_whole_b": 227, "pipelined": 2163, "step_a": 144, "step_b": 3, "whole_b": 100},
        bound={},
        margins=(150, 150),
    ),
    # 51 counts, error 6.9%, 21.7%; 2 of 52 clean excluded, 0 of 4 spilling kept
    "gfx1 wmma int8": RegisterModel(
        estimate={"base": 4590, "end_accumulators": 109, "end_base": 4543, "end_persistent_accumulators": 8,
            "end_split": 960, "gathered_step_a": 58, "persistent": 1526, "pipelined": 280, "pipelined_a": 90,
            "pipelined_b": 10, "unpipelined_a": 52, "unpipelined_b": 450, "whole_a": 188},
        bound={},
        margins=(144, 125),
    ),
    # 690 counts, error 11.4%, 39.0%; 136 of 847 clean excluded, 0 of 67 spilling kept
    "gfx9 mfma 16": RegisterModel(
        estimate={"accumulators": 95, "base": 1863, "end_accumulators": 119, "end_base": 1899, "end_partials": 26,
            "end_persistent": 1214, "end_persistent_accumulators": 13, "end_ragged": 840, "end_split": 1098, "loads_a":
            181, "loads_b": 240, "narrow_a": 170, "narrow_b": 120, "persistent": 510, "persistent_narrow_b": 17,
            "persistent_whole_a": 7, "persistent_whole_b": 46, "pipelined": 1085, "pipelined_a": 82, "pipelined_b": 84,
            "unpipelined_a": 50, "unpipelined_b": 88, "whole_a": 44, "whole_b": 3},
        bound={"accumulators": 70, "base": 9331, "end_accumulators": 240, "end_partials": 180, "end_ragged": 5760,
            "loads_b": 325, "narrow_a": 117, "narrow_b": 223, "pipelined_b": 128, "ragged_a": 1562, "unpipelined_a":
            202, "unpipelined_b": 120, "whole_a": 233},
        margins=(100, 110),
    ),
    # 179 counts, error 10.6%, 30.4%; 68 of 215 clean excluded, 0 of 21 spilling kept
    "gfx9 mfma fp8": RegisterModel(
        estimate={"accumulators": 109, "base": 1311, "end_base": 2998, "end_partials": 26, "end_persistent": 1036,
            "end_persistent_accumulators": 135, "end_split": 1237, "loads_b": 326, "narrow_a": 163, "narrow_b": 84,
            "persistent": 1003, "persistent_loads_b": 344, "pipelined": 732, "pipelined_a": 73, "pipelined_b": 74,
            "ragged_a": 131, "ragged_b": 1446, "unpipelined_a": 67, "unpipelined_b": 97, "whole_a": 83},
        bound={"base": 12813, "end_partials": 120, "end_persistent_accumulators": 240, "persistent_accumulators": 117,
            "persistent_loads_b": 94, "pipelined_a": 1930, "ragged_b": 5251, "step_a": 309, "unpipelined_a": 1602,
            "unpipelined_b": 1129},
        margins=(101, 100),
    ),
    # 396 counts, error 8.6%, 32.7%; 34 of 474 clean excluded, 0 of 33 spilling kept
    "gfx9 mfma int8": RegisterModel(
        estimate={"accumulators": 95, "base": 1569, "end_base": 2693, "end_partials": 7, "end_persistent": 1913,
            "end_split": 507, "end_split_accumulators": 168, "gathered_step_a": 64, "loads_a": 335, "narrow_a": 235,
            "narrow_b": 72, "persistent": 554, "persistent_accumulators": 13, "persistent_loads_a": 115,
            "persistent_loads_b": 98, "pipelined": 80, "pipelined_a": 66, "pipelined_b": 158, "ragged_a": 360, "step_a":
            16, "unpipelined_a": 37, "unpipelined_b": 74, "whole_a": 19, "whole_b": 86},
        bound={"accumulators": 139, "end_split": 15360, "gathered_step_a": 811, "narrow_a": 446,
            "persistent_accumulators": 51, "unpipelined_b": 205},
        margins=(106, 150),
    ),
    # 125 counts, error 5.4%, 26.5%; 10 of 142 clean excluded, 0 of 7 spilling kept
    "gfx9 mfma tf32": RegisterModel(
        estimate={"accumulators": 86, "base": 1793, "end_accumulators": 53, "end_base": 1983, "end_partials": 46,
            "end_persistent": 3050, "end_persistent_accumulators": 87, "end_ragged_accumulators": 134, "end_split":
            1322, "end_split_accumulators": 8, "gathered_whole_b": 66, "loads_a": 198, "loads_b": 8, "persistent": 231,
            "persistent_accumulators": 10, "persistent_loads_a": 251, "persistent_loads_b": 84, "persistent_whole_a": 1,
            "persistent_whole_b": 23, "pipelined_a": 62, "pipelined_b": 147, "unpipelined_a": 3, "unpipelined_b": 107,
            "whole_a": 103, "whole_b": 56},
        bound={"accumulators": 204, "end_partials": 120, "unpipelined_a": 145},
        margins=(148, 150),
    ),
    # 417 counts, error 6.9%, 20.4%; 44 of 507 clean excluded, 0 of 91 spilling kept
    "sm_8x mma 16": RegisterModel(
        estimate={"accumulators": 110, "base": 1805, "end_accumulators": 66, "end_base": 1283, "end_persistent": 8,
            "end_ragged": 76, "end_ragged_accumulators": 15, "end_split": 1945, "end_split_accumulators": 128,
            "loads_a": 345, "loads_b": 256, "narrow_a": 270, "narrow_b": 171, "persistent": 852,
            "persistent_accumulators": 7, "persistent_loads_a": 84, "persistent_loads_b": 126, "persistent_narrow_a":
            26, "persistent_narrow_b": 212, "pipelined": 527, "ragged_a": 210, "ragged_b": 215, "step_a": 133, "step_b":
            147, "unpipelined_a": 39, "whole_a": 7},
        bound={"accumulators": 109, "loads_b": 322, "narrow_b": 161, "persistent_accumulators": 69,
            "persistent_loads_a": 305, "persistent_loads_b": 130, "pipelined": 3057, "ragged_a": 2661, "step_a": 207,
            "step_b": 213},
        margins=(108, 117),
    ),
    # 21 counts, error 2.2%, 14.0%; 7 of 22 clean excluded, 0 of 8 spilling kept
    "sm_8x mma fp8": RegisterModel(
        estimate={"accumulators": 142, "base": 2659, "end_accumulators": 1, "end_base": 25, "end_persistent": 38,
            "end_persistent_accumulators": 1, "end_ragged": 9, "end_ragged_accumulators": 4, "end_split": 10,
            "end_split_accumulators": 1, "gathered_step_a": 263, "gathered_step_b": 157, "gathered_whole_b": 165,
            "loads_b": 801, "narrow_a": 57, "narrow_b": 888, "persistent_loads_a": 495, "pipelined": 19, "ragged_a":
            1759, "ragged_b": 888},
        bound={},
        margins=(140, 150),
    ),
    # 146 counts, error 7.7%, 27.5%; 61 of 194 clean excluded, 0 of 74 spilling kept
    "sm_8x mma int8": RegisterModel(
        estimate={"accumulators": 57, "base": 206, "end_accumulators": 89, "end_base": 1677, "end_persistent": 4884,
            "end_persistent_accumulators": 51, "end_ragged": 3756, "end_split": 1599, "end_split_accumulators": 139,
            "gathered_step_a": 201, "gathered_step_b": 504, "gathered_whole_b": 73, "loads_a": 238, "loads_b": 418,
            "narrow_a": 121, "narrow_b": 254, "persistent": 1487, "pipelined": 593, "step_a": 294, "step_b": 214,
            "unpipelined_b": 23, "whole_b": 44},
        bound={},
        margins=(140, 137),
    ),
    # 172 counts, error 6.1%, 20.3%; 13 of 215 clean excluded, 0 of 35 spilling kept
    "sm_8x mma tf32": RegisterModel(
        estimate={"accumulators": 120, "base": 801, "end_accumulators": 153, "end_base": 3412, "end_ragged": 766,
            "end_ragged_accumulators": 17, "end_split_accumulators": 97, "gathered_step_a": 115, "gathered_step_b": 213,
            "gathered_whole_b": 2, "loads_a": 326, "loads_b": 187, "persistent": 1842, "persistent_loads_b": 166,
            "pipelined": 2051, "ragged_a": 138, "ragged_b": 349, "unpipelined_a": 175},
        bound={"end_split": 5730, "end_split_accumulators": 301, "gathered_whole_b": 96, "persistent_accumulators": 234,
            "persistent_whole_b": 85, "ragged_a": 9229},
        margins=(100, 110),
    ),
    # 261 counts, error 7.5%, 21.1%; 32 of 304 clean excluded, 0 of 64 spilling kept
    "sm_9x mma 16": RegisterModel(
        estimate={"accumulators": 114, "base": 2543, "end_accumulators": 138, "end_base": 2399,
            "end_persistent_accumulators": 18, "end_ragged_accumulators": 60, "end_split": 864,
            "end_split_accumulators": 29, "loads_a": 257, "loads_b": 184, "narrow_a": 239, "narrow_b": 123,
            "persistent_loads_a": 26, "persistent_loads_b": 363, "ragged_a": 185, "ragged_b": 214, "step_b": 91,
            "unpipelined_a": 56, "whole_a": 17, "whole_b": 8},
        bound={"loads_b": 376, "whole_b": 51},
        margins=(139, 120),
    ),
    # 219 counts, error 5.6%, 15.2%; 36 of 271 clean excluded, 0 of 16 spilling kept
    "sm_9x mma descriptor 16": RegisterModel(
        estimate={"accumulators": 102, "base": 1008, "end_accumulators": 44, "end_base": 908, "end_persistent": 10,
            "end_persistent_accumulators": 6, "end_split": 1697, "end_split_accumulators": 82, "persistent_whole_a": 1,
            "persistent_whole_b": 4, "pipelined": 1018, "step_b": 65, "whole_a": 104, "whole_b": 3},
        bound={"base": 6144, "persistent": 414, "step_b": 738, "whole_a": 52},
        margins=(119, 150),
    ),
    # 26 counts, error 2.5%, 6.0%; 3 of 26 clean excluded, 0 of 0 spilling kept
    "sm_9x mma descriptor fp8": RegisterModel(
        estimate={"accumulators": 49, "base": 32, "end_accumulators": 85, "end_base": 2605, "end_persistent": 419,
            "end_split_accumulators": 71, "persistent": 69, "persistent_whole_a": 42, "pipelined": 159, "step_a": 109,
            "step_b": 445, "whole_a": 25},
        bound={},
        margins=(150, 150),
    ),
    # 151 counts, error 7.5%, 20.6%; 0 of 171 clean excluded, 0 of 1 spilling kept
    "sm_9x mma descriptor int8": RegisterModel(
        estimate={"accumulators": 108, "base": 1180, "end_accumulators": 56, "end_base": 774,
            "end_persistent_accumulators": 88, "end_split": 2442, "end_split_accumulators": 60, "persistent": 271,
            "persistent_accumulators": 4, "persistent_whole_b": 15, "pipelined": 1182, "whole_a": 2, "whole_b": 20},
        bound={},
        margins=(123, 127),
    ),
    # 166 counts, error 6.0%, 20.7%; 5 of 211 clean excluded, 0 of 2 spilling kept
    "sm_9x mma descriptor tf32": RegisterModel(
        estimate={"accumulators": 149, "base": 1056, "end_base": 2729, "end_persistent": 1001, "end_split": 285,
            "end_split_accumulators": 133, "persistent": 641, "pipelined": 1056, "step_b": 5, "whole_b": 3},
        bound={"step_b": 478},
        margins=(112, 125),
    ),
    # 117 counts, error 6.0%, 14.1%; 11 of 145 clean excluded, 0 of 10 spilling kept
    "sm_9x mma descriptor widened fp8": RegisterModel(
        estimate={"accumulators": 87, "base": 1215, "end_accumulators": 46, "end_base": 1067,
            "end_persistent_accumulators": 1, "end_split": 2136, "end_split_accumulators": 105,
            "persistent_accumulators": 14, "pipelined": 1212, "step_b": 128, "whole_a": 100, "whole_b": 24},
        bound={"persistent_accumulators": 181, "persistent_whole_a": 93, "persistent_whole_b": 24},
        margins=(114, 150),
    ),
    # 24 counts, error 1.4%, 4.1%; 6 of 24 clean excluded, 0 of 7 spilling kept
    "sm_9x mma fp8": RegisterModel(
        estimate={"accumulators": 93, "base": 2, "end_accumulators": 102, "end_base": 3088, "end_persistent": 1,
            "end_ragged": 38, "gathered_step_a": 14, "gathered_step_b": 171, "gathered_whole_a": 76, "loads_b": 521,
            "narrow_a": 203, "narrow_b": 1798, "persistent": 58, "persistent_accumulators": 12, "persistent_loads_a":
            123, "persistent_loads_b": 97, "persistent_whole_a": 19, "persistent_whole_b": 39, "ragged_a": 1158,
            "ragged_b": 1173, "step_a": 12, "step_b": 158, "unpipelined_a": 96, "unpipelined_b": 86, "whole_a": 74},
        bound={},
        margins=(150, 150),
    ),
    # 111 counts, error 6.2%, 23.0%; 27 of 141 clean excluded, 0 of 34 spilling kept
    "sm_9x mma int8": RegisterModel(
        estimate={"base": 1121, "end_accumulators": 149, "end_base": 2811, "end_ragged": 1000,
            "end_ragged_accumulators": 306, "end_split": 210, "end_split_accumulators": 49, "gathered_step_a": 130,
            "gathered_step_b": 292, "gathered_whole_b": 47, "loads_a": 41, "loads_b": 185, "narrow_a": 91, "narrow_b":
            51, "persistent_loads_a": 239, "persistent_whole_b": 190, "ragged_a": 187, "ragged_b": 756, "step_a": 241,
            "unpipelined_a": 52, "unpipelined_b": 28, "whole_a": 5, "whole_b": 130},
        bound={"end_ragged": 6619, "end_ragged_accumulators": 574, "end_split_accumulators": 175, "gathered_step_b":
            218, "loads_a": 754, "narrow_a": 109, "narrow_b": 115, "persistent_narrow_a": 138, "ragged_a": 10600,
            "unpipelined_a": 73},
        margins=(133, 150),
    ),
    # 144 counts, error 6.5%, 24.2%; 22 of 169 clean excluded, 0 of 37 spilling kept
    "sm_9x mma tf32": RegisterModel(
        estimate={"accumulators": 104, "base": 2741, "end_accumulators": 175, "end_base": 46, "end_persistent": 338,
            "end_persistent_accumulators": 75, "end_ragged": 1706, "end_ragged_accumulators": 66, "end_split": 3156,
            "end_split_accumulators": 14, "gathered_step_b": 82, "gathered_whole_a": 1, "gathered_whole_b": 25,
            "loads_a": 304, "loads_b": 96, "persistent_accumulators": 32, "persistent_loads_b": 253, "pipelined": 72,
            "step_a": 9, "unpipelined_a": 57},
        bound={"gathered_whole_a": 56, "loads_b": 335, "ragged_a": 2040},
        margins=(137, 122),
    ),
    # 118 counts, error 5.9%, 21.9%; 22 of 133 clean excluded, 0 of 21 spilling kept
    "sm_9x mma widened fp8": RegisterModel(
        estimate={"base": 1306, "end_accumulators": 199, "end_base": 3091, "end_ragged": 1129, "end_split": 127,
            "loads_a": 220, "loads_b": 231, "narrow_a": 330, "narrow_b": 85, "persistent": 211,
            "persistent_accumulators": 80, "ragged_a": 857, "ragged_b": 81, "step_a": 361, "step_b": 282,
            "unpipelined_a": 9, "unpipelined_b": 60, "whole_a": 26, "whole_b": 75},
        bound={},
        margins=(150, 110),
    ),
    # 33 counts, error 2.6%, 17.3%; 11 of 41 clean excluded, 0 of 4 spilling kept
    "sm_9x tcgen05 16": RegisterModel(
        estimate={"base": 937, "end_accumulators": 112, "end_base": 1413, "end_persistent": 1177,
            "end_persistent_accumulators": 48, "end_ragged": 2275, "end_split": 459, "end_split_accumulators": 58,
            "loads_a": 493, "loads_b": 305, "persistent_loads_a": 558, "pipelined": 1063, "ragged_a": 1, "ragged_b": 79,
            "unpipelined_a": 10},
        bound={"end_ragged": 24140, "end_ragged_accumulators": 7, "end_split_accumulators": 195},
        margins=(150, 133),
    ),
    # 48 counts, error 5.5%, 20.4%; 0 of 53 clean excluded, 0 of 3 spilling kept
    "sm_9x tcgen05 descriptor 16": RegisterModel(
        estimate={"accumulators": 80, "base": 550, "end_accumulators": 80, "end_base": 1098, "end_persistent": 1327,
            "end_persistent_accumulators": 20, "end_split": 300, "end_split_accumulators": 86, "persistent": 1326,
            "persistent_accumulators": 20, "pipelined": 549},
        bound={},
        margins=(150, 108),
    ),
    # 32 counts, error 6.2%, 24.2%; 1 of 37 clean excluded, 0 of 1 spilling kept
    "sm_9x tcgen05 descriptor fp8": RegisterModel(
        estimate={"accumulators": 78, "base": 539, "end_accumulators": 26, "end_base": 833, "end_persistent": 1199,
            "end_persistent_accumulators": 35, "end_split": 1429, "end_split_accumulators": 90, "persistent": 283,
            "pipelined": 539},
        bound={},
        margins=(121, 150),
    ),
    # 31 counts, error 3.6%, 14.3%; 0 of 32 clean excluded, 0 of 0 spilling kept
    "sm_9x tcgen05 descriptor int8": RegisterModel(
        estimate={"base": 692, "end_accumulators": 99, "end_base": 722, "end_persistent": 73,
            "end_persistent_accumulators": 30, "end_split": 1517, "end_split_accumulators": 59, "persistent": 1495,
            "pipelined": 611},
        bound={},
        margins=(150, 104),
    ),
    # 28 counts, error 1.4%, 26.7%; 5 of 30 clean excluded, 0 of 0 spilling kept
    "sm_9x tcgen05 descriptor tf32": RegisterModel(
        estimate={"accumulators": 98, "base": 465, "end_accumulators": 25, "end_base": 731, "end_persistent": 2975,
            "end_persistent_accumulators": 5, "end_split": 1478, "end_split_accumulators": 133, "persistent": 162,
            "persistent_accumulators": 18, "pipelined": 456},
        bound={},
        margins=(150, 150),
    ),
    # 17 counts, error 1.3%, 3.3%; 2 of 19 clean excluded, 0 of 2 spilling kept
    "sm_9x tcgen05 fp8": RegisterModel(
        estimate={"accumulators": 90, "end_accumulators": 59, "end_base": 712, "end_persistent_accumulators": 2,
            "end_ragged": 1765, "end_split": 1191, "end_split_accumulators": 107, "gathered_step_a": 105,
            "gathered_whole_a": 14, "loads_a": 266, "loads_b": 19, "narrow_a": 269, "narrow_b": 777, "persistent": 67,
            "persistent_accumulators": 4, "persistent_loads_a": 17, "persistent_loads_b": 67, "persistent_whole_a": 4,
            "persistent_whole_b": 8, "ragged_b": 38, "step_a": 128, "unpipelined_a": 9, "unpipelined_b": 144, "whole_a":
            6},
        bound={},
        margins=(150, 150),
    ),
    # 20 counts, error 2.5%, 31.7%; 0 of 21 clean excluded, 0 of 10 spilling kept
    "sm_9x tcgen05 int8": RegisterModel(
        estimate={"base": 7, "end_accumulators": 118, "end_persistent": 1970, "end_persistent_accumulators": 61,
            "end_split_accumulators": 136, "gathered_step_a": 257, "gathered_step_b": 191, "gathered_whole_a": 2,
            "loads_a": 266, "narrow_a": 67, "narrow_b": 2325, "persistent_loads_b": 485, "persistent_whole_b": 30,
            "pipelined": 23, "ragged_a": 312, "ragged_b": 258, "step_a": 270, "unpipelined_a": 148, "whole_a": 12},
        bound={},
        margins=(150, 150),
    ),
    # 16 counts, error 1.6%, 7.9%; 5 of 17 clean excluded, 0 of 5 spilling kept
    "sm_9x tcgen05 tf32": RegisterModel(
        estimate={"end_accumulators": 19, "end_base": 4307, "end_persistent": 1817, "end_persistent_accumulators": 40,
            "end_split": 6818, "end_split_accumulators": 9, "gathered_whole_a": 86, "gathered_whole_b": 32, "loads_a":
            252, "loads_b": 176, "persistent": 48, "persistent_accumulators": 14, "persistent_loads_a": 447,
            "persistent_loads_b": 575, "persistent_whole_a": 4, "persistent_whole_b": 33, "ragged_a": 2685, "ragged_b":
            2742, "unpipelined_b": 27, "whole_b": 14},
        bound={"end_split_accumulators": 239, "unpipelined_a": 120},
        margins=(150, 150),
    ),
    # 46 counts, error 3.0%, 13.9%; 10 of 57 clean excluded, 0 of 4 spilling kept
    "sm_9x wgmma 16": RegisterModel(
        estimate={"accumulators": 107, "base": 1945, "end_accumulators": 125, "end_base": 2595, "end_ragged": 374,
            "end_ragged_accumulators": 46, "end_split": 32, "end_split_accumulators": 43, "loads_a": 332, "loads_b":
            168, "narrow_a": 489, "persistent": 811, "persistent_loads_a": 292, "ragged_a": 415, "ragged_b": 22,
            "unpipelined_a": 153, "unpipelined_b": 84},
        bound={},
        margins=(148, 115),
    ),
    # 74 counts, error 2.8%, 11.1%; 2 of 98 clean excluded, 0 of 6 spilling kept
    "sm_9x wgmma descriptor 16": RegisterModel(
        estimate={"accumulators": 100, "base": 1311, "end_accumulators": 49, "end_base": 967, "end_persistent": 713,
            "end_persistent_accumulators": 67, "end_split": 1725, "end_split_accumulators": 65, "persistent": 19,
            "pipelined": 1290},
        bound={},
        margins=(109, 116),
    ),
    # 47 counts, error 3.3%, 13.3%; 10 of 70 clean excluded, 0 of 16 spilling kept
    "sm_9x wgmma descriptor fp8": RegisterModel(
        estimate={"accumulators": 160, "base": 876, "end_accumulators": 127, "end_base": 2373, "end_persistent": 102,
            "end_persistent_accumulators": 9, "end_split_accumulators": 41, "pipelined": 875},
        bound={},
        margins=(150, 115),
    ),
    # 32 counts, error 1.5%, 14.6%; 2 of 63 clean excluded, 0 of 0 spilling kept
    "sm_9x wgmma descriptor int8": RegisterModel(
        estimate={"accumulators": 100, "base": 1300, "end_accumulators": 49, "end_base": 1105, "end_persistent": 1516,
            "end_persistent_accumulators": 58, "end_split": 1899, "end_split_accumulators": 76, "persistent": 24,
            "persistent_accumulators": 7, "pipelined": 1300},
        bound={},
        margins=(150, 118),
    ),
    # 42 counts, error 2.9%, 11.8%; 0 of 62 clean excluded, 0 of 2 spilling kept
    "sm_9x wgmma descriptor tf32": RegisterModel(
        estimate={"accumulators": 100, "base": 1303, "end_accumulators": 39, "end_base": 964, "end_persistent": 3,
            "end_split": 1854, "end_split_accumulators": 82, "persistent_accumulators": 1, "pipelined": 1305},
        bound={"end_split_accumulators": 240},
        margins=(150, 130),
    ),
    # 31 counts, error 1.6%, 7.6%; 5 of 33 clean excluded, 0 of 5 spilling kept
    "sm_9x wgmma fp8": RegisterModel(
        estimate={"base": 1004, "end_accumulators": 188, "end_base": 1345, "end_persistent": 1417,
            "end_persistent_accumulators": 42, "end_ragged": 356, "end_ragged_accumulators": 180, "end_split": 291,
            "end_split_accumulators": 49, "gathered_step_b": 196, "gathered_whole_a": 11, "gathered_whole_b": 8,
            "loads_a": 280, "narrow_a": 74, "narrow_b": 630, "persistent_loads_a": 426, "persistent_narrow_a": 87,
            "persistent_narrow_b": 175, "pipelined": 1034, "ragged_b": 202, "step_b": 188, "unpipelined_a": 319,
            "unpipelined_b": 551, "whole_a": 20, "whole_b": 16},
        bound={},
        margins=(131, 150),
    ),
    # 14 counts, error 0.0%, 3.5%; 12 of 24 clean excluded, 0 of 10 spilling kept
    "sm_9x wgmma int8": RegisterModel(
        estimate={"accumulators": 42, "base": 272, "end_accumulators": 65, "end_base": 1032, "end_persistent": 28,
            "end_ragged": 4, "end_split": 1247, "end_split_accumulators": 149, "gathered_step_a": 233,
            "gathered_step_b": 71, "gathered_whole_a": 9, "loads_a": 54, "loads_b": 218, "narrow_a": 46, "narrow_b":
            417, "persistent": 1095, "persistent_accumulators": 9, "persistent_loads_a": 548, "persistent_loads_b": 274,
            "persistent_whole_a": 137, "persistent_whole_b": 9, "pipelined": 272, "ragged_a": 1806, "ragged_b": 392,
            "step_a": 241, "step_b": 71, "whole_a": 9},
        bound={"end_split_accumulators": 478},
        margins=(150, 150),
    ),
    # 16 counts, error 1.6%, 14.5%; 11 of 31 clean excluded, 0 of 5 spilling kept
    "sm_9x wgmma tf32": RegisterModel(
        estimate={"accumulators": 92, "end_accumulators": 5, "end_base": 96, "end_persistent": 4,
            "end_persistent_accumulators": 1, "end_split": 4, "gathered_step_b": 89, "gathered_whole_b": 28, "loads_a":
            149, "loads_b": 1157, "persistent": 209, "persistent_accumulators": 26, "persistent_loads_a": 105,
            "persistent_loads_b": 209, "persistent_whole_a": 16, "persistent_whole_b": 13, "pipelined": 524, "ragged_b":
            545, "step_a": 259, "unpipelined_a": 59},
        bound={"loads_a": 478},
        margins=(150, 150),
    ),
    # 47 counts, error 9.3%, 21.1%; 5 of 48 clean excluded, 0 of 8 spilling kept
    "gfx1100 wmma 16": RegisterModel(
        estimate={"accumulators": 11, "base": 3341, "end_accumulators": 139, "end_base": 3709,
            "end_persistent_accumulators": 48, "persistent": 276, "persistent_accumulators": 2, "persistent_loads_b":
            116, "persistent_whole_a": 48, "persistent_whole_b": 6, "pipelined": 658, "pipelined_a": 65, "pipelined_b":
            143, "step_a": 189, "step_b": 95, "unpipelined_a": 121, "unpipelined_b": 169, "whole_a": 105, "whole_b": 2},
        bound={},
        margins=(140, 115),
    ),
    # 308 counts, error 9.8%, 29.3%; 39 of 366 clean excluded, 0 of 22 spilling kept
    "gfx90a mfma 16": RegisterModel(
        estimate={"accumulators": 92, "base": 1794, "end_accumulators": 119, "end_base": 1949, "end_partials": 28,
            "end_persistent": 1292, "end_persistent_accumulators": 13, "end_ragged": 588, "end_split": 1199, "loads_a":
            170, "loads_b": 282, "narrow_a": 136, "narrow_b": 99, "persistent": 462, "persistent_accumulators": 3,
            "persistent_narrow_a": 5, "persistent_narrow_b": 24, "persistent_whole_a": 15, "persistent_whole_b": 32,
            "pipelined": 1046, "pipelined_a": 84, "pipelined_b": 121, "unpipelined_a": 51, "unpipelined_b": 76,
            "whole_a": 41, "whole_b": 11},
        bound={"accumulators": 157, "end_partials": 206, "end_ragged": 3291, "end_split_accumulators": 137, "narrow_a":
            37, "narrow_b": 299, "ragged_a": 5793, "unpipelined_a": 38, "whole_a": 314},
        margins=(145, 150),
    ),
    # 177 counts, error 6.7%, 29.1%; 4 of 208 clean excluded, 0 of 11 spilling kept
    "gfx90a mfma int8": RegisterModel(
        estimate={"accumulators": 92, "base": 1617, "end_accumulators": 2, "end_base": 2680, "end_partials": 8,
            "end_persistent": 1840, "end_split": 449, "end_split_accumulators": 174, "gathered_step_a": 39,
            "gathered_step_b": 7, "gathered_whole_b": 1, "loads_a": 380, "loads_b": 9, "narrow_a": 241, "narrow_b": 50,
            "persistent": 559, "persistent_accumulators": 12, "persistent_loads_a": 146, "persistent_loads_b": 104,
            "pipelined": 85, "pipelined_a": 85, "pipelined_b": 163, "ragged_a": 403, "step_a": 5, "step_b": 4,
            "unpipelined_a": 32, "unpipelined_b": 73, "whole_a": 17, "whole_b": 85},
        bound={"end_partials": 120},
        margins=(150, 150),
    ),
    # 191 counts, error 7.6%, 26.1%; 19 of 235 clean excluded, 0 of 15 spilling kept
    "gfx942 mfma 16": RegisterModel(
        estimate={"accumulators": 94, "base": 1860, "end_accumulators": 120, "end_base": 1916, "end_partials": 29,
            "end_persistent": 1207, "end_persistent_accumulators": 13, "end_ragged": 706, "end_split": 1144,
            "end_split_accumulators": 2, "loads_a": 187, "loads_b": 257, "narrow_a": 168, "narrow_b": 148, "persistent":
            620, "persistent_loads_b": 37, "persistent_whole_a": 5, "persistent_whole_b": 74, "pipelined": 1051,
            "pipelined_a": 86, "pipelined_b": 102, "unpipelined_a": 53, "unpipelined_b": 77, "whole_a": 68, "whole_b":
            16},
        bound={"base": 11954, "end_partials": 114, "end_persistent_accumulators": 240, "end_split_accumulators": 183,
            "unpipelined_b": 131, "whole_a": 147},
        margins=(136, 150),
    ),
    # 105 counts, error 9.3%, 25.3%; 26 of 120 clean excluded, 0 of 9 spilling kept
    "gfx942 mfma fp8": RegisterModel(
        estimate={"accumulators": 107, "base": 1429, "end_base": 3001, "end_partials": 27, "end_persistent": 1061,
            "end_persistent_accumulators": 136, "end_split": 1240, "gathered_whole_a": 5, "gathered_whole_b": 12,
            "loads_a": 31, "loads_b": 325, "narrow_a": 148, "narrow_b": 76, "persistent": 916,
            "persistent_accumulators": 4, "persistent_loads_b": 274, "pipelined": 886, "pipelined_a": 90, "pipelined_b":
            85, "ragged_a": 1, "ragged_b": 1740, "unpipelined_a": 60, "unpipelined_b": 92, "whole_a": 91, "whole_b": 7},
        bound={"end_partials": 120, "persistent_accumulators": 120, "pipelined": 7737, "pipelined_a": 939, "step_a":
            1934, "unpipelined_a": 1351, "unpipelined_b": 555},
        margins=(144, 150),
    ),
    # 115 counts, error 6.1%, 20.7%; 3 of 135 clean excluded, 0 of 8 spilling kept
    "gfx942 mfma int8": RegisterModel(
        estimate={"accumulators": 96, "base": 1610, "end_base": 2712, "end_partials": 6, "end_persistent": 1912,
            "end_split": 559, "end_split_accumulators": 162, "gathered_step_a": 69, "gathered_whole_a": 7, "loads_a":
            350, "loads_b": 14, "narrow_a": 220, "narrow_b": 67, "persistent": 608, "persistent_accumulators": 10,
            "persistent_loads_a": 225, "persistent_loads_b": 22, "persistent_whole_a": 7, "pipelined": 101,
            "pipelined_a": 69, "pipelined_b": 154, "ragged_a": 357, "step_a": 22, "unpipelined_a": 39, "unpipelined_b":
            93, "whole_a": 31, "whole_b": 92},
        bound={"end_partials": 120, "persistent_accumulators": 240},
        margins=(123, 150),
    ),
    # 125 counts, error 5.4%, 26.5%; 7 of 142 clean excluded, 0 of 7 spilling kept
    "gfx942 mfma tf32": RegisterModel(
        estimate={"accumulators": 86, "base": 1792, "end_accumulators": 53, "end_base": 1987, "end_partials": 46,
            "end_persistent": 3050, "end_persistent_accumulators": 87, "end_ragged_accumulators": 134, "end_split":
            1329, "end_split_accumulators": 8, "gathered_whole_b": 66, "loads_a": 198, "loads_b": 8, "persistent": 232,
            "persistent_accumulators": 10, "persistent_loads_a": 251, "persistent_loads_b": 84, "persistent_whole_a": 1,
            "persistent_whole_b": 23, "pipelined_a": 62, "pipelined_b": 147, "unpipelined_a": 3, "unpipelined_b": 107,
            "whole_a": 103, "whole_b": 56},
        bound={"accumulators": 204, "end_partials": 120, "unpipelined_a": 145},
        margins=(130, 150),
    ),
    # 157 counts, error 12.7%, 35.3%; 17 of 211 clean excluded, 0 of 30 spilling kept
    "gfx950 mfma 16": RegisterModel(
        estimate={"accumulators": 93, "base": 1878, "end_accumulators": 116, "end_base": 1855, "end_partials": 22,
            "end_persistent": 1161, "end_persistent_accumulators": 7, "end_ragged": 757, "end_split": 1004, "loads_a":
            145, "loads_b": 159, "narrow_a": 198, "narrow_b": 139, "persistent": 379, "persistent_accumulators": 3,
            "persistent_narrow_a": 75, "persistent_narrow_b": 92, "persistent_whole_a": 4, "persistent_whole_b": 17,
            "pipelined": 1038, "pipelined_a": 56, "pipelined_b": 53, "ragged_a": 125, "ragged_b": 125, "step_a": 20,
            "unpipelined_a": 61, "unpipelined_b": 94, "whole_a": 47},
        bound={"accumulators": 240, "end_accumulators": 240, "end_partials": 112, "narrow_a": 420, "narrow_b": 255},
        margins=(100, 117),
    ),
    # 74 counts, error 10.2%, 27.0%; 18 of 95 clean excluded, 0 of 12 spilling kept
    "gfx950 mfma fp8": RegisterModel(
        estimate={"accumulators": 110, "base": 1230, "end_base": 2987, "end_partials": 26, "end_persistent": 1056,
            "end_persistent_accumulators": 128, "end_split": 1164, "loads_b": 264, "narrow_a": 173, "narrow_b": 86,
            "persistent": 965, "persistent_loads_b": 237, "pipelined": 645, "pipelined_a": 74, "pipelined_b": 58,
            "ragged_a": 133, "ragged_b": 1359, "unpipelined_a": 52, "unpipelined_b": 127, "whole_a": 80},
        bound={"base": 15360, "end_persistent": 3755, "end_persistent_accumulators": 181, "unpipelined_b": 1920},
        margins=(105, 104),
    ),
    # 92 counts, error 8.5%, 28.9%; 5 of 119 clean excluded, 0 of 12 spilling kept
    "gfx950 mfma int8": RegisterModel(
        estimate={"accumulators": 97, "base": 1496, "end_base": 2696, "end_partials": 6, "end_persistent": 1906,
            "end_ragged": 42, "end_ragged_accumulators": 4, "end_split": 454, "end_split_accumulators": 168,
            "gathered_step_a": 74, "loads_a": 285, "narrow_a": 252, "narrow_b": 94, "persistent": 388,
            "persistent_accumulators": 19, "persistent_loads_a": 57, "persistent_loads_b": 28, "persistent_narrow_a":
            189, "persistent_narrow_b": 189, "pipelined": 39, "pipelined_a": 39, "pipelined_b": 124, "ragged_a": 481,
            "ragged_b": 121, "step_a": 19, "unpipelined_a": 44, "unpipelined_b": 76, "whole_a": 13, "whole_b": 71},
        bound={"end_partials": 120, "gathered_step_b": 704, "gathered_whole_a": 76, "gathered_whole_b": 228, "narrow_a":
            404, "narrow_b": 36, "persistent_accumulators": 114},
        margins=(114, 150),
    ),
    # 115 counts, error 7.5%, 21.9%; 14 of 135 clean excluded, 0 of 31 spilling kept
    "sm_100 mma 16": RegisterModel(
        estimate={"accumulators": 115, "base": 2550, "end_accumulators": 138, "end_base": 2382,
            "end_persistent_accumulators": 18, "end_ragged_accumulators": 60, "end_split": 833,
            "end_split_accumulators": 28, "loads_a": 253, "loads_b": 180, "narrow_a": 240, "narrow_b": 123,
            "persistent_loads_a": 36, "persistent_loads_b": 381, "persistent_whole_b": 1, "ragged_a": 185, "ragged_b":
            214, "step_a": 4, "step_b": 93, "unpipelined_a": 53, "whole_a": 16, "whole_b": 7},
        bound={"end_split_accumulators": 239, "loads_b": 478},
        margins=(129, 115),
    ),
    # 115 counts, error 4.7%, 14.0%; 8 of 141 clean excluded, 0 of 7 spilling kept
    "sm_100 mma descriptor 16": RegisterModel(
        estimate={"accumulators": 101, "base": 994, "end_accumulators": 44, "end_base": 893, "end_persistent": 10,
            "end_persistent_accumulators": 6, "end_split": 1673, "end_split_accumulators": 82, "persistent_whole_b": 3,
            "pipelined": 1004, "step_b": 67, "whole_a": 104, "whole_b": 3},
        bound={},
        margins=(126, 150),
    ),
    # 66 counts, error 8.8%, 22.6%; 0 of 73 clean excluded, 0 of 1 spilling kept
    "sm_100 mma descriptor int8": RegisterModel(
        estimate={"accumulators": 108, "base": 1155, "end_accumulators": 55, "end_base": 753,
            "end_persistent_accumulators": 85, "end_split": 2411, "end_split_accumulators": 59, "persistent": 240,
            "persistent_accumulators": 2, "persistent_whole_b": 14, "pipelined": 1157, "whole_a": 2, "whole_b": 20},
        bound={"persistent_whole_b": 120},
        margins=(120, 107),
    ),
    # 76 counts, error 5.7%, 20.2%; 10 of 97 clean excluded, 0 of 1 spilling kept
    "sm_100 mma descriptor tf32": RegisterModel(
        estimate={"accumulators": 149, "base": 1042, "end_base": 2668, "end_persistent": 849, "end_split": 220,
            "end_split_accumulators": 133, "persistent": 602, "pipelined": 1042, "step_b": 3, "whole_b": 3},
        bound={"step_b": 117, "whole_b": 45},
        margins=(111, 150),
    ),
    # 63 counts, error 5.6%, 15.3%; 5 of 76 clean excluded, 0 of 6 spilling kept
    "sm_100 mma descriptor widened fp8": RegisterModel(
        estimate={"accumulators": 86, "base": 1211, "end_accumulators": 46, "end_base": 1039,
            "end_persistent_accumulators": 1, "end_split": 2077, "end_split_accumulators": 104,
            "persistent_accumulators": 13, "pipelined": 1208, "step_a": 2, "step_b": 125, "whole_a": 100, "whole_b":
            24},
        bound={"persistent_accumulators": 189, "persistent_whole_a": 101},
        margins=(116, 150),
    ),
    # 52 counts, error 10.8%, 24.2%; 17 of 69 clean excluded, 0 of 10 spilling kept
    "sm_100 mma int8": RegisterModel(
        estimate={"accumulators": 1, "base": 1090, "end_accumulators": 147, "end_base": 2779, "end_ragged": 1014,
            "end_ragged_accumulators": 322, "end_split": 165, "end_split_accumulators": 49, "gathered_step_a": 123,
            "gathered_step_b": 291, "gathered_whole_b": 47, "loads_a": 30, "loads_b": 188, "narrow_a": 106, "narrow_b":
            59, "persistent_loads_a": 252, "persistent_loads_b": 49, "persistent_whole_b": 186, "ragged_a": 288,
            "ragged_b": 769, "step_a": 236, "unpipelined_a": 50, "unpipelined_b": 33, "whole_a": 4, "whole_b": 130},
        bound={"loads_a": 704, "ragged_a": 12544},
        margins=(143, 150),
    ),
    # 62 counts, error 6.2%, 23.2%; 8 of 77 clean excluded, 0 of 18 spilling kept
    "sm_100 mma tf32": RegisterModel(
        estimate={"accumulators": 104, "base": 2745, "end_accumulators": 174, "end_base": 30, "end_persistent": 338,
            "end_persistent_accumulators": 75, "end_ragged": 1556, "end_ragged_accumulators": 61, "end_split": 3134,
            "end_split_accumulators": 13, "gathered_step_b": 77, "gathered_whole_a": 1, "gathered_whole_b": 24,
            "loads_a": 309, "loads_b": 101, "persistent_accumulators": 24, "persistent_loads_a": 3,
            "persistent_loads_b": 308, "persistent_whole_b": 4, "pipelined": 67, "step_a": 7, "step_b": 1,
            "unpipelined_a": 55, "unpipelined_b": 6, "whole_a": 1, "whole_b": 1},
        bound={},
        margins=(136, 150),
    ),
    # 70 counts, error 5.5%, 21.5%; 12 of 78 clean excluded, 0 of 11 spilling kept
    "sm_100 mma widened fp8": RegisterModel(
        estimate={"accumulators": 1, "base": 1266, "end_accumulators": 198, "end_base": 3071, "end_ragged": 1142,
            "end_ragged_accumulators": 6, "end_split": 107, "loads_a": 231, "loads_b": 239, "narrow_a": 339, "narrow_b":
            80, "persistent": 227, "persistent_accumulators": 87, "ragged_a": 841, "ragged_b": 121, "step_a": 360,
            "step_b": 281, "unpipelined_a": 12, "unpipelined_b": 66, "whole_a": 24, "whole_b": 72},
        bound={},
        margins=(150, 102),
    ),
    # 48 counts, error 5.5%, 20.4%; 7 of 53 clean excluded, 0 of 3 spilling kept
    "sm_100 tcgen05 descriptor 16": RegisterModel(
        estimate={"accumulators": 80, "base": 550, "end_accumulators": 80, "end_base": 1098, "end_persistent": 1327,
            "end_persistent_accumulators": 20, "end_split": 299, "end_split_accumulators": 86, "persistent": 1326,
            "persistent_accumulators": 20, "pipelined": 549},
        bound={},
        margins=(150, 119),
    ),
    # 338 counts, error 6.4%, 20.5%; 31 of 420 clean excluded, 0 of 76 spilling kept
    "sm_80 mma 16": RegisterModel(
        estimate={"accumulators": 113, "base": 1816, "end_accumulators": 67, "end_base": 1281, "end_persistent": 8,
            "end_ragged": 71, "end_ragged_accumulators": 14, "end_split": 1942, "end_split_accumulators": 129,
            "loads_a": 344, "loads_b": 253, "narrow_a": 256, "narrow_b": 169, "persistent": 759,
            "persistent_accumulators": 4, "persistent_loads_a": 78, "persistent_loads_b": 192, "persistent_narrow_a":
            34, "persistent_narrow_b": 229, "pipelined": 518, "ragged_a": 194, "ragged_b": 199, "step_a": 144, "step_b":
            148, "unpipelined_a": 38, "whole_a": 6},
        bound={"accumulators": 109, "loads_b": 324, "narrow_b": 162, "persistent_accumulators": 50,
            "persistent_loads_b": 284, "pipelined": 3018, "ragged_a": 2595, "step_a": 210, "step_b": 213},
        margins=(106, 113),
    ),
    # 138 counts, error 7.2%, 27.8%; 56 of 181 clean excluded, 0 of 68 spilling kept
    "sm_80 mma int8": RegisterModel(
        estimate={"accumulators": 58, "base": 201, "end_accumulators": 91, "end_base": 1716, "end_persistent": 4853,
            "end_persistent_accumulators": 49, "end_ragged": 3937, "end_ragged_accumulators": 1, "end_split": 1651,
            "end_split_accumulators": 144, "gathered_step_a": 200, "gathered_step_b": 508, "gathered_whole_b": 74,
            "loads_a": 237, "loads_b": 418, "narrow_a": 126, "narrow_b": 252, "persistent": 1478, "persistent_loads_a":
            1, "pipelined": 592, "step_a": 292, "step_b": 219, "unpipelined_b": 23, "whole_b": 44},
        bound={},
        margins=(139, 138),
    ),
    # 157 counts, error 5.9%, 20.2%; 7 of 200 clean excluded, 0 of 35 spilling kept
    "sm_80 mma tf32": RegisterModel(
        estimate={"accumulators": 119, "base": 813, "end_accumulators": 155, "end_base": 3429, "end_ragged": 797,
            "end_ragged_accumulators": 15, "end_split": 2, "end_split_accumulators": 97, "gathered_step_a": 115,
            "gathered_step_b": 213, "gathered_whole_b": 2, "loads_a": 322, "loads_b": 187, "persistent": 1890,
            "persistent_loads_b": 173, "pipelined": 2064, "ragged_a": 164, "ragged_b": 375, "unpipelined_a": 176,
            "unpipelined_b": 1},
        bound={"end_split": 5730, "end_split_accumulators": 301, "gathered_whole_b": 96, "persistent_accumulators": 234,
            "persistent_whole_b": 85, "ragged_a": 9229},
        margins=(100, 109),
    ),
    # 43 counts, error 5.6%, 14.8%; 8 of 49 clean excluded, 0 of 4 spilling kept
    "sm_89 mma 16": RegisterModel(
        estimate={"accumulators": 106, "base": 1741, "end_accumulators": 66, "end_base": 1281, "end_persistent": 8,
            "end_ragged": 79, "end_ragged_accumulators": 23, "end_split": 1939, "end_split_accumulators": 128,
            "loads_a": 345, "loads_b": 264, "narrow_a": 278, "narrow_b": 173, "persistent": 771,
            "persistent_accumulators": 4, "persistent_loads_a": 109, "persistent_loads_b": 57, "persistent_narrow_a":
            34, "persistent_narrow_b": 214, "persistent_whole_a": 9, "pipelined": 475, "ragged_a": 178, "ragged_b": 183,
            "step_a": 124, "step_b": 126, "unpipelined_a": 33, "whole_a": 9, "whole_b": 1},
        bound={"persistent_loads_a": 1912},
        margins=(117, 150),
    ),
    # 116 counts, error 7.6%, 22.8%; 15 of 139 clean excluded, 0 of 23 spilling kept
    "sm_90 mma 16": RegisterModel(
        estimate={"accumulators": 113, "base": 2513, "end_accumulators": 138, "end_base": 2412,
            "end_persistent_accumulators": 18, "end_ragged_accumulators": 65, "end_split": 887,
            "end_split_accumulators": 30, "loads_a": 260, "loads_b": 189, "narrow_a": 238, "narrow_b": 120,
            "persistent_loads_a": 7, "persistent_loads_b": 334, "ragged_a": 206, "ragged_b": 235, "step_b": 89,
            "unpipelined_a": 62, "whole_a": 17, "whole_b": 8},
        bound={},
        margins=(144, 150),
    ),
    # 72 counts, error 4.9%, 17.0%; 13 of 97 clean excluded, 0 of 9 spilling kept
    "sm_90 mma descriptor 16": RegisterModel(
        estimate={"accumulators": 101, "base": 1094, "end_accumulators": 44, "end_base": 908, "end_persistent": 10,
            "end_persistent_accumulators": 6, "end_split": 1697, "end_split_accumulators": 82, "persistent": 127,
            "persistent_whole_a": 1, "persistent_whole_b": 4, "pipelined": 1104, "step_b": 66, "whole_a": 104,
            "whole_b": 3},
        bound={"persistent": 2422, "step_b": 805, "whole_b": 38},
        margins=(114, 150),
    ),
    # 57 counts, error 6.8%, 18.0%; 0 of 70 clean excluded, 0 of 0 spilling kept
    "sm_90 mma descriptor int8": RegisterModel(
        estimate={"accumulators": 108, "base": 1179, "end_accumulators": 57, "end_base": 779, "end_persistent": 3,
            "end_persistent_accumulators": 89, "end_split": 2452, "end_split_accumulators": 62, "persistent": 266,
            "persistent_accumulators": 9, "persistent_whole_a": 3, "persistent_whole_b": 18, "pipelined": 1181,
            "whole_a": 2, "whole_b": 20},
        bound={},
        margins=(115, 119),
    ),
    # 63 counts, error 5.6%, 21.9%; 8 of 87 clean excluded, 0 of 1 spilling kept
    "sm_90 mma descriptor tf32": RegisterModel(
        estimate={"accumulators": 149, "base": 1081, "end_base": 2764, "end_persistent": 1007, "end_split": 323,
            "end_split_accumulators": 133, "persistent": 693, "persistent_accumulators": 1, "pipelined": 1081, "step_b":
            9, "whole_b": 3},
        bound={"step_b": 478},
        margins=(115, 150),
    ),
    # 54 counts, error 6.0%, 11.8%; 4 of 69 clean excluded, 0 of 4 spilling kept
    "sm_90 mma descriptor widened fp8": RegisterModel(
        estimate={"accumulators": 88, "base": 1233, "end_accumulators": 47, "end_base": 1091,
            "end_persistent_accumulators": 1, "end_split": 2181, "end_split_accumulators": 106,
            "persistent_accumulators": 15, "pipelined": 1230, "step_b": 129, "whole_a": 100, "whole_b": 24},
        bound={},
        margins=(110, 150),
    ),
    # 44 counts, error 5.4%, 16.4%; 10 of 56 clean excluded, 0 of 18 spilling kept
    "sm_90 mma int8": RegisterModel(
        estimate={"base": 1133, "end_accumulators": 149, "end_base": 2819, "end_ragged": 681, "end_ragged_accumulators":
            284, "end_split": 221, "end_split_accumulators": 48, "gathered_step_a": 134, "gathered_step_b": 301,
            "gathered_whole_a": 1, "gathered_whole_b": 51, "loads_a": 46, "loads_b": 185, "narrow_a": 87, "narrow_b":
            50, "persistent_loads_a": 214, "persistent_whole_b": 186, "pipelined": 11, "ragged_a": 95, "ragged_b": 765,
            "step_a": 245, "unpipelined_a": 58, "unpipelined_b": 24, "whole_a": 7, "whole_b": 132},
        bound={"end_ragged": 24990, "end_split_accumulators": 175, "narrow_b": 239, "unpipelined_a": 717},
        margins=(133, 150),
    ),
    # 57 counts, error 4.8%, 22.4%; 10 of 67 clean excluded, 0 of 15 spilling kept
    "sm_90 mma tf32": RegisterModel(
        estimate={"accumulators": 106, "base": 2749, "end_accumulators": 177, "end_base": 50, "end_persistent": 338,
            "end_persistent_accumulators": 75, "end_ragged": 1801, "end_ragged_accumulators": 64, "end_split": 3170,
            "end_split_accumulators": 19, "gathered_step_a": 1, "gathered_step_b": 89, "gathered_whole_b": 25,
            "loads_a": 293, "loads_b": 94, "persistent_accumulators": 48, "persistent_loads_b": 242, "pipelined": 89,
            "step_a": 10, "step_b": 6, "unpipelined_a": 47},
        bound={"gathered_whole_a": 188, "ragged_a": 6525},
        margins=(145, 150),
    ),
    # 48 counts, error 6.4%, 19.9%; 7 of 55 clean excluded, 0 of 10 spilling kept
    "sm_90 mma widened fp8": RegisterModel(
        estimate={"base": 1369, "end_accumulators": 199, "end_base": 3098, "end_ragged": 1103, "end_split": 136,
            "gathered_step_a": 8, "gathered_step_b": 10, "gathered_whole_b": 1, "loads_a": 211, "loads_b": 223,
            "narrow_a": 323, "narrow_b": 95, "persistent_accumulators": 76, "pipelined": 83, "ragged_a": 835,
            "ragged_b": 5, "step_a": 368, "step_b": 286, "unpipelined_a": 9, "unpipelined_b": 58, "whole_a": 26,
            "whole_b": 76},
        bound={},
        margins=(128, 150),
    ),
    # 46 counts, error 3.0%, 13.9%; 8 of 57 clean excluded, 0 of 4 spilling kept
    "sm_90 wgmma 16": RegisterModel(
        estimate={"accumulators": 107, "base": 1944, "end_accumulators": 125, "end_base": 2596, "end_ragged": 374,
            "end_ragged_accumulators": 46, "end_split": 33, "end_split_accumulators": 43, "loads_a": 331, "loads_b":
            167, "narrow_a": 489, "persistent": 811, "persistent_loads_a": 292, "ragged_a": 415, "ragged_b": 22,
            "unpipelined_a": 153, "unpipelined_b": 84},
        bound={"end_split": 120, "end_split_accumulators": 238},
        margins=(127, 111),
    ),
    # 74 counts, error 2.8%, 11.1%; 2 of 98 clean excluded, 0 of 6 spilling kept
    "sm_90 wgmma descriptor 16": RegisterModel(
        estimate={"accumulators": 100, "base": 1311, "end_accumulators": 49, "end_base": 967, "end_persistent": 712,
            "end_persistent_accumulators": 67, "end_split": 1725, "end_split_accumulators": 65, "persistent": 19,
            "pipelined": 1290},
        bound={},
        margins=(106, 116),
    ),
    # 47 counts, error 3.3%, 13.3%; 3 of 70 clean excluded, 0 of 16 spilling kept
    "sm_90 wgmma descriptor fp8": RegisterModel(
        estimate={"accumulators": 160, "base": 876, "end_accumulators": 127, "end_base": 2374, "end_persistent": 102,
            "end_persistent_accumulators": 9, "end_split_accumulators": 41, "pipelined": 875},
        bound={"accumulators": 238, "base": 120, "end_split": 120, "end_split_accumulators": 238},
        margins=(125, 115),
    ),
    # 42 counts, error 2.9%, 11.8%; 0 of 62 clean excluded, 0 of 2 spilling kept
    "sm_90 wgmma descriptor tf32": RegisterModel(
        estimate={"accumulators": 100, "base": 1303, "end_accumulators": 39, "end_base": 964, "end_persistent": 3,
            "end_split": 1854, "end_split_accumulators": 82, "persistent_accumulators": 1, "pipelined": 1305},
        bound={"end_split_accumulators": 240},
        margins=(150, 127),
    ),
}
# fmt: on
