"""What holds of every ranking, whatever the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from constrint.hwmodels import GpuModel, occupancy
from constrint.select import KernelSpec, Ranking


def check_ranking(gpu: GpuModel, ranking: Ranking, specs: Mapping[str, KernelSpec]) -> None:
    """Candidates are in order, keep every rule of their kernel's problem, and fit the GPU as often as they say."""
    seconds = [candidate.cost.seconds for candidate in ranking.candidates]
    # Times within half a per mille are ties, which the order of preferred values settles.
    assert all(later >= 0.9985 * earlier for earlier, later in pairwise(seconds))
    for candidate in ranking.candidates:
        config = dict(candidate.config)
        problem = specs[candidate.kernel].problem(gpu, ranking.workload)
        assert list(config) == list(problem.variables)
        assert all(config[name] in domain for name, domain in problem.variables.items())
        assert not [rule.name for rule in problem.constraints if not rule.holds(config)]
        use = candidate.resources
        assert use is not None
        block: dict[str, Any] = {
            "threads_per_block": use.threads,
            "registers_per_thread": use.registers_per_thread,
            "smem_bytes_per_block": use.smem_bytes,
        }
        blocks = int(occupancy(gpu, **block).blocks_per_sm)
        if not blocks and (gpu.register_file.partitions_per_block or 0) > gpu.sm.num_partitions:
            # What one CU of RDNA cannot hold runs on both of a WGP.
            blocks = -(-int(occupancy(gpu, **block, wgp_mode=True).blocks_per_sm) // 2)
        assert blocks == use.blocks_per_sm >= 1
        assert 0 <= use.spill_chance <= 1
        assert use.smem_bytes <= gpu.sm.max_smem_bytes_per_block
        assert 0 < candidate.cost.roofline_share <= 1
        assert candidate.num_variants >= 1
