"""A value that no source states never becomes a number silently: the answer says what was assumed."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import replace

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel, assumed, load_all, load_gpu
from constrint.hwmodels.schema import Sm
from constrint.kernels.registry import list_kernels, load_kernel
from constrint.select.rank import rank

STAND_INS = (
    assumed.clock_hz,
    assumed.most_clock_hz,
    assumed.smem_bytes_per_clk,
    assumed.specials_per_clk,
    assumed.l2_bytes,
    assumed.last_level_bytes,
    assumed.gpcs,
)


def full_of_nulls(name: str) -> GpuModel:
    """A GPU of which no source states anything that a model of time may replace."""
    gpu, none = (
        load_gpu(name),
        {"size_bytes": None, "bandwidth_bytes_per_s": None, "assumed_bandwidth_bytes_per_s": None},
    )
    last = gpu.memory.last_level
    return replace(
        gpu,
        name="NULLS",
        device=replace(gpu.device, boost_clock_hz=None, max_clock_hz=None, num_gpcs=None),
        sm=cast(
            Sm, replace(cast(Any, gpu.sm), smem_banks=None, smem_bank_width_bytes=None, special_functions_per_clk=None)
        ),
        memory=replace(
            gpu.memory,
            l2=replace(gpu.memory.l2, **none),
            last_level=None if last is None else replace(last, **none),
        ),
        compute=replace(gpu.compute, sustained_matrix_fraction=None),
    )


@pytest.mark.parametrize("value", STAND_INS, ids=lambda value: value.__name__)
def test_a_null_has_a_sentence_and_a_stated_value_has_none(value: object) -> None:
    assert callable(value)
    stated, null = value(load_gpu("h200")), value(full_of_nulls("mi300x"))
    assert stated.line == ""
    assert null.line
    assert np.isfinite(null.value)


def ships(kernel: str) -> bool:
    """Whether a kernel is the package's: other tests register some of their own."""
    return load_kernel(kernel).implementations[0].home.startswith("constrint.")


def test_every_answer_about_a_gpu_full_of_nulls_says_what_it_assumed() -> None:
    for name in ("h200", "a100", "mi300x", "7900xtx"):
        gpu = full_of_nulls(name)
        for kernel in filter(ships, list_kernels()):
            try:
                found = rank(load_kernel(kernel), gpu, top=1)
            except UnsupportedError:  # an operation that has kernels for some GPUs alone
                on_ampere = kernel == "quantised_gemm" and name in ("mi300x", "7900xtx")
                on_hopper = kernel in ("grouped", "scaled_gemm") and name != "h200"
                assert on_ampere or on_hopper, (name, kernel)
                continue
            assert found.candidates[0].cost.seconds > 0
            words = " ".join(found.assumptions)
            assert "clock unconfirmed" in words, (name, kernel)
            if kernel == "gemm":
                assert assumed.smem_bytes_per_clk(gpu).line in found.assumptions
                assert assumed.l2_bytes(gpu).line in found.assumptions


def test_a_clock_that_nobody_states_is_that_of_relatives() -> None:
    clocks = {gpu.device.boost_clock_hz for gpu in load_all() if gpu.arch.family == "Hopper"}
    gpu = replace(load_gpu("gh200"), device=replace(load_gpu("gh200").device, boost_clock_hz=None))
    found = assumed.clock_hz(gpu)
    assert min(filter(None, clocks)) <= found.value <= max(filter(None, clocks))
    assert "the median of Hopper" in found.line


def test_a_shipped_model_without_a_clock_says_what_was_assumed() -> None:
    lines = {gpu.name: assumed.clock_hz(gpu).line for gpu in load_all() if assumed.clock_hz(gpu).line}
    assert list(lines) == ["H20"]  # no source states one
    assert "the median of Hopper" in lines["H20"]
