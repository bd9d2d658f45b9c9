"""Ahead-of-time compilation of Triton kernels for a named GPU, with no GPU and no driver on this machine.

The result is what the binary states: shared memory, registers and spills. Triton itself reports no excess; the caller
decides whether a kernel can be launched.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from constrint.errors import UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.select.candidate import CompiledKernel

#: Registers, accumulation registers, bytes spilled per thread, and the matrix instruction.
Resources = tuple[int, int, int, str]


@dataclass(frozen=True)
class TritonSource:
    """A `triton.jit` function with its signature.

    Args:
        function: The jitted function, of Triton or of Gluon.
        types: Triton type of every run-time argument, `*bf16` or `i32`.
        constants: Value of every compile-time argument.
        aligned: Run-time arguments that are multiples of 16 (pointers: 16-byte aligned).
        options: Back-end options, `num_warps` and `num_stages` among them.
    """

    function: Any
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    aligned: frozenset[str]
    options: Mapping[str, Any]


def require_triton() -> None:
    """Raise UsageError, with the way out, unless triton can be imported."""
    try:
        import triton  # noqa: F401
    except ImportError:
        raise UsageError("compiling needs triton, which is not installed: pip install 'constrint[torch]'.") from None


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel as Triton compiled it, with every form that it went through.

    Args:
        taken: Its resources, as the binary states them.
        threads: Threads of a block, those of specialised warps included.
        asm: Triton's representations by name, the first one first: `ttir`, `ttgir`, `llir`, then `ptx` and `cubin` for
            NVIDIA, `amdgcn` and `hsaco` for AMD.
        backend: Triton's name of the back-end, `cuda` or `hip`.
        tensor_memory_columns: Columns of tensor memory per block; 0 on GPUs without it.
    """

    taken: CompiledKernel
    threads: int
    asm: Mapping[str, Any]
    backend: str
    tensor_memory_columns: int = 0


def compile_triton(gpu: GpuModel | str, source: TritonSource) -> CompiledKernel:
    """Compile a kernel for a GPU, which need not be here, and read its resources.

    Args:
        gpu: A hardware model, or its name.
        source: The kernel with its signature, see `constrint.tune.triton_source`.

    Raises:
        UsageError: When triton is not installed.
        UnsupportedError: When the compiler refuses the kernel; carries its last line.
    """
    return build_triton(gpu, source).taken


def build_triton(gpu: GpuModel | str, source: TritonSource) -> BuiltKernel:
    """The same, with the assembly.

    Raises:
        UsageError: When triton is not installed.
        UnsupportedError: When the compiler refuses the kernel; carries its last line, and Triton's error as the cause.
    """
    require_triton()
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    target = GPUTarget(*gpu.maker.triton_target(gpu))
    backend, name = gpu.of_triton_backend(BACKENDS, "ways to read a kernel's resources"), gpu.compiler_target
    types = {n: source.types.get(n, "constexpr") for n in source.function.arg_names}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    for i, (argument, kind) in enumerate(types.items()):
        if argument in source.aligned:
            attributes[(i,)] = [["tt.divisibility", 16]]
            if kind.startswith("*"):
                attributes[(i,)] += backend.pointer_attributes
    make_source: Any = ASTSource
    if source.function.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        make_source = GluonASTSource
    ast = make_source(fn=source.function, signature=types, constexprs=dict(source.constants), attrs=attributes)
    with quietly():
        try:
            kernel = triton.compile(ast, target=target, options=dict(source.options))
        except Exception as error:
            reason = _reason(error)
            raise UnsupportedError(f"triton {triton.__version__} refuses the kernel for {name}: {reason}") from error
    resources = backend.read_resources(kernel.asm)
    taken = CompiledKernel(name, triton.__version__, kernel.metadata.shared, *resources)
    match = re.search(backend.threads, kernel.asm[backend.assembly])
    threads = int(match[1]) if match else kernel.metadata.num_warps * gpu.sm.warp_size
    forms = {form: kernel.asm[form] for form in kernel.asm if form != "source"}
    return BuiltKernel(taken, threads, forms, target.backend, getattr(kernel.metadata, "tmem_size", None) or 0)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep to itself what Triton prints: the whole kernel where ptxas fails, and a warning of a new default."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION")
        yield


def _reason(error: BaseException) -> str:
    """Last line of the first cause that says something; the outer ones quote source lines and carets."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line for line in str(error).splitlines() if line.strip(" ^")]
    return lines[-1].strip() if lines else type(error).__name__


def _cuda_resources(asm: Mapping[str, Any]) -> Resources:
    """Registers, none, stack bytes and instruction."""
    usage = nvidia_tool("cuobjdump", asm["cubin"], "-res-usage")
    counts = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if counts is None:
        raise UnsupportedError("cuobjdump printed no resource usage for the compiled kernel.")
    used = re.search(r"(wgmma\.mma_async|tcgen05\.mma|mma\.sync)\S*?\.(m\d+n\d+k\d+|kind::\w+)", asm["ptx"])
    return int(counts[1]), 0, int(counts[2]), f"{used[1]} {used[2]}" if used else ""


def nvidia_tool(name: str, cubin: bytes, *options: str) -> str:
    """The output of one of NVIDIA's tools in Triton's wheel, `cuobjdump` or `nvdisasm`, for a binary.

    Raises:
        UnsupportedError: When it is missing, or cannot read the binary.
    """
    import triton.backends.nvidia as backend

    if backend.__file__ is None:
        raise UnsupportedError("triton's NVIDIA back-end has no files; reinstall triton.")
    tool = Path(backend.__file__).parent / "bin" / name
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            return subprocess.run([tool, *options, file.name], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise UnsupportedError(f"{name} of triton's wheel reads no such binary: {error}") from None


def _hip_resources(asm: Mapping[str, Any]) -> Resources:
    """VGPRs, AGPRs, scratch bytes and instruction, from the metadata at the end of the assembly."""
    assembly = asm["amdgcn"]

    def field(name: str) -> int:
        count = re.search(rf"\.{name}:\s*(\d+)", assembly)
        return int(count[1]) if count else 0

    used = re.search(r"\bv_(?:mfma|wmma)_\w+", assembly)
    spilled = field("private_segment_fixed_size")
    return field("vgpr_count"), field("agpr_count"), spilled, used[0] if used else ""


class CompilerBackend(NamedTuple):
    """The differences between Triton's back-ends.

    Args:
        read_resources: Reads a kernel's resources from Triton's compiled forms.
        assembly: Name of the last form that is text.
        threads: Regular expression for the threads of a block in it.
        pointer_attributes: Attributes of aligned pointers beside their alignment.
    """

    read_resources: Callable[[Mapping[str, Any]], Resources]
    assembly: str
    threads: str
    pointer_attributes: tuple[list[Any], ...] = ()


#: By the name that `Vendor.triton_backend` gives.
BACKENDS: Mapping[str, CompilerBackend] = {
    "cuda": CompilerBackend(_cuda_resources, "ptx", r"\.reqntid (\d+)"),
    "hip": CompilerBackend(_hip_resources, "amdgcn", r"\.max_flat_workgroup_size: (\d+)", (["tt.pointer_range", 32],)),
}
