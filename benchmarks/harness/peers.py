"""The peers: cuBLAS and torch's other products, its Triton template, cuDNN's layers, NX-AI's kernels; as calls."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from constrint.select import Workload
from constrint.tune.measure import Call


def baseline_of(workload: Workload, inputs: Mapping[str, Any]) -> Call | None:
    """Return the competitor of a space's configurations: torch's product; None for other operations."""
    calls = products(workload, inputs["a"], inputs["b"]) if workload.operation == "gemm" else {}
    return next(iter(calls.values()), None)


def products(workload: Workload, a: Any, b: Any) -> dict[str, Call]:
    """Torch's products of (1, M, K) and (1, K, N) by name; only those that take the operands."""
    import torch

    a, b = a[0], b[0]
    names: dict[str, Call] = {"cublas": partial(torch.matmul, a, b)}
    if workload.dtype == "fp8":
        one = torch.ones((), device=a.device)
        scaled = partial(torch._scaled_mm, a, b, one, one, out_dtype=torch.bfloat16)
        names = {"_scaled_mm": scaled, "_scaled_mm fast": partial(scaled, use_fast_accum=True)}
    elif workload.dtype == "int8":
        names = {"_int_mm": partial(torch._int_mm, a, b)}
    able: dict[str, Call] = {}
    for name, call in names.items():
        try:
            call()
        except (RuntimeError, ValueError):
            continue
        able[name] = call
    return able


def set_precision(workload: Workload) -> None:
    """Let torch multiply fp32 operands in tf32, or not, as the workload says; our kernels follow the same switch."""
    import torch

    torch.set_float32_matmul_precision("highest" if workload.options.get("three_pass") else "high")


def triton_template(a: Any, b: Any) -> Call:
    """`torch.compile(mode="max-autotune")` restricted to its Triton template; compiles and tunes when called first."""
    import torch
    from torch._inductor import config

    config.max_autotune_gemm_backends = "TRITON"
    torch._dynamo.reset()
    compiled = torch.compile(torch.matmul, fullgraph=True, dynamic=False, options={"max_autotune": True})
    return partial(compiled, a[0], b[0])


def cudnn_layer(cell: str, dim: int, dtype: Any, x: Any, grad: Any, num_layers: int = 1) -> tuple[Call, Call] | None:
    """`torch.nn`'s layers with one head, which project their inputs themselves: forward, forward and backward."""
    import torch

    kinds: dict[str, Any] = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "elman": torch.nn.RNN}
    if cell not in kinds:
        return None
    layer = kinds[cell](dim, dim, num_layers, batch_first=True, device=x.device, dtype=dtype)
    layer.flatten_parameters()
    x = x.clone().requires_grad_(True)
    given = [x, *layer.parameters()]

    def forward() -> Any:
        with torch.no_grad():
            return layer(x)

    return forward, lambda: torch.autograd.grad(layer(x)[0], given, grad)


#: NX-AI's back-ends.
NXAI_BACKENDS = ("cuda_fused", "cuda", "triton_fused")


def nxai_layer(
    cell: str, wx: Any, r: Any, b: Any, grad: Any, backends: Sequence[str] = NXAI_BACKENDS
) -> dict[str, tuple[Call, Call]]:
    """NX-AI's `flashrnn` by back-end, if its package is installed (`pip install flashrnn`, which builds CUDA code)."""
    import torch

    package = _nxai()
    if package is None or cell not in ("lstm", "slstm", "elman", "gru"):
        return {}
    if cell == "gru":  # gates n, r, z in R; in b also the input's n, which is part of wx here
        r, b = r[[2, 0, 1]], torch.stack([b[2], b[0], b[1], torch.zeros_like(b[0])])
    given = [t.clone().requires_grad_(True) for t in (wx, r, b)]
    calls: dict[str, tuple[Call, Call]] = {}
    for backend in backends:
        function: Callable[..., Any] = partial(package.flashrnn, function=cell, backend=backend, dtype="bfloat16")

        def forward(function: Callable[..., Any] = function) -> Any:
            with torch.no_grad():
                return function(*given)

        def both(function: Callable[..., Any] = function) -> Any:
            return torch.autograd.grad(function(*given)[0][0], given, grad)

        calls[f"nxai {backend}"] = forward, both
    return calls


@lru_cache(maxsize=1)
def _nxai() -> ModuleType | None:
    """NX-AI's package; the repository's own link of the same name must not stand in for it."""
    try:
        start = Path(str(metadata.distribution("flashrnn").locate_file("flashrnn"))) / "__init__.py"
    except metadata.PackageNotFoundError:
        return None
    spec = importlib.util.spec_from_file_location("flashrnn", start)
    if spec is None or spec.loader is None:
        return None
    package = importlib.util.module_from_spec(spec)
    sys.modules["flashrnn"] = package
    spec.loader.exec_module(package)
    _answer_device_query()
    return package


def _answer_device_query() -> None:
    """Give NX-AI's solver the device's limits: the extension that asks for them does not build with CUDA 13."""
    import torch

    seen: Any = torch.cuda.get_device_properties()
    limits = {
        "maxThreadsPerBlock": 1024,
        "multiProcessorCount": seen.multi_processor_count,
        "regsPerMultiprocessor": seen.regs_per_multiprocessor,
        "sharedMemPerBlockOptin": seen.shared_memory_per_block_optin,
    }
    importlib.import_module("flashrnn.flashrnn.flashrnn").__dict__["get_gpu_info"] = lambda device_id: limits
