"""Products by the Triton kernels of `spmv` in the interpreter; a case is a row of parameters, the result an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from constrint.kernels.spmv.formats import ell_of, near_of
from constrint.kernels.spmv.launch import (
    HASH_PROGRAMS,
    SpmvCall,
    ell_launch,
    hash_launch,
    stale_launch,
    vector_launch,
)
from constrint.kernels.spmv.reference import spmv_reference

#: Lengths of rows: empty ones, short ones, one long one.
LENGTHS = (0, 3, 1, 0, 41, 5, 2, 2, 0, 7, 1, 4, 3, 0, 0, 6, 2, 1, 9)


def largest_error(case: Mapping[str, Any]) -> float:
    """Run the product of a case; return the largest error of y against fp64."""
    draw = torch.Generator().manual_seed(1)
    rows, width, dtype = len(LENGTHS), 30, getattr(torch, case.get("dtype", "float32"))
    crow = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0).tolist()], dtype=torch.int32)
    entries = int(crow[-1])
    columns = torch.randint(0, width, (entries,), generator=draw, dtype=torch.int32)
    values = torch.randn(entries, generator=draw).to(dtype)
    shape = (case["width"],) if case.get("width") else ()
    x, source = (torch.randn(n, *shape, generator=draw).to(dtype) for n in (width, rows))
    y = torch.full((rows, *shape), float("nan"), dtype=dtype)
    call = SpmvCall(crow, columns, values, x, y, source if case.get("source") else None, 2.0, -0.5)
    config = case["config"]
    if case["kernel"] == "vector":
        vector_launch(call, config).run()
    elif case["kernel"] == "near":
        # Columns far from the first one, which 16 bits count only without a sign.
        far = SpmvCall(
            crow, columns + 40_000 * (columns > 3), values, torch.cat([x[:4], x.new_zeros(40_000), x[4:]]), y
        )
        far = replace(far, source=call.source, alpha=call.alpha, beta=call.beta)
        vector_launch(far, config, near_of(far.crow, far.columns)).run()
    else:
        ell = ell_of(crow, columns, values, config["slice_height"], config["window"])
        ell_launch(call, ell, config).run()
    if case.get("written"):
        expected, hashes = (torch.empty(HASH_PROGRAMS, dtype=torch.int64) for _ in range(2))
        flag = torch.zeros(1, dtype=torch.int32)
        hash_launch(values, expected).run()
        if case["written"] == "swapped":
            values[[1, 2]] = values[[2, 1]]
        hash_launch(values, hashes).run()
        changed = not torch.equal(hashes.sum(), expected.sum())
        assert changed == (case["written"] == "swapped")
    exact = spmv_reference(crow, columns, values, x, call.source, 2.0, -0.5)
    if case.get("written") == "swapped":
        stale_launch(call, hashes[:HASH_PROGRAMS], expected, flag).run()
        assert int(flag) == 1
    return float((y.double() - exact).abs().max())
