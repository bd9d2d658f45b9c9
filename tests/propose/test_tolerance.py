"""The tolerance admits one rounding at the end and a computation in fp32, and nothing shorter."""

from __future__ import annotations

import math
from typing import Any

import pytest

from constrint.propose import find_task, list_tasks
from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]: torch is not installed", allow_module_level=True)

import torch

from constrint.propose.operands import Expected
from constrint.propose.tolerance import compare, error_over_bound, shorter_type
from constrint.propose.values import STYLES, InputSet, input_sets, strided


def drawn(name: str, inputs: InputSet) -> tuple[dict[str, Any], dict[str, Expected]]:
    task = find_task(name)
    values = task.draw(inputs.sizes, inputs.dtype, seed=inputs.seed, style=inputs.style)
    return values, task.reference({n: v.double() if v.is_floating_point() else v for n, v in values.items()})


@pytest.mark.parametrize("name", list_tasks())
def test_the_reference_rounded_once_is_right(name: str) -> None:
    task = find_task(name)
    for inputs in input_sets(task.extents, task.dtypes, 5):
        values, expected = drawn(name, inputs)
        outputs = task.outputs(values)
        for key, output in outputs.items():
            output.copy_(expected[key].value)
            assert error_over_bound(output, expected[key], 1) <= 1, inputs.text
        for one in expected.values():
            assert bool((one.magnitude >= 0).all())
            assert bool(one.value.isfinite().all())


@pytest.mark.parametrize("name", list_tasks())
def test_plain_pytorch_in_fp32_is_right(name: str) -> None:
    """An implementation that knows nothing of the tolerance is inside it."""
    task = find_task(name)
    for inputs in input_sets(task.extents, ("fp32",), 6):
        values, expected = drawn(name, inputs)
        outputs = task.outputs(values)
        task.plain_into(*outputs.values(), *values.values())
        _, problem = compare(outputs, expected, task.num_terms(inputs.sizes), inputs.text)
        assert not problem


@pytest.mark.parametrize("name", list_tasks())
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_a_second_rounding_is_seen_and_named(name: str, kind: torch.dtype) -> None:
    """Operands that are rounded on the way are lower precision than asked."""
    task = find_task(name)
    refused = []
    for inputs in input_sets(task.extents, ("fp32",), 7):
        values, expected = drawn(name, inputs)
        outputs = task.outputs(values)
        lower = [v.to(kind).to(v.dtype) if v.is_floating_point() else v for v in values.values()]
        task.plain_into(*outputs.values(), *lower)
        refused.append(compare(outputs, expected, task.num_terms(inputs.sizes), inputs.text)[1])
    assert any("lower precision than asked" in problem for problem in refused)


def test_what_was_not_written_is_told_from_what_is_wrong() -> None:
    expected = Expected(torch.ones(8, dtype=torch.float64), torch.ones(8, dtype=torch.float64))
    output = torch.ones(8)
    assert compare({"y": output}, {"y": expected}, 4, "here") == (0.0, "")
    output[3] = math.nan
    assert "1 elements that are not finite" in compare({"y": output}, {"y": expected}, 4, "here")[1]
    output[3] = 1.5
    assert "than what rounding" not in compare({"y": output}, {"y": expected}, 4, "here")[1]
    assert shorter_type(output, expected) == ""


def test_input_sets_differ_in_sizes_strides_and_values() -> None:
    task = find_task("layer_norm")
    sets = list(input_sets(task.extents, ("fp32",), 1))
    assert len(sets) >= 5
    assert {one.style for one in sets} == {"plain", *STYLES}
    assert sum(one.is_strided for one in sets) == 1
    assert any(one.sizes["n"] & (one.sizes["n"] - 1) for one in sets), "a size that is no power of two"
    assert any(one.sizes["n"] > 3000 for one in sets), "a long sum"
    assert any(set(one.sizes.values()) == {1} for one in sets)
    assert sets != list(input_sets(task.extents, ("fp32",), 2))
    assert sets == list(input_sets(task.extents, ("fp32",), 1))


@pytest.mark.parametrize("name", list_tasks())
def test_no_stride_of_a_strided_set_is_one_that_could_be_left_out(name: str) -> None:
    """Whatever the seed: rows and columns are two or more, and neither lie where they would without their stride."""
    task = find_task(name)
    for seed in range(200):
        (inputs,) = (one for one in input_sets(task.extents, ("fp32",), seed) if one.is_strided)
        for extent in task.extents:
            assert inputs.sizes[extent.name] >= min(2 * extent.multiple, extent.usual)
        spread = strided(torch.zeros(tuple(inputs.sizes.values())), inputs.seed, inputs.least_column_stride)
        assert spread.stride(-1) > 1
        slower = zip(spread.stride()[:-1], spread.stride()[1:], spread.shape[1:], strict=True)
        assert all(stride > size * next_stride for stride, next_stride, size in slower)


def test_strided_inputs_have_gaps_that_nobody_may_use() -> None:
    values = torch.arange(12.0).reshape(3, 4)
    for seed in range(5):
        spread = strided(values, seed)
        assert torch.equal(spread, values)
        assert spread.stride(0) > 4 * spread.stride(1)
