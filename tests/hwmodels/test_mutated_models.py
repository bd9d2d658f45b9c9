"""Mutated files of GPUs, each loaded and, where it loads, solved for: a few of `benchmarks.attacks.gpu_models`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from benchmarks.attacks.gpu_models import attack
from constrint.errors import HardwareModelError
from constrint.hwmodels import load, load_gpu
from tests.cli.conftest import Call, run

__all__ = ["run"]
DATA = Path(load.__file__).parent / "data"
H200 = (DATA / "nvidia" / "h200-sxm.yaml").read_text()


def changed(tmp_path: Path, key: str, value: str) -> Path:
    path = tmp_path / "mine.yaml"
    text, number = re.subn(rf"^( *{key}): .*$", rf"\1: {value}", H200, count=1, flags=re.MULTILINE)
    assert number == 1
    path.write_text(text)
    return path


def test_mutated_files_are_refused_or_answered(tmp_path: Path) -> None:
    outcomes, finds = attack(16, 12, tmp_path)
    assert finds == []
    assert set(outcomes) == {"refused", "answered"}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("boost_clock_hz", "1830", "device.boost_clock_hz: must be between 100,000,000 and 10,000,000,000 in the unit"),
        (
            "sm_count",
            "66000000",
            "device.sm_count: must be between 1 and 10,000 in the unit of the key; it is 66,000,000",
        ),
        ("max_registers_per_thread", "3", "sm.max_registers_per_thread: must be between 16 and 4,096"),
        ("max_threads_per_block", "1000", "sm.max_threads_per_block: must be a multiple of the warp sizes; it is 1000"),
        ("kind", '"' + "x" * 5000 + '"', ""),
        ("fp16", "9.89e+17", "compute.matrix_flop_per_s.fp16: 9.89e+17 is 4.09e+06 operations a clock of each SM"),
        ("sources", "[" + "x" * 5000 + "]", "source 'xxxx"),
        ("max_threads_per_sm", "1536", "max_threads_per_sm: must be max_warps_per_sm times the warp size; it is 1536"),
        ("smem_carveouts_bytes", "[1, 2]", "must increase and end with smem_bytes_per_sm; it is [1, 2]"),
        ("smem_banks", "1000000", "sm.smem_banks: must be between 1 and 4,096"),
    ],
)
def test_a_quantity_that_no_gpu_has_is_refused_with_its_key_rule_and_value(
    tmp_path: Path, key: str, value: str, message: str
) -> None:
    path = changed(tmp_path, key, value)
    if not message:
        assert load_gpu(path).memory.dram.kind == "x" * 5000
        return
    with pytest.raises(HardwareModelError) as refused:
        load_gpu(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_clock_in_mhz_is_told_alone_and_not_with_every_rate_that_follows(tmp_path: Path) -> None:
    path = changed(tmp_path, "boost_clock_hz", "1410")
    with pytest.raises(HardwareModelError, match="boost_clock_hz: must be between") as refused:
        load_gpu(path)
    assert "flop_per_s" not in str(refused.value)


def test_a_peak_that_no_gpu_has_is_refused_without_a_clock(tmp_path: Path) -> None:
    """The H20's file states no clock; with this peak the time of a product would be infinite."""
    raw = yaml.safe_load((DATA / "nvidia" / "h20.yaml").read_text(encoding="utf-8"))
    assert raw["device"]["boost_clock_hz"] is None
    raw["compute"]["matrix_flop_per_s"]["bf16"] = 1e-300
    path = tmp_path / "h20.yaml"
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    with pytest.raises(HardwareModelError, match=r"bf16: 1e-300 is .* operations a clock of each SM"):
        load_gpu(path)


def test_a_gpu_on_which_no_kernel_fits_is_told_so(run: Call, tmp_path: Path) -> None:
    """Few registers leave a space without rows, which is filtered like any other."""
    path = changed(tmp_path, "max_registers_per_thread", "16")
    code, out, err = run("solve", "--gpu", path)
    assert (code, err) == (0, "")
    assert "not gemm.skinny: no config satisfies every rule" in out
    code, out, err = run("solve", "--gpu", path, "--kernel", "gemm.skinny")
    assert code == 1
    assert err.startswith("error: ")
