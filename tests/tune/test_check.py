"""A check tells rounding from errors, whatever the dtype; a poisoned output that nobody writes is an error."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest

from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_spec
from constrint.select import Workload

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs the extra [torch]: torch is not installed", allow_module_level=True)

from constrint.tune.check import Case, Tolerance, error_over_bound, poison

SPEC = load_spec(f"{Path(__file__).parent / 'tiny.py'}:SPEC")
GPU = load_gpu("h200")
RIGHT, ONE_ELEMENT_OFF, UNWRITTEN = 0, 2, 3


def case_of(dtype: str, k: int = 64) -> Case:
    return Case(SPEC, GPU, Workload("tiny", {"m": 40, "n": 24, "k": k}, dtype), device="cpu", seed=3)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
def test_a_right_result_is_within_the_bound(dtype: str) -> None:
    case = case_of(dtype)
    assert case.check(case.launches({"what": RIGHT})) <= 1.0


@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_one_wrong_element_is_seen(dtype: str) -> None:
    case = case_of(dtype)
    assert case.check(case.launches({"what": ONE_ELEMENT_OFF})) > 1.0


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
def test_an_output_that_is_not_written_is_an_error(dtype: str) -> None:
    case = case_of(dtype)
    case.check(case.launches({"what": RIGHT}))
    error = case.check(case.launches({"what": UNWRITTEN}))
    assert error > 1.0
    assert math.isinf(error) or dtype == "int8"


def test_sums_in_the_operands_own_precision_are_too_inexact() -> None:
    """The bound is no formality: bf16 partial sums of 4,096 products break it."""
    case = case_of("bf16", 4096)
    a, b = case.inputs["a"], case.inputs["b"]

    class InBf16:
        def run(self) -> None:
            total = 0 * (a[:, :16] @ b[:16])
            for start in range(0, 4096, 16):
                total += a[:, start : start + 16] @ b[start : start + 16]
            case.outputs["out"].copy_(total)

        def compile(self, gpu: Any) -> Any:
            raise NotImplementedError

    assert case.check([InBf16()]) > 1.0


def test_inputs_are_drawn_again_from_another_seed() -> None:
    workload = Workload("tiny", {"m": 8, "n": 8, "k": 8}, "fp32")
    first, same, other = (Case(SPEC, GPU, workload, device="cpu", seed=seed).inputs["a"].tolist() for seed in (0, 0, 1))
    assert first == same != other


def test_the_tolerance_grows_with_the_sum_and_with_roundings_on_the_way() -> None:
    short, long = (Tolerance.of(SPEC, Workload("tiny", {"m": 1, "n": 1, "k": k}, "bf16")) for k in (64, 4096))
    assert short.relative == long.relative == 0.0
    assert long.of_rms == pytest.approx(512 * short.of_rms)

    class Recurrent(type(SPEC)):  # type: ignore[misc]
        num_roundings = 16

    recurrent = Tolerance.of(Recurrent(), Workload("tiny", {"m": 1, "n": 1, "k": 64}, "bf16"))
    assert recurrent.relative == 16 * 2.0**-8
    assert recurrent.of_rms == pytest.approx(short.of_rms + 16 * 2.0**-8)


def test_poison_is_what_no_kernel_computes() -> None:
    case = case_of("int8")
    poison(case.outputs)
    assert case.outputs["out"].unique().tolist() == [-(2**31) + 1]


def test_what_is_equal_or_nan_in_both_is_right() -> None:
    import torch

    tolerance = Tolerance(0.0, 0.0)
    expected = torch.tensor([1.0, float("inf"), float("nan"), -2.0], dtype=torch.float64)
    assert error_over_bound(expected.float(), expected, tolerance) == 0.0
    for place, value in ((0, 1.01), (1, 3.0), (2, 0.0), (3, float("nan"))):
        wrong = expected.float()
        wrong[place] = value
        assert error_over_bound(wrong, expected, tolerance) > 1.0
    counts = torch.tensor([1, 2])
    assert error_over_bound(counts, counts.clone(), tolerance) == 0.0
    assert error_over_bound(counts, counts + 1, tolerance) == math.inf
