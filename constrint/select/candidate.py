"""A candidate: a valid configuration, the resources of its blocks, the compiler's figures, its predicted time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Config = Mapping[str, int]


@dataclass(frozen=True)
class Candidate:
    """A valid configuration of one implementation with its estimates.

    It is the best of `num_variants` valid configurations that differ only in the order of blocks and in parameters
    that the model cannot tell apart.

    Args:
        kernel: The implementation's full name, `gemm.pointer`.
        config: A value for each of its parameters.
        resources: Resources of a block; None for an implementation that is no single kernel.
        cost: The predicted time.
        num_variants: Number of configurations that it represents.
        problem: Why it is unusable as compiled: it spills, does not fit, or the compiler refuses it; else empty.
    """

    kernel: str
    config: Config
    resources: ResourceUse | None
    cost: CostEstimate
    num_variants: int
    problem: str = ""

    def __str__(self) -> str:
        """Render as `gemm.pointer tile_m=128 ...: 145.2 us, bound by matrix, 2 blocks per SM (registers)`."""
        config = " ".join(f"{name}={value}" for name, value in self.config.items())
        parts = [f"{1e6 * self.cost.seconds:,.1f} us", f"bound by {self.cost.bound_by}"]
        if self.resources is not None:
            blocks = self.resources.blocks_per_sm
            parts.append(f"{blocks} block{'' if blocks == 1 else 's'} per SM ({self.resources.limited_by})")
        parts += [self.problem] if self.problem else []
        return f"{' '.join(filter(None, (self.kernel, config)))}: {', '.join(parts)}"


@dataclass(frozen=True)
class ResourceUse:
    """Estimated resources of one block of a configuration, and the blocks that fit on one SM.

    Args:
        threads: Threads of a block.
        registers_per_thread: 32-bit registers; no more than the compiler may give a thread.
        smem_bytes: Shared memory of a block.
        blocks_per_sm: Blocks that reside on one SM at once.
        limited_by: The resources that limit `blocks_per_sm`.
        spill_chance: The chance that the compiler spills registers to memory, 0 to 1; once compiled it is 0 or 1.
        error_percent: Error that one register estimate in ten exceeds, in percent; 0 where nothing is estimated.
        compiled: The compiler's figures, where it was compiled: the other fields follow from them.
    """

    threads: int
    registers_per_thread: int
    smem_bytes: int
    blocks_per_sm: int
    limited_by: str
    spill_chance: float = 0.0
    error_percent: int = 0
    compiled: CompiledKernel | None = None


@dataclass(frozen=True)
class CompiledKernel:
    """Resources of a compiled kernel, as the compiler reports them.

    Args:
        target: Target of the compilation, `sm_90` or `gfx942`.
        triton_version: The compiler's version; with its name, `nvrtc 13.0`, where it is not Triton.
        smem_bytes: Shared memory (LDS) of one block.
        registers_per_thread: 32-bit registers; on CDNA2 and later the total of the unified file.
        accumulator_registers: AGPRs on CDNA, contained in the total where the file is unified.
        spill_bytes: Bytes per thread spilled to memory.
        instruction: The matrix instruction in use; empty if there is none.
    """

    target: str
    triton_version: str
    smem_bytes: int
    registers_per_thread: int
    accumulator_registers: int
    spill_bytes: int
    instruction: str

    @property
    def compiler(self) -> str:
        """The compiler's name and version."""
        return self.triton_version if self.is_named else f"triton {self.triton_version}"

    @property
    def is_named(self) -> bool:
        """Whether it was compiled by another compiler than Triton, whose name then stands before the version."""
        return " " in self.triton_version


@dataclass(frozen=True)
class CostEstimate:
    """A modelled run time, the resource that binds it, and its parts."""

    seconds: float
    bound_by: str
    roofline_share: float
    parts_s: Mapping[str, float] = field(default_factory=dict)
