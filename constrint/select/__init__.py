"""From a hardware model and a kernel's parameter space to ranked configurations.

Hardware limits become constraints (`limits`), a cost model predicts times and names the bottleneck (`cost`), and
`rank` orders the valid configurations. Nothing here measures anything: every figure is modelled.
"""

from constrint.select.candidate import Candidate, Config, CostEstimate, ResourceUse
from constrint.select.cost import CostColumns, estimate
from constrint.select.limits import BlockUse, add_block_limits, register_capacity
from constrint.select.rank import rank
from constrint.select.ranking import KernelSpace, Ranking
from constrint.select.spec import KernelSpec, Operation, Param, Rule
from constrint.select.tile_work import TileWork
from constrint.select.workload import Size, Workload

__all__ = [
    "BlockUse",
    "Candidate",
    "Config",
    "CostColumns",
    "CostEstimate",
    "KernelSpace",
    "KernelSpec",
    "Operation",
    "Param",
    "Ranking",
    "ResourceUse",
    "Rule",
    "Size",
    "TileWork",
    "Workload",
    "add_block_limits",
    "estimate",
    "rank",
    "register_capacity",
]
