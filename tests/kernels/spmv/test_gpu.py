"""`spmv` on a GPU beside fp64: every kernel on matrices of hostile structure, plans, trials, copies, gradients."""

from __future__ import annotations

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs torch and triton", allow_module_level=True)

import gc
from typing import Any

import torch
from torch import Tensor

from constrint.errors import InfeasibleError, UnsupportedError, UsageError
from constrint.kernels.spmv import spmv
from constrint.kernels.spmv.products import COPYING, OWN
from constrint.kernels.spmv.reference import spmv_reference
from constrint.kernels.spmv.structure import _KNOWN, known

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
    # torch warns once that its CSR layout is young and that it is not checked.
    pytest.mark.filterwarnings("ignore:Sparse"),
]
#: Unit roundoff of sums and of results.
SUM_UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-24, torch.float16: 2.0**-24}
UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
CONFIGS = {
    "merge": [
        {"num_warps": w, "items": i, "resident": r, "num_stages": s, "by_rows": by, "steps": steps}
        for w, i, r, s, by, steps in (
            (8, 8, 4, 2, 1, 8),
            (2, 4, 16, 2, 0, 8),
            (4, 4, 8, 3, 1, 4),
            (16, 4, 2, 2, 0, 4),
            (4, 4, 8, 3, 0, 8),
        )
    ],
    "vector": [{"threads_per_row": t, "rows_per_block": r, "num_warps": 4} for t, r in ((1, 128), (8, 64), (32, 8))],
    "near": [{"threads_per_row": t, "rows_per_block": r, "num_warps": 4} for t, r in ((1, 128), (8, 64), (64, 8))],
    "patterns": [
        {"num_warps": w, "num_stages": s, "resident": r} for w, s, r in ((8, 2, 2), (4, 1, 4), (2, 3, 2), (16, 1, 1))
    ],
    "panels": [
        {"panel_kib": kib, "entries_per_lane": each, "num_warps": w}
        for kib, each, w in ((64, 8, 32), (96, 16, 16), (96, 8, 16))
    ],
    "ell": [{"slice_height": 64, "window": w, "unroll": 2, "num_warps": 2} for w in (0, 4096)],
}


def drawn(number: int) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:
    """A matrix of hostile structure: lengths of rows, columns and values by the number."""
    draw = torch.Generator("cuda").manual_seed(number)

    def whole(low: int, high: int, size: int = 1) -> Tensor:
        return torch.randint(low, high, (size,), generator=draw, device="cuda")

    rows, width = int(whole(1, 3000)), int(whole(1, 200_000 if number % 5 == 0 else 2500))
    kind = number % 8
    lengths = whole(0, 12, rows)
    if kind == 1:
        lengths[:] = 0
        lengths[int(whole(0, rows))] = int(whole(1, 40_000))  # one row has everything
    elif kind == 2:
        lengths[torch.rand(rows, generator=draw, device="cuda") < 0.95] = 0
    elif kind == 3:
        lengths = (1.2 / torch.rand(rows, generator=draw, device="cuda").clamp(min=1e-4)).long()
    elif kind == 4:
        lengths[:] = int(whole(1, 80))
    elif kind == 5:
        lengths[rows // 2 :] = 0  # empty to the end
        lengths[0] = 9000
    elif kind == 6:
        lengths[whole(0, rows, 3)] = whole(2000, 5000, 3)
    crow = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    entries = int(crow[-1])
    columns = whole(0, width, entries)  # unsorted, with duplicates
    if number % 4 < 2 and kind in (0, 2, 4) and width > 100:
        # The same few distances for all rows, which go on with the first columns at the end: few patterns.
        row = torch.repeat_interleave(torch.arange(rows, device="cuda"), lengths)
        place = torch.arange(entries, device="cuda") - crow[row]
        columns = (row + place * 7 % 11 - 3) % width
    values = torch.randn(entries, generator=draw, device="cuda", dtype=torch.float64)
    if number % 7 == 3:
        values *= 10.0 ** (4 * torch.rand(entries, generator=draw, device="cuda") - 2)
    return crow, columns, values, (rows, width)


def is_right(out: Tensor, m: Tensor, x: Tensor, y: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0) -> bool:
    """Whether results are within the rounding of sums of the rows' lengths and of results to their type."""
    crow, columns, values = m.crow_indices(), m.col_indices(), m.values()
    exact = spmv_reference(crow, columns, values, x, y, alpha, beta)
    weight = spmv_reference(crow, columns, values.abs(), x.abs(), None if y is None else y.abs(), abs(alpha), abs(beta))
    terms = (crow[1:] - crow[:-1] + 3).double().view(-1, *[1] * (x.dim() - 1))
    bound = terms * SUM_UNIT[out.dtype] * weight + UNIT[out.dtype] * exact.abs() + 1e-38
    return out.dtype == x.dtype and bool(((out.double() - exact).abs() <= 1.01 * bound).all())


@pytest.mark.parametrize("kernel", [*OWN, *COPYING])
def test_two_hundred_matrices_of_hostile_structure(kernel: str) -> None:
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    configs, ran = CONFIGS[kernel], 0
    for number in range(200):
        dtype, index = dtypes[number % 4], torch.int64 if number % 3 == 0 else torch.int32
        crow, columns, values, shape = drawn(number)
        m = torch.sparse_csr_tensor(crow.to(index), columns.to(index), values.to(dtype), shape, check_invariants=False)
        x = torch.randn(shape[1], device="cuda").to(dtype)
        y = torch.randn(shape[0], device="cuda").to(dtype) if number % 2 else None
        alpha, beta = ((1.0, 1.0), (-1.0, -1.0), (0.75, 2.5))[number % 3]
        beta = 0.0 if y is None else beta
        try:
            out = spmv(m, x, alpha=alpha, beta=beta, y=y, kernel=kernel, config=configs[number % len(configs)])
        except (InfeasibleError, UnsupportedError, UsageError):
            continue  # this configuration does not fit this matrix, as its rules say
        ran += 1
        assert is_right(out, m, x, y, alpha, beta), (number, shape, dtype)
        again = spmv(m, x, alpha=alpha, beta=beta, y=y, kernel=kernel, config=configs[number % len(configs)])
        assert torch.equal(out.view(torch.uint8), again.view(torch.uint8)), number  # to the bit
    assert ran >= 50


@pytest.mark.parametrize("width", [1, 2, 3, 8, 16, 20])
def test_a_few_columns(width: int) -> None:
    crow, columns, values, shape = drawn(11)
    m = torch.sparse_csr_tensor(crow, columns, values.float(), shape, check_invariants=False)
    x = torch.randn(width, shape[1], device="cuda").t()  # columns follow each other
    for _ in range(4):
        assert is_right(spmv(m, x), m, x)
        torch.cuda.synchronize()
    if width <= 16:
        assert is_right(spmv(m, x, kernel="vector"), m, x)


def test_repeated_products_settle_and_stay_right() -> None:
    crow, columns, values, shape = drawn(4)
    m = torch.sparse_csr_tensor(crow, columns, values.float(), shape, check_invariants=False)
    for _ in range(8):
        x = torch.randn(shape[1], device="cuda")
        assert is_right(spmv(m, x), m, x)
        torch.cuda.synchronize()
    m.values().mul_(2)
    assert is_right(spmv(m, x), m, x)


@pytest.mark.parametrize("kernel", COPYING)
def test_a_copy_never_gives_old_values(kernel: str) -> None:
    crow, columns, values, shape = drawn(4)
    values = values.float()
    m = torch.sparse_csr_tensor(crow, columns, values, shape, check_invariants=False)
    x = torch.randn(shape[1], device="cuda")
    config = CONFIGS[kernel][0]
    assert is_right(spmv(m, x, kernel=kernel, config=config), m, x)
    m.values().mul_(-3)  # torch counts this write
    assert is_right(spmv(m, x, kernel=kernel, config=config), m, x)
    values.add_(1)  # and does not tell the matrix of this one
    for _ in range(40):
        assert is_right(spmv(m, x, kernel=kernel, config=config), m, x)
    values[0], values[1] = values[1].clone(), values[0].clone()
    assert is_right(spmv(m, x, kernel=kernel, config=config), m, x)


def launched(call: Any) -> list[str]:
    """Names of the kernels that a call launches."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as seen:
        call()
        torch.cuda.synchronize()
    return [event.key for event in seen.key_averages() if event.device_type.name == "CUDA"]


@pytest.mark.parametrize("kernel", COPYING)
def test_values_are_read_again_only_where_a_write_may_go_uncounted(kernel: str) -> None:
    crow, columns, values, shape = drawn(4)
    x, config = torch.randn(shape[1], device="cuda"), CONFIGS[kernel][0]
    m = torch.sparse_csr_tensor(crow, columns, values.float(), shape, check_invariants=False)

    def product(frozen: bool | None = None) -> Tensor:
        out: Tensor = spmv(m, x, kernel=kernel, config=config, frozen=frozen)
        return out

    product()
    assert not any("hash" in name for name in launched(product))
    assert any("hash" in name for name in launched(lambda: product(False)))
    alias = m.values().data
    alias.mul_(3)
    assert any("hash" in name for name in launched(product))
    assert is_right(product(), m, x)
    del alias  # nothing holds it any more, and it was written
    for _ in range(40):
        assert is_right(product(), m, x)
        torch.cuda.synchronize()
    other = torch.sparse_csr_tensor(crow, columns, m.values(), shape, check_invariants=False)
    product()
    other.values().add_(1)
    assert is_right(product(), m, x)


def test_graphs_replay_with_values_that_were_written_since() -> None:
    crow, columns, values, shape = drawn(4)
    values = values.float()
    m = torch.sparse_csr_tensor(crow, columns, values, shape, check_invariants=False)
    x, config = torch.randn(shape[1], device="cuda"), CONFIGS["ell"][0]
    for _ in range(3):
        spmv(m, x, kernel="ell", config=config)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = spmv(m, x, kernel="ell", config=config)
    values.mul_(-2)
    graph.replay()
    assert is_right(out, m, x)


def test_memory_goes_with_the_matrix() -> None:
    gc.collect()
    before = len(_KNOWN)
    crow, columns, values, shape = drawn(4)
    m = torch.sparse_csr_tensor(crow, columns, values.float(), shape, check_invariants=False)
    x = torch.randn(shape[1], device="cuda")
    spmv(m, x, kernel="ell", config=CONFIGS["ell"][0])
    assert known(m).num_copied_bytes > 0
    torch.cuda.synchronize()
    del crow, columns, values
    gc.collect()
    held = torch.cuda.memory_allocated()
    del m
    gc.collect()
    assert len(_KNOWN) == before
    assert torch.cuda.memory_allocated() < held


def test_gradients() -> None:
    crow, _, values, shape = drawn(4)
    # Each place once: torch's own backward pass of `sparse_csr_tensor` fails for places that are there twice.
    rows = torch.repeat_interleave(torch.arange(shape[0], device="cuda"), crow[1:] - crow[:-1])
    columns = torch.arange(len(values), device="cuda") - crow[rows] + rows % (shape[1] - int(crow[1]))
    leaf, x = values.clone().requires_grad_(), torch.randn(shape[1], device="cuda", dtype=torch.float64)
    x.requires_grad_()
    weight = torch.randn(shape[0], device="cuda", dtype=torch.float64)
    for _ in range(4):
        m = torch.sparse_csr_tensor(crow, columns, leaf, shape, check_invariants=False)
        for each in (leaf, x):
            each.grad = None
        (spmv(m, x, alpha=2.0) * weight).sum().backward()
        row = torch.repeat_interleave(torch.arange(shape[0], device="cuda"), crow[1:] - crow[:-1])
        found: Any = leaf.grad, x.grad
        torch.testing.assert_close(found[0], 2 * weight[row] * x.detach()[columns])
        expected = torch.zeros_like(x).index_add_(0, columns, 2 * weight[row] * leaf.detach())
        torch.testing.assert_close(found[1], expected)
        torch.cuda.synchronize()


def test_captured_graphs_and_streams() -> None:
    crow, columns, values, shape = drawn(4)
    m = torch.sparse_csr_tensor(crow, columns, values.float(), shape, check_invariants=False)
    x = torch.randn(shape[1], device="cuda")
    for _ in range(4):
        spmv(m, x)
        torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = spmv(m, x)
    x.copy_(torch.randn(shape[1], device="cuda"))
    graph.replay()
    assert is_right(out, m, x)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        other = spmv(m, x)
    side.synchronize()
    assert torch.equal(other, out)


def test_malformed_matrices_are_refused_before_a_kernel_reads_them() -> None:
    crow = torch.tensor([0, 2, 1, 3], device="cuda")
    columns, values = torch.tensor([0, 1, 2], device="cuda"), torch.ones(3, device="cuda")
    x = torch.ones(3, device="cuda")
    falling = torch.sparse_csr_tensor(crow, columns, values, (3, 3), check_invariants=False)
    outside = torch.sparse_csr_tensor(crow.clamp(max=2), columns + 1, values[:3], (3, 3), check_invariants=False)
    for kernel in OWN:
        with pytest.raises(UsageError, match="crow_indices"):
            spmv(falling, x, kernel=kernel)
        with pytest.raises(UsageError):
            spmv(outside, x, kernel=kernel)
