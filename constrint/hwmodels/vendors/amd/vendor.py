"""AMD: the `sm` block of its GPUs' files (a compute unit), its traits and matrix units, and its occupancy rules.

Occupancy gives LLVM's waves per SIMD, and the workgroups that a CU (or a WGP) holds under the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from constrint.errors import UsageError
from constrint.hwmodels.occupancy import UNLIMITED, KernelUse, ResourceLimits, differs
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


class VgprFile(Block, frozen=True):
    """Vector registers of one SIMD as waves of one size see them."""

    vgprs_per_lane: Positive
    alloc_granularity_vgprs: Positive


class AmdCu(Sm, Block, frozen=True, tag_field="vendor", tag="amd"):
    """A compute unit; on RDNA two of them form a WGP, whose LDS a workgroup in WGP mode shares.

    `max_blocks_per_sm` counts one-wave workgroups; workgroups of several waves also take one of
    `max_multi_wave_blocks_per_sm` (or `_per_wgp`) barrier slots.
    """

    warp_sizes: tuple[Positive, ...]
    num_partitions: Positive
    max_threads_per_block: Positive
    max_threads_per_sm: Positive
    max_warps_per_sm: Positive
    max_waves_per_simd: Positive
    max_blocks_per_sm: Positive
    max_multi_wave_blocks_per_sm: Positive
    max_registers_per_thread: Positive
    max_arch_vgprs_per_thread: Positive
    has_unified_vgpr_file: bool
    max_sgprs_per_wave: Positive
    smem_bytes_per_sm: Positive
    max_smem_bytes_per_block: Positive
    smem_alloc_granularity_bytes: Positive
    smem_llvm_granularity_bytes: Positive
    smem_reserved_bytes_per_block: NotNegative
    smem_banks: Positive | None
    smem_bank_width_bytes: Positive | None
    special_functions_per_clk: Positive | None
    sources: Sources
    wave32: VgprFile | None = None
    wave64: VgprFile | None = None
    max_acc_vgprs_per_thread: Positive | None = None
    arch_vgpr_alignment_vgprs: Positive | None = None
    sgprs_per_simd: Positive | None = None
    sgpr_alloc_granularity_sgprs: Positive | None = None
    sgprs_reserved_per_wave: NotNegative | None = None
    max_multi_wave_blocks_per_wgp: Positive | None = None
    smem_bytes_per_wgp: Positive | None = None

    def vgprs_per_lane(self, wave_size: int) -> int:
        """Vector registers that a SIMD has for each lane of a wave of `wave_size`."""
        return self._file(wave_size).vgprs_per_lane

    def vgpr_alloc_granularity(self, wave_size: int) -> int:
        """Vector registers per lane in which a wave of `wave_size` is given its registers."""
        return self._file(wave_size).alloc_granularity_vgprs

    def _file(self, wave_size: int) -> VgprFile:
        file = {32: self.wave32, 64: self.wave64}.get(wave_size)
        if file is None:
            sizes = " or ".join(str(size) for size in self.warp_sizes)
            raise UsageError(f"wave_size = {wave_size}: this GPU has waves of {sizes} threads.")
        return file


#: The family of each target that constrint knows.
TARGETS = {
    "gfx908": "CDNA1",
    "gfx90a": "CDNA2",
    "gfx942": "CDNA3",
    "gfx950": "CDNA4",
    "gfx1100": "RDNA3",
    "gfx1101": "RDNA3",
    "gfx1102": "RDNA3",
    "gfx1151": "RDNA3.5",
    "gfx1200": "RDNA4",
    "gfx1201": "RDNA4",
}

#: Meanings of the numbers that only AMD's models have.
MEANINGS = {
    "max_waves_per_simd": "resident waves of a SIMD",
    "max_multi_wave_blocks_per_sm": "resident workgroups of several waves of a CU",
    "max_multi_wave_blocks_per_wgp": "resident workgroups of several waves of a WGP",
    "max_arch_vgprs_per_thread": "architectural vector registers of a thread",
    "max_acc_vgprs_per_thread": "accumulator registers of a thread",
    "arch_vgpr_alignment_vgprs": "multiple at which accumulator registers start",
    "has_unified_vgpr_file": "1 where both kinds of registers share a file, else 0",
    "wave32_vgprs_per_lane": "vector registers of a SIMD for each lane of a wave of 32",
    "wave32_alloc_granularity_vgprs": "step in which a wave of 32 is given its registers",
    "wave64_vgprs_per_lane": "vector registers of a SIMD for each lane of a wave of 64",
    "wave64_alloc_granularity_vgprs": "step in which a wave of 64 is given its registers",
    "max_sgprs_per_wave": "scalar registers of a wave",
    "sgprs_per_simd": "scalar registers of a SIMD",
    "sgpr_alloc_granularity_sgprs": "step in which a wave's scalar registers are given out",
    "sgprs_reserved_per_wave": "scalar registers that the trap handler takes of each wave",
    "smem_bytes_per_wgp": "LDS that a workgroup in WGP mode may use",
    "smem_llvm_granularity_bytes": "step in which LLVM counts a workgroup's LDS",
}


class Amd(Vendor):
    """AMD's GPUs, CDNA and RDNA."""

    name = "amd"
    title = "AMD"
    terms = Terms(
        sm="CU",
        sms="CUs",
        a_sm="a CU",
        partition="SIMD",
        block="workgroup",
        blocks="workgroups",
        warp="wave",
        warps="waves",
        smem="LDS",
        smem_column="LDS",
    )
    sm_type = AmdCu
    targets = TARGETS
    target_pattern = r"gfx(9|1\d)[0-9a-f]{2}"
    target_form = "'gfx', the generation and two digits, such as gfx942, without features"
    required_keys = ("device.num_xcds", "device.sms_per_xcd", "device.num_shader_engines")
    matrix_kinds = ("mfma", "wmma")
    occupancy_options = frozenset(
        {"accumulator_registers_per_thread", "sgprs_per_wave", "wgp_mode", "lds_granularity_bytes"}
    )
    units_file = Path(__file__).parent / "units.yaml"
    triton_backend = "hip"
    figures_file = Path(__file__).parent / "figures.yaml"
    assumed_file = Path(__file__).parent / "assumed.yaml"
    banks_file = Path(__file__).parent / "banks.yaml"
    meanings = MEANINGS

    def register_file(self, gpu: GpuModel) -> RegisterFile:
        """The vector registers that a SIMD has for each lane of a wave."""
        sm = _cu(gpu)
        return RegisterFile(
            capacity=sm.vgprs_per_lane(sm.warp_size),
            granularity=sm.vgpr_alloc_granularity(sm.warp_size),
            counted="vector registers per SIMD lane",
            per_thread=1,
            # On RDNA LLVM compiles for WGP mode: a workgroup's waves are dealt to the SIMDs of both CUs.
            partitions_per_block=sm.num_partitions * (1 if sm.max_multi_wave_blocks_per_wgp is None else 2),
            num_files=1 if sm.has_unified_vgpr_file or sm.max_acc_vgprs_per_thread is None else 2,
        )

    def occupancy_limits(self, gpu: GpuModel, use: KernelUse) -> ResourceLimits:
        """Workgroups per CU or WGP, and LLVM's waves per SIMD."""
        sm = _cu(gpu)
        mode = mode_of(gpu.name, sm, use)
        return resource_limits(sm, mode, use)

    def findings(self, gpu: GpuModel) -> Iterator[Finding]:
        """Matrix instructions of the target; dies, waves and register files that agree; keys that go together."""
        sm, device, l2 = _cu(gpu), gpu.device, gpu.memory.l2
        kind = "mfma" if gpu.arch.target.startswith("gfx9") else "wmma"
        others = sorted({instruction.kind for instruction in gpu.matrix.instructions} - {kind})
        if others:
            listed = ", ".join(others)
            yield "matrix.instructions", f"those of {gpu.arch.target} are of the kind {kind}; some here are {listed}"
        if device.sms_per_xcd is not None and device.num_xcds * device.sms_per_xcd != device.sm_count:
            yield "device.sm_count", "must be num_xcds times sms_per_xcd"
        if l2.size_bytes and l2.size_bytes_per_xcd and l2.size_bytes_per_xcd * device.num_xcds != l2.size_bytes:
            yield "memory.l2.size_bytes", "must be size_bytes_per_xcd times num_xcds"
        if sm.max_waves_per_simd * sm.num_partitions != sm.max_warps_per_sm:
            yield "sm.max_warps_per_sm", "must be max_waves_per_simd times num_partitions"
        for size, file in ((32, sm.wave32), (64, sm.wave64)):
            if (size in sm.warp_sizes) != (file is not None):
                yield f"sm.wave{size}", "must be stated for exactly the sizes in warp_sizes"
        if (sm.smem_bytes_per_wgp is None) != (sm.max_multi_wave_blocks_per_wgp is None):
            yield "sm.smem_bytes_per_wgp", "goes with max_multi_wave_blocks_per_wgp: both or neither"
        sgprs = (sm.sgprs_per_simd, sm.sgpr_alloc_granularity_sgprs, sm.sgprs_reserved_per_wave)
        if any(value is None for value in sgprs) and any(value is not None for value in sgprs):
            yield (
                "sm.sgprs_per_simd",
                "goes with sgpr_alloc_granularity_sgprs and sgprs_reserved_per_wave: all or none",
            )
        yield from _register_findings(sm)
        if sm.smem_bytes_per_wgp is not None and sm.smem_bytes_per_wgp != 2 * sm.smem_bytes_per_sm:
            yield "sm.smem_bytes_per_wgp", "must be twice smem_bytes_per_sm: a WGP is two CUs"
        if sm.max_multi_wave_blocks_per_sm > sm.max_blocks_per_sm:
            yield "sm.max_multi_wave_blocks_per_sm", f"exceeds max_blocks_per_sm, {sm.max_blocks_per_sm}"
        if sm.has_unified_vgpr_file and (sm.arch_vgpr_alignment_vgprs is None or sm.max_acc_vgprs_per_thread is None):
            yield "sm.arch_vgpr_alignment_vgprs", "a unified file needs it, and max_acc_vgprs_per_thread"

    def block_limits(self, gpu: GpuModel, use: KernelUse) -> list[BlockLimit]:
        """Each kind of vector registers has a cap of its own where a kernel uses both."""
        sm, acc = _cu(gpu), use.accumulator_registers_per_thread
        limits = super().block_limits(gpu, use)
        if not acc:
            return limits
        return [
            *(limit for limit in limits if limit.name != "registers_per_thread"),
            BlockLimit(
                "registers_per_thread", "arch VGPRs a thread", use.registers_per_thread, sm.max_arch_vgprs_per_thread
            ),
            BlockLimit(
                "accumulator_registers_per_thread", "accumulation VGPRs a thread", acc, sm.max_acc_vgprs_per_thread or 0
            ),
        ]

    def limit_rows(self, gpu: GpuModel) -> list[LimitRow]:
        """Waves, vector registers for either size of a wave, scalar registers."""
        sm = _cu(gpu)
        rows = [LimitRow("max_waves_per_simd", "waves", sm.max_waves_per_simd, "resident waves per SIMD")]
        for size in sm.warp_sizes:
            granularity = sm.vgpr_alloc_granularity(size)
            rows += [
                LimitRow("vgprs_per_lane", "32-bit", sm.vgprs_per_lane(size), f"VGPRs per SIMD lane, wave{size}"),
                LimitRow("vgpr_alloc_granularity", "32-bit", granularity, f"given to a wave{size} in steps of"),
            ]
        return [*rows, LimitRow("max_sgprs_per_wave", "32-bit", sm.max_sgprs_per_wave, "SGPRs that a wave can address")]

    def target_number(self, target: str) -> int:
        """Hexadecimal: gfx90a comes after gfx908."""
        return int(target.removeprefix("gfx"), 16)

    def device_facts(self, gpu: GpuModel) -> DeviceFacts:
        """RDNA: HIP counts WGPs, rocminfo CUs; threads and LDS are reported of either, in waves of either size."""
        sm = _cu(gpu)
        counts, memory = {gpu.device.sm_count}, {sm.smem_bytes_per_sm}
        threads = {sm.max_warps_per_sm * size for size in sm.warp_sizes}
        if sm.smem_bytes_per_wgp is not None:
            counts.add(gpu.device.sm_count // 2)
            threads |= {2 * n for n in threads}
            memory.add(sm.smem_bytes_per_wgp)
        return DeviceFacts(frozenset(counts), frozenset(threads), frozenset(memory))

    def traits(self, gpu: GpuModel) -> Traits:
        """MFMA and WMMA take square tiles of 16 or 32 rows and columns."""
        return Traits(
            has_async_copies=False,
            has_tensor_descriptors=False,
            has_inline_ptx=False,
            has_square_dots=True,
            smallest_dot_rows=16,
            smallest_dot_columns=16,
            wide_dot_dtype="fp32",
            deals_chained_dots_to_rows=True,
            deals_tall_dots_to_rows=False,
            least_pipelined_bytes=1,
            pipeline_stages=(2, 1, 3, 4, 5),
            product_library="hipBLASLt",
            compiler_knobs=("matrix_instr_nonkdim", "waves_per_eu", "kpack"),
            code_family=gpu.arch.target[:4],
        )

    def dot_unit(self, gpu: GpuModel, dtype: str) -> DotUnit | None:
        """MFMA or WMMA; of several instructions of one size, the smallest k decides which tiles can use any."""
        instructions = gpu.matrix_shapes(dtype)
        square = sorted(
            {(i.m[0], i.n[0], i.k) for i in instructions if i.m[0] in (16, 32) and i.m == i.n}, reverse=True
        )
        shapes = {shape[0]: shape for shape in square}
        kind = "mfma" if any(i.kind == "mfma" for i in instructions) else "wmma"
        return DotUnit(kind, tuple(shapes[m] for m in sorted(shapes)))


def _register_findings(sm: AmdCu) -> Iterator[Finding]:
    """Vector registers that divide, and that every wave slot and the largest wave can have."""
    for size, file in ((32, sm.wave32), (64, sm.wave64)):
        if file is None:
            continue
        path, unit, lanes = f"sm.wave{size}", file.alloc_granularity_vgprs, file.vgprs_per_lane
        if lanes % unit:
            yield f"{path}.vgprs_per_lane", f"must be a multiple of alloc_granularity_vgprs, {unit}"
        if unit * sm.max_waves_per_simd > lanes:
            rule = f"{sm.max_waves_per_simd} waves of it exceed vgprs_per_lane, {lanes}"
            yield f"{path}.alloc_granularity_vgprs", rule
        if sm.max_arch_vgprs_per_thread > lanes:
            yield "sm.max_arch_vgprs_per_thread", f"exceeds vgprs_per_lane of wave{size}, {lanes}"
    arch, acc = sm.max_arch_vgprs_per_thread, sm.max_acc_vgprs_per_thread
    most = arch + (acc or 0) if sm.has_unified_vgpr_file else arch
    if sm.max_registers_per_thread != most:
        yield (
            "sm.max_registers_per_thread",
            f"must be {most}, of max_arch_vgprs_per_thread and max_acc_vgprs_per_thread",
        )


def _cu(gpu: GpuModel) -> AmdCu:
    return cast(AmdCu, gpu.sm)


@dataclass(frozen=True)
class Mode:
    """Where a workgroup lives: a CU, or in WGP mode two of them; and how its waves are sized."""

    wave_size: int
    num_simds: int
    smem_bytes: int
    multi_wave_slots: int
    smem_granularity_bytes: int
    llvm_granularity_bytes: int


def mode_of(name: str, sm: AmdCu, kernel: KernelUse) -> Mode:
    """Choose the mode.

    Raises:
        UsageError: When the GPU has no waves of that size, no WGPs, or no accumulation registers.
    """
    if sm.max_acc_vgprs_per_thread is None and differs(kernel.accumulator_registers_per_thread, 0):
        raise UsageError(f"accumulator_registers_per_thread: {name} has no accumulation registers.")
    wave = sm.warp_size if kernel.wave_size is None else kernel.wave_size
    sm.vgprs_per_lane(wave)  # refuses a size that the GPU does not have
    granules = (
        kernel.lds_granularity_bytes or sm.smem_alloc_granularity_bytes,
        kernel.lds_granularity_bytes or sm.smem_llvm_granularity_bytes,
    )
    if not kernel.wgp_mode:
        return Mode(wave, sm.num_partitions, sm.smem_bytes_per_sm, sm.max_multi_wave_blocks_per_sm, *granules)
    if sm.smem_bytes_per_wgp is None or sm.max_multi_wave_blocks_per_wgp is None:
        raise UsageError("wgp_mode: this GPU has no WGPs; only RDNA does.")
    return Mode(wave, 2 * sm.num_partitions, sm.smem_bytes_per_wgp, sm.max_multi_wave_blocks_per_wgp, *granules)


def resource_limits(sm: AmdCu, mode: Mode, kernel: KernelUse) -> ResourceLimits:
    """Workgroups per CU (WGP) that each resource allows."""
    waves = -(-kernel.threads_per_block // mode.wave_size)
    max_waves = sm.max_waves_per_simd * mode.num_simds
    vgprs = _total_vgprs(sm, kernel)
    granularity = sm.vgpr_alloc_granularity(mode.wave_size)
    allocated = np.maximum(-(-vgprs // granularity), 1) * granularity
    by_vgprs = _between(sm.vgprs_per_lane(mode.wave_size) // allocated, sm.max_waves_per_simd)
    by_sgprs = _waves_by_sgprs(sm, kernel.sgprs_per_wave)
    slots = np.where(waves == 1, max_waves, mode.multi_wave_slots)
    too_large = kernel.threads_per_block > sm.max_threads_per_block
    by_smem, smem_bytes = _smem(sm, mode.smem_bytes, mode.smem_granularity_bytes, kernel.smem_bytes_per_block)
    return ResourceLimits(
        warps=np.where(too_large, 0, max_waves // waves),
        registers=np.where(_has_too_many(sm, kernel, vgprs), 0, by_vgprs * mode.num_simds // waves),
        smem=by_smem,
        blocks=slots,
        sgprs=np.where(by_sgprs < sm.max_waves_per_simd, by_sgprs * mode.num_simds // waves, UNLIMITED),
        warps_per_block=waves,
        registers_per_block=waves * mode.wave_size * allocated,
        smem_bytes_per_block=smem_bytes,
        max_warps_per_sm=max_waves,
        waves_per_simd=np.minimum(np.minimum(by_vgprs, by_sgprs), _llvm_waves_by_group(sm, mode, kernel, waves, slots)),
    )


def _between(waves: Any, most: int) -> Any:
    return np.minimum(np.maximum(waves, 1), most)


def _total_vgprs(sm: AmdCu, kernel: KernelUse) -> Any:
    """VGPRs that count: the sum in a unified file, with aligned accumulators; the larger one of two files."""
    arch, acc = kernel.registers_per_thread, kernel.accumulator_registers_per_thread
    if not sm.has_unified_vgpr_file:
        return np.maximum(arch, acc)
    alignment = sm.arch_vgpr_alignment_vgprs or 1
    return np.where(acc > 0, -(-arch // alignment) * alignment + acc, arch)


def _has_too_many(sm: AmdCu, kernel: KernelUse, vgprs: Any) -> Any:
    """Whether no wave can have these registers; where acc is 0, an arch count above its cap is the total."""
    acc_too_many = kernel.accumulator_registers_per_thread > (sm.max_acc_vgprs_per_thread or 0)
    arch_too_many = (kernel.accumulator_registers_per_thread > 0) & (
        kernel.registers_per_thread > sm.max_arch_vgprs_per_thread
    )
    return (vgprs > sm.max_registers_per_thread) | acc_too_many | arch_too_many


def _waves_by_sgprs(sm: AmdCu, sgprs: Any) -> Any:
    if sm.sgprs_per_simd is None or sm.sgpr_alloc_granularity_sgprs is None:
        return np.int64(sm.max_waves_per_simd)
    unit = sm.sgpr_alloc_granularity_sgprs
    allocated = -(-np.maximum(sgprs, 1) // unit) * unit + (sm.sgprs_reserved_per_wave or 0)
    return np.minimum(sm.max_waves_per_simd, sm.sgprs_per_simd // allocated)


def _smem(sm: AmdCu, pool_bytes: int, granularity_bytes: int, smem_bytes: Any) -> tuple[Any, Any]:
    used = -(-smem_bytes // granularity_bytes) * granularity_bytes
    blocks = np.where(used == 0, UNLIMITED, pool_bytes // np.maximum(used, 1))
    return np.where(smem_bytes > sm.max_smem_bytes_per_block, 0, blocks), used


def _llvm_waves_by_group(sm: AmdCu, mode: Mode, kernel: KernelUse, waves: Any, slots: Any) -> Any:
    """LLVM's waves per SIMD from workgroup size and LDS; never below 1."""
    groups = np.minimum(sm.max_waves_per_simd * mode.num_simds // waves, slots)
    unit = mode.llvm_granularity_bytes
    # Without LDS the quotient is the whole pool, more than there are groups.
    by_smem = mode.smem_bytes // np.maximum(-(-kernel.smem_bytes_per_block // unit) * unit, 1)
    return _between(-(-waves * np.minimum(groups, by_smem) // mode.num_simds), sm.max_waves_per_simd)
