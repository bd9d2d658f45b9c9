"""Rooflines, special functions and wave quantisation are the arithmetic that they say they are."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, list_gpus, load_gpu, roofline, special_functions_per_s, wave_quantisation


def test_h200_bf16_against_the_data_sheet() -> None:
    line = roofline("h200", "bf16")
    assert (line.unit, line.peak_flop_per_s) == ("matrix", 989.4e12)
    assert line.ridge_points_flop_per_byte["dram"] == pytest.approx(989.4 / 4.8)
    # 32 banks x 4 B x 132 SMs x 1.83 GHz
    assert line.bandwidth_bytes_per_s["smem"] == 32 * 4 * 132 * 1_830_000_000
    assert line.attainable_flop_per_s(100) == pytest.approx(4.8e14)
    assert line.attainable_flop_per_s(1000) == 989.4e12
    assert line.attainable_flop_per_s(0) == 0


def without_clock(name: str) -> GpuModel:
    gpu = load_gpu(name)
    return replace(gpu, device=replace(gpu.device, boost_clock_hz=None))


def test_a_level_of_unknown_bandwidth_bounds_nothing() -> None:
    line = roofline("h200", "bf16")
    assert line.ridge_points_flop_per_byte["l2"] is None
    assert line.attainable_flop_per_s(10, "l2") is None
    assert roofline(without_clock("gh200"), "bf16").bandwidth_bytes_per_s["smem"] is None


def test_only_gpus_that_have_a_last_level_cache_list_it() -> None:
    assert "last_level" not in roofline("h200", "fp16").bandwidth_bytes_per_s
    assert roofline("mi300x", "fp16").ridge_points_flop_per_byte["last_level"] == pytest.approx(1307.4 / 17.2)
    assert roofline("7900xtx", "fp16").ridge_points_flop_per_byte["last_level"] is None
    with pytest.raises(UnknownNameError, match="memory level 'last_level'"):
        roofline("h200", "fp16").attainable_flop_per_s(1, "last_level")


def test_units() -> None:
    assert roofline("h200", "fp64").peak_flop_per_s == 67e12
    assert roofline("h200", "fp64", unit="vector").peak_flop_per_s == 34e12
    assert roofline("h200", "fp32").unit == "vector"
    assert roofline("mi300x", "fp32").unit == "matrix"
    for gpu, dtype, unit in (("v100", "bf16", None), ("h200", "bf16", "vector"), ("7900xtx", "fp64", None)):
        with pytest.raises(UnsupportedError, match=f"for {dtype} is known"):
            roofline(gpu, dtype, unit=unit)
    with pytest.raises(UnknownNameError, match="unknown unit"):
        roofline("h200", "bf16", unit="tensor")
    with pytest.raises(UnknownNameError, match="unknown dtype"):
        roofline("h200", "float16")


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, True])
def test_intensities_are_numbers_of_at_least_0(bad: Any) -> None:
    with pytest.raises(UsageError, match="flop_per_byte"):
        roofline("h200", "bf16").attainable_flop_per_s(bad)


def test_special_functions() -> None:
    assert special_functions_per_s(load_gpu("h200")) == 16 * 132 * 1_830_000_000
    assert special_functions_per_s(without_clock("gh200")) is None


@pytest.mark.parametrize(
    ("blocks", "sms", "per_sm", "expected"),
    [
        (132, 132, 1, (1, 1.0)),
        (133, 132, 1, (2, 133 / 264)),
        (1, 132, 2, (1, 1 / 264)),
        (528, 132, 2, (2, 1.0)),
    ],
)
def test_wave_quantisation(blocks: int, sms: int, per_sm: int, expected: tuple[int, float]) -> None:
    assert wave_quantisation(blocks, sms, per_sm) == expected


@pytest.mark.parametrize("bad", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1.0, 1, 1), (1, True, 1)])
def test_wave_quantisation_refuses_what_is_no_count(bad: tuple[Any, Any, Any]) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        wave_quantisation(*bad)


@given(st.sampled_from(list_gpus()), st.sampled_from(["fp16", "fp32", "int8"]), st.floats(0, 1e6))
def test_attainable_is_below_both_roofs_and_the_ridge_joins_them(gpu: str, dtype: str, intensity: float) -> None:
    model = load_gpu(gpu)
    if model.peak_flop_per_s(dtype) is None:
        return
    line = roofline(model, dtype)
    for level, bandwidth in line.bandwidth_bytes_per_s.items():
        attainable, ridge = (
            line.attainable_flop_per_s(intensity, level),
            line.ridge_points_flop_per_byte[level],
        )
        if bandwidth is None:
            assert attainable is ridge is None
            continue
        assert attainable is not None
        assert ridge is not None
        assert attainable <= min(line.peak_flop_per_s, intensity * bandwidth)
        assert line.attainable_flop_per_s(ridge, level) == pytest.approx(line.peak_flop_per_s)
