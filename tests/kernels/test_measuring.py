"""`constrint gpu --detect --write` on a made-up device, whose rates come back, and the bench on the CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from constrint.errors import NoDeviceError, UsageError
from constrint.hwmodels import DetectedDevice, GpuModel, load_gpu
from constrint.hwmodels.assumed import assumption, l2_bandwidth, sustained_matrix_fraction
from constrint.hwmodels.detection import identify
from constrint.hwmodels.measured.model import model_of_device, write_model
from constrint.hwmodels.measured.quantities import Bench, matrix_share, measure
from constrint.kernels.measuring import session
from constrint.kernels.measuring.session import WrittenModel, measure_with

RTX_5080 = DetectedDevice(0, "torch", "NVIDIA GeForce RTX 5080", "sm_120", sm_count=84, memory_bytes=17_000_000_000)


@dataclass
class MadeUp:
    """A device of known rates; what it answers follows from them."""

    dram: float = 9.0e11
    l2: float = 6.0e12
    launch: float = 2.5e-6
    flop_per_s: float = 1.1e14

    def copy_s(self, num_bytes: int) -> float:
        return 2 * num_bytes / self.dram

    def read_s(self, num_bytes: int, repeats: int) -> float:
        return num_bytes * repeats / self.l2

    def product_s(self, dtype: str, size: int) -> float | None:
        rate = {"bf16": 1.0, "fp16": 1.0, "fp8": 1.5}.get(dtype)
        # Small products do not reach the rate.
        return None if rate is None else 2 * size**3 / (self.flop_per_s * rate) * (1 + 1000 / size)

    def launch_s(self) -> float:
        return self.launch


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONSTRINT_GPU_PATH", str(tmp_path / "gpus"))
    return tmp_path / "gpus"


def written(device: DetectedDevice = RTX_5080, bench: Bench | None = None) -> WrittenModel:
    known = identify(device)
    return measure_with(bench or MadeUp(), known, model_of_device(known), "torch 0.0, driver 1.2")


def test_what_was_measured_takes_the_place_of_what_was_assumed(folder: Path) -> None:
    before = load_gpu("rtx5080")
    assert before.memory.l2.bandwidth_bytes_per_s is None
    answer = written()
    after = load_gpu("rtx5080")
    assert answer.path == folder / "rtx-5080.yaml"
    assert answer.gpu == after != before
    assert after.memory.l2.bandwidth_bytes_per_s == pytest.approx(6.0e12)
    assert after.measured is not None
    assert after.measured.dram_share == pytest.approx(9.0e11 / 9.6e11)
    assert after.measured.launch_s == pytest.approx(2.5e-6)
    peak = before.matrix_flop_per_s("bf16")
    assert peak is not None
    assert sustained_matrix_fraction(after) == pytest.approx(1.1e14 / peak / (1 + 1000 / 8192))
    # Quantities that models of time ask for by name.
    stated = assumption(after, "dram_share")
    assert stated is not None
    assert stated.value == after.measured.dram_share
    bandwidth = l2_bandwidth(after, 1e9)
    assert bandwidth is not None
    assert bandwidth.is_stated


def test_the_file_says_what_was_measured_where_when_and_by_which_tools(folder: Path) -> None:
    answer = written()
    source = answer.gpu.sources["MEASURED_HERE"]
    assert source.startswith("device: measured here on 20")
    assert source.endswith("NVIDIA GeForce RTX 5080, torch 0.0, driver 1.2")
    assert "MEASURED_HERE" in answer.gpu.memory.l2.sources
    assert "measured here: the smallest kernel takes 2.50 us" in answer.gpu.notes
    assert not any(entry.startswith("memory.l2.bandwidth") for entry in answer.gpu.unconfirmed)
    assert any(line.startswith("a copy moves 900 GB/s of DRAM, 94%") for line in answer.lines)
    assert any(
        "share of the int8 peak: no peak is stated, or the library has no such product" in x for x in answer.lines
    )


def test_values_that_a_source_states_stay(folder: Path) -> None:
    device = DetectedDevice(0, "torch", "AMD Instinct MI300X", "gfx942", sm_count=304, memory_bytes=206_000_000_000)
    stated = load_gpu("mi300x")
    answer = written(device, MadeUp(dram=4.4e12, l2=2.0e13, flop_per_s=7e14))
    assert answer.gpu.memory.l2 == stated.memory.l2
    assert answer.gpu.compute.matrix_flop_per_s == stated.compute.matrix_flop_per_s


def test_a_share_above_the_peak_is_one_and_one_that_cannot_be_is_left_out(folder: Path) -> None:
    peak = load_gpu("rtx5080").matrix_flop_per_s("bf16")
    assert peak is not None
    fast = written(bench=MadeUp(flop_per_s=1.3 * peak))
    assert fast.gpu.compute.sustained_matrix_fraction == 1.0
    (folder / "rtx-5080.yaml").unlink()
    wrong = written(bench=MadeUp(flop_per_s=3 * peak))
    assert wrong.gpu.compute.sustained_matrix_fraction is None
    assert any("of the stated peak, which cannot be right" in line for line in wrong.lines)


def test_an_unknown_device_gets_a_model_from_the_nearest_of_its_target(folder: Path) -> None:
    device = DetectedDevice(
        0, "torch", "NVIDIA RTX 5060 (8 GB)", "sm_120", sm_count=30, memory_bytes=8_500_000_000, l2_bytes=25_165_824
    )
    assert device.model is None
    answer = written(device, MadeUp(dram=4.0e11, flop_per_s=4e13))
    gpu, near = answer.gpu, load_gpu("rtx5070")
    assert (gpu.name, gpu.aliases) == ("NVIDIA-RTX-5060-8-GB", ("NVIDIA RTX 5060 (8 GB)",))
    assert (gpu.device.sm_count, gpu.memory.l2.size_bytes, gpu.sm) == (30, 25_165_824, near.sm)
    assert gpu.memory.dram.bandwidth_bytes_per_s == pytest.approx(4.0e11)
    rate, of_near = gpu.matrix_flop_per_s("bf16"), near.matrix_flop_per_s("bf16")
    assert rate is not None
    assert of_near is not None
    assert rate == pytest.approx(of_near * 30 / 48)
    assert any(
        entry.startswith("compute.matrix_flop_per_s.bf16: as of RTX-5070, for each SM") for entry in gpu.unconfirmed
    )
    assert identify(device).model == gpu.name, "the device is known from now on"


@pytest.mark.parametrize("model", ["rtx4090", "mi300x", "7900xtx", "mi210", "b200", "thor", "mi308x"])
def test_any_size_of_an_architecture_makes_a_file_that_loads(folder: Path, model: str) -> None:
    near: GpuModel = load_gpu(model)
    count = near.device.sm_count - near.device.num_xcds
    device = DetectedDevice(
        0, "torch", "Something Else", near.compiler_target, sm_count=count, memory_bytes=4 * 10**10, l2_bytes=2**22
    )
    assert written(replace(device), MadeUp(l2=9e13, flop_per_s=1e13)).gpu.name == "Something-Else"


def test_a_file_of_another_origin_is_not_overwritten(folder: Path) -> None:
    gpu = written().gpu
    assert written().gpu == gpu, "its own may be written anew"
    (folder / "rtx-5080.yaml").write_text("name: RTX-5080\n")
    with pytest.raises(UsageError, match=r"is there and was not written by --detect --write; move it away first"):
        write_model(gpu)


def test_a_device_without_a_model_of_its_target_is_refused_with_the_way_out(folder: Path) -> None:
    device = DetectedDevice(0, "torch", "NVIDIA X", "sm_61", sm_count=10, memory_bytes=10**10)
    with pytest.raises(UsageError, match=r"no model has the target sm_61.*`constrint gpu NAME --yaml`"):
        model_of_device(device)


def test_without_torch_on_the_device_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    device = DetectedDevice(0, "rocminfo", "AMD Instinct MI300X", "gfx942")
    monkeypatch.setattr(session, "detect", lambda: [device])
    with pytest.raises(NoDeviceError, match="torch, which measures, does not see it"):
        session.measure_here()


def test_the_bench_measures_on_the_cpu_what_it_measures_on_a_device() -> None:
    pytest.importorskip("torch")
    from constrint.kernels.measuring.bench import TorchBench

    bench = TorchBench("cpu", 1)
    assert 0 < bench.copy_s(2**16) < 1
    assert 0 < bench.read_s(2**14, 3) < 1
    assert 0 < bench.launch_s() < 1
    product = bench.product_s("bf16", 32)
    assert product is not None
    assert 0 < product < 1
    assert bench.product_s("fp4", 32) is None


def test_every_quantity_is_asked_for_once_and_small_memories_are_copied_in_part() -> None:
    asked: list[int] = []

    class Small(MadeUp):
        def copy_s(self, num_bytes: int) -> float:
            asked.append(num_bytes)
            return super().copy_s(num_bytes)

    gpu = load_gpu("rtx5080")
    assert measure(Small(), gpu).dram_bytes_per_s == pytest.approx(9.0e11)
    assert asked == [2_000_000_000]
    assert matrix_share(MadeUp(), load_gpu("v100"), "bf16") is None
