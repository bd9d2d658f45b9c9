"""The Triton GEMM in Triton's interpreter on the CPU: right on ragged sizes, in every grid form and block order.

The interpreter needs a process of its own (TRITON_INTERPRET=1). It is silently wrong for bf16, so fp16 and fp32 are
used; the same code was checked in bf16 on an H200 (`benchmarks/results/h200/gemm_space_bf16.csv`, column `outcome`).
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
import torch, triton, triton.language as tl
from constrint.kernels.gemm.kernel_triton import gemm_kernel

def run(case):
    m, n, k, split = case["m"], case["n"], case["k"], case["split_k"]
    dtype = getattr(torch, case["dtype"])
    generator = torch.Generator().manual_seed(case["seed"])
    a = torch.randn((m, k), generator=generator).to(dtype)
    b = torch.randn((k, n), generator=generator).to(dtype)
    out = torch.full((split, m, n), float("nan"), dtype=torch.float32)
    tiles = triton.cdiv(m, case["tile_m"]) * triton.cdiv(n, case["tile_n"])
    blocks = case["blocks"] if case["persistent"] else tiles * split
    gemm_kernel[(blocks,)](
        a, b, out, m, n, k, *a.stride(), *b.stride(), *out.stride(), blocks,
        tile_m=case["tile_m"], tile_n=case["tile_n"], tile_k=case["tile_k"], group_m=case["group_m"], split_k=split,
        persistent=bool(case["persistent"]), num_xcds=case["num_xcds"], xcd_remap=bool(case["xcd_remap"]),
        even_k=k % (case["tile_k"] * split) == 0, input_precision="ieee", acc_dtype=tl.float32,
    )
    expected = a.double() @ b.double()
    # Sums of k products in fp32: the error grows at most with k rounding steps.
    bound = k * 2.0**-23 * (a.double().abs() @ b.double().abs())
    return bool(((out.double().sum(0) - expected).abs() <= bound).all())

print(json.dumps([run(case) for case in json.loads(sys.stdin.read())]))
"""

BASE = {
    "m": 70,
    "n": 45,
    "k": 90,
    "dtype": "float16",
    "tile_m": 32,
    "tile_n": 16,
    "tile_k": 16,
    "group_m": 2,
    "split_k": 1,
    "persistent": 0,
    "blocks": 4,
    "num_xcds": 8,
    "xcd_remap": 0,
    "seed": 1,
}
CASES = {
    "ragged": {},
    "whole tiles": {"m": 64, "n": 32, "k": 64},
    "fp32": {"dtype": "float32", "seed": 2},
    "split": {"split_k": 4, "seed": 3},
    "split, ragged depth": {"split_k": 4, "k": 75, "seed": 4},
    "persistent": {"persistent": 1, "seed": 5},
    "group of one": {"group_m": 1, "seed": 6},
    "group beyond the grid": {"group_m": 16, "seed": 7},
    "xcd order": {"xcd_remap": 1, "seed": 8},
    "xcd order, fewer tiles than xcds": {"xcd_remap": 1, "m": 20, "n": 45, "seed": 9},
    "xcd order, persistent, 3 xcds": {"xcd_remap": 1, "persistent": 1, "num_xcds": 3, "blocks": 5, "seed": 10},
    "one row": {"m": 1, "n": 17, "k": 16, "seed": 11},
}


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
