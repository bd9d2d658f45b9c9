"""What Triton makes of a kernel on its way: its assembly, and the machine code that ptxas makes of it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from constrint.hwmodels import GpuModel
from constrint.select import Config, KernelSpec, Workload
from constrint.tune import CompiledKernel


def compile_and_keep(
    monkeypatch: pytest.MonkeyPatch, spec: KernelSpec, gpu: GpuModel, workload: Workload, config: Config
) -> tuple[CompiledKernel, Mapping[str, Any]]:
    """Compile a configuration; the figures, and Triton's outputs by name (`ptx`, `cubin`, `amdgcn`)."""
    import triton

    kept: list[Any] = []
    compile_ = triton.compile

    def keep(*arguments: Any, **options: Any) -> Any:
        kept.append(compile_(*arguments, **options))
        return kept[-1]

    with monkeypatch.context() as patch:
        patch.setattr(triton, "compile", keep)
        compiled = spec.compile(gpu, workload, config)
    return compiled, kept[-1].asm


def sass_of(cubin: bytes) -> list[str]:
    """Instructions of a CUDA binary, disassembled with the tool that Triton's wheel carries."""
    import triton.backends.nvidia as backend

    assert backend.__file__ is not None
    tool = Path(backend.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([tool, "-sass", file.name], capture_output=True, text=True, check=True).stdout
    return re.findall(r"/\*[0-9a-f]{4,5}\*/\s+([^;]+);", text)
