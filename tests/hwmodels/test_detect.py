"""Detection: through whichever library is there, to the right model, with what disagrees (all fakes)."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import pytest

from constrint.errors import NoDeviceError
from constrint.hwmodels import DetectedDevice, detect, load_gpu
from constrint.hwmodels.detection import ask_rocminfo, compare, find_model, identify, parse_rocminfo

H200 = {
    "name": "NVIDIA H200",
    "major": 9,
    "minor": 0,
    "multi_processor_count": 132,
    "warp_size": 32,
    "total_memory": 150_109_880_320,
    "L2_cache_size": 62_914_560,
    "max_threads_per_multi_processor": 2048,
    "regs_per_multiprocessor": 65536,
    "shared_memory_per_multiprocessor": 233_472,
    "shared_memory_per_block_optin": 232_448,
    "clock_rate": 1_980_000,
}
ROCMINFO = """ROCk module is loaded
*******
Agent 1
*******
  Name:                    AMD EPYC 9654 96-Core Processor
  Marketing Name:          AMD EPYC 9654 96-Core Processor
  Device Type:             CPU
  Compute Unit:            192
*******
Agent 2
*******
  Name:                    gfx942
  Uuid:                    GPU-1234
  Marketing Name:          AMD Instinct MI300X
  Device Type:             GPU
  Cache Info:
    L1:                      32(0x20) KB
    L2:                      4096(0x1000) KB
    L3:                      262144(0x40000) KB
  Compute Unit:            304
  Wavefront Size:          64(0x40)
  Pool Info:
    Pool 1
      Segment:                 GLOBAL; FLAGS: COARSE GRAINED
      Size:                    201310208(0xbffc000) KB
    Pool 4
      Segment:                 GROUP
      Size:                    64(0x40) KB
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-
*** Done ***
"""


def fake_torch(monkeypatch: pytest.MonkeyPatch, *devices: dict[str, Any], hip: str | None = None) -> None:
    torch: Any = types.ModuleType("torch")
    torch.version = types.SimpleNamespace(hip=hip)
    torch.cuda = types.SimpleNamespace(
        is_available=lambda: bool(devices),
        device_count=lambda: len(devices),
        get_device_properties=lambda index: types.SimpleNamespace(**devices[index]),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)


def fake_rocminfo(monkeypatch: pytest.MonkeyPatch, outcome: str | Exception, status: int = 0) -> None:
    def run(command: list[str], **options: Any) -> Any:
        assert command == ["rocminfo"]
        assert options["timeout"] > 0
        if isinstance(outcome, Exception):
            raise outcome
        return subprocess.CompletedProcess(command, status, stdout=outcome, stderr="")

    monkeypatch.setattr(subprocess, "run", run)


def test_an_h200_through_torch_agrees_with_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch, H200, H200)
    first, second = detect()
    assert (first.index, second.index, first.source, first.target) == (0, 1, "torch", "sm_90")
    assert (first.model, first.disagreements) == ("H200-SXM", ())
    assert (first.sm_count, first.l2_bytes, first.max_clock_hz) == (132, 62_914_560, 1_980_000_000)


def test_disagreements_are_sentences_with_both_values(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {**H200, "multi_processor_count": 66, "L2_cache_size": 52_428_800, "total_memory": 70 * 2**30}
    fake_torch(monkeypatch, changed)
    (device,) = detect()
    assert device.model == "H200-SXM"
    assert device.disagreements == (
        "the device reports 66 SMs, the model states 132",
        "the device reports 52,428,800 bytes of L2, the model states 62,914,560",
        "the device reports 75,161,927,680 bytes of memory, the model states 141,000,000,000",
    )


def test_an_amd_device_through_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    mi300x = {
        "name": "AMD Instinct MI300X",
        "gcnArchName": "gfx942:sramecc+:xnack-",
        "major": 9,
        "minor": 4,
        "multi_processor_count": 304,
        "warp_size": 64,
        "total_memory": 206_141_652_992,
        "L2_cache_size": 4_194_304,
        "max_threads_per_multi_processor": 2048,
        "regs_per_multiprocessor": 65536,
        "shared_memory_per_multiprocessor": 65536,
    }
    fake_torch(monkeypatch, mi300x, hip="6.4")
    (device,) = detect()
    # HIP reports the L2 of one XCD, which the model knows too.
    assert (device.target, device.model, device.disagreements) == ("gfx942", "MI300X", ())


def test_nvml_is_asked_when_torch_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    class NVMLError(Exception):
        pass

    nvml: Any = types.ModuleType("pynvml")
    nvml.NVMLError, nvml.NVML_CLOCK_SM = NVMLError, 1
    ended = []
    nvml.nvmlInit = lambda: None
    nvml.nvmlShutdown = lambda: ended.append(True)
    nvml.nvmlDeviceGetCount = lambda: 1
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    nvml.nvmlDeviceGetName = lambda handle: b"NVIDIA A100-SXM4-40GB"
    nvml.nvmlDeviceGetCudaComputeCapability = lambda handle: (8, 0)
    nvml.nvmlDeviceGetMaxClockInfo = lambda handle, kind: 1410
    nvml.nvmlDeviceGetMemoryInfo = lambda handle: types.SimpleNamespace(total=40 * 2**30)
    without(monkeypatch, "torch")
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    (device,) = detect()
    assert (device.source, device.model, device.target) == ("nvidia-ml-py", "A100-SXM4-40GB", "sm_80")
    assert device.disagreements == ()
    assert ended == [True]


def test_rocminfo_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "torch", "pynvml")
    fake_rocminfo(monkeypatch, ROCMINFO)
    (device,) = detect()
    assert (device.source, device.model, device.disagreements) == ("rocminfo", "MI300X", ())
    assert (device.sm_count, device.warp_size, device.max_smem_bytes_per_block) == (304, 64, 65536)
    assert (device.l2_bytes, device.memory_bytes) == (4_194_304, 201310208 * 1024)


@pytest.mark.parametrize(
    ("outcome", "status", "remark"),
    [
        (FileNotFoundError(), 0, "rocminfo: not installed"),
        (PermissionError(), 0, "rocminfo: failed (PermissionError)"),
        (subprocess.TimeoutExpired("rocminfo", 20), 0, "rocminfo: failed (TimeoutExpired)"),
        ("", 1, "rocminfo: ended with status 1"),
        ("", 0, "rocminfo: lists no GPU"),
    ],
)
def test_no_device_says_what_was_asked(
    monkeypatch: pytest.MonkeyPatch, outcome: str | Exception, status: int, remark: str
) -> None:
    without(monkeypatch, "pynvml")
    fake_torch(monkeypatch)
    fake_rocminfo(monkeypatch, outcome, status)
    with pytest.raises(NoDeviceError) as caught:
        detect()
    assert "torch: sees no device; nvidia-ml-py: not installed" in str(caught.value)
    assert remark in str(caught.value)


def test_a_driver_that_breaks_under_torch_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch, H200)

    def broken(index: int) -> None:
        raise RuntimeError("CUDA driver initialization failed\nmore")

    sys.modules["torch"].cuda.get_device_properties = broken
    without(monkeypatch, "pynvml")
    fake_rocminfo(monkeypatch, FileNotFoundError())
    with pytest.raises(NoDeviceError, match="torch: failed \\(CUDA driver initialization failed\\)"):
        detect()


def test_a_device_of_an_unknown_name_is_matched_by_target_and_count() -> None:
    device = DetectedDevice(0, "torch", "Graphics Device", target="sm_100", sm_count=148)
    assert identify(device).model == "B200"
    unknown = DetectedDevice(0, "torch", "Graphics Device", target="sm_100", sm_count=20)
    assert identify(unknown) == unknown
    assert find_model(DetectedDevice(0, "torch", "Graphics Device")) is None
    # Two models have 256 CUs of gfx950: no guess.
    assert find_model(DetectedDevice(0, "rocminfo", "AMD Radeon Graphics", target="gfx950", sm_count=256)) is None


def test_the_variant_of_a_name_follows_the_memory() -> None:
    device = DetectedDevice(0, "torch", "A100", target="sm_80", sm_count=108, memory_bytes=40 * 2**30)
    assert identify(device).model == "A100-SXM4-40GB"


def test_rdna_may_count_wgps_and_either_wave() -> None:
    device = DetectedDevice(
        0, "torch", "AMD Radeon RX 7900 XTX", "gfx1100", sm_count=48, warp_size=32, max_threads_per_sm=2048
    )
    assert identify(device).disagreements == ()
    assert compare(DetectedDevice(0, "torch", "x", "gfx1101", sm_count=54), load_gpu("7900xtx")) == [
        "the device is gfx1101, the model gfx1100",
        "the device reports 54 CUs, the model states 48 or 96",
    ]


def test_output_that_is_not_rocminfos_gives_no_device() -> None:
    assert parse_rocminfo("") == []
    assert parse_rocminfo("*****\nAgent 1\n*****\nDevice Type: GPU of some kind\n") == []
    (bare,) = parse_rocminfo("*****\nAgent 1\n*****\n  Device Type:  GPU\n")
    assert (bare.name, bare.sm_count, bare.target) == ("", None, None)
    assert identify(bare).model is None


def test_the_real_rocminfo_is_never_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found, remark = ask_rocminfo()
    assert (found, remark) == ([], "not installed")


@pytest.mark.gpu
def test_the_gpu_of_this_machine_agrees_with_its_model() -> None:
    try:
        devices = detect()
    except NoDeviceError as error:
        pytest.skip(str(error))
    for device in devices:
        assert device.model is not None
        assert device.disagreements == ()
