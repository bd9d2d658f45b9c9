"""What AMD answers where vendors differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from constrint.hwmodels.occupancy.inputs import KernelUse
from constrint.hwmodels.occupancy.limits import Limits
from constrint.hwmodels.schema import GpuModel
from constrint.hwmodels.vendors.amd import occupancy
from constrint.hwmodels.vendors.amd.sm import AmdCu
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

#: The family of each target that constrint knows.
TARGETS = {
    "gfx908": "CDNA1",
    "gfx90a": "CDNA2",
    "gfx942": "CDNA3",
    "gfx950": "CDNA4",
    "gfx1100": "RDNA3",
    "gfx1101": "RDNA3",
    "gfx1102": "RDNA3",
    "gfx1200": "RDNA4",
    "gfx1201": "RDNA4",
}

#: What the numbers are that only AMD's models have.
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
    triton_backend = "hip"
    figures_file = Path(__file__).parent / "figures.yaml"
    assumed_file = Path(__file__).parent / "assumed.yaml"
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

    def occupancy_limits(self, gpu: GpuModel, use: KernelUse) -> Limits:
        """Workgroups per CU or WGP, and LLVM's waves per SIMD."""
        sm = _cu(gpu)
        mode = occupancy.mode_of(gpu.name, sm, use)
        return occupancy.limits(sm, mode, use)

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
            pipeline_stages=(2, 1, 3, 4),
            compiler_knobs=("matrix_instr_nonkdim", "waves_per_eu", "kpack"),
            code_family=gpu.arch.target[:4],
        )

    def dot_unit(self, gpu: GpuModel, dtype: str) -> DotUnit | None:
        """MFMA or WMMA; of several instructions of one size, the smallest k decides which tiles can use any."""
        known = gpu.matrix_shapes(dtype)
        square = sorted({(i.m[0], i.n[0], i.k) for i in known if i.m[0] in (16, 32) and i.m == i.n}, reverse=True)
        shapes = {shape[0]: shape for shape in square}
        kind = "mfma" if any(i.kind == "mfma" for i in known) else "wmma"
        return DotUnit(kind, tuple(shapes[m] for m in sorted(shapes)))


def _cu(gpu: GpuModel) -> AmdCu:
    return cast(AmdCu, gpu.sm)
