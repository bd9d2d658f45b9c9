"""Spaces stated as texts: the configurations are those for which Python finds every rule true, values come back."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from constrint.errors import ParseError, UsageError
from constrint.hwmodels import load_gpu
from constrint.model import Domain
from constrint.model.python.expression import read_number
from constrint.select.cost import GridLoad, grid_cost, streaming_cost
from constrint.select.stated import StatedSpace, gpu_names
from constrint.solve import enumerate_space

PARAMS: dict[str, list[Any]] = {
    "tile": [64, 16, 128],
    "scale": [0.5, 2.0, 1.5],
    "kind": ["float4", "float", None],
    "flag": [True, False],
}
RULES: list[Any] = [
    "tile * scale <= limit",
    "kind == 'float4' or not flag",
    "cdiv(n, tile) > 3 and tile % 16 == 0",
    lambda p: p["kind"] is not None or p["tile"] > 16,
]


def holds(values: dict[str, Any], limit: int, n: int) -> bool:
    named = {**values, "limit": limit, "n": n, "cdiv": lambda a, b: -(-a // b)}
    texts = all(eval(rule, {}, named) for rule in RULES if isinstance(rule, str))  # noqa: S307
    return texts and (values["kind"] is not None or values["tile"] > 16)


@pytest.mark.parametrize(("limit", "n"), [(100, 1000), (200, 250), (33, 65), (1000, 10)])
def test_configurations_are_those_that_python_finds_valid(limit: int, n: int) -> None:
    space = StatedSpace(PARAMS, RULES, "kernel")
    problem = space.problem("kernel", {"limit": limit, "n": n})
    found = []
    for row in enumerate_space(problem):
        config = {name: int(row[name]) for name in PARAMS}
        values = space.decoded(config)
        assert space.encoded(values) == config
        found.append(tuple(values.values()))
    every = (dict(zip(PARAMS, row, strict=True)) for row in itertools.product(*PARAMS.values()))
    expected = {tuple(values.values()) for values in every if holds(values, limit, n)}
    assert len(found) == len(expected)
    assert set(found) == expected


def test_parameters_keep_their_order_of_preference() -> None:
    space = StatedSpace(PARAMS, [], "kernel")
    listed = {
        param.name: [space.decoded({param.name: code})[param.name] for code in param.values] for param in space.params()
    }
    assert listed == PARAMS
    assert list(next(iter(space.params())).values) == PARAMS["tile"]


def test_values_that_a_parameter_does_not_have_are_refused() -> None:
    space = StatedSpace(PARAMS, [], "kernel")
    with pytest.raises(UsageError, match="kernel: tile has no value 48"):
        space.encoded({"tile": 48})


def test_numbers_are_expressions_over_parameters() -> None:
    space = StatedSpace({"tile": [16, 32], "warps": [1, 2]}, [], "kernel")
    number = space.number(
        "16 + cdiv(tile * n, warps * warp_size)", {"n": 3, **gpu_names(load_gpu("h200"))}, "registers"
    )
    assert number.value({"tile": 32, "warps": 2}) == 18
    assert number.value({"tile": 16, "warps": 1}) == 18
    domains = {"tile": Domain.from_values([16, 32])}
    assert read_number("max(tile // 3, 7)", domains).value({"tile": 32}) == 10
    for text, told in (("tile / 3", "//"), ("tile +", "not a Python expression"), ("'a'", "no whole number")):
        with pytest.raises(ParseError, match=told):
            read_number(text, domains)


def test_a_grid_costs_what_its_blocks_leave_idle() -> None:
    gpu = load_gpu("h200")
    sms, moved = gpu.device.sm_count, 1e9

    def seconds(num_blocks: Any, blocks_per_sm: Any = 2, operations: float = 0.0) -> Any:
        load = GridLoad(moved, operations, "fp32", num_blocks, 256)
        return grid_cost(gpu, load, np.broadcast_to(blocks_per_sm, np.shape(num_blocks))).seconds

    few, one_wave, tail, many = seconds(np.array([8, 2 * sms, 2 * sms + 1, 200 * sms]))
    assert one_wave < few
    assert one_wave < many < tail < 2.2 * one_wave
    full = streaming_cost(gpu, moved, np.array([512.0])).seconds[0]
    assert one_wave == pytest.approx(full)
    slow = seconds(np.array([sms, sms // 2]), operations=1e14)
    assert slow[1] == pytest.approx(2 * slow[0], rel=0.01)
