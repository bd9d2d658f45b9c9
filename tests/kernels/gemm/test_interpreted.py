"""The pointer and the descriptor kernel in Triton's interpreter: every grid form, block order, layout and epilogue.

The interpreter is silently wrong for bf16, so fp16, fp32 and int8 are used; what needs a GPU is marked so in the tests
of each kernel.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.interpreter import interpreted
from tests.support.shared import SharedResults

Change = dict[str, Any]
BASE = {
    "batch": 1,
    "m": 70,
    "n": 48,
    "k": 90,
    "dtype": "float16",
    "out_dtype": "float16",
    "layout": "rr",
    "alpha": 1.0,
    "beta": 0.0,
    "bias": False,
    "activation": None,
    "num_xcds": 8,
}
CONFIG = {
    "tile_m": 32,
    "tile_n": 16,
    "tile_k": 32,
    "num_warps": 4,
    "num_stages": 2,
    "group_m": 2,
    "split_k": 1,
    "persistent": 0,
}
#: What only one kernel has.
OWN = {"gemm.pointer": {"xcd_chunk": 0}, "gemm.descriptor": {"epilogue_subtile": 1}}
POINTER, DESCRIPTOR = {"kernel": "gemm.pointer"}, {"kernel": "gemm.descriptor"}
BOTH: dict[str, Change] = {
    "ragged": {},
    "whole tiles": {"m": 64, "n": 32, "k": 64},
    "fp32": {"dtype": "float32", "out_dtype": "float32", "tile_n": 32},
    "fp32 out": {"out_dtype": "float32"},
    "int8": {"dtype": "int8", "out_dtype": "int32"},
    "int8 scaled": {"dtype": "int8", "alpha": 2.0**-9, "bias": True},
    "A by columns": {"layout": "cr"},
    "B by columns": {"layout": "rc"},
    "both by columns": {"layout": "cc"},
    "odd rows": {"n": 45, "k": 75},
    "split": {"split_k": 4},
    "split, ragged depth, empty last slice": {"split_k": 4, "k": 75},
    "persistent": {"persistent": 1},
    "group of one": {"group_m": 1},
    "group beyond the grid": {"group_m": 16},
    "one row": {"m": 1, "n": 17, "k": 16},
    "batched": {"batch": 3, "layout": "rc"},
    "batched split": {"batch": 3, "split_k": 2, "layout": "cr"},
    "bias and relu": {"bias": True, "activation": "relu"},
    "everything, gelu": {"bias": True, "alpha": 0.5, "beta": 2.0, "activation": "gelu"},
    "everything, silu, batched": {"batch": 2, "bias": True, "alpha": 0.5, "beta": -1.0, "activation": "silu"},
    "split, everything": {"split_k": 2, "bias": True, "alpha": 0.5, "beta": 2.0, "activation": "gelu"},
}
CASES: dict[str, Change] = {f"pointers: {name}": change | POINTER for name, change in BOTH.items()}
CASES |= {f"descriptors: {name}": change | DESCRIPTOR for name, change in BOTH.items()}
CASES |= {
    "xcd chunks": {"xcd_chunk": 1},
    "xcd chunks of two, persistent, 3 xcds": {"xcd_chunk": 2, "persistent": 1, "num_xcds": 3},
    "xcd runs": {"xcd_chunk": 512},
    "xcd runs, fewer tiles than xcds": {"xcd_chunk": 512, "m": 20},
    "two halves": {**DESCRIPTOR, "persistent": 1, "tile_n": 32, "epilogue_subtile": 2},
    "two halves, everything": {**DESCRIPTOR, "persistent": 1, "tile_n": 32, "epilogue_subtile": 2, "batch": 2}
    | {"bias": True, "beta": 1.0, "activation": "relu"},
}
CASES |= {
    "two halves of 32 bits, not persistent": {**DESCRIPTOR, "tile_n": 32, "epilogue_subtile": 2}
    | {"dtype": "float32", "out_dtype": "float32", "layout": "rc", "bias": True},
}
PARTS: dict[str, Change] = {
    "ragged": {},
    "ragged rest": {"n": 40},
    "no rest in the grid": {"n": 30},
    "whole tiles": {"m": 64, "n": 96, "k": 64},
    "fp32": {"dtype": "float32", "out_dtype": "float32"},
    "int8": {"dtype": "int8", "out_dtype": "int32"},
    "A by columns": {"layout": "cr"},
    "B by columns": {"layout": "rc"},
    "odd rows": {"n": 101, "k": 75},
    "split": {"split_k": 4},
    "wide split": {"split_k": 2, "tile_n": 96, "m": 33},
    "batched": {"batch": 3, "layout": "rc"},
    "batched split": {"batch": 3, "split_k": 2, "layout": "cc"},
    "split, everything": {"split_k": 2, "bias": True, "alpha": 0.5, "beta": 2.0, "activation": "gelu"},
    "everything, silu, batched": {"batch": 2, "bias": True, "alpha": 0.5, "beta": -1.0, "activation": "silu"},
}
# Tiles of 48 columns are computed as 32 and 16.
CASES |= {f"two parts: {name}": {**DESCRIPTOR, "n": 120, "tile_n": 48} | change for name, change in PARTS.items()}
CASES |= {
    f"rows of {2 * of} bytes, {layout}, {batch} of them": {
        "m": 8 * of + of,
        "n": 5 * of,
        "k": 11 * of,
        "layout": layout,
    }
    | {"batch": batch, "split_k": 1 + batch % 2}
    for of, layout, batch in ((2, "rr", 1), (4, "rc", 2), (4, "cr", 3), (8, "cc", 2), (8, "rr", 3), (8, "cr", 1))
}


def case_of(seed: int, change: Change) -> dict[str, Any]:
    """A whole case: what is computed, by which kernel, with which configuration."""
    kernel = change.get("kernel", "gemm.pointer")
    config = CONFIG | OWN[kernel]
    assert change.keys() <= {"kernel", *BASE, *config}
    config |= {name: value for name, value in change.items() if name in config}
    product = BASE | {name: value for name, value in change.items() if name not in config}
    return product | {"kernel": kernel, "config": config, "seed": seed}


#: Cases of one process: each worker that runs tests side by side has some to compute.
PART = 24


@pytest.mark.parametrize("name", CASES)
def test_kernel_equals_the_product_in_double_precision(name: str, shared_results: SharedResults) -> None:
    cases = {name: case_of(seed, change) for seed, (name, change) in enumerate(CASES.items())}
    start = list(cases).index(name) // PART * PART
    part = dict(list(cases.items())[start : start + PART])
    function = "tests.support.interpreted_gemm:kernel_is_right"
    outcomes = shared_results.once(f"{function} {start}", lambda: interpreted(function, part))
    assert outcomes[name]


#: Two kernels, sizes that tiles do not divide, transposed operands: on every kind of unusual inputs.
UNUSUAL: dict[str, dict[str, Any]] = {
    f"{kernel}, {dtype}, {'transposed' if options else 'plain'}": {
        "kernel": kernel,
        "dtype": dtype,
        "options": options,
        "sizes": {"m": 70, "n": 48, "k": 96},
        "config": CONFIG | OWN[kernel],
        "seed": 7,
    }
    for kernel in OWN
    for dtype in ("fp16", "int8")
    for options in ({}, {"transpose_a": 1, "transpose_b": 1})
}


def test_kernels_are_right_on_the_inputs_that_products_go_wrong_on() -> None:
    errors = interpreted("tests.support.interpreted_gemm:unusual_errors", UNUSUAL)
    assert all(max(of_case) <= 1.0 for of_case in errors.values()), errors
    assert all(len(of_case) == 5 for of_case in errors.values())
