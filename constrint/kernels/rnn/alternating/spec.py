"""The `alternating` implementation: per step one matrix product and one pointwise step, by a GEMM library.

It has no parameters, and takes any head dimension and dtype on any GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.alternating.cost import NODE_S, alternating_cost
from constrint.kernels.rnn.cells import BUILT_IN
from constrint.kernels.rnn.spec import SUFFIX, RnnSpec
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.rnn.interface import RnnBackend


class AlternatingSpec(RnnSpec):
    """One direction of a recurrent layer, step by step."""

    name = "alternating"
    step_language = "triton"
    how = "a product and a pointwise kernel per step"
    dtypes = ("bf16", "fp16", "fp32", "tf32", "fp64")

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        """None: the library chooses."""
        return ()

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """None: the library takes everything."""
        return iter(())

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse | None:
        """None: it is no single kernel."""
        return None

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time of its one configuration."""
        return alternating_cost(gpu, self.cell, self.direction, workload)

    def note(self, workload: Workload, directions: Collection[str]) -> str:
        """The basis of its prediction."""
        times = ", ".join(f"{1e6 * NODE_S[direction]:.1f} us {direction}" for direction in directions)
        return (
            f"two kernels a step in a CUDA graph, {times} each (fitted on an H200), and the weights read in every step"
        )

    def backend(self) -> RnnBackend:
        """The loop, or on a GPU a graph of it."""
        from constrint.kernels.rnn.alternating.graphs import AlternatingBackend

        return AlternatingBackend()


SPECS = tuple(AlternatingSpec(cell, direction) for cell in BUILT_IN.values() for direction in SUFFIX)
