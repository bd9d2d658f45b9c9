"""Kernels in CUDA C++ as specs, and their launches: compiled for a named GPU, or run through the driver."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.cuda.macros import MacroValue
from constrint.kernels.launch.cuda.nvrtc import Binary, CudaSource, compile_cuda, nvrtc_version
from constrint.select.compiled import CompiledKernel
from constrint.select.spec import Config, KernelSpec, Launch, Workload

#: The type of an argument that is a tensor's address.
POINTER = "pointer"
#: Bytes of a register, in which Triton counts what spills.
REGISTER_BYTES = 4
#: More dynamic shared memory than this has to be asked for.
_FREE_SMEM_BYTES = 48 * 1024


@dataclass(frozen=True)
class CudaLaunch:
    """One launch of a kernel in CUDA C++.

    Args:
        gpu: The model of the device that it is for.
        source: The kernel.
        grid, block: Blocks of the grid and threads of a block, along up to three dimensions.
        arguments: Its arguments in order: tensors, and numbers of numpy's types.
        smem_bytes: Dynamic shared memory of a block.
        constants: Tensors whose values `__constant__` variables get when the kernel is loaded, by their names.
    """

    gpu: GpuModel
    source: CudaSource
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Any, ...]
    smem_bytes: int = 0
    constants: Mapping[str, Any] = field(default_factory=dict)
    _own: dict[int, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def run(self) -> None:
        """Enqueue it on the current stream of its tensors' device."""
        import torch
        from cuda.bindings import driver

        with torch.cuda.device(self._device()):
            handle = self.handle()
            stream = torch.cuda.current_stream().cuda_stream
            values = [_as_number(value) for value in self.arguments]
            places = np.array([value.ctypes.data for value in values], dtype=np.uint64)
            shape = (*_three(self.grid), *_three(self.block))
            _called(driver.cuLaunchKernel(handle, *shape, self.smem_bytes, stream, places.ctypes.data, 0))

    def handle(self) -> Any:
        """The loaded kernel on the current device, as `constrint.launch.prepare_cuda` takes it."""
        import torch

        index = torch.cuda.current_device()
        _make_current()
        if not self.constants:
            return _loaded(self.binary, index, self.smem_bytes)
        # Constants belong to one loaded kernel, so it is not shared with other launches.
        if index not in self._own:
            self._own[index] = _load(self.binary, self.smem_bytes, self.constants)
        return self._own[index]

    @cached_property
    def binary(self) -> Binary:
        """The kernel compiled for its GPU."""
        return compile_cuda(self.gpu, self.source)

    def compiled(self) -> Any:
        """What the compiler made of it, by the names that Triton's compiled kernels have."""
        binary = self.binary
        facts = SimpleNamespace(shared=binary.smem_bytes + self.smem_bytes)
        return SimpleNamespace(n_regs=binary.registers, n_spills=binary.spill_bytes // REGISTER_BYTES, metadata=facts)

    def warm_up(self) -> None:
        """Compile the kernel into the cache on disk; launch nothing."""
        compile_cuda(self.gpu, self.source)

    def compile(self, gpu: GpuModel) -> CompiledKernel:
        """Compile the kernel for a named GPU; see `compile_cuda`."""
        binary = compile_cuda(gpu, self.source)
        return CompiledKernel(
            target=gpu.arch.target,
            triton_version=binary.compiler,
            smem_bytes=binary.smem_bytes + self.smem_bytes,
            registers_per_thread=binary.registers,
            accumulator_registers=0,
            spill_bytes=binary.spill_bytes,
            instruction="",
        )

    def _device(self) -> Any:
        device = next((value.device for value in self.arguments if hasattr(value, "data_ptr")), None)
        if device is None or device.type != "cuda":
            raise UsageError(f"{self.source.name}: a CUDA kernel runs on tensors of a GPU, got the device {device}.")
        return device


class CudaKernelSpec(KernelSpec):
    """A kernel that is one launch of one function in CUDA C++.

    Every parameter is a macro of its name; arguments are taken by name from inputs, outputs, sizes, options and
    parameters.

    Attributes:
        source: A path that ends in `.cu`, or the text itself.
        function: The kernel, as the source names it.
        arguments: The type of each argument in order: "pointer", or numpy's name of a number's type, "int32".
        constants: Names of inputs that are copied to `__constant__` variables of the same name.
        compile_options: Further options of NVRTC.
        include_folders: Where headers are looked for, beside the folder of the source.
    """

    source: str | Path
    function: str
    arguments: Mapping[str, str]
    constants: tuple[str, ...] = ()
    compile_options: tuple[str, ...] = ()
    include_folders: tuple[str | Path, ...] = ()

    @property
    def device_files(self) -> tuple[Path, ...]:
        """The source, where it is a file."""
        path = _path_of(self.source)
        return () if path is None or not path.is_file() else (path,)

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC's version, where it is installed."""
        try:
            return {"nvrtc": nvrtc_version().rpartition(" ")[2]}
        except UsageError:
            return {}

    @abstractmethod
    def grid(self, workload: Workload, config: Config) -> tuple[int, ...]:
        """Blocks along each grid dimension."""

    @abstractmethod
    def block(self, workload: Workload, config: Config) -> tuple[int, ...]:
        """Threads along each dimension of a block."""

    def dynamic_smem_bytes(self, workload: Workload, config: Config) -> int:
        """Dynamic shared memory of a block; by default none."""
        return 0

    def macros(self, workload: Workload, config: Config) -> Mapping[str, MacroValue]:
        """The macros that the source is compiled with: by default the values of all parameters."""
        return self.values_of(config)

    def cuda_source(self, workload: Workload, config: Config) -> CudaSource:
        """The source as NVRTC takes it.

        Raises:
            UsageError: When the file cannot be read, and for macros that cannot be.
        """
        path = _path_of(self.source)
        folders = [Path(folder) for folder in self.include_folders]
        text = str(self.source) if path is None else _read(path)
        return CudaSource(
            text=text,
            function=self.function,
            macros=dict(self.macros(workload, config)),
            options=tuple(self.compile_options),
            folders=tuple([*folders] if path is None else [path.parent, *folders]),
            name=f"{self.full_name}.cu" if path is None else path.name,
        )

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The one launch."""
        preset = {option.name: option.default for option in self.options}
        given = {**inputs, **outputs, **workload.sizes, **preset, **workload.options, **self.values_of(config)}
        missing = [name for name in (*self.arguments, *self.constants) if name not in given]
        if missing:
            raise UsageError(
                f"{self.full_name}: the argument {missing[0]!r} is no input, output, size, option or parameter; "
                f"there are {', '.join(given)}."
            )
        typed = (_typed(given[name], kind, f"{self.full_name}: {name}") for name, kind in self.arguments.items())
        constants = {name: given[name] for name in self.constants}
        source, smem_bytes = self.cuda_source(workload, config), self.dynamic_smem_bytes(workload, config)
        grid, block = self.grid(workload, config), self.block(workload, config)
        return [CudaLaunch(gpu, source, tuple(grid), tuple(block), tuple(typed), smem_bytes, constants)]


def _path_of(source: str | Path) -> Path | None:
    """The path of a source that is a file; None for text."""
    if isinstance(source, Path):
        return source
    return Path(source) if source.endswith(".cu") and "\n" not in source else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the CUDA source {path}: {error}.") from None


def _typed(value: Any, kind: str, what: str) -> Any:
    """An argument as the kernel expects it."""
    if kind == POINTER:
        if not hasattr(value, "data_ptr"):
            raise UsageError(f"{what} is declared a pointer, so it has to be a tensor, got {type(value).__name__}.")
        return value
    try:
        dtype = np.dtype(kind)
    except TypeError:
        raise UsageError(f"{what} has the type {kind!r}; write {POINTER!r} or numpy's name, such as 'int32'.") from None
    if dtype.kind not in "iufb" or hasattr(value, "data_ptr"):
        raise UsageError(f"{what} is declared {kind!r}, which takes a number, got {type(value).__name__}.")
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= int(value) <= np.iinfo(dtype).max:
        raise UsageError(f"{what} is {value}, which {kind} does not hold; declare a wider type.")
    return dtype.type(value)


def _as_number(value: Any) -> Any:
    """An argument as an array of one element, whose address the driver takes."""
    return np.array(value.data_ptr(), dtype=np.uint64) if hasattr(value, "data_ptr") else np.asarray(value)


def _three(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (*(int(size) for size in sizes), 1, 1)[:3]


@lru_cache(maxsize=4096)
def _loaded(binary: Binary, index: int, smem_bytes: int) -> Any:
    """A kernel without constants, loaded once on each device."""
    return _load(binary, smem_bytes, {})


def _load(binary: Binary, smem_bytes: int, constants: Mapping[str, Any]) -> Any:
    """Load a kernel on the current device, and give its constants their values."""
    from cuda.bindings import driver

    module = _called(driver.cuModuleLoadData(binary.cubin))
    function = _called(driver.cuModuleGetFunction(module, binary.symbol.encode()))
    if smem_bytes > _FREE_SMEM_BYTES:
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _called(driver.cuFuncSetAttribute(function, most, smem_bytes))
    if constants:
        _wait()
    for name, tensor in constants.items():
        address, size = _called(driver.cuModuleGetGlobal(module, name.encode()))
        taken = tensor.numel() * tensor.element_size()
        if taken > size:
            raise UsageError(f"the constant {name} has {size} bytes in the source, and {taken} were given.")
        whole = tensor.contiguous()
        _called(driver.cuMemcpyDtoD(address, whole.data_ptr(), taken))
        _wait()
    return function


def _make_current() -> None:
    """Let the driver find the context that torch uses, in a thread where torch has not used it yet."""
    from cuda.bindings import driver

    if not int(_called(driver.cuCtxGetCurrent())):
        _wait()


def _wait() -> None:
    """Wait for the current device."""
    import torch

    torch.cuda.synchronize()


def _called(answer: tuple[Any, ...]) -> Any:
    """What one of the driver's functions gave beside its status.

    Raises:
        RuntimeError: Where it failed; names the error.
    """
    status, *values = answer
    if status.value:
        raise RuntimeError(f"the driver refuses the launch: {status.name}")
    return values[0] if len(values) == 1 else values
