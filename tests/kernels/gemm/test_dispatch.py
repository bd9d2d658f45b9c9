"""From tensors to a launch: the choice, copies of misaligned operands, GPUs without a model, what does not fit.

The launches run in Triton's interpreter, in a process of its own, as if the CPU were an H200 or an MI300X.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.decisions import begin_anew
from tests.support.gemm import POINTER, gemm, product, smem_of, use_of
from tests.support.interpreter import interpreted
from tests.support.needs import missing_packages
from tests.support.shared import SharedResults

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch

from constrint.choose import Program, decide, forget
from constrint.errors import InfeasibleError, UnsupportedError
from constrint.hwmodels import load_all, load_gpu
from constrint.hwmodels.detection import DetectedDevice
from constrint.kernels.gemm import first_call
from constrint.kernels.gemm.candidates import CONSERVATIVE, request_of
from constrint.kernels.gemm.first_call import End
from constrint.kernels.gemm.launch import GemmCall, Machine
from constrint.kernels.launch import device as devices

CASES: dict[str, dict[str, Any]] = {
    "h200": {"gpu": "h200", "sizes": [1, 96, 80, 128]},
    "h200, odd rows are copied": {"gpu": "h200", "sizes": [1, 33, 77, 155]},
    "h200, odd columns are copied": {"gpu": "h200", "sizes": [1, 33, 77, 155], "layout": "cc"},
    "h200, batch": {"gpu": "h200", "sizes": [3, 40, 48, 64], "layout": "rc"},
    "h200, expanded operand": {"gpu": "h200", "sizes": [3, 40, 48, 64], "expanded": True},
    "h200, int8 transposes B": {"gpu": "h200", "sizes": [1, 64, 48, 64], "dtype": "int8"},
    "h200, split depth": {"gpu": "h200", "sizes": [1, 16, 32, 4096]},
    "h200, bias": {"gpu": "h200", "sizes": [2, 33, 48, 64], "bias": True, "activation": "relu"},
    "h200, rows of 8 bytes": {"gpu": "h200", "sizes": [1, 100, 60, 500]},
    "h200, rows of 8 bytes, batch by columns": {"gpu": "h200", "sizes": [2, 36, 60, 100], "layout": "cc"},
    "h200, few rows by columns": {"gpu": "h200", "sizes": [1, 8, 64, 512], "layout": "cr"},
    "h200, 24 rows by columns": {"gpu": "h200", "sizes": [1, 24, 48, 256], "layout": "cc"},
    "h200, few columns by rows": {"gpu": "h200", "sizes": [2, 64, 8, 256]},
    "h200, one row by columns": {"gpu": "h200", "sizes": [1, 1, 64, 500], "layout": "cr"},
    "h200, one column": {"gpu": "h200", "sizes": [1, 64, 1, 500]},
    "mi300x": {"gpu": "mi300x", "sizes": [1, 96, 80, 128]},
    "mi300x, rows of 8 bytes": {"gpu": "mi300x", "sizes": [2, 36, 60, 100], "layout": "rc"},
    "mi300x, ragged": {"gpu": "mi300x", "sizes": [2, 33, 77, 155], "layout": "cr"},
    "no model": {"gpu": None, "sizes": [1, 70, 77, 155]},
}


@pytest.fixture(scope="module")
def outcomes(shared_results: SharedResults) -> dict[str, bool]:
    preset = {"dtype": "float16", "layout": "rr"}
    cases = {name: preset | {"seed": seed} | case for seed, (name, case) in enumerate(CASES.items())}
    function = "tests.support.interpreted_gemm:dispatch_is_right"
    return dict(shared_results.once(function, lambda: interpreted(function, cases)))


@pytest.mark.parametrize("name", CASES)
def test_product_is_right_with_the_choice_for_that_gpu(name: str, outcomes: dict[str, bool]) -> None:
    assert outcomes[name]


@pytest.fixture
def _unwarned() -> Iterator[None]:
    """Devices are looked up anew, warnings are given again, before and after."""
    kept = (first_call.machine_of, devices.warn_once, devices._describe_index)
    for cached in kept:
        cached.cache_clear()
    yield
    for cached in kept:
        cached.cache_clear()


@pytest.mark.usefixtures("_unwarned")
def test_a_gpu_without_a_model_warns_once_and_gets_a_conservative_config(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = DetectedDevice(index=0, source="torch", name="GPU of tomorrow", target="sm_190", sm_count=7)
    monkeypatch.setattr(devices, "describe_torch_device", lambda index: seen)
    device = torch.device("cuda", 0)
    with pytest.warns(RuntimeWarning, match=r"no hardware model of GPU of tomorrow \(sm_190\).*conservative"):
        assert first_call.machine_of(device) == (None, Machine(7, 1, False))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first_call.machine_of(device)
        first_call.machine_of.cache_clear()
        assert devices.gpu_of(device) is None
    chosen = decide(request_of(None, product(64, 64, 64, "fp16"), device=device))
    assert (chosen.kernel, chosen.config) == ("gemm.pointer", CONSERVATIVE)


@pytest.mark.usefixtures("_unwarned")
def test_a_gpu_that_is_known_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = DetectedDevice(index=0, source="torch", name="NVIDIA H200", target="sm_90", model="h200", sm_count=132)
    monkeypatch.setattr(devices, "describe_torch_device", lambda index: seen)
    gpu, machine = first_call.machine_of(torch.device("cuda", 0))
    assert gpu is not None
    assert gpu.name == "H200-SXM"
    assert machine == Machine.of(gpu) == Machine(132, 1, True, gpu=gpu)


@pytest.mark.usefixtures("_unwarned")
def test_an_unverified_triton_is_cautioned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton

    monkeypatch.setattr(triton, "__version__", "4.0.1")
    seen = DetectedDevice(index=0, source="torch", name="NVIDIA H200", target="sm_90", model="h200", sm_count=132)
    monkeypatch.setattr(devices, "describe_torch_device", lambda index: seen)
    with pytest.warns(RuntimeWarning, match="not with 4.0.1"):
        first_call.machine_of(torch.device("cuda", 0))


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "tf32", "int8"])
def test_the_conservative_config_fits_every_modelled_gpu(dtype: str) -> None:
    checked = 0
    for gpu in load_all():
        workload = gemm(4096, 4096, 4096, dtype)
        try:
            POINTER.check_dtype(gpu, workload)
        except UnsupportedError:
            continue
        use = use_of(POINTER, gpu, workload, POINTER.problem(gpu, workload))
        config = {**CONSERVATIVE, "matrix_instr_nonkdim": 16}
        assert max(smem_of(use, config), use.smem_bytes.value(config)) <= gpu.sm.max_smem_bytes_per_block, gpu.name
        assert use.registers_per_thread.value(config) <= gpu.sm.max_registers_per_thread, gpu.name
        checked += 1
    assert checked >= 15


@pytest.mark.usefixtures("_unwarned")
def test_a_dtype_without_instructions_runs_as_torch_with_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match=r"V100.* has no matrix instruction for bf16.*plain PyTorch"):
        assert first_call.decide_or_none(request_of(load_gpu("v100"), product(64, 64, 64))) is None


class RefusingDevice:
    """Stands for a device on which the first launches, or all, do not fit; one that does writes ones."""

    def __init__(self, num_refusals: float, what: str = "shared memory") -> None:
        self.left, self.what = num_refusals, what
        self.takes_conservative = False
        self.tried: list[tuple[str, dict[str, int]]] = []

    def launch(self, program: Program, call: GemmCall) -> None:
        from triton.runtime.errors import OutOfResources

        config = program.step("product").config
        self.tried.append((program.name, dict(config)))
        if self.left > 0 and not (self.takes_conservative and config == CONSERVATIVE):
            self.left -= 1
            raise OutOfResources(300_000, 232_448, self.what)
        call.out.fill_(1.0)


def run_refused(monkeypatch: pytest.MonkeyPatch, gpu_name: str | None, device: RefusingDevice) -> torch.Tensor:
    gpu = load_gpu(gpu_name) if gpu_name else None
    machine = Machine.of(gpu) if gpu else Machine(4)
    monkeypatch.setattr(first_call, "machine_of", lambda _: (gpu, machine))
    monkeypatch.setattr(first_call, "launch", device.launch)
    # What is refused here must not be remembered by other tests.
    begin_anew(monkeypatch)
    a = torch.ones(1, 640, 704, dtype=torch.float16)
    b = torch.ones(1, 704, 768, dtype=torch.float16)
    try:
        return first_call.run(a, b, None, None, End(1.0, 0.0, None, torch.float16))
    finally:
        forget()


def test_what_does_not_fit_is_replaced_by_the_next_choice_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    device = RefusingDevice(2)
    with pytest.warns(
        RuntimeWarning, match="does not fit H200-SXM after all: it takes 300000 of shared memory"
    ) as given:
        out = run_refused(monkeypatch, "h200", device)
    assert len(given) == 2
    assert bool((out == 1.0).all())
    assert len({str(tried) for tried in device.tried}) == 3
    assert "From now on" in str(given[1].message)
    assert device.tried[2][0] in str(given[1].message)


def test_where_every_choice_is_refused_the_conservative_configuration_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal of anything but shared memory excludes a number of warps."""
    device = RefusingDevice(math.inf, "threads")
    device.takes_conservative = True
    with pytest.warns(RuntimeWarning, match="does not fit"):
        out = run_refused(monkeypatch, "a30", device)
    assert bool((out == 1.0).all())
    *refused, last = device.tried
    assert len(refused) == len({config["num_warps"] for _, config in refused}) >= 3
    assert last == ("gemm.pointer", dict(CONSERVATIVE))


def test_where_nothing_fits_the_error_names_the_last_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    device = RefusingDevice(math.inf, "threads")
    with (
        pytest.warns(RuntimeWarning, match="does not fit"),
        pytest.raises(InfeasibleError, match=r"refused .*'num_warps': 4.*300000 of threads.*nothing else is left"),
    ):
        run_refused(monkeypatch, "a30", device)
    assert device.tried[-1] == ("gemm.pointer", dict(CONSERVATIVE))


def test_without_a_model_a_refusal_is_the_users_to_see(monkeypatch: pytest.MonkeyPatch) -> None:
    device = RefusingDevice(1)
    with pytest.raises(InfeasibleError, match=r"300000 of shared memory.*without a hardware model"):
        run_refused(monkeypatch, None, device)
    assert device.tried == [("gemm.pointer", dict(CONSERVATIVE))]
