"""The `alternating` recurrence's steps and their predicted time, without a GPU."""

from __future__ import annotations

import pytest

from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.alternating.cost import (
    CALL_LAUNCHES,
    MAX_STEPS,
    alternating_cost,
    steps_of_graph,
    steps_that_run,
)
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.spec import workload_of
from constrint.select.cost import LAUNCH_S

H200 = load_gpu("h200")


def seconds(batch: int, time: int, dim: int, dtype: str, direction: str = "forward", heads: int = 1) -> float:
    workload = workload_of("lstm", (batch, time, heads, dim), dtype, direction)
    return float(alternating_cost(H200, CELLS["lstm"], direction, workload).seconds[0])


def test_few_graphs_serve_every_length_and_few_steps_run_for_nothing() -> None:
    lengths = range(1, 1025)
    graphs = {steps_of_graph(time, 1 << 10) for time in lengths}
    assert max(graphs) == MAX_STEPS
    assert len([steps for steps in graphs if steps > 8]) <= 8
    assert all(time <= steps_that_run(time, 1 << 10) <= 1.5 * time for time in lengths)
    exact = [time for time in lengths if steps_that_run(time, 1 << 10) == time]
    assert {1, 2, 8, 16, 32, 48, 64, 96, 128, 256, 384, 512, 1024} <= set(exact)
    # A step whose inputs are large leaves room for few of them.
    assert steps_of_graph(1000, 4 << 20) == 8
    assert steps_of_graph(35, 1 << 30) <= 8


def test_steps_that_a_graph_runs_for_nothing_take_their_time() -> None:
    once = CALL_LAUNCHES * LAUNCH_S
    for direction in ("forward", "backward"):
        asked, whole = (seconds(20, time, 650, "bf16", direction) for time in (35, 48))
        assert asked == pytest.approx(whole, rel=0.03)
        assert asked - once > 1.3 * (35 / 48) * (whole - once)


def test_few_rows_on_vector_units_take_as_long_as_a_whole_block_of_them() -> None:
    """In fp32 a product of 1 row takes the blocks' time of 32, and on matrix units reading the weights takes longer."""
    few, full = (seconds(batch, 1024, 1500, "fp32") for batch in (1, 32))
    assert few == pytest.approx(full, rel=0.15), "the rest is what is moved for each row"
    assert seconds(64, 1024, 1500, "fp32") > 1.3 * full - 0.3 * few
    # 47 blocks of 128 columns on 132 SMs: no more than 36 % of the units work.
    product_s = 2 * 32 * 6000 * 1500 / 67e12
    assert few / 1024 > product_s / 0.36
    assert seconds(1, 1024, 1500, "bf16") < few / 2


def test_many_rows_take_what_their_operations_take() -> None:
    flop = 2 * 4096 * 4096 * 1024
    assert seconds(4096, 128, 1024, "fp32") / 128 > flop / 67e12
    assert seconds(4096, 128, 1024, "fp32") / 128 < 2 * flop / 67e12
