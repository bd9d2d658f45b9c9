"""Candidates in CUDA C++: read, compiled in the sandbox for a named GPU without one, and refused for what they hide."""

from __future__ import annotations

import importlib.util
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from constrint.errors import CompileError, UnsupportedError, UsageError
from constrint.hwmodels import load_gpu
from constrint.propose import GateSettings, examine, find_sandbox, find_task
from constrint.propose.cuda.candidate import CudaCandidate
from constrint.propose.cuda.legal import illegal
from constrint.propose.wire import Kernel, LoadCuda
from constrint.propose.worker.tensors import torch_dtype
from constrint.propose.writing import Files
from constrint.tune.search.llm.records import KernelLaunch, SourceProposal
from tests.support.needs import needs_triton

pytestmark = needs_triton
needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="NVRTC is not installed (the extra [cuda])"
)
SETTINGS = GateSettings(allow_unsandboxed=isinstance(find_sandbox(), str), device="cpu")
(SOFTMAX,) = Files("softmax", [Path(__file__).with_name("softmax.cu")], "a person").proposals
LAUNCH = SOFTMAX.launches[0]


def changed(old: str, new: str) -> SourceProposal:
    assert old in SOFTMAX.source
    return msgspec.structs.replace(SOFTMAX, source=SOFTMAX.source.replace(old, new, 1))


def launched(**fields: object) -> SourceProposal:
    return msgspec.structs.replace(SOFTMAX, launches=(msgspec.structs.replace(LAUNCH, **fields),))


def candidate(proposal: SourceProposal) -> CudaCandidate:
    """It as a worker has it."""
    request = LoadCuda(
        source=proposal.source,
        launches=proposal.launches,
        scratch=dict(proposal.scratch),
        arguments=find_task("softmax").arguments,
        gpu="H200-SXM",
    )
    return CudaCandidate(request, nullcontext)


def layouts_of(dtype: str) -> list[Any]:
    """The tensors of a call, without memory."""
    import torch

    task = find_task("softmax")
    outputs, inputs = task.layouts(task.timed_sizes, dtype)
    return [
        torch.empty_strided(one.shape, one.strides, dtype=torch_dtype(one.dtype), device="meta")
        for one in (*outputs, *inputs)
    ]


def compiled(proposal: SourceProposal, dtype: str = "fp32") -> list[Kernel]:
    """Its kernels, compiled in this process."""
    return list(candidate(proposal).compiled(layouts_of(dtype), "h200"))


@needs_nvrtc
def test_a_candidate_is_compiled_for_a_named_gpu_and_says_that_it_was_not_run() -> None:
    found = examine(SOFTMAX, load_gpu("h200"), SETTINGS)
    assert [(result.gate, result.passed) for result in found.results] == [("legal", True), ("compiles", True)]
    assert "CUDA C++ runs on a GPU alone, and no H200-SXM is here" in found.message
    resources = found.results[1].resources
    assert resources is not None
    assert 8 <= resources.registers <= 255
    assert resources.smem_bytes == 4 * 256 // 32
    assert found.refused_by == ""
    assert not found.is_sound
    assert found.score is None


KEPT = ("template <typename Y", "__device__ float kept;\ntemplate <typename Y")
STORED = ("    float most =", "    kept = 1;\n    float most =")


@needs_nvrtc
@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ([KEPT, STORED], "a variable in global memory, which would outlive a call (`kept`)"),
        ([("float most", "if (clock64() < 5) return;\n    float most")], "the register `%clock64`"),
        ([("float most", 'asm volatile("trap;");\n    float most')], "the instruction `trap`, which ends all"),
        ([("float most", 'printf("%d", 1);\n    float most')], "a call of what it does not define (`vprintf`"),
        ([("float most", 'asm volatile("nanosleep.u32 100;");\n    float most')], "waits for its own sake"),
    ],
    ids=["kept", "clock", "trap", "printf", "wait"],
)
def test_what_a_kernel_may_not_have_is_seen_in_what_the_compiler_made(edits: list[tuple[str, str]], says: str) -> None:
    proposal = SOFTMAX
    for old, new in edits:
        assert old in proposal.source
        proposal = msgspec.structs.replace(proposal, source=proposal.source.replace(old, new, 1))
    with pytest.raises(UnsupportedError, match=re.escape(says)):
        compiled(proposal)


@needs_nvrtc
def test_a_launch_that_the_timed_sizes_do_not_take_is_judged_too() -> None:
    hidden = msgspec.structs.replace(LAUNCH, kernel="other<y_t>", arguments=("y",), when="x_size1 == 7")
    source = SOFTMAX.source + '\ntemplate <typename Y> __global__ void other(Y* y) { asm volatile("trap;"); }\n'
    proposal = msgspec.structs.replace(SOFTMAX, source=source, launches=(*SOFTMAX.launches, hidden))
    with pytest.raises(UnsupportedError, match="other has the instruction `trap`"):
        compiled(proposal)


@needs_nvrtc
def test_the_binary_that_was_judged_is_the_one_that_a_launch_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[bytes] = []
    monkeypatch.setattr("constrint.propose.cuda.candidate.judge", lambda name, forms: judged.append(forms["cubin"]))
    bound, _ = candidate(SOFTMAX)._bind(layouts_of("fp32"), load_gpu("h200"))
    assert [one.launch.binary.cubin for one in bound] == judged


@needs_nvrtc
def test_such_a_kernel_and_one_that_is_no_cpp_fail_the_second_gate() -> None:
    found = examine(changed("float most", "if (clock64() < 5) return;\n    float most"), load_gpu("h200"), SETTINGS)
    assert found.refused_by == "compiles"
    assert "rows has the register `%clock64`: a clock" in found.message
    with pytest.raises(CompileError, match=r"nvrtc .* refuses the kernel for sm_90a: .*flaot"):
        compiled(changed("float most =", "flaot most ="))


@pytest.mark.parametrize(
    ("proposal", "says"),
    [
        (changed("// A block", "#include <cuda_fp16.h>\n// A block"), "`#include` is not allowed"),
        (changed("// A block", "#define JOIN(a, b) a##b\n// A block"), "`##` is not allowed in a macro"),
        (changed("// A block", "#define LONG \\\n 1\n// A block"), "ends with a backslash"),
        (changed("// A block", "// \xe9\n// A block"), "line 4 has the character '\\xe9'"),
        (msgspec.structs.replace(SOFTMAX, launches=()), "it has no launches"),
        (launched(kernel="columns<y_t>"), "defines no __global__ function 'columns'"),
        (launched(kernel="rows<1>(); evil"), "is no name of a kernel"),
        (launched(kernel="rows<__COUNTER__>"), "`__COUNTER__` is a name of the compiler"),
        (launched(kernel="rows\udc80"), "is no name of a kernel"),
        (launched(grid=("x_size0 + \udc80",)), "launches[0].grid:"),
        (msgspec.structs.replace(SOFTMAX, scratch={"\udc80": "4"}), "is no name, or that of a tensor"),
        (launched(grid=("rows",)), "launches[0].grid: unknown size or stride 'rows'"),
        (launched(block=("256 +",)), "launches[0].block:"),
        (launched(block=("256) == (256",)), "launches[0].block:"),
        (launched(arguments=("z", "x")), "none of the tensors y, x"),
        (launched(when="x_size1"), "launches[0].when:"),
        (msgspec.structs.replace(SOFTMAX, scratch={"x": "4"}), "'x' is no name, or that of a tensor"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_compiled(proposal: SourceProposal, says: str) -> None:
    assert says in illegal(proposal, find_task("softmax"))
    found = examine(proposal, load_gpu("h200"), SETTINGS)
    assert found.refused_by == "legal"


def test_launches_are_for_cuda_alone() -> None:
    triton = SourceProposal(task="softmax", language="triton", source="x", launches=(LAUNCH,))
    found = examine(triton, load_gpu("h200"), SETTINGS)
    assert "stated for CUDA C++ alone" in found.message


@needs_nvrtc
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"grid": ("x_size0 - x_size0",)}, "a grid of (0,) blocks"),
        ({"block": ("0",)}, "a block of (0,) threads"),
        ({"smem_bytes": "0 - 1"}, "asks for -1 bytes of shared memory"),
    ],
)
def test_launches_that_no_gpu_takes_are_refused_when_it_is_compiled(fields: dict[str, object], says: str) -> None:
    with pytest.raises(UnsupportedError, match=re.escape(says)):
        compiled(launched(**fields))


@needs_nvrtc
def test_blocks_beyond_the_gpu_and_calls_without_a_launch_fail_the_second_gate() -> None:
    found = examine(launched(block=("2048",), smem_bytes="1000000"), load_gpu("h200"), SETTINGS)
    assert found.refused_by == "compiles"
    assert "it takes 2048 threads of a block, and there are 1024" in found.message
    assert compiled(launched(when="x_size1 < 0")) == []


def test_a_file_whose_head_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.cu"
    path.write_text('//! {"launches": [\n__global__ void f() {}\n')
    with pytest.raises(UsageError, match=r"bad\.cu: the lines `//!` are no JSON of launches and scratch"):
        Files("softmax", [path], "a person")


def test_a_launch_is_data_of_the_reply() -> None:
    text = msgspec.json.encode(SOFTMAX)
    assert msgspec.json.decode(text, type=SourceProposal) == SOFTMAX
    assert isinstance(SOFTMAX.launches[0], KernelLaunch)
