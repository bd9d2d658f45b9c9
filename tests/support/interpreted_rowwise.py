"""The pass over rows in Triton's interpreter, run by `tests.support.interpreter`."""

from __future__ import annotations

from typing import Any

import torch

from constrint.kernels.gemm.rowwise.passes import MOST, in_fp8_by_torch, inverse_norms_by_torch, rows_launch


def rows_are_right(case: dict[str, Any]) -> bool:
    """Results of the pass against those of torch's functions, on rows that lie apart.

    Quotients are numbers of fp8 or beyond its greatest: the interpreter loses a carry where it rounds to fp8.
    """
    m, n = case["sizes"]
    generator = torch.Generator().manual_seed(m * n)
    numbers = (100 * torch.randn((m, n + 3), generator=generator)).clamp(-MOST, MOST).to(torch.float8_e4m3fn).float()
    found = torch.full((m,), float("nan"))
    if case["kind"] == "rms":
        z = numbers[:, :n]
        rows_launch(z, None, None, found, 1e-3).run()
        return torch.allclose(found[:, None], inverse_norms_by_torch(z, 1e-3), rtol=1e-5, atol=0)
    if case["kind"] == "rows":
        scale, z = None, 0.25 * numbers[:, :n]
        z[:, n // 2] = 0.25 * MOST
        z[m // 2] = 0.0
    else:
        scale, z = torch.tensor([0.5]), 0.5 * numbers[:, :n]
        z[0] *= 16.0
    out = torch.zeros((m, n), dtype=torch.float8_e4m3fn)
    rows_launch(z, scale, out, found, 0.0).run()
    expected, same = in_fp8_by_torch(z, scale)
    return torch.equal(out.float(), expected.float()) and torch.equal(found[:, None], same)
