"""The short form of a kernel's space: values, rules, and the resources of a block, as texts.

`constrint.autotune` takes the result of `space(...)` in place of a `KernelSpec`. Sizes, data and the grid need not be
stated: a call shows them, and `CallSpec` is the kernel spec of one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.autotune.call import Call, Signature
from constrint.kernels.launch.triton import TritonKernelSpec
from constrint.model import Expr, Problem, const
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns, GridLoad, grid_cost
from constrint.select.limits import BlockUse, add_block_limits
from constrint.select.spec import Columns, Param, Rule, Vars
from constrint.select.stated import ELEMENT_BYTES_NAME, GPU_NAMES, StatedRule, StatedSpace, gpu_names
from constrint.select.workload import Size, Workload

#: Warps of a block where no parameter states them: Triton's default.
USUAL_WARPS = 4
#: Registers of a thread where nothing is stated: few enough for any number of warps.
USUAL_REGISTERS = 32
#: Configurations, at most, for which the grid is computed one by one.
MOST_GRIDS = 20_000
_ANY = -(2**63), 2**63 - 1

Reference = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Space:
    """A kernel's space as texts; see `space`."""

    stated: StatedSpace
    registers: str | int
    smem_bytes: str | int
    operations: str | int
    moved_bytes: str | int | None
    outputs: tuple[str, ...]
    reference: Reference | None

    def check(self, signature: Signature, key: Iterable[str]) -> None:
        """Raise where the space does not fit the kernel.

        Raises:
            UsageError: For a parameter that cannot be set, or an unknown name.
        """
        signature.check_params(self.stated.domains)
        signature.check_arguments(self.outputs, "outputs")
        of_call = {*key, ELEMENT_BYTES_NAME}
        every = {*self.stated.domains, *of_call, *GPU_NAMES}
        self.stated.check_rules(every)
        self.stated.check_text(self.registers, "registers", every)
        self.stated.check_text(self.smem_bytes, "smem_bytes", every)
        self.stated.check_text(self.operations, "operations", of_call)
        if self.moved_bytes is not None:
            self.stated.check_text(self.moved_bytes, "moved_bytes", of_call)


def space(
    params: Mapping[str, Iterable[object]],
    rules: Sequence[StatedRule] = (),
    *,
    registers: str | int = USUAL_REGISTERS,
    smem_bytes: str | int = 0,
    operations: str | int = 0,
    moved_bytes: str | int | None = None,
    outputs: Iterable[str] = (),
    reference: Reference | None = None,
) -> Space:
    """State the space of a kernel for `constrint.autotune`.

    Texts are Python expressions, read and never evaluated. They know the parameters, the arguments of the key,
    `element_bytes` (of the first tensor), and of the GPU `warp_size`, `sm_count`, `max_threads_per_block` and
    `max_smem_bytes_per_block`; `cdiv(a, b)` rounds up.

    Args:
        params: The values of each parameter, preferred ones first: compile-time arguments of the kernel, and options of
            its launch such as `num_warps`.
        rules: Conditions on a configuration: texts, or functions of its values.
        registers: Registers of a thread, estimated.
        smem_bytes: Shared memory of a block.
        operations: Floating or integer operations of a call, a multiply-add being two.
        moved_bytes: Bytes that have to move to and from DRAM; those of all tensors if None.
        outputs: Names of the tensors that the kernel writes without reading them. A check poisons them.
        reference: Function of a call's arguments by name that returns the right outputs by name.
    """
    if reference is not None and not callable(reference):
        raise UsageError(f"reference takes a function of a call's arguments by name, got {type(reference).__name__}.")
    listed = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    stated = StatedSpace(params, (rules,) if isinstance(rules, str) else rules, "space")
    return Space(stated, registers, smem_bytes, operations, moved_bytes, listed, reference)


class CallSpec(TritonKernelSpec):
    """The spec of one call of a kernel with a stated space: sizes, data and grid are the call's own.

    Args:
        space: The space.
        call: The call.
    """

    summary = "a kernel whose space was stated for constrint.autotune"

    def __init__(self, space: Space, call: Call) -> None:
        self.space, self.call = space, call
        self.operation = call.signature.name
        self.function = call.signature.jitted
        self.sizes = tuple(Size(name, value, "of the key", *_ANY) for name, value in call.key_numbers.items())
        self.dtypes = (call.dtype,)

    @property
    def home(self) -> str:
        """The module of the user's function."""
        return str(self.call.signature.base.__module__)

    @property
    def workload(self) -> Workload:
        """The workload of the call."""
        return Workload(self.operation, self.call.key_numbers, self.call.dtype)

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """The parameters of the space."""
        return self.space.stated.params()

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """None: `problem` has the rules of the space, since it has all values."""
        return iter(())

    def problem(self, gpu: GpuModel, workload: Workload) -> Problem:
        """The stated rules, and the limits of the hardware."""
        problem = self.space.stated.problem(self.full_name, self._numbers(gpu, workload))
        add_block_limits(problem, gpu, self.use(gpu, workload, {}))
        return problem

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """The stated resources of a block."""
        stated, numbers = self.space.stated, self._numbers(gpu, workload)
        num_warps = int(self.call.kwargs.get("num_warps", USUAL_WARPS))
        warps: Expr = stated.number("num_warps", {}, "warps") if "num_warps" in stated.domains else const(num_warps)
        registers = stated.number(self.space.registers, numbers, "registers")
        return BlockUse(warps, registers, stated.number(self.space.smem_bytes, numbers, "smem_bytes"))

    def check_memory(self, gpu: GpuModel, workload: Workload) -> None:
        """The call's tensors are there already."""

    def moved_bytes(self, workload: Workload) -> int:
        """The stated bytes, or those of all tensors of the call."""
        return self._number(self.space.moved_bytes) if self.space.moved_bytes is not None else self._tensor_bytes()

    def num_terms(self, workload: Workload) -> int:
        """Bound on the terms of a sum: the longest side of any tensor."""
        return max((size for tensor in self.call.tensors.values() for size in tensor.shape), default=1)

    def num_operations(self, workload: Workload) -> int:
        """The stated number of operations."""
        return self._number(self.space.operations)

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted times by the load and the grid alone."""
        rows = self._rows(columns, len(blocks_per_sm))
        num_blocks: Any = gpu.device.sm_count * blocks_per_sm
        if len(rows) <= MOST_GRIDS:
            num_blocks = np.array([self.call.num_blocks(self.space.stated.decoded(row)) for row in rows])
        threads = self.use(gpu, workload, {}).warps.columns(columns) * gpu.sm.warp_size
        moved, dtype = self.moved_bytes(workload), workload.dtype.partition("+")[0]
        load = GridLoad(moved, self.num_operations(workload), dtype, num_blocks, threads)
        return grid_cost(gpu, load, blocks_per_sm)

    def roofline_s(self, gpu: GpuModel, workload: Workload) -> float:
        """The least time that the load takes."""
        peak = gpu.peak_flop_per_s(workload.dtype.partition("+")[0])
        streamed_s = super().roofline_s(gpu, workload)
        return max(streamed_s, self.num_operations(workload) / peak) if peak else streamed_s

    def grid(self, workload: Workload, config: Config) -> tuple[int, ...]:
        """The call's grid."""
        grid = self.call.grid
        values = self.space.stated.decoded(config)
        return tuple(grid(self.call.all_named | values)) if callable(grid) else tuple(grid)

    def values_of(self, config: Config) -> dict[str, Any]:
        """The values that the codes of a configuration stand for."""
        return self.space.stated.decoded(config)

    def _numbers(self, gpu: GpuModel, workload: Workload) -> dict[str, int]:
        tensors = list(self.call.tensors.values())
        element_bytes = tensors[0].element_size() if tensors else 1
        return {**gpu_names(gpu), ELEMENT_BYTES_NAME: element_bytes, **workload.sizes}

    def _number(self, text: str | int) -> int:
        """A stated number that no parameter and no GPU changes."""
        tensors = list(self.call.tensors.values())
        numbers = {ELEMENT_BYTES_NAME: tensors[0].element_size() if tensors else 1, **self.call.key_numbers}
        return int(self.space.stated.number(text, numbers, "a figure of the whole call").value({}))

    def _tensor_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.call.tensors.values())

    def _rows(self, columns: Columns, number: int) -> list[dict[str, int]]:
        names = [name for name in columns if name in self.space.stated.domains]
        listed = [np.broadcast_to(columns[name], (number,)).tolist() for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*listed, strict=True)]
