"""The `sm` block of an NVIDIA GPU's file."""

from __future__ import annotations

from constrint.hwmodels.schema import Block, NotNegative, Positive, Sm, Sources


class NvidiaSm(Sm, Block, frozen=True, tag_field="vendor", tag="nvidia"):
    """A streaming multiprocessor; its registers are split over sub-partitions, and each warp is in one."""

    warp_sizes: tuple[Positive, ...]
    num_partitions: Positive
    max_threads_per_block: Positive
    max_threads_per_sm: Positive
    max_warps_per_sm: Positive
    max_blocks_per_sm: Positive
    max_registers_per_thread: Positive
    registers_per_partition: Positive
    max_registers_per_block: Positive
    register_alloc_granularity_registers_per_warp: Positive
    warp_alloc_granularity_warps: Positive
    smem_bytes_per_sm: Positive
    max_smem_bytes_per_block: Positive
    max_smem_bytes_per_block_without_opt_in: Positive
    smem_alloc_granularity_bytes: Positive
    smem_reserved_bytes_per_block: NotNegative
    smem_carveouts_bytes: tuple[NotNegative, ...]
    smem_banks: Positive | None
    smem_bank_width_bytes: Positive | None
    special_functions_per_clk: Positive | None
    sources: Sources
    max_barriers_per_sm: Positive | None = None
    tensor_memory_bytes_per_sm: Positive | None = None
