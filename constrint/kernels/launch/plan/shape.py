"""The shape of a kernel's launch as plain data: grid, threads, shared memory, cluster. No torch."""

from __future__ import annotations

from typing import Any, NamedTuple


class NotPlannedError(Exception):
    """Raised where a launch cannot be planned; Triton's own launcher takes it."""


#: The most blocks of a cluster that every GPU with clusters can have; only Triton's own launcher allows more.
PORTABLE_CLUSTER = 8
#: The most blocks of a cluster that any GPU can have.
MAX_CLUSTER = 16


class LaunchShape(NamedTuple):
    """The shape of a compiled kernel's launch.

    Args:
        grid: Blocks along x, y and z; a cluster counts as its blocks.
        threads: Threads of a block.
        shared_bytes: Dynamic shared memory of a block.
        cluster: Blocks of a cluster.
        is_cooperative: Whether all blocks have to be resident at the same time.
        is_dependent: Whether the launch may start before the previous launch of its stream has ended.
    """

    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    cluster: int
    is_cooperative: bool
    is_dependent: bool

    @classmethod
    def of(cls, kernel: Any, grid: tuple[int, ...]) -> LaunchShape:
        """The shape in which Triton would launch one of its compiled kernels on a grid.

        Raises:
            NotPlannedError: When only Triton can launch the kernel.
        """
        meta = kernel.metadata
        cluster = int(getattr(meta, "num_ctas", 1) or 1)
        if getattr(meta, "global_scratch_size", 0) or getattr(meta, "profile_scratch_size", 0):
            raise NotPlannedError("the kernel wants scratch memory of Triton's")
        if cluster > PORTABLE_CLUSTER:
            raise NotPlannedError(f"a cluster of {cluster} blocks")
        whole = (*grid, 1, 1)[:3]
        return cls(
            grid=(whole[0] * cluster, whole[1], whole[2]),
            threads=int(meta.num_warps) * int(meta.target.warp_size),
            shared_bytes=int(meta.shared),
            cluster=cluster,
            is_cooperative=bool(getattr(meta, "launch_cooperative_grid", False)),
            is_dependent=bool(getattr(meta, "launch_pdl", False)),
        )

    @classmethod
    def of_cuda(cls, launch: Any) -> LaunchShape:
        """The shape of a `CudaLaunch`.

        Raises:
            NotPlannedError: When its blocks have more than one dimension.
        """
        threads, *others = launch.block
        if any(other != 1 for other in others):
            raise NotPlannedError(f"blocks of {launch.block} threads")
        whole = tuple(int(size) for size in (*launch.grid, 1, 1)[:3])
        return cls(
            grid=(whole[0], whole[1], whole[2]),
            threads=int(threads),
            shared_bytes=int(launch.smem_bytes),
            cluster=int(launch.cluster),
            is_cooperative=bool(launch.is_cooperative),
            is_dependent=False,
        )

    @property
    def num_blocks(self) -> int:
        """Blocks of the whole grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def num_together(self) -> int:
        """Blocks that have to be resident at the same time: the grid's, those of a cluster, or one."""
        return self.num_blocks if self.is_cooperative else self.cluster

    def for_core(self) -> tuple[Any, ...]:
        """The shape as numbers, as plans of the compiled core take it."""
        return *self[:4], int(self.is_cooperative), int(self.is_dependent)
