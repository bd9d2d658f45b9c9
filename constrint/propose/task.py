"""A task: a function that kernels are written for, stated in plain PyTorch, with what it takes to judge them.

A user's own task is a file that registers itself in its last line:

    from constrint.propose import Extent, Operand, Task, register_task

    class Scale(Task): ...

    register_task(Scale())
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module, util
from pathlib import Path
from typing import Any

from constrint.errors import UnknownNameError, UsageError
from constrint.propose.operands import Expected, Extent, Operand, Sizes
from constrint.propose.values import draw_operand, generator
from constrint.propose.wire import TensorLayout
from constrint.propose.worker.tensors import layout_of, torch_dtype

#: Bytes of an element.
ITEM_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "i64": 8}


class Task(ABC):
    """One function.

    Attributes:
        name: The name that a proposal uses.
        summary: The function in a sentence with the formula.
        extents: Its sizes.
        outputs_of: Names of the outputs in the order of the arguments, which they are the first of.
        constants: Numbers that the formula contains.
        dtypes: Types of the operands that a candidate has to take.
        timed_dtype: The type that it is timed with.
    """

    name: str
    summary: str
    extents: tuple[Extent, ...]
    constants: Mapping[str, float] = {}
    dtypes: tuple[str, ...] = ("fp32", "bf16", "fp16")
    timed_dtype: str = "bf16"

    @abstractmethod
    def operands(self, sizes: Sizes) -> tuple[Operand, ...]:
        """The inputs, in the order of the arguments."""

    @abstractmethod
    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Contiguous outputs on the device of the inputs, in the order of the arguments; their values do not matter."""

    @abstractmethod
    def plain(self, *inputs: Any) -> Any:
        """The function in plain PyTorch, with the operands' own type: what candidates are compared with in speed."""

    @abstractmethod
    def reference(self, inputs: Mapping[str, Any]) -> dict[str, Expected]:
        """The outputs in fp64, of inputs that are fp64 (or integers), and what their errors are in proportion to."""

    @abstractmethod
    def num_terms(self, sizes: Sizes) -> int:
        """The length of the longest sum in an output."""

    @abstractmethod
    def flops(self, sizes: Sizes) -> float:
        """Floating-point operations that cannot be avoided."""

    def layouts(self, sizes: Sizes, dtype: str) -> tuple[tuple[TensorLayout, ...], tuple[TensorLayout, ...]]:
        """The layouts of outputs and of inputs, all of them contiguous; nothing is drawn."""
        import torch

        inputs = {
            o.name: torch.empty(o.shape, dtype=torch_dtype(o.dtype or dtype), device="meta")
            for o in self.operands(sizes)
        }
        outputs = self.outputs(inputs)
        return (
            tuple(layout_of(name, tensor) for name, tensor in outputs.items()),
            tuple(layout_of(name, tensor) for name, tensor in inputs.items()),
        )

    def moved_bytes(self, sizes: Sizes, dtype: str) -> float:
        """Bytes that cannot be avoided: every input read once, every output written once."""
        layouts = [layout for part in self.layouts(sizes, dtype) for layout in part]
        return float(sum(math.prod(layout.shape) * ITEM_BYTES[layout.dtype] for layout in layouts))

    def draw(self, sizes: Sizes, dtype: str, *, seed: int, device: str = "cpu", style: str = "plain") -> dict[str, Any]:
        """Random inputs, in the order of the arguments.

        Args:
            sizes: The sizes.
            dtype: The type of the operands that have none of their own.
            seed: The seed.
            device: Where they are.
            style: The distribution of the values, one of `values.STYLES`.
        """
        random = generator(seed, device)
        return {o.name: draw_operand(o, o.dtype or dtype, random, style) for o in self.operands(sizes)}

    def plain_into(self, *tensors: Any) -> None:
        """`plain` with the outputs before the inputs, as a candidate is called."""
        least = {extent.name: extent.multiple for extent in self.extents}
        count = len(tensors) - len(self.operands(least))
        results = self.plain(*tensors[count:])
        for output, result in zip(tensors[:count], results if isinstance(results, tuple) else (results,), strict=True):
            output.copy_(result)

    @property
    def timed_sizes(self) -> dict[str, int]:
        """The sizes at which candidates are timed."""
        return {extent.name: extent.timed for extent in self.extents}

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments of a candidate's function: outputs, then inputs."""
        least = {extent.name: extent.multiple for extent in self.extents}
        return tuple(layout.name for part in self.layouts(least, "fp32") for layout in part)

    @property
    def examples(self) -> tuple[Path, ...]:
        """Files of correct candidates that the task comes with."""
        return tuple(sorted((Path(__file__).parent / "candidates").glob(f"{self.name}_*.py")))

    def describe(self) -> str:
        """The task as a proposer is told it."""
        # Sizes that are told apart stand for the names.
        sizes = {e.name: e.multiple * prime for e, prime in zip(self.extents, _PRIMES, strict=False)}
        named = {
            size // e.multiple: f"{e.name} / {e.multiple}" for e, size in zip(self.extents, sizes.values(), strict=True)
        }
        named |= {size: name for name, size in sizes.items()}
        lines = [f"Write `run({', '.join(self.arguments)})`: {self.summary}", "Sizes:"]
        lines += [
            f"- {e.name}: {e.meaning}, 1 to {e.most}" + (f", a multiple of {e.multiple}" if e.multiple > 1 else "")
            for e in self.extents
        ]
        lines += [f"Inputs, with any strides, in {', '.join(self.dtypes)} where no type is named:"]
        for operand in self.operands(sizes):
            shape = ", ".join(str(named.get(n, n)) for n in operand.shape)
            lines.append(f"- {operand.name}: ({shape}){f' {operand.dtype}' if operand.dtype else ''}")
        lines += [f"{name} = {value:g}." for name, value in self.constants.items()]
        return "\n".join([*lines, RULES])


_PRIMES = (1009, 1013, 1019, 1021, 1031)
#: Requirements of every candidate, part of the prompt.
RULES = """\
The first arguments are outputs: contiguous tensors that hold poison. Write them, return nothing.
Compute in fp32 and round to the output's type once, at the end.
In Triton: the source may import torch, triton, triton.language as tl, math, and libdevice (from
triton.language.extra). It consists of functions and constants. Functions with @triton.jit do the work; others only
compute sizes, take memory (torch.empty) and launch: kernel[grid](...). Tensors refuse every operator and method but
shapes, strides and views. Nothing may be kept from one call to the next.
In CUDA C++: the source defines __global__ functions and includes nothing. The type of a tensor x is x_t: float, fp16,
bf16 or long long; to_float(value) and round_to<x_t>(value) convert. Each launch states a kernel ("rows<x_t, 256>"),
grid, block, dynamic shared memory and arguments: names of tensors, of scratch memory, and numbers, which are long long.
Numbers are expressions over x_size0, x_size1, ..., x_stride0, ... (strides in elements), with + - * // % min max
ceildiv; "when" is a condition. Scratch memory has its bytes by name. No variables in global memory, no clocks."""

#: The module that defines each task of the package.
_BUILT_IN = {
    **dict.fromkeys(("softmax", "layer_norm", "rms_norm", "cross_entropy", "rotary", "bias_gelu"), "tasks"),
    **dict.fromkeys(("axpy", "gemv", "gemm", "spmv", "jacobi", "cg"), "scientific"),
}
_REGISTERED: dict[str, Task] = {}
_FILES: dict[str, str] = {}


def register_task(*tasks: Task) -> None:
    """Make tasks known by their names; one of the same name is replaced."""
    for task in tasks:
        _REGISTERED[task.name] = task


def list_tasks() -> tuple[str, ...]:
    """Names of all tasks that are known."""
    return tuple(dict.fromkeys((*_BUILT_IN, *_REGISTERED)))


def find_task(name: str) -> Task:
    """The task of a name, or the one that a file registers.

    Args:
        name: `softmax`, or `FILE.py`, or `FILE.py:NAME` where the file registers several.

    Raises:
        UnknownNameError: When there is no such task.
        UsageError: When the file cannot be read, or does not register one task.
    """
    path, _, suffix = name.partition(".py")
    if name.endswith(".py") or suffix.startswith(":"):
        return _of_file(Path(f"{path}.py"), suffix[1:])
    if name not in _REGISTERED and name in _BUILT_IN:
        for task in import_module(f"constrint.propose.{_BUILT_IN[name]}").TASKS:
            _REGISTERED.setdefault(task.name, task)
    if name not in _REGISTERED:
        raise UnknownNameError("task", name, list_tasks(), "A task of your own: FILE.py.")
    return _REGISTERED[name]


def file_of_task(name: str) -> Path | None:
    """The file of a user's own task; None for one that is built in."""
    return Path(f"{name.partition('.py')[0]}.py").absolute() if ".py" in name else None


def _of_file(path: Path, wanted: str) -> Task:
    key = str(path.absolute())
    before = dict(_REGISTERED)
    if key not in _FILES:
        spec = util.spec_from_file_location(f"constrint_task_{path.stem}", path)
        if spec is None or spec.loader is None or not path.is_file():
            raise UsageError(f"task {path}: there is no such file.")
        module = util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise UsageError(f"task {path}: it cannot be imported ({type(error).__name__}: {error}).") from error
        # What the file imports may have registered tasks, too.
        own = [task for name, task in _REGISTERED.items() if before.get(name) is not task]
        _FILES[key] = " ".join(task.name for task in own if type(task).__module__ == spec.name)
    names = _FILES[key].split()
    if wanted not in names and (wanted or len(names) != 1):
        has = f"it registers {', '.join(names)}" if names else "it registers none; end it with register_task(...)"
        raise UsageError(f"task {path}: one task is needed, and {has}. Name one: {path}:NAME.")
    return _REGISTERED[wanted or names[0]]
