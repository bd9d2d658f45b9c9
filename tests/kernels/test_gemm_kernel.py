"""Both Triton GEMM kernels in Triton's interpreter on the CPU: every grid form, block order, layout and epilogue.

The interpreter needs a process of its own (TRITON_INTERPRET=1). It is silently wrong for bf16, so fp16, fp32 and int8
are used; `test_gemm_gpu.py` checks the same code in bf16 on a GPU.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
import torch
from constrint.kernels.gemm.launch import Epilogue, Machine, launch

def order(t, layout):
    return t if layout == "r" else t.transpose(1, 2).contiguous().transpose(1, 2)

def run(case):
    batch, m, n, k = case["batch"], case["m"], case["n"], case["k"]
    kind = getattr(torch, case["dtype"])
    generator = torch.Generator().manual_seed(case["seed"])
    if kind == torch.int8:
        a, b = (torch.randint(-128, 128, s, generator=generator, dtype=kind) for s in ((batch, m, k), (batch, k, n)))
    else:
        a, b = (torch.randn(s, generator=generator).to(kind) for s in ((batch, m, k), (batch, k, n)))
    a, b = order(a, case["layout"][0]), order(b, case["layout"][1])
    out_kind = getattr(torch, case["out_dtype"])
    out = torch.full((batch, m, n), float("nan") if out_kind.is_floating_point else -7, dtype=out_kind)
    bias = torch.randn(n, generator=generator).to(out_kind) if case["bias"] else None
    source = torch.randn((batch, m, n), generator=generator).to(out_kind) if case["beta"] else None
    epilogue = Epilogue(bias, source, case["alpha"], case["beta"], case["activation"])
    launch(a, b, out, case, Machine(4, case["num_xcds"]), epilogue)
    z = case["alpha"] * (a.double() @ b.double())
    # Sums of k products in fp32 (int32: exact) grow by at most k rounding steps; the output rounds once.
    bound = 0.0 if kind == torch.int8 else k * 2.0**-23 * case["alpha"] * (a.double().abs() @ b.double().abs())
    z = z + (bias.double() if bias is not None else 0) + (case["beta"] * source.double() if source is not None else 0)
    if case["activation"]:
        z = getattr(torch.nn.functional, case["activation"])(z)
    roundoff = {torch.float16: 2.0**-11, torch.float32: 2.0**-22, torch.int32: 0.0}[out_kind]
    least = 2.0**-24 if out_kind.is_floating_point else 0.0
    return bool(((out.double() - z).abs() <= 1.2 * bound + roundoff * z.abs() + least).all())

print(json.dumps([run(case) for case in json.loads(sys.stdin.read())]))
"""

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
    "tile_m": 32,
    "tile_n": 16,
    "tile_k": 32,
    "num_warps": 4,
    "num_stages": 2,
    "group_m": 2,
    "split_k": 1,
    "persistent": 0,
    "num_xcds": 8,
    "xcd_chunk": 0,
    "descriptor": 0,
    "epilogue_subtile": 1,
    "seed": 1,
}
BOTH = {
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
CASES = {f"pointers: {name}": change for name, change in BOTH.items()}
CASES |= {f"descriptors: {name}": change | {"descriptor": 1} for name, change in BOTH.items()}
CASES |= {
    "xcd chunks": {"xcd_chunk": 1},
    "xcd chunks of two, persistent, 3 xcds": {"xcd_chunk": 2, "persistent": 1, "num_xcds": 3},
    "xcd runs": {"xcd_chunk": 512},
    "xcd runs, fewer tiles than xcds": {"xcd_chunk": 512, "m": 20},
    "two halves": {"descriptor": 1, "persistent": 1, "tile_n": 32, "epilogue_subtile": 2},
    "two halves, everything": {"descriptor": 1, "persistent": 1, "tile_n": 32, "epilogue_subtile": 2, "batch": 2}
    | {"bias": True, "beta": 1.0, "activation": "relu"},
}
CASES |= {
    "two halves of 32 bits, not persistent": {"descriptor": 1, "tile_n": 32, "epilogue_subtile": 2}
    | {"dtype": "float32", "out_dtype": "float32", "layout": "rc", "bias": True},
}
PARTS = {
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
CASES |= {f"two parts: {name}": {"descriptor": 1, "n": 120, "tile_n": 48} | change for name, change in PARTS.items()}
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
for number, changes in enumerate(CASES.values()):
    changes["seed"] = number


@pytest.fixture(scope="module")
def outcomes() -> dict[str, bool]:
    missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs the extra [torch]: {', '.join(missing)} not installed")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps([BASE | change for change in CASES.values()]),
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_kernel_equals_the_product_in_double_precision(name: str, outcomes: dict[str, bool]) -> None:
    assert outcomes[name]
