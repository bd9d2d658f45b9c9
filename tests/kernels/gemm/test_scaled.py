"""`scaled_matmul`: its reference, what it refuses, and what its kernel compiles to. GPUs: `test_scaled_gpu.py`."""

from __future__ import annotations

import pytest

from tests.support.needs import missing_packages, needs_nvrtc

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

from typing import Any

import numpy as np
import torch

from constrint.errors import UnsupportedError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.scaled import library, op, scaled_matmul
from constrint.kernels.gemm.scaled.reference import random_operands
from constrint.kernels.launch.plan.recipe import FillStep, Recipe, RecordedCall
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.solve import enumerate_space

SPEC, H200 = load_spec("scaled_gemm.cuda"), load_gpu("h200")


def workload(m: int, n: int, k: int, blocks: int) -> Workload:
    return Workload("scaled_gemm", {"m": m, "n": n, "k": k}, "fp8", {"blocks": 1} if blocks else {})


@pytest.mark.parametrize("blocks", [0, 1])
def test_every_number_has_the_scale_of_its_row_and_block(blocks: int) -> None:
    m, n, k = 5, 150, 300
    inputs = SPEC.inputs(H200, workload(m, n, k, blocks), device="cpu", seed=1)
    a, b, scale_a, scale_b = (inputs[name].double() for name in ("a", "b", "scale_a", "scale_b"))
    expected = torch.zeros(m, n, dtype=torch.float64)
    for i in range(m):
        for j in range(n):
            for begin in range(0, k, 128):
                at = slice(begin, begin + 128)
                block = begin // 128 if blocks else 0
                scale = scale_a[i, block] * scale_b[block, j // 128 if blocks else j]
                expected[i, j] += scale * (a[i, at] @ b[at, j])
    out = scaled_matmul(**inputs, out_dtype=torch.float32)
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-3)
    bias = torch.randn(n)
    torch.testing.assert_close(scaled_matmul(**inputs, bias=bias, out_dtype=torch.float32), out + bias)


def test_scales_of_other_shapes_are_refused() -> None:
    inputs = SPEC.inputs(H200, workload(5, 150, 300, 1), device="cpu", seed=1)
    for change, told in (
        ({"scale_a": torch.ones(5, 2)}, r"\(5, 1\).*\(5, 3\)"),
        ({"scale_b": torch.ones(1, 149)}, r"\(1, 150\)"),
        ({"scale_a": torch.ones(5, 3).half()}, "fp32 scales"),
        ({"a": torch.ones(5, 300)}, "float8_e4m3fn"),
        ({"bias": torch.ones(3)}, r"bias \(150,\)"),
        ({"a": inputs["a"][:, :200]}, r"\(M, K\)"),
    ):
        with pytest.raises(UsageError, match=told):
            scaled_matmul(**(inputs | change))


def test_other_gpus_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="Hopper"):
        SPEC.check_workload(load_gpu("b200"), workload(64, 64, 128, 0))


@needs_nvrtc
@pytest.mark.parametrize("blocks", [0, 1])
def test_nothing_spills(blocks: int) -> None:
    """The configurations with the most columns, for each number of consumers and both orders."""
    asked = workload(4096, 4096, 4096, blocks)
    columns, _ = enumerate_space(SPEC.problem(H200, asked)).project([p.name for p in SPEC.params(H200, asked)])
    wide = np.where(columns["turned"] == 1, columns["tile_m"], columns["tile_n"]) * 100 + columns["split_k"]
    for consumers, turned in ((1, 0), (2, 0), (3, 0), (2, 1), (3, 1)):
        is_kind = (columns["consumers"] == consumers) & (columns["turned"] == turned)
        row = int(np.argmax(np.where(is_kind, wide, -1)))
        config = {name: int(column[row]) for name, column in columns.items()}
        assert SPEC.compile(H200, asked, config).spill_bytes == 0, config


@pytest.fixture
def on_h200(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Plans are recorded as on an H200, without compiling."""

    def recorded(self: Any, config: Any, *, may_spill: bool) -> RecordedCall:
        return RecordedCall(Recipe([FillStep(0, 0, 1)], [], 1, 0, f"ours {op._kind(config)}"), [])

    monkeypatch.setattr(op, "gpu_of", lambda _: H200)
    monkeypatch.setattr(op, "takes", lambda *_: True)
    monkeypatch.setattr(
        op, "library_plan", lambda *_, **__: RecordedCall(Recipe([], [], 1, 0, library.LIBRARY, {}), [])
    )
    monkeypatch.setattr(op._OwnPlans, "_recorded", recorded)
    monkeypatch.setattr(op, "trials_are_on", lambda: True)
    return monkeypatch


def built(m: int, n: int, k: int) -> RecordedCall:
    inputs = SPEC.inputs(H200, workload(m, n, k, 1), device="cpu", seed=1)
    return op._build((*(inputs[name] for name in ("a", "b", "scale_a", "scale_b")), None), torch.bfloat16)


@needs_nvrtc
def test_nothing_slower_than_torchs_own_product_runs_after_a_trial(on_h200: pytest.MonkeyPatch) -> None:
    made = built(128, 256, 7168)
    assert made.rivals is not None
    labels = made.rivals.labels
    assert [labels[place] for place in made.rivals.standards] == [library.LIBRARY]
    assert labels[0] == made.recipe.note
    assert len(set(labels)) == len(labels) == len(made.rivals.seconds) == len(made.rivals.recipes) + 1
    assert 3 <= len(labels) <= 2 + op.MOST_COMPILED
    on_h200.setattr(op, "trials_are_on", lambda: False)
    assert built(128, 256, 7168).rivals is None


@needs_nvrtc
def test_what_one_of_both_computes_is_not_tried(on_h200: pytest.MonkeyPatch) -> None:
    on_h200.setattr(op, "library_plan", lambda *_, **__: None)
    ours = built(16, 32, 256)
    assert ours.rivals is None
    assert ours.recipe.note.startswith("ours")
    on_h200.setattr(op, "gpu_of", lambda _: None)
    on_h200.setattr(op, "library_plan", lambda *_, **__: RecordedCall(Recipe([], [], 1, 0, library.LIBRARY, {}), []))
    assert built(16, 32, 256).recipe.note == library.LIBRARY
    on_h200.setattr(op, "takes", lambda *_: False)
    with pytest.raises(NotPlannedError):
        built(16, 32, 256)


def test_a_plan_of_torchs_product_computes_what_torch_refuses_later(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = SPEC.inputs(H200, workload(16, 32, 256, 1), device="cpu", seed=1)
    product = library.library_function({"out_dtype": "float16", "in_blocks": True})
    monkeypatch.setattr(library, "by_library", lambda *_, **__: None)
    assert torch.equal(product(**inputs, bias=None), scaled_matmul(**inputs, out_dtype=torch.float16))


@pytest.mark.parametrize(
    ("is_fast", "in_blocks", "expected"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_torchs_product_accumulates_fast_where_the_caller_allows_it(
    is_fast: bool, in_blocks: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def scaled_mm(a: torch.Tensor, b: torch.Tensor, *_: Any, use_fast_accum: bool, **__: Any) -> torch.Tensor:
        seen.append(use_fast_accum)
        return torch.empty(a.shape[0], b.shape[1])

    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    operands = random_operands(16, 128, 128, in_blocks=in_blocks, device="cpu", seed=1)
    a, b, scales = operands["a"], operands["b"], (operands["scale_a"], operands["scale_b"])
    made = library.library_plan(a, b, scales, torch.bfloat16, in_blocks=in_blocks, is_fast=is_fast)
    assert made is not None
    assert made.recipe.function is not None
    library.library_function(made.recipe.function)(a, b, *scales, None)
    assert seen == [expected] * 2
    torch.testing.assert_close(
        op.scaled_matmul(a, b, *scales, fast_accumulation=is_fast), op.scaled_matmul(a, b, *scales)
    )
