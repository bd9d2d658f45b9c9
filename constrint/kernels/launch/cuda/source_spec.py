"""Kernels in CUDA C++ as specs, and their launches: compiled for a named GPU, or run through the driver."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.cuda.loaded import LoadedKernel, load_shared, make_current
from constrint.kernels.launch.cuda.nvrtc import CudaBinary, CudaSource, MacroValue, compile_cuda, nvrtc_here
from constrint.kernels.launch.cuda.tensor_map import TensorMap
from constrint.kernels.launch.look import REGISTER_BYTES
from constrint.kernels.launch.plan.shape import MAX_CLUSTER
from constrint.select.candidate import CompiledKernel, Config
from constrint.select.spec import KernelSpec, Launch
from constrint.select.workload import Workload

#: The type of an argument that is a tensor's address.
POINTER = "pointer"


@dataclass(frozen=True)
class CudaLaunch:
    """One launch of a kernel in CUDA C++.

    Args:
        gpu: The model of the device that it is for.
        source: The kernel.
        grid, block: Blocks of the grid and threads of a block, along up to three dimensions.
        arguments: Its arguments in order: tensors, `TensorMap`s, None for a null address, numbers of numpy's types.
        smem_bytes: Dynamic shared memory of a block.
        constants: Tensors whose values `__constant__` variables get when the kernel is loaded, by their names.
        cluster: Blocks of a cluster, along x; up to 8 on every GPU with clusters, up to 16 on some.
        is_cooperative: Whether all blocks are resident at the same time, so that they may wait for each other.
    """

    gpu: GpuModel
    source: CudaSource
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Any, ...]
    smem_bytes: int = 0
    constants: Mapping[str, Any] = field(default_factory=dict)
    cluster: int = 1
    is_cooperative: bool = False
    _own: dict[int, LoadedKernel] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        where = self.source.name
        if not 1 <= self.cluster <= MAX_CLUSTER or self.grid[0] % self.cluster:
            raise UsageError(
                f"{where}: a cluster has 1 to {MAX_CLUSTER} blocks along x and divides the grid, "
                f"got clusters of {self.cluster} in a grid of {self.grid}."
            )
        for number, value in enumerate(self.arguments):
            if not (value is None or isinstance(value, np.generic) or hasattr(value, "data_ptr")):
                raise UsageError(
                    f"{where}: argument {number} is {type(value).__name__}: give tensors, None for a null address, and "
                    "numbers as numpy.int32, numpy.float32 and the like, since the kernel expects a certain size."
                )

    def run(self) -> None:
        """Enqueue it on the current stream of its tensors' device.

        Raises:
            DoesNotFitError: When the device cannot run it.
        """
        import torch

        with torch.cuda.device(self.device):
            self.enqueue(self.arguments)

    def enqueue(self, arguments: Sequence[Any]) -> None:
        """Enqueue it on the current stream of the current device, with other arguments of the same types."""
        import torch

        self._loaded().launch(
            self.grid,
            self.block,
            [_as_number(value) for value in arguments],
            smem_bytes=self.smem_bytes,
            cluster=self.cluster,
            is_cooperative=self.is_cooperative,
            stream=torch.cuda.current_stream().cuda_stream,
        )

    def handle(self) -> Any:
        """The loaded kernel on the current device, as `constrint.launch.prepare_cuda` takes it.

        Raises:
            DoesNotFitError: When the device has too little shared memory or too few registers for a block.
        """
        return self._loaded().function

    def _loaded(self) -> LoadedKernel:
        import torch

        index = torch.cuda.current_device()
        make_current()
        if not self.constants:
            loaded = load_shared(self.binary, index)
        else:
            # Constants belong to one loaded kernel, so it is not shared with other launches.
            if index not in self._own:
                self._own[index] = LoadedKernel(self.binary, self.constants)
            loaded = self._own[index]
        loaded.allow(math.prod(self.block), self.smem_bytes, self.cluster)
        return loaded

    @cached_property
    def binary(self) -> CudaBinary:
        """The kernel compiled for its GPU."""
        return compile_cuda(self.gpu, self.source)

    def compiled(self) -> CompiledCuda:
        """Compile the kernel; return the compiler's figures under the names of Triton's compiled kernels."""
        return CompiledCuda(self._stated(self.gpu, self.binary))

    def warm_up(self) -> None:
        """Compile the kernel into the cache on disk; launch nothing."""
        compile_cuda(self.gpu, self.source)

    def compile(self, gpu: GpuModel) -> CompiledKernel:
        """Compile the kernel for a named GPU; see `compile_cuda`."""
        return self._stated(gpu, compile_cuda(gpu, self.source))

    def check_resident(self) -> None:
        """Check that blocks that wait for each other are resident at the same time; see `plan.loaded`."""
        from constrint.kernels.launch.plan.loaded import check_resident

        check_resident(self)

    @property
    def device(self) -> Any:
        """The GPU that its tensors are on.

        Raises:
            UsageError: When they are on none.
        """
        device = next((value.device for value in self.arguments if hasattr(value, "data_ptr")), None)
        if device is None or device.type != "cuda":
            raise UsageError(f"{self.source.name}: a CUDA kernel runs on tensors of a GPU, got the device {device}.")
        return device

    def _stated(self, gpu: GpuModel, binary: CudaBinary) -> CompiledKernel:
        return CompiledKernel(
            target=gpu.arch.target,
            triton_version=binary.compiler,
            smem_bytes=binary.smem_bytes + self.smem_bytes,
            registers_per_thread=binary.registers,
            accumulator_registers=0,
            spill_bytes=binary.spill_bytes,
            instruction="",
        )


@dataclass(frozen=True)
class CompiledCuda:
    """A compiled kernel with the attribute names of Triton's compiled kernels.

    Args:
        stated: The compiler's figures.
    """

    stated: CompiledKernel

    @property
    def n_regs(self) -> int:
        """Registers of a thread."""
        return self.stated.registers_per_thread

    @property
    def n_spills(self) -> int:
        """Registers of a thread that go to memory."""
        return self.stated.spill_bytes // REGISTER_BYTES

    @property
    def metadata(self) -> Any:
        """Has `shared`: the shared memory of a block, static and dynamic, in bytes."""
        return SimpleNamespace(shared=self.stated.smem_bytes)


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
        return nvrtc_here()

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
        values = {**inputs, **outputs, **workload.sizes, **preset, **workload.options, **self.values_of(config)}
        missing = [name for name in (*self.arguments, *self.constants) if name not in values]
        if missing:
            raise UsageError(
                f"{self.full_name}: the argument {missing[0]!r} is no input, output, size, option or parameter; "
                f"there are {', '.join(values)}."
            )
        typed = (_typed(values[name], kind, f"{self.full_name}: {name}") for name, kind in self.arguments.items())
        constants = {name: values[name] for name in self.constants}
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


def _as_number(value: Any) -> np.ndarray[Any, Any]:
    """An argument as an array of one element, whose address the driver takes."""
    if value is None:
        return np.array(0, dtype=np.uint64)
    if isinstance(value, TensorMap):
        return value.encoded()
    return np.array(value.data_ptr(), dtype=np.uint64) if hasattr(value, "data_ptr") else np.asarray(value)
