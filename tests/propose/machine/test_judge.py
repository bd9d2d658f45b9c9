"""Compiled kernels are judged as they are: the binary of NVIDIA, the assembly of AMD, and what Triton loads."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from constrint.errors import UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.cuda.nvrtc import CudaSource, compile_with_ptx
from constrint.propose.machine.amdgcn import amdgcn_problems
from constrint.propose.machine.judge import judge
from constrint.propose.machine.ptx import PtxFindings
from constrint.propose.machine.sass import sass_problems
from constrint.propose.worker.compiling import compile_launches, judge_loaded_kernels
from tests.support.needs import needs_triton

pytestmark = needs_triton
needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="NVRTC is not installed (the extra [cuda])"
)
TRITON = """
import triton
import triton.language as tl

@triton.jit
def honest(y, x, n, tile: tl.constexpr):
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    values = tl.load(x + at, mask=at < n, eviction_policy="evict_first").to(tl.float32)
    tl.store(y + at, tl.exp(values) / tl.sum(tl.sin(values), axis=0), mask=at < n)

@triton.jit
def clocked(y, x, n, tile: tl.constexpr):
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    now = tl.inline_asm_elementwise(ASSEMBLY, "=r,r", [at], tl.int32, is_pure=False, pack=1)
    tl.store(y + at, now.to(tl.float32), mask=at < n)
"""


def built(text: str, gpu: str = "h200", before: str = "") -> tuple[str, bytes]:
    """PTX and binary of a kernel of one statement."""
    source = f"{before}\n__global__ void f(float* y, float* x) {{ {text} }}"
    binary, ptx = compile_with_ptx(load_gpu(gpu), CudaSource(source, "f"))
    return ptx, binary.cubin


HEAVY = "x += threadIdx.x; y[0] = sinf(x[0]) + powf(x[1], x[2]) / x[3] + sqrt((double)x[4]); __threadfence();"


@needs_nvrtc
@pytest.mark.parametrize("gpu", ["t4", "l4", "rtx-5090"])
def test_mathematical_functions_and_fences_pass(gpu: str) -> None:
    ptx, cubin = built(HEAVY, gpu)
    judge("f", {"ptx": ptx, "cubin": cubin})


@needs_nvrtc
def test_the_machine_code_is_judged_whatever_the_ptx_beside_it_says() -> None:
    ptx, cubin = built(HEAVY)
    judge("f", {"ptx": ptx, "cubin": cubin})
    for bad, before, says in (
        ("y[0] = clock64();", "", "SR_CLOCK"),
        ("__trap();", "", "BPT"),
        ("__nanosleep(9);", "", "NANOSLEEP"),
        ("y[0] = kept++;", "__device__ unsigned kept;", "(`kept`)"),
        ("*(float*)&table[1] = y[0];", "__constant__ float table[4];", "(`table`)"),
        ('asm volatile("discard.global.L2 [%0], 128;" :: "l"(y));', "", "which controls a cache"),
    ):
        with pytest.raises(UnsupportedError, match="no candidate may") as refused:
            judge("f", {"ptx": ptx, "cubin": built(bad, before=before)[1]})
        assert says in str(refused.value)


@needs_nvrtc
def test_a_binary_that_was_changed_is_refused_and_never_a_traceback() -> None:
    _, cubin = built("y[0] = x[0];")
    none = PtxFindings()
    assert list(sass_problems(cubin, none)) == []
    for changed in (
        b"",
        b"\x7fELF\x02",
        cubin[:100],
        cubin[:-1],
        b"\xff" * 500,
        cubin[:0x28] + b"\xff" * 8 + cubin[48:],
    ):
        with suppress(UnsupportedError):  # nvdisasm reads it neither
            assert list(sass_problems(changed, none))


def test_neither_ptx_nor_assembly_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="neither PTX nor AMD's assembly"):
        judge("f", {"cubin": b""})


@pytest.mark.parametrize(
    ("line", "is_fine"),
    [
        ("v_add_f32_e32 v0, v1, v2", True),
        ("s_waitcnt vmcnt(0) lgkmcnt(0)", True),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 3", True),
        (".LBB0_1: s_cbranch_scc1 .LBB0_1 ; s_trap 2", True),
        ("s_memtime s[0:1]", False),
        ("s_memrealtime s[0:1]", False),
        ("label: s_trap 2", False),
        ("s_sethalt 1", False),
        ("s_sleep 8", False),
        ("s_getreg_b32 s0, hwreg(HW_REG_SHADER_CYCLES)", False),
        ("s_getreg_b32 s0, hwreg(HW_REG_HW_ID)", False),
        ("s_sendmsg_rtn_b64 s[0:1], sendmsg(MSG_RTN_GET_REALTIME)", False),
        ("s_sendmsg sendmsg(MSG_INTERRUPT)", False),
        ("ds_gws_init v0", False),
        (".type kept,@object", False),
        (".comm kept,4,4", False),
        (".section .data", False),
        ('.section .bss,"aw",@nobits', False),
        ('.incbin "/etc/passwd"', False),
        (".macro m", False),
        ("/* v_nop */", False),
    ],
)
def test_amds_assembly_is_read_line_by_line(line: str, is_fine: bool) -> None:
    text = f'\t.amdgcn_target "gfx942"\n\t.text\nf:\n\ts_load_dwordx2 s[0:1], s[0:1], 0x0\n\t{line}\n\ts_endpgm\n'
    assert (not list(amdgcn_problems(text))) == is_fine


@pytest.fixture
def triton_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Builds a module of the two kernels, with one assembly."""

    def load(name: str, assembly: str = "") -> Any:
        path = tmp_path / f"{name}.py"
        path.write_text(TRITON.replace("ASSEMBLY", repr(assembly)))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


def launched(function: Any, gpu: str) -> list[Any]:
    """What one launch of a function compiles to."""
    import torch

    tensors = [torch.empty(4096, device="meta") for _ in range(2)]
    return list(compile_launches(lambda y, x: function[(4,)](y, x, 4096, 1024), tensors, gpu))


@pytest.mark.parametrize("option", ["ir_override", "extern_libs", "ptx_options", "launch_pdl", "debug"])
def test_a_launch_states_no_option_that_replaces_a_stage_of_the_compiler(option: str, triton_module: Any) -> None:
    import torch

    function, tensors = triton_module("third").honest, [torch.empty(4096, device="meta") for _ in range(2)]
    with pytest.raises(UnsupportedError, match=f"no parameter '{option}', and a launch states only enable_fp_fusion"):
        list(compile_launches(lambda y, x: function[(4,)](y, x, 4096, 1024, **{option: "x"}), tensors, "h200"))


@pytest.mark.parametrize("gpu", ["h200", "b200", "a100", "mi300x", "rx-7900-xtx"])
def test_an_honest_kernel_in_triton_passes(gpu: str, triton_module: Any) -> None:
    assert launched(triton_module("first").honest, gpu)


@pytest.mark.parametrize(
    ("gpu", "assembly", "says"),
    [
        ("h200", "mov.u32 $0, %clock;", "`%clock`"),
        ("h200", "{ trap; }", "`trap`"),
        ("h200", "{ .global .u32 keep; atom.global.add.u32 $0, [keep], 1; }", "which would outlive a call"),
        ("mi300x", "s_memtime s[4:5]", "s_memtime"),
        ("mi300x", "s_trap 2", "s_trap"),
    ],
)
def test_a_kernel_in_triton_is_judged_by_what_it_became(gpu: str, assembly: str, says: str, triton_module: Any) -> None:
    module = triton_module("second", assembly)
    if gpu == "mi300x":
        source = TRITON.replace('"=r,r"', '"=v,v"').replace("ASSEMBLY", repr(assembly))
        Path(module.__file__).write_text(source)
        module.__spec__.loader.exec_module(module)
    with pytest.raises(UnsupportedError, match="no candidate may") as refused:
        launched(module.clocked, gpu)
    assert says in str(refused.value)


@needs_nvrtc
def test_triton_loads_no_binary_that_was_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.compiler.compiler import CompiledKernel

    loaded: list[bytes] = []
    monkeypatch.setattr(CompiledKernel, "_init_handles", lambda kernel: loaded.append(kernel.kernel))
    judge_loaded_kernels()
    (ptx, good), (_, bad) = built("y[0] = x[0];"), built("y[0] = clock64();")
    kernel = CompiledKernel.__new__(CompiledKernel)
    # Its assembly is honest; what is loaded is not.
    kernel.name, kernel.module, kernel.asm, kernel.kernel = "f", None, {"ptx": ptx, "cubin": good}, bad
    with pytest.raises(UnsupportedError, match="SR_CLOCK"):
        kernel._init_handles()
    kernel.kernel = good
    kernel._init_handles()
    assert loaded == [good]
