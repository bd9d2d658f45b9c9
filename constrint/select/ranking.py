"""The result of `rank`: the workload and its candidates in order; as text, as a data frame, as a notebook's table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from constrint.hwmodels import GpuModel
from constrint.select.candidate import Candidate
from constrint.select.spec import Operation
from constrint.select.workload import Workload

#: Rows of a notebook's table, and candidates that `str` names.
_SHOWN_ROWS: Final = 10
_SHOWN_LINES: Final = 3


@dataclass(frozen=True)
class KernelSpace:
    """The space of one implementation for a workload.

    Args:
        kernel: Its full name.
        num_product: Configurations in the full product of all its parameters.
        num_valid: Configurations that satisfy every constraint.
        refusal: Why it cannot take the workload on this GPU; empty if it can.
        is_cut: Whether a limit ended its search, so that the refusal is no word on the kernel.
    """

    kernel: str
    num_product: int = 0
    num_valid: int = 0
    refusal: str = ""
    is_cut: bool = False


@dataclass(frozen=True, repr=False)
class Ranking:
    """The best configurations for one workload on one GPU; modelled, not measured.

    Args:
        operation: The operation with its implementations.
        candidates: The best configurations of all implementations, the best one first.
        spaces: The space of each implementation, in the operation's order.
        seconds: Wall time of stating, solving and ranking.
        roofline_s: Time that no implementation can beat.
        assumptions: Assumptions of the cost models where no source states a value.
        evidence: Measurements that times are made of or were held against, a sentence by full name of the kernel.
    """

    operation: Operation
    gpu: GpuModel
    workload: Workload
    candidates: tuple[Candidate, ...]
    spaces: tuple[KernelSpace, ...]
    seconds: float
    roofline_s: float
    assumptions: tuple[str, ...] = field(default=())
    evidence: Mapping[str, str] = field(default_factory=dict)

    @property
    def cut(self) -> tuple[KernelSpace, ...]:
        """The implementations whose search a limit ended: any of them may have the best configuration."""
        return tuple(space for space in self.spaces if space.is_cut)

    @property
    def num_product(self) -> int:
        """Configurations in the full products of all implementations that can take the workload."""
        return sum(space.num_product for space in self.spaces)

    def work_of(self, candidate: Candidate) -> tuple[int, int]:
        """Operations of the workload, 0 if they are not counted, and bytes that have to move once."""
        spec = self.operation.spec(candidate.kernel)
        return spec.num_operations(self.workload), spec.moved_bytes(self.workload)

    @property
    def rate_unit(self) -> str:
        """Unit of rates: TFLOP/s (TOP/s of integers) where arithmetic binds the roofline, else GB/s."""
        operations, moved_bytes = self.work_of(self.candidates[0])
        peak = self.gpu.peak_flop_per_s(self.workload.dtype)
        if not operations or not peak or operations / peak < moved_bytes / self.gpu.memory.dram.bandwidth_bytes_per_s:
            return "GB/s"
        return "TOP/s" if self.workload.dtype.startswith("int") else "TFLOP/s"

    def rate_of(self, candidate: Candidate) -> float:
        """A candidate's predicted rate, in `rate_unit`."""
        operations, moved_bytes = self.work_of(candidate)
        return (moved_bytes / 1e9 if self.rate_unit == "GB/s" else operations / 1e12) / candidate.cost.seconds

    @property
    def num_valid(self) -> int:
        """Configurations that satisfy every constraint of their implementation."""
        return sum(space.num_valid for space in self.spaces)

    def to_pandas(self) -> Any:
        """Every candidate as a row of a `pandas.DataFrame`, the best one first.

        The columns are `kernel`, one per parameter, the resources of a block, the predicted time, rates, and the
        parts of the time, with units in the names. A parameter that a
        kernel does not have is missing (NaN) in its rows.

        Raises:
            UsageError: When pandas is not installed.
        """
        from constrint.frames import columns_of, pandas_frame  # loaded at its first use

        return pandas_frame(columns_of(self.rows()))

    def to_polars(self) -> Any:
        """Every candidate as a row of a `polars.DataFrame`, with the columns of `to_pandas`.

        Raises:
            UsageError: When polars is not installed.
        """
        from constrint.frames import columns_of, polars_frame  # loaded at its first use

        return polars_frame(columns_of(self.rows()))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every candidate as plain values by name, the best one first; None where a value does not apply."""
        configs = [dict(self.operation.spec(c.kernel).values_of(c.config)) for c in self.candidates]
        params = dict.fromkeys(name for config in configs for name in config)
        for candidate, config in zip(self.candidates, configs, strict=True):
            own = {name: config.get(name) for name in params}
            yield {"kernel": candidate.kernel, **own, **_block(candidate), **self._times(candidate)}

    def _times(self, candidate: Candidate) -> dict[str, Any]:
        cost = candidate.cost
        operations, moved_bytes = self.work_of(candidate)
        parts = {f"part_{re.sub('[ -]', '_', name)}_s": seconds for name, seconds in cost.parts_s.items()}
        return {
            "predicted_s": cost.seconds,
            "op_per_s": operations / cost.seconds if operations else None,
            "bytes_per_s": moved_bytes / cost.seconds,
            "roofline_share": cost.roofline_share,
            "bound_by": cost.bound_by,
            **parts,
        }

    def __repr__(self) -> str:
        return f"<Ranking: {self._summary()}>"

    def __str__(self) -> str:
        """Render the workload and the first candidates, one per line."""
        lines = [f"{place}. {candidate}" for place, candidate in enumerate(self.candidates[:_SHOWN_LINES], 1)]
        rest = len(self.candidates) - _SHOWN_LINES
        return "\n".join([self._summary(), *lines, *([f"... {rest:,} more"] if rest > 0 else [])])

    def _summary(self) -> str:
        valid = f"{self.num_valid:,} of {self.num_product:,} configs are valid"
        return f"{self.workload} on {self.gpu.name}: {valid}, the best {len(self.candidates):,} ranked by the model"

    def _repr_html_(self) -> str:
        """Render the first candidates as a table for notebooks: differing parameters and times."""
        from constrint.frames import html_table  # loaded at its first use

        shown = self.candidates[:_SHOWN_ROWS]
        rows = list(self.rows())[: len(shown)]
        figures = {"smem_bytes_per_block", "registers_per_thread", "blocks_per_sm", "limited_by", "bound_by"}
        last = list(rows[0]).index("num_variants")
        settings = list(rows[0])[:last]
        differing = [n for n in settings if any(row[n] != rows[0][n] for row in rows)] if len(rows) > 1 else settings
        same = ", ".join(f"{n} = {rows[0][n]}" for n in settings if n not in differing)
        names = [*differing, *(name for name in rows[0] if name in figures)]
        headers = ["", *names, "predicted_us", self.rate_unit]
        cells = [
            [at, *(row[n] for n in names), f"{1e6 * c.cost.seconds:,.1f}", f"{self.rate_of(c):,.1f}"]
            for at, (row, c) in enumerate(zip(rows, shown, strict=True))
        ]
        hidden = len(self.candidates) - len(shown)
        notes = [f"the same in all rows: {same}" if same else "", f"... {hidden:,} more" if hidden else ""]
        return html_table(self._summary(), headers, cells, more="; ".join(filter(None, notes)))


def block_of(candidate: Candidate) -> dict[str, Any]:
    """Resources of a candidate's block, by their names in documents and data frames."""
    use = candidate.resources
    return {
        "num_variants": candidate.num_variants,
        "threads_per_block": use and use.threads,
        "registers_per_thread": use and use.registers_per_thread,
        "smem_bytes_per_block": use and use.smem_bytes,
        "blocks_per_sm": use and use.blocks_per_sm,
        "limited_by": use and use.limited_by,
        "spill_chance": use and use.spill_chance,
        "registers_error_percent": use and use.error_percent,
    }


def _block(candidate: Candidate) -> dict[str, Any]:
    """Resources of a candidate's block, the compiler's figures where it was compiled."""
    use = candidate.resources
    return block_of(candidate) | {
        "is_compiled": use is not None and use.compiled is not None,
        "problem": candidate.problem,
    }


def runs(candidate: Candidate) -> bool:
    """Whether a candidate can be launched, by its compiled figures if there are any."""
    return candidate.resources is None or candidate.resources.blocks_per_sm > 0


def lateness(candidate: Candidate, gpu: GpuModel) -> int:
    """Return 0 for a candidate that fits, 1 for one that may exceed a block's shared memory, 2 for one that cannot run.

    Whatever the predicted time, the later ones come after the earlier ones.
    """
    if not runs(candidate):
        return 2
    use = candidate.resources
    return int(use is not None and use.smem_bytes > gpu.sm.max_smem_bytes_per_block)
