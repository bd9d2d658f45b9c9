"""Compilation of CUDA C++ by NVRTC for a named GPU; needs no GPU and no driver.

The result is the binary with the assembler's figures: registers, spills and static shared memory. Binaries are stored
on disk.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from constrint import cache
from constrint.errors import CompileError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel

#: The kind under which the cache stores binaries.
_KIND = "cubins"
#: Option that puts the assembler's figures into the compiler's log.
_VERBOSE = "--ptxas-options=-v"
#: Option that bypasses NVRTC's own cache, and the first release with that cache.
NO_CACHE, CACHING_RELEASE = "--no-cache", (12, 9)
_USED = re.compile(r"Used (\d+) registers")
_SPILLED = re.compile(r"(\d+) bytes spill stores")
_SHARED = re.compile(r"(\d+) bytes smem")
_ERROR = re.compile(r"\berror\b")
#: Binaries in memory, so that without a cache on disk a process still compiles each kernel once.
_BINARIES: dict[bytes, CudaBinary] = {}
#: Most binaries in memory.
CAPACITY = 256
#: Types of a macro's value.
MacroValue = int | float | str | bool
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
#: Larger files are not read as headers.
_MAX_HEADER_BYTES = 16 << 20


@dataclass(frozen=True)
class CudaSource:
    """A kernel in CUDA C++ and how it is compiled.

    Args:
        text: The source.
        function: The kernel, as the source names it: `scale`, `scale<float, 4>`.
        macros: Values by the names of macros.
        options: Further options of NVRTC: `-std=c++17`, `--use_fast_math`.
        folders: Folders that are searched for headers.
        name: Name of the file, for messages.
        is_settled: Whether headers do not change while the process runs, as those of a package. The binary is then
            looked up once; otherwise the headers' contents are hashed at every launch.
        sparing: Macros of a variant that uses fewer registers. It is compiled where the kernel spills, and the variant
            that spills less is used.
    """

    text: str
    function: str
    macros: Mapping[str, MacroValue] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    name: str = "kernel.cu"
    is_settled: bool = False
    sparing: Mapping[str, MacroValue] = field(default_factory=dict)
    binaries: dict[str, CudaBinary] = field(default_factory=dict, init=False, repr=False, compare=False)


class CudaBinary(msgspec.Struct, frozen=True):
    """A compiled kernel.

    Args:
        cubin: Machine code.
        symbol: The kernel's name in it.
        registers: Registers of a thread.
        spill_bytes: Bytes of a thread's registers that go to memory.
        smem_bytes: Static shared memory of a block.
        compiler: NVRTC and its version.
    """

    cubin: bytes
    symbol: str
    registers: int
    spill_bytes: int
    smem_bytes: int
    compiler: str


def compile_cuda(gpu: GpuModel, source: CudaSource) -> CudaBinary:
    """Compile a kernel for a GPU, or return the binary that was compiled before.

    Raises:
        UsageError: When NVRTC is not installed, and for macros that cannot be.
        UnsupportedError: When the GPU takes no CUDA.
        CompileError: When the compiler refuses.
    """
    target = gpu.of_triton_backend({"cuda": gpu.arch.target}, "ways to compile CUDA C++")
    if source.is_settled and target in source.binaries:
        return source.binaries[target]
    compiler = nvrtc_version()
    options = _options(source, target, compiler)
    key = _key(source, options, compiler)
    binary = _BINARIES.get(key) or _stored(key)
    if binary is None:
        refusal = f"{compiler} refuses the kernel for {target}"
        binary, _ = _compiled(source, options, refusal, compiler)
        if binary.spill_bytes and source.sparing:
            spared = replace(source, macros={**source.macros, **source.sparing}, sparing={})
            other, _ = _compiled(spared, _options(spared, target, compiler), refusal, compiler)
            binary = min(binary, other, key=lambda one: one.spill_bytes)
        cache.store(_KIND, key, msgspec.msgpack.encode(binary))
    if len(_BINARIES) >= CAPACITY:
        _BINARIES.clear()
    _BINARIES[key] = binary
    if source.is_settled:
        source.binaries[target] = binary
    return binary


def _options(source: CudaSource, target: str, compiler: str) -> list[str]:
    # The log has no figures of a binary from NVRTC's own cache.
    shown = [_VERBOSE, *([NO_CACHE] if _release(compiler) >= CACHING_RELEASE else [])]
    return [f"--gpu-architecture={target}", *shown, *definitions(source.macros, source.name), *source.options]


def _stored(key: bytes) -> CudaBinary | None:
    """Return a binary from disk; None where no process has compiled it."""
    data = cache.load(_KIND, key)
    if data is not None:
        with suppress(msgspec.DecodeError):  # written by something else: it is compiled again
            return msgspec.msgpack.decode(data, type=CudaBinary)
    return None


def _release(compiler: str) -> tuple[int, ...]:
    return tuple(int(number) for number in compiler.rpartition(" ")[2].split("."))


@lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """NVRTC with its version.

    Raises:
        UsageError: When it is not installed.
    """
    major, minor = _called(_nvrtc().nvrtcVersion())
    return f"nvrtc {major}.{minor}"


def nvrtc_here() -> Mapping[str, str]:
    """NVRTC's version as a spec's `compilers` give it; nothing where it is not installed."""
    try:
        return {"nvrtc": nvrtc_version().rpartition(" ")[2]}
    except UsageError:
        return {}


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    """Import NVRTC's bindings, which find the library themselves."""
    needs = "compiling CUDA C++ needs NVRTC, which is not installed: pip install 'constrint[cuda]'."
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        raise UsageError(needs) from None
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:
        raise UsageError(f"{needs} ({str(error).partition(chr(10))[0]})") from None
    return nvrtc


def compile_with_ptx(gpu: GpuModel, source: CudaSource) -> tuple[CudaBinary, str]:
    """Compile a kernel for a GPU; return the binary and the PTX that it was assembled from. Nothing is stored.

    Raises:
        UsageError: When NVRTC is not installed, and for macros that cannot be.
        UnsupportedError: When the GPU takes no CUDA.
        CompileError: When the compiler refuses.
    """
    target = gpu.of_triton_backend({"cuda": gpu.arch.target}, "ways to compile CUDA C++")
    compiler = nvrtc_version()
    return _compiled(
        source, _options(source, target, compiler), f"{compiler} refuses the kernel for {target}", compiler
    )


def _compiled(source: CudaSource, options: list[str], refusal: str, compiler: str) -> tuple[CudaBinary, str]:
    with _program(source, options, refusal) as (nvrtc, program):
        symbol = _called(nvrtc.nvrtcGetLoweredName(program, source.function.encode())).decode()
        cubin = bytes(_called(nvrtc.nvrtcGetCUBINSize(program)))
        _called(nvrtc.nvrtcGetCUBIN(program, cubin))
        ptx = bytes(_called(nvrtc.nvrtcGetPTXSize(program)))
        _called(nvrtc.nvrtcGetPTX(program, ptx))
        log = _log_of(program)
    registers, spill_bytes, smem_bytes = figures_of(log, symbol)
    binary = CudaBinary(cubin, symbol, registers, spill_bytes, smem_bytes, compiler)
    return binary, ptx.rstrip(b"\0").decode("utf-8", "replace")


@contextmanager
def _program(source: CudaSource, options: list[str], refusal: str) -> Iterator[tuple[Any, Any]]:
    """NVRTC's functions, and the compiled program.

    Raises:
        CompileError: When the compiler refuses.
    """
    nvrtc = _nvrtc()
    text, name, function = (text.encode() for text in (source.text, source.name, source.function))
    folders = [f"--include-path={folder}" for folder in (*source.folders, *_toolkit_headers())]
    program = _called(nvrtc.nvrtcCreateProgram(text, name, 0, [], []))
    try:
        _called(nvrtc.nvrtcAddNameExpression(program, function))
        every = [option.encode() for option in (*options, *folders)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(every), every)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"{refusal}: {_first_error(_log_of(program)) or status.name}")
        yield nvrtc, program
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def figures_of(log: str, symbol: str) -> tuple[int, int, int]:
    """Registers, bytes spilled and static shared memory of a kernel, from the assembler's log.

    Raises:
        UnsupportedError: Where it said nothing of the kernel.
    """
    section = log.partition(f"Compiling entry function '{symbol}'")[2].partition("Compiling entry function")[0]
    used = _USED.search(section)
    if used is None:
        raise UnsupportedError(f"NVRTC's log does not say what {symbol} takes; a later NVRTC does.")
    spilled, shared = _SPILLED.search(section), _SHARED.search(section)
    return int(used[1]), int(spilled[1]) if spilled else 0, int(shared[1]) if shared else 0


def _log_of(program: Any) -> str:
    nvrtc = _nvrtc()
    log = bytes(_called(nvrtc.nvrtcGetProgramLogSize(program)))
    _called(nvrtc.nvrtcGetProgramLog(program, log))
    return log.rstrip(b"\0").decode(errors="replace")


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if _ERROR.search(line)), lines[0] if lines else "")


def _called(answer: tuple[Any, ...]) -> Any:
    """Return the results of one of NVRTC's functions after checking its status."""
    status, *values = answer
    if status.value:
        raise UnsupportedError(f"NVRTC failed: {status.name}.")
    return values[0] if len(values) == 1 else values


@lru_cache(maxsize=1)
def _toolkit_headers() -> tuple[Path, ...]:
    """The folder of CUDA's own headers (`cuda_fp16.h`), where there is one."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory

        folder = find_nvidia_header_directory("cudart")
    except (ImportError, RuntimeError):
        return ()
    return (Path(folder),) if folder else ()


def _key(source: CudaSource, options: list[str], compiler: str) -> bytes:
    headers = header_digest(source.text, source.folders)
    content = hashlib.sha256(source.text.encode()).hexdigest()
    again = definitions(source.sparing, source.name)
    return repr((content, source.function, options, again, headers, compiler)).encode()


def definitions(macros: Mapping[str, MacroValue], where: str) -> list[str]:
    """Return macros as options `-DNAME=value`; True and False become 1 and 0, text is taken verbatim.

    Raises:
        UsageError: For a name that is no identifier, and a value that no macro can have.
    """
    options = []
    for name, value in macros.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(f"{where}: {name!r} cannot be the name of a macro; use letters, digits and _.")
        options.append(f"-D{name}={_written(value, f'{where}: the macro {name}')}")
    return options


def _written(value: object, what: str) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, str) and all(character.isprintable() for character in value):
        return value
    raise UsageError(f"{what} has to be a number, True, False or text of one line, got {value!r}.")


def header_digest(text: str, folders: Sequence[Path]) -> str:
    """Hash the headers that a text includes, directly or indirectly, from these folders.

    Other headers belong to the toolkit, whose version is part of a binary's key. Computed include names are skipped.
    """
    seen: dict[Path, bytes] = {}
    waiting = [text]
    while waiting:
        for name in _INCLUDE.findall(waiting.pop()):
            path = next((folder / name for folder in folders if (folder / name).is_file()), None)
            if path is None or path.resolve() in seen or path.stat().st_size > _MAX_HEADER_BYTES:
                continue
            content = path.read_bytes()
            seen[path.resolve()] = content
            waiting.append(content.decode(errors="replace"))
    digest = hashlib.sha256()
    for path, content in sorted(seen.items()):
        digest.update(f"{path.name}:{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
