"""From tensors to a launch: the request, the choice, copies of misaligned operands, GPUs without a model.

The launches run in Triton's interpreter, in a process of its own, as if the CPU were an H200 or an MI300X.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch
from constrint.kernels.gemm.pack import can_describe

from constrint.hwmodels import load_all
from constrint.hwmodels.match import DetectedDevice
from constrint.kernels.gemm import dispatch, resources
from constrint.kernels.gemm.launch import Machine
from constrint.model import Var

SCRIPT = """
import json, sys
import torch
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import dispatch
from constrint.kernels.gemm.launch import Machine
from constrint.kernels.gemm.reference import gemm_reference

def run(case):
    gpu = load_gpu(case["gpu"]) if case["gpu"] else None
    num_xcds = gpu.device.num_xcds if gpu else 1
    dispatch._machine = lambda index: (gpu, Machine(gpu.device.sm_count if gpu else 4, num_xcds, case["gpu"] == "h200"))
    generator = torch.Generator().manual_seed(case["seed"])
    batch, m, n, k = case["sizes"]
    kind = getattr(torch, case["dtype"])
    if kind == torch.int8:
        a, b = (torch.randint(-9, 9, s, generator=generator, dtype=kind) for s in ((batch, m, k), (batch, k, n)))
    else:
        a, b = (torch.randn(s, generator=generator).to(kind) for s in ((batch, m, k), (batch, k, n)))
    if case["layout"][0] == "c":
        a = a.transpose(1, 2).contiguous().transpose(1, 2)
    if case["layout"][1] == "c":
        b = b.transpose(1, 2).contiguous().transpose(1, 2)
    if case.get("expanded"):
        a = a[:1].expand(batch, m, k)
    out_kind = torch.int32 if kind == torch.int8 else kind
    bias = torch.randn(n, generator=generator).to(kind) if case.get("bias") else None
    arguments = (a, b, bias, None, 1.0, 0.0, case.get("activation"))
    found = dispatch.run_on_gpu(*arguments, out_kind)
    options = {"activation": case.get("activation"), "out_dtype": out_kind}
    expected = gemm_reference(a.double() if kind != torch.int8 else a, b.double() if kind != torch.int8 else b,
                              bias, **options | ({} if kind == torch.int8 else {"out_dtype": torch.float64}))
    bound = k * 2.0**-23 * (a.double().abs() @ b.double().abs()) + 2.0**-10 * expected.double().abs() + 2.0**-23
    return bool(((found.double() - expected.double()).abs() <= bound).all())

print(json.dumps([run(case) for case in json.loads(sys.stdin.read())]))
"""
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
def outcomes() -> dict[str, bool]:
    cases = [{"dtype": "float16", "layout": "rr", "seed": i} | case for i, case in enumerate(CASES.values())]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(cases),
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_product_is_right_with_the_choice_for_that_gpu(name: str, outcomes: dict[str, bool]) -> None:
    assert outcomes[name]


def test_a_gpu_without_a_model_warns_once_and_gets_a_conservative_config(monkeypatch: pytest.MonkeyPatch) -> None:
    device = DetectedDevice(index=0, source="torch", name="GPU of tomorrow", target="sm_190", sm_count=7)
    monkeypatch.setattr(dispatch, "describe_torch_device", lambda index: device)
    dispatch._machine.cache_clear()
    dispatch._warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"no hardware model of GPU of tomorrow \(sm_190\).*conservative"):
        assert dispatch._machine(0) == (None, Machine(7, 1, False))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dispatch._machine(0)
    a = torch.empty(1, 64, 64, dtype=torch.float16)
    assert dispatch._config(None, a, a, None, None, torch.float16) == dispatch.CONSERVATIVE
    dispatch._machine.cache_clear()


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "tf32", "int8"])
def test_the_conservative_config_fits_every_modelled_gpu(dtype: str) -> None:
    v = {name: Var(name) for name in dispatch.CONSERVATIVE}
    checked = 0
    for gpu in load_all():
        try:
            resources.unit(gpu, dtype)
        except ValueError:
            continue
        smem = resources.smem_bytes(gpu, dtype, v).value(dispatch.CONSERVATIVE)
        registers = resources.registers_per_thread(gpu, dtype, v).value(dispatch.CONSERVATIVE)
        assert smem <= gpu.sm.max_smem_bytes_per_block, gpu.name
        assert registers <= gpu.sm.max_registers_per_thread, gpu.name
        checked += 1
    assert checked >= 15


def test_a_dtype_without_instructions_runs_as_torch_with_a_warning() -> None:
    from constrint.hwmodels import load_gpu

    dispatch._warn_once.cache_clear()
    a = torch.empty(1, 64, 64, dtype=torch.bfloat16)
    with pytest.warns(RuntimeWarning, match=r"V100.* has no matrix instruction for bf16.*plain PyTorch"):
        assert dispatch._config(load_gpu("v100"), a, a, None, None, torch.bfloat16) is None


def test_requests_say_what_has_to_be_copied() -> None:
    even, odd = torch.empty(2, 64, 64, dtype=torch.float16), torch.empty(2, 64, 63, dtype=torch.float16)
    assert dispatch.request_of(even, even, None, None, torch.float16).packed_bytes == 0
    assert dispatch.request_of(even, odd, None, None, torch.float16).packed_bytes == 64 * 63 * 2
    wide = torch.empty(2, 64, 64, dtype=torch.int8)
    turned = wide.transpose(1, 2)
    assert dispatch.request_of(wide, turned, None, None, torch.int32).packed_bytes == 0
    assert dispatch.request_of(wide, wide, None, None, torch.int32).packed_bytes == 64 * 64
    assert not dispatch.request_of(even[:1].expand(2, 64, 64), even, None, None, torch.float16).has_descriptors


def test_requests_say_how_rows_lie() -> None:
    even, odd = torch.empty(1, 64, 64, dtype=torch.float16), torch.empty(1, 64, 1000, dtype=torch.float16)
    request = dispatch.request_of(even, odd, None, None, torch.float16)
    assert (request.width_a, request.width_b) == (16, 16)
    assert (request.step_b, request.is_b_copied) == (16, False)
    narrow = dispatch.request_of(even, odd[:, :, :300], None, None, torch.float16)
    assert (narrow.width_b, narrow.step_b, narrow.is_b_copied) == (8, 16, False)
    short = dispatch.request_of(torch.empty(1, 64, 24, dtype=torch.float16).mT, even, None, None, torch.float16)
    assert (short.is_a_k_major, short.is_a_copied, short.is_a_turned) == (False, True, True)
    assert short.packed_bytes == 2 * 64 * 24


def test_what_the_tma_unit_can_load() -> None:
    t = torch.empty(2, 64, 64, dtype=torch.float16)
    assert can_describe(t)
    assert can_describe(t.transpose(1, 2))
    assert can_describe(t[:, :, :63])
    assert not can_describe(t[:, :, 1:])
    assert not can_describe(t[:, :, ::2])
    assert not can_describe(torch.empty(2, 64, 63, dtype=torch.float16))
    assert not can_describe(t[:1].expand(2, 64, 64))
    assert can_describe(t[:1])
