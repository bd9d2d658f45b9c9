"""NVIDIA: the `sm` block of its GPUs' files, its traits and matrix units, and its occupancy rules.

Occupancy equals cuda_occupancy.h of CUDA 13.0 on every input that the header takes. The header's text was read, not
copied.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UsageError
from constrint.hwmodels.checks import check_compilable
from constrint.hwmodels.occupancy import UNLIMITED, KernelUse, ResourceLimits
from constrint.hwmodels.schema import Block, GpuModel, NotNegative, Positive, Sm, Sources
from constrint.hwmodels.vendors.interface import (
    BlockLimit,
    DeviceFacts,
    DotUnit,
    Finding,
    LimitRow,
    RegisterFile,
    Terms,
    Traits,
    Vendor,
)


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


#: Compute capability from which Triton multiplies on the matrix units, and loads past the registers.
AMPERE = (8, 0)
#: Compute capability from which there is a TMA unit.
HOPPER = (9, 0)
#: The family of each target that constrint knows.
TARGETS = {
    "sm_70": "Volta",
    "sm_72": "Volta",
    "sm_75": "Turing",
    "sm_80": "Ampere",
    "sm_86": "Ampere",
    "sm_87": "Ampere",
    "sm_89": "Ada Lovelace",
    "sm_90": "Hopper",
    "sm_90a": "Hopper",
    "sm_100": "Blackwell",
    "sm_100a": "Blackwell",
    "sm_103": "Blackwell",
    "sm_103a": "Blackwell",
    "sm_110": "Blackwell",
    "sm_110a": "Blackwell",
    "sm_120": "Blackwell",
    "sm_120a": "Blackwell",
    "sm_121": "Blackwell",
    "sm_121a": "Blackwell",
}

#: Meanings of the numbers that only NVIDIA's models have.
MEANINGS = {
    "registers_per_partition": "32-bit registers of a sub-partition",
    "max_registers_per_block": "32-bit registers of a block",
    "register_alloc_granularity_registers_per_warp": "step in which a warp's registers are given out",
    "warp_alloc_granularity_warps": "step in which a block's warps are counted against its registers",
    "max_smem_bytes_per_block_without_opt_in": "shared memory of a block that does not ask for more",
    "max_barriers_per_sm": "named barriers of an SM",
    "tensor_memory_bytes_per_sm": "tensor memory of an SM",
}


class Nvidia(Vendor):
    """NVIDIA's GPUs."""

    name = "nvidia"
    title = "NVIDIA"
    terms = Terms(
        sm="SM",
        sms="SMs",
        a_sm="an SM",
        partition="sub-partition",
        block="block",
        blocks="blocks",
        warp="warp",
        warps="warps",
        smem="shared memory",
        smem_column="smem",
    )
    sm_type = NvidiaSm
    targets = TARGETS
    target_pattern = r"sm_[1-9]\d+[af]?"
    target_form = "'sm_' and the compute capability, such as sm_90a for 9.0"
    required_keys = ("arch.compute_capability", "device.num_gpcs")
    matrix_kinds = ("mma", "wmma", "wgmma", "tcgen05")
    occupancy_options = frozenset({"carveout_percent", "barriers_per_block", "smem_opt_in=False"})
    units_file = Path(__file__).parent / "units.yaml"
    triton_backend = "cuda"
    figures_file = Path(__file__).parent / "figures.yaml"
    assumed_file = Path(__file__).parent / "assumed.yaml"
    banks_file = Path(__file__).parent / "banks.yaml"
    meanings = MEANINGS

    def register_file(self, gpu: GpuModel) -> RegisterFile:
        """A partition's registers, of which a warp gets a multiple of the granularity."""
        sm = _sm(gpu)
        return RegisterFile(
            capacity=sm.registers_per_partition,
            granularity=sm.register_alloc_granularity_registers_per_warp,
            counted="registers per SM sub-partition",
            per_thread=sm.warp_size,
            shared_by_block=sm.registers_per_partition * sm.num_partitions,
            partitions_per_block=sm.num_partitions,
        )

    def occupancy_limits(self, gpu: GpuModel, use: KernelUse) -> ResourceLimits:
        """As cuda_occupancy.h computes them."""
        return resource_limits(gpu.name, _sm(gpu), use)

    def findings(self, gpu: GpuModel) -> Iterator[Finding]:
        """A target of the capability, carve-outs that rise, registers and limits that agree, no keys of AMD's."""
        sm = _sm(gpu)
        digits = (gpu.arch.compute_capability or "").replace(".", "")
        if digits and re.sub(r"\D", "", gpu.arch.target) != digits:
            yield "arch.target", f"{gpu.arch.target!r} is not of compute capability {gpu.arch.compute_capability}"
        carveouts = sm.smem_carveouts_bytes
        if not carveouts or list(carveouts) != sorted(set(carveouts)) or carveouts[-1] != sm.smem_bytes_per_sm:
            yield "sm.smem_carveouts_bytes", "must increase and end with smem_bytes_per_sm"
        if sm.max_smem_bytes_per_block_without_opt_in > sm.max_smem_bytes_per_block:
            yield "sm.max_smem_bytes_per_block_without_opt_in", "exceeds max_smem_bytes_per_block"
        if sm.max_registers_per_block > sm.registers_per_partition * sm.num_partitions:
            yield "sm.max_registers_per_block", "exceeds registers_per_partition times num_partitions"
        yield from _register_findings(sm)
        if gpu.memory.l1.size_bytes is not None and sm.smem_bytes_per_sm > gpu.memory.l1.size_bytes:
            yield (
                "sm.smem_bytes_per_sm",
                f"exceeds memory.l1.size_bytes, {gpu.memory.l1.size_bytes}, a part of which it is",
            )
        if gpu.device.num_xcds != 1 or gpu.memory.last_level is not None:
            yield "device.num_xcds", "XCDs and a last-level cache are AMD's"

    def block_limits(self, gpu: GpuModel, use: KernelUse) -> list[BlockLimit]:
        """Without opt-in a block has less shared memory."""
        limits = super().block_limits(gpu, use)
        if use.smem_opt_in:
            return limits
        most = _sm(gpu).max_smem_bytes_per_block_without_opt_in
        return [limit._replace(most=most) if limit.name == "smem_bytes_per_block" else limit for limit in limits]

    def limit_rows(self, gpu: GpuModel) -> list[LimitRow]:
        """Registers, and tensor memory where there is some."""
        sm = _sm(gpu)
        granularity = sm.register_alloc_granularity_registers_per_warp
        rows = [
            LimitRow("registers_per_partition", "32-bit", sm.registers_per_partition, "registers per sub-partition"),
            LimitRow(
                "register_alloc_granularity_registers_per_warp", "32-bit", granularity, "given to a warp in steps of"
            ),
        ]
        if sm.tensor_memory_bytes_per_sm is not None:
            rows.append(
                LimitRow(
                    "tensor_memory_bytes_per_sm", "bytes", sm.tensor_memory_bytes_per_sm, "tensor memory (tcgen05)"
                )
            )
        return rows

    def device_facts(self, gpu: GpuModel) -> DeviceFacts:
        """With the registers of an SM, which CUDA reports."""
        sm = _sm(gpu)
        registers = frozenset({sm.registers_per_partition * sm.num_partitions})
        return replace(super().device_facts(gpu), registers_per_sm=registers)

    def compiler_target(self, gpu: GpuModel) -> str:
        """Without the `a` of instructions that one architecture alone has: compilers choose that variant themselves."""
        return gpu.arch.target.rstrip("a")

    def triton_target(self, gpu: GpuModel) -> tuple[str, int | str, int]:
        """The compute capability as one number.

        Raises:
            UnsupportedError: For a target that is not known.
        """
        check_compilable(gpu)
        return "cuda", int(self.compiler_target(gpu).removeprefix("sm_")), gpu.sm.warp_size

    def traits(self, gpu: GpuModel) -> Traits:
        """mma.sync takes tiles down to 8 columns, so 8 rows of the transposed product."""
        capability = _capability(gpu)
        return Traits(
            has_async_copies=capability >= AMPERE,
            has_tensor_descriptors=capability >= HOPPER,
            has_inline_ptx=True,
            has_square_dots=False,
            smallest_dot_rows=8,
            smallest_dot_columns=8,
            wide_dot_dtype="tf32",
            deals_chained_dots_to_rows=False,
            deals_tall_dots_to_rows=True,
            least_pipelined_bytes=4,
            pipeline_stages=(3, 4, 2, 5, 6, 1),
            product_library="cuBLAS",
            code_family="sm_8x" if capability < HOPPER else "sm_9x",
        )

    def dot_unit(self, gpu: GpuModel, dtype: str) -> DotUnit | None:
        """wgmma or tcgen05 where there is one, else mma.sync; plain FMA of fp16 on Volta and Turing."""
        if _capability(gpu) < AMPERE:
            # Triton 3.9 has no tensor-core code for Volta and Turing: tl.dot becomes plain FMA in fp32.
            return DotUnit("fma", ((1, 1, 1),)) if dtype == "fp16" else None
        instructions = gpu.matrix_shapes(dtype)
        for kind in ("wgmma", "tcgen05"):
            depths = [i.k for i in instructions if i.kind == kind]
            if depths:
                return DotUnit(kind, ((64, 8, min(depths)),), fallback="mma")
        return DotUnit("mma", ((16, 8, max(i.k for i in instructions)),))


def _register_findings(sm: NvidiaSm) -> Iterator[Finding]:
    """Registers that every warp slot and the largest block can have."""
    unit, total = sm.register_alloc_granularity_registers_per_warp, sm.registers_per_partition * sm.num_partitions
    if sm.registers_per_partition % unit:
        yield "sm.registers_per_partition", f"must be a multiple of the granularity of a warp, {unit}"
    if unit * sm.max_warps_per_sm > total:
        rule = f"{sm.max_warps_per_sm} warps of it exceed the {total} registers of an SM"
        yield "sm.register_alloc_granularity_registers_per_warp", rule
    if sm.max_registers_per_thread * sm.warp_size > sm.registers_per_partition:
        rule = f"a warp of it exceeds registers_per_partition, {sm.registers_per_partition}"
        yield "sm.max_registers_per_thread", rule
    if sm.max_threads_per_block // sm.warp_size * unit > sm.max_registers_per_block:
        rule = f"is too little for a block of max_threads_per_block, {sm.max_threads_per_block}"
        yield "sm.max_registers_per_block", rule
    if sm.max_warps_per_sm % sm.warp_alloc_granularity_warps:
        yield "sm.warp_alloc_granularity_warps", f"must divide max_warps_per_sm, {sm.max_warps_per_sm}"
    if sm.max_barriers_per_sm is not None and sm.max_barriers_per_sm < sm.max_blocks_per_sm:
        yield "sm.max_barriers_per_sm", f"is below max_blocks_per_sm, {sm.max_blocks_per_sm}"


def _sm(gpu: GpuModel) -> NvidiaSm:
    return cast(NvidiaSm, gpu.sm)


def _capability(gpu: GpuModel) -> tuple[int, int]:
    major, _, minor = (gpu.arch.compute_capability or "0.0").partition(".")
    return int(major), int(minor)


#: The header's own limit; hardware and PTX stop at 255.
HEADER_MAX_REGISTERS = 256


def resource_limits(name: str, sm: NvidiaSm, kernel: KernelUse) -> ResourceLimits:
    """Blocks per SM that each resource allows.

    Raises:
        UsageError: When `wave_size` is not the size of a warp.
    """
    if kernel.wave_size not in (None, *sm.warp_sizes):
        raise UsageError(f"wave_size = {kernel.wave_size}: a warp of {name} has {sm.warp_size} threads.")
    warps = -(-kernel.threads_per_block // sm.warp_size)
    by_registers, registers_per_block = _registers(sm, kernel.registers_per_thread, warps)
    by_smem, smem_bytes_per_block = _smem(sm, kernel)
    return ResourceLimits(
        warps=np.where(kernel.threads_per_block > sm.max_threads_per_block, 0, sm.max_warps_per_sm // warps),
        registers=by_registers,
        smem=by_smem,
        blocks=np.int64(sm.max_blocks_per_sm),
        barriers=_barriers(sm, kernel.barriers_per_block),
        warps_per_block=warps,
        registers_per_block=registers_per_block,
        smem_bytes_per_block=smem_bytes_per_block,
        max_warps_per_sm=sm.max_warps_per_sm,
    )


def _registers(sm: NvidiaSm, registers: Any, warps: Any) -> tuple[Any, Any]:
    """Warps fit the partitions one by one: floor per partition, then per SM, then per block."""
    unit = sm.register_alloc_granularity_registers_per_warp
    per_warp = -(-registers * sm.warp_size // unit) * unit
    per_block = per_warp * warps
    # The header checks a block as if its warps came in multiples of the allocation granularity.
    assumed = per_warp * (-(-warps // sm.warp_alloc_granularity_warps) * sm.warp_alloc_granularity_warps)
    warps_per_sm = sm.registers_per_partition // np.maximum(per_warp, 1) * sm.num_partitions
    too_many = (assumed > sm.max_registers_per_block) | (registers > HEADER_MAX_REGISTERS)
    return np.where(too_many, 0, np.where(per_warp == 0, UNLIMITED, warps_per_sm // warps)), per_block


def _smem(sm: NvidiaSm, kernel: KernelUse) -> tuple[Any, Any]:
    """Blocks in the carve-out: the preferred one, or the smallest that holds a block at all."""
    unit = sm.smem_alloc_granularity_bytes
    reserved = sm.smem_reserved_bytes_per_block
    used = -(-(kernel.smem_bytes_per_block + reserved) // unit) * unit
    allowed = sm.max_smem_bytes_per_block if kernel.smem_opt_in else sm.max_smem_bytes_per_block_without_opt_in
    carveouts = _as_array(sm.smem_carveouts_bytes)
    percent = kernel.carveout_percent
    preferred = np.where(percent < 0, sm.smem_bytes_per_sm, percent * sm.smem_bytes_per_sm // 100)
    legal = np.searchsorted(carveouts, np.maximum(preferred, used))
    pool = carveouts[np.minimum(legal, len(carveouts) - 1)]
    blocks = np.where(used == 0, UNLIMITED, pool // np.maximum(used, 1))
    return np.where(used > allowed + reserved, 0, blocks), used


@functools.cache
def _as_array(values: tuple[int, ...]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _barriers(sm: NvidiaSm, barriers: Any) -> Any:
    if sm.max_barriers_per_sm is None:
        return np.int64(UNLIMITED)
    return np.where(barriers == 0, UNLIMITED, sm.max_barriers_per_sm // np.maximum(barriers, 1))
