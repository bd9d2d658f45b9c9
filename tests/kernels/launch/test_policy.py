"""What is done when a configuration does not fit after all, and which model a device has."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from tests.support.gemm import gemm
from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch
from triton.runtime.errors import OutOfResources

from constrint.errors import InfeasibleError
from constrint.hwmodels import load_gpu
from constrint.hwmodels.match import DetectedDevice
from constrint.kernels.launch import device as devices
from constrint.kernels.launch.policy import launch_what_fits
from constrint.kernels.registry import load_spec
from constrint.select.first_choice import Choice, Refusal, choose, refuse

H200 = load_gpu("h200")
FIRST, SECOND, THIRD = (Choice(H200, f"gemm.{name}", {"num_warps": 4}) for name in ("a", "b", "c"))
FOLLOWING = {"gemm.a": SECOND, "gemm.b": THIRD}


def test_what_fits_is_launched_once_without_a_word() -> None:
    tried: list[Choice] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launch_what_fits(FIRST, tried.append, lambda *_: pytest.fail("nothing was refused")) == FIRST
    assert tried == [FIRST]


def test_the_next_choices_run_until_one_fits_and_every_change_is_told() -> None:
    tried, refused = [], []

    def launch(choice: Choice) -> None:
        tried.append(choice)
        if choice != THIRD:
            raise OutOfResources(300, 200, "shared memory")

    def next_choice(choice: Choice, refusal: Refusal) -> Choice:
        refused.append((choice, refusal))
        return FOLLOWING[choice.kernel]

    with pytest.warns(RuntimeWarning, match="does not fit H200-SXM after all") as told:
        assert launch_what_fits(FIRST, launch, next_choice) == THIRD
    assert tried == [FIRST, SECOND, THIRD]
    refusal = Refusal({"num_warps": 4}, "shared memory", 300, 200)
    assert refused == [(FIRST, refusal), (SECOND, refusal)]
    assert len(told) == 2
    assert "takes 300 of shared memory, the limit is 200. From now on gemm.b" in str(told[0].message)


def test_where_there_is_no_other_choice_its_error_is_raised() -> None:
    def launch(_: Choice) -> None:
        raise OutOfResources(300, 200, "threads")

    def next_choice(_: Choice, refusal: Refusal) -> Choice:
        raise InfeasibleError(str(refusal))

    with pytest.raises(InfeasibleError, match="300 of threads required, the limit is 200"):
        launch_what_fits(FIRST, launch, next_choice)


def test_other_errors_are_the_callers() -> None:
    def launch(_: Choice) -> None:
        raise RuntimeError("the device is gone")

    with pytest.raises(RuntimeError, match="the device is gone"):
        launch_what_fits(FIRST, launch, lambda *_: pytest.fail("this is no refusal"))


def test_a_refused_choice_of_one_kernel_is_excluded_for_good() -> None:
    pointer, workload = load_spec("gemm.pointer"), gemm(1234, 2345, 3456)
    first = choose(pointer, H200, workload)
    assert choose(pointer, H200, workload) is first
    second = refuse(pointer, first, Refusal(first.config, "threads", 2, 1))
    assert second.config["num_warps"] != first.config["num_warps"]
    assert choose(pointer, H200, workload) == second
    assert choose(pointer, H200, workload, fixed={"num_warps": 8}).config["num_warps"] == 8


def test_a_kernel_without_any_other_choice_says_what_was_refused() -> None:
    pointer, workload, fixed = load_spec("gemm.pointer"), gemm(1235, 2345, 3456), {"num_warps": 8}
    only = choose(pointer, H200, workload, fixed=fixed)
    with pytest.raises(InfeasibleError, match=r"the device refused .*: 2 of threads required"):
        refuse(pointer, only, Refusal(only.config, "threads", 2, 1))


@pytest.fixture
def _anew() -> Iterator[None]:
    """Devices are looked up and warned about anew."""
    for cached in (devices.warn_once, devices._describe_index):
        cached.cache_clear()
    yield
    for cached in (devices.warn_once, devices._describe_index):
        cached.cache_clear()


@pytest.mark.usefixtures("_anew")
def test_a_device_without_a_model_is_warned_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def describe(index: int) -> DetectedDevice:
        asked.append(index)
        return DetectedDevice(index=index, source="torch", name="GPU of tomorrow", target="sm_190", sm_count=7)

    monkeypatch.setattr(devices, "describe_torch_device", describe)
    with pytest.warns(RuntimeWarning, match=r"no hardware model of GPU of tomorrow \(sm_190\)"):
        assert devices.gpu_of(torch.device("cuda", 0)) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert devices.gpu_of(torch.device("cuda", 0)) is None
        assert devices.gpu_of(torch.device("cuda", 1)) is None
    assert asked == [0, 1]


@pytest.mark.usefixtures("_anew")
def test_a_device_with_a_model_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = DetectedDevice(index=0, source="torch", name="NVIDIA H200", target="sm_90", model="h200")
    monkeypatch.setattr(devices, "describe_torch_device", lambda index: seen)
    assert devices.gpu_of(torch.device("cuda", 0)) is H200
