"""A GPU's numbers by name: all that its file states, with what they mean, as the documentation lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from constrint.cli.limits import _block_rows, _device_rows, _sm_rows
from constrint.errors import UsageError
from constrint.hwmodels import GpuModel, gpu_names, load_all, load_gpu
from constrint.hwmodels.numbers import all_numbers, numbers_of
from constrint.model import parse

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "gpu_numbers.md"
GPUS = load_all()


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_every_number_of_a_model_has_a_name_a_meaning_and_its_value(gpu: GpuModel) -> None:
    names = gpu_names(gpu)
    for number in numbers_of(gpu):
        assert number.meaning, number
        assert re.fullmatch(r"gpu(\.[a-z][a-z0-9_]*)", number.name)
        value = names[number.name]
        assert value == number.value if number.value is not None else gpu.name in str(value)
    known = {n.path for n in numbers_of(gpu) if n.value is not None}
    assert {"device.sm_count", "sm.warp_size", "sm.max_smem_bytes_per_block", "memory.dram.size_bytes"} <= known


def test_values_are_those_of_the_file() -> None:
    names = gpu_names(load_gpu("mi300x"))
    assert names["gpu.sm_count"] == 304
    assert names["gpu.warp_size"] == 64
    assert names["gpu.max_smem_bytes_per_block"] == 65536
    assert names["gpu.dram_bandwidth_bytes_per_s"] == 5_300_000_000_000
    assert names["gpu.matrix_bf16_flop_per_s"] == 1_307_400_000_000_000
    assert names["gpu.wave64_vgprs_per_lane"] == 512
    assert names["gpu.has_unified_vgpr_file"] == 1
    assert gpu_names(load_gpu("h200"))["gpu.max_registers_per_block"] == 65536


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_limits_and_names_agree(gpu: GpuModel) -> None:
    names = gpu_names(gpu)
    rows = [row for rows in (_block_rows, _sm_rows, _device_rows) for row in rows(gpu)]
    shared = [(key, value) for key, _, value, _ in rows if f"gpu.{key}" in names and value is not None]
    assert len(shared) >= 15
    assert all(names[f"gpu.{key}"] == value for key, value in shared)


@pytest.mark.parametrize(
    ("gpu", "name", "reason"),
    [
        ("h200", "gpu.l2_bandwidth_bytes_per_s", "no source confirms it for H200-SXM"),
        ("h200", "gpu.last_level_size_bytes", "does not apply to H200-SXM"),
        ("h200", "gpu.max_sgprs_per_wave", "H200-SXM has no such number; models of AMD have it"),
        ("mi300x", "gpu.registers_per_partition", "models of NVIDIA have it"),
    ],
)
def test_what_a_model_does_not_know_is_an_error_that_says_so(gpu: str, name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse(f"x <= {name}", names=gpu_names(load_gpu(gpu)))


def test_the_documentation_lists_every_name_with_its_meaning() -> None:
    listed = re.findall(r"^\| `([^`]+)` \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
    # Another test may have registered a vendor of its own.
    wanted = [
        (name, number.unit, number.meaning, ", ".join(vendor for vendor in vendors if vendor in ("NVIDIA", "AMD")))
        for name, (number, vendors) in all_numbers().items()
    ]
    assert [tuple(cell.strip() for cell in row) for row in listed] == [row for row in wanted if row[3]]
