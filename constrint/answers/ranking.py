"""A ranking as a page and as JSON: a row per configuration, the best one in full, and how far to trust the figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import takewhile
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from constrint.answers.question import Question
from constrint.answers.table import EXTRA, Cell, Column, Page, Table, pairs_text
from constrint.select import Candidate, Ranking, ResourceUse
from constrint.select.rank import KernelProblem
from constrint.select.ranking import block_of

#: Digits behind the point of microseconds in tables.
TIME_DIGITS = 1
#: Default number of configurations that `constrint verify` compiles.
VERIFIED = 10
#: Short forms of `bound_by` in tables; other formats print the full names.
SHORT_PARTS = {
    "matrix units": "matrix",
    "vector units": "vector",
    "shared memory": "smem",
    "special functions": "SFU",
    "load issue": "issue",
    "wave quantisation": "waves",
    "last-level cache": "LLC",
}


class RankedConfig(msgspec.Struct, kw_only=True):
    """A configuration of a ranking; resources are None for a composition of kernels.

    Args:
        kernel, config: The implementation's full name, and the value of each parameter.
        num_variants: Number of configurations, this one included, that the model cannot distinguish.
        compiled: The compiler's figures; None if it was not compiled.
        problem: The reason why the compiled kernel cannot run or spills; empty without one.
        predicted_s: The modelled time.
        op_per_s, bytes_per_s: Rates that follow from the time; `op_per_s` is None without counted operations.
        roofline_share: The roofline's time over the modelled time.
        bound_by, parts_s: The resource that binds the time, and the time of each resource alone.
    """

    kernel: str
    config: dict[str, Any]
    num_variants: int
    threads_per_block: int | None
    registers_per_thread: int | None
    smem_bytes_per_block: int | None
    blocks_per_sm: int | None
    limited_by: str | None
    spill_chance: float | None
    registers_error_percent: int | None
    compiled: dict[str, Any] | None
    problem: str
    predicted_s: float
    op_per_s: float | None
    bytes_per_s: float
    roofline_share: float
    bound_by: str
    parts_s: dict[str, float]

    @classmethod
    def of(cls, ranking: Ranking, candidate: Candidate) -> RankedConfig:
        """The result of a candidate."""
        use, cost = candidate.resources, candidate.cost
        operations, moved_bytes = ranking.work_of(candidate)
        return cls(
            kernel=candidate.kernel,
            config=dict(candidate.config),
            **block_of(candidate),
            compiled=None if use is None or use.compiled is None else asdict(use.compiled),
            problem=candidate.problem,
            predicted_s=cost.seconds,
            op_per_s=operations / cost.seconds if operations else None,
            bytes_per_s=moved_bytes / cost.seconds,
            roofline_share=cost.roofline_share,
            bound_by=cost.bound_by,
            parts_s=dict(cost.parts_s),
        )


class RankingResult(msgspec.Struct, kw_only=True):
    """A ranking as `constrint docs json` describes it: the request, the size of the space, and the candidates.

    Args:
        kernel, gpu, target, sizes, options, dtype: The request; `options` is absent without any.
        figures: `compiled` if a compiler stated the resources of any candidate, else `modelled`.
        num_product, num_valid: Configurations in the full product, and valid ones.
        seconds: Time of the ranking itself.
        roofline_s: The time that no implementation can beat.
        assumptions: The assumptions of the cost model, a sentence each.
        evidence: Measurements that times are made of or were held against, a sentence by kernel.
        kernels: The space of each implementation.
        candidates: The best configurations, the best one first.
    """

    kernel: str
    gpu: str
    target: str
    sizes: dict[str, int]
    options: dict[str, int] | UnsetType = UNSET
    dtype: str
    figures: str
    num_product: int
    num_valid: int
    seconds: float
    roofline_s: float
    assumptions: list[str]
    evidence: dict[str, str]
    kernels: list[dict[str, Any]]
    candidates: list[RankedConfig]

    @classmethod
    def of(cls, ranking: Ranking) -> RankingResult:
        """The result of a ranking."""
        workload = ranking.workload
        return cls(
            kernel=ranking.operation.name,
            gpu=ranking.gpu.name,
            target=ranking.gpu.arch.target,
            sizes=dict(workload.sizes),
            options=dict(workload.options) or UNSET,
            dtype=workload.dtype,
            figures="compiled" if any(map(is_compiled, ranking.candidates)) else "modelled",
            num_product=ranking.num_product,
            num_valid=ranking.num_valid,
            seconds=ranking.seconds,
            roofline_s=ranking.roofline_s,
            assumptions=list(ranking.assumptions),
            evidence=dict(ranking.evidence),
            kernels=[asdict(space) for space in ranking.spaces],
            candidates=[RankedConfig.of(ranking, candidate) for candidate in ranking.candidates],
        )


def ranking_page(question: Question, ranking: Ranking, top: int) -> Page:
    """The page of a ranking, without the JSON document; the items of its table are the candidates.

    Args:
        question: The question.
        ranking: The ranking.
        top: The value of `--top`.
    """
    gpu, rows = ranking.gpu, ranking.candidates
    figures = _figures(ranking)
    keys = [column.key for column in figures]
    config = ConfigColumns(rows, question.requests, keys)
    place = Column("place", "#", meaning="the row's place by predicted time", importance=100)
    cells = [[at, *config.cells(row), *map(figure_cells(ranking, row).get, keys)] for at, row in enumerate(rows, 1)]
    title = question.title_of(config.kernels)
    best = rows[0]
    named = f"{best.kernel} " if len(config.kernels) > 1 or not best.config else ""
    command = ["constrint", "verify", *question.arguments, *(["--top", str(top)] if top != VERIFIED else [])]
    return Page(
        Table((place, *config.columns, *figures), cells, items=rows, best=(0,)),
        above=[
            f"{title} ({gpu.arch.target}, {gpu.device.sm_count} {gpu.terms.sms})",
            *([_DEFAULT.format(ranking.operation.name)] if question.is_default else []),
            f"{ranking.num_product:,} configs in the full product, {ranking.num_valid:,} valid, "
            f"ranked in {ranking.seconds * 1e3:.0f} ms",
        ],
        answer=[f"best: {named}{pairs_text(best.config)}".rstrip(), *_ties(rows)],
        below=list(_below(question, ranking)),
        hints=[("to compile them (no GPU needed):", command)] if _modelled(rows) else [],
        legend=list(_legend(ranking)),
    )


def _ties(rows: Sequence[Candidate]) -> Iterator[str]:
    """The sentence that later rows have the best one's time."""
    best = time_text(rows[0].cost.seconds)
    tied = len(list(takewhile(lambda row: time_text(row.cost.seconds) == best, rows)))
    if tied > 1:
        yield (
            f"rows 1 to {tied} tie at {best} us (modelled): only a measurement tells which is fastest; row 1 has the "
            "values that its kernel prefers"
        )


def _modelled(rows: Sequence[Candidate]) -> list[Candidate]:
    """The candidates whose resources are estimates."""
    return [row for row in rows if row.resources is not None and not is_compiled(row)]


def _figures(ranking: Ranking) -> tuple[Column, ...]:
    """The columns behind a configuration."""
    terms, bounds = ranking.gpu.terms, dict.fromkeys(row.cost.bound_by for row in ranking.candidates)
    short = ", ".join(f"{SHORT_PARTS[bound]}: {bound}" for bound in bounds if bound in SHORT_PARTS)
    binds = "the resource that binds" + (f" ({short})" if short else "")
    rates = {
        "op_per_s": Column("op_per_s", "op/s", meaning="operations over the modelled time", importance=EXTRA),
        "bytes_per_s": Column("bytes_per_s", "B/s", meaning="compulsory bytes over that time", importance=EXTRA),
    }
    unit = ranking.rate_unit
    key, scale = ("bytes_per_s", 1e9) if unit == "GB/s" else ("op_per_s", 1e12)
    rates[key] = replace(
        rates[key], title=unit, importance=35, show=lambda rate: f"{rate / scale:.{0 if rate >= 100 * scale else 1}f}"
    )
    return (
        Column("threads_per_block", "threads", meaning="threads a block", importance=EXTRA),
        Column("smem_bytes_per_block", terms.smem_column, "bytes a block", f"bytes of {terms.smem} that a block takes"),
        Column("registers_per_thread", "regs", meaning="registers a thread; ~ where they are estimated"),
        Column("registers_error_percent", "error", meaning=ERROR, importance=EXTRA, show=lambda error: f"{error} %"),
        Column("spill_chance", "spill", "chance that registers go to memory", SPILL, importance=55),
        Column("spill_bytes", meaning="bytes a thread that the compiler spills", importance=EXTRA),
        Column(
            "blocks_per_sm", "blk", f"blocks {terms.a_sm}", f"blocks that reside {terms.a_sm} at once", importance=40
        ),
        Column("limited_by", "limit", "what limits blk", "what limits these blocks", True, importance=20, show=_limit),
        Column("predicted_s", "us", meaning="modelled time, in microseconds here", importance=92, show=time_text),
        *rates.values(),
        Column(
            "roofline_share",
            "roof",
            "share of the roofline",
            ROOFLINE,
            importance=25,
            show=lambda share: f"{share:.0%}",
        ),
        Column(
            "bound_by",
            "bound",
            "what limits the time",
            binds,
            is_text=True,
            importance=52,
            show=lambda b: SHORT_PARTS.get(b, b),
        ),
        Column("num_variants", "equal", meaning=VARIANTS, importance=EXTRA),
        Column("figures", meaning="whether resources are modelled or compiled", is_text=True, importance=EXTRA),
        Column("problem", meaning="what is wrong with it as compiled", is_text=True, wraps=True, importance=EXTRA),
    )


_DEFAULT = "no --kernel was named, so {} is meant; `constrint kernels` lists all"
ERROR = "what one register estimate in ten is off by at least, in percent"
SPILL = "the chance that registers go to memory; no, or bytes a thread, where compiled"
ROOFLINE = "the roofline's time over the modelled time"
VARIANTS = "configs that the model cannot tell apart; the row is their best"


def time_text(seconds: float) -> str:
    """A time in microseconds: `123.4`."""
    return f"{seconds * 1e6:.{TIME_DIGITS}f}"


def _limit(limited_by: str) -> str:
    return limited_by.replace("registers", "regs").replace("shared memory", "smem")


def figure_cells(ranking: Ranking, row: Candidate) -> dict[str, Any]:
    """The fields of `RankedConfig` as cells: estimates of registers and spills are marked."""
    cells = msgspec.structs.asdict(RankedConfig.of(ranking, row))
    if row.resources is not None:
        cells["registers_per_thread"] = registers_cell(row.resources)
        cells["spill_chance"] = Cell(row.resources.spill_chance, spill_text(row.resources))
    cells["problem"] = row.problem or None
    cells["figures"] = "compiled" if is_compiled(row) else "modelled"
    cells["spill_bytes"] = row.resources.compiled.spill_bytes if row.resources and row.resources.compiled else None
    return cells


def registers_cell(use: ResourceUse) -> Cell:
    """Registers per thread; an estimate is marked with `~`."""
    mark = "" if use.compiled is not None or not use.error_percent else "~"
    return Cell(use.registers_per_thread, f"{mark}{use.registers_per_thread}")


def spill_text(use: ResourceUse) -> str:
    """Spills in a table: their chance, or the compiled bytes per thread."""
    if use.compiled is not None:
        return f"{use.compiled.spill_bytes} B" if use.compiled.spill_bytes else "no"
    if not use.error_percent:
        return "no"
    return "<1%" if use.spill_chance < 0.01 else f"{use.spill_chance:.0%}"


def _below(question: Question, ranking: Ranking) -> Iterator[str]:
    """The lines below the table: problems of rows, kernels without rows, and how far to trust the figures."""
    rows = ranking.candidates
    yield from (f"row {place} {row.problem}" for place, row in enumerate(rows, 1) if row.problem)
    yield from question.notes
    for space in ranking.spaces:
        if not space.refusal and not space.num_valid:
            yield f"not {space.kernel}: no config satisfies every rule (`constrint explain` says why)"
    if ranking.cut:
        names = ", ".join(space.kernel for space in ranking.cut)
        yield f"not ranked, and perhaps better: {names}; {ranking.cut[0].refusal}"
    yield from _measured(ranking)
    others = _modelled(rows)
    estimated = [row for row in others if row.resources is not None and row.resources.error_percent]
    mark = f"~ is estimated, off by more than {_error(estimated)} one time in ten; " if estimated else ""
    yield f"{mark}times are modelled, not measured (--legend says what they rest on, and what all columns mean)."


def _measured(ranking: Ranking) -> Iterator[str]:
    """The tables that answered for rows without a configuration: libraries, whose times are measured ones."""
    for kernel in dict.fromkeys(row.kernel for row in ranking.candidates if not row.config):
        if text := ranking.evidence.get(kernel):
            yield text


def _legend(ranking: Ranking) -> Iterator[str]:
    """The lines of `--legend`."""
    equal = max(row.num_variants for row in ranking.candidates)
    if equal > 1:
        yield f"each row stands for up to {equal} configs that the model cannot tell apart"
    if ranking.assumptions:
        yield "assumed: " + "; ".join(ranking.assumptions)
    yield from dict.fromkeys(text for kernel, text in ranking.evidence.items())
    yield f"`constrint docs checking` says how to time them on a {ranking.gpu.name}."


def _error(candidates: Sequence[Candidate]) -> str:
    """The error bands of the register estimates: `18 %`, or `18 to 32 %`."""
    errors = sorted({row.resources.error_percent for row in candidates if row.resources is not None} - {0})
    return f"{errors[0]} %" if len(errors) == 1 else f"{errors[0]} to {errors[-1]} %"


#: Parameters with this prefix share one column of a table.
TILE = "tile"


class ConfigColumns:
    """The columns of some configurations: the kernel, and all parameters of their kernels.

    Kernels have different parameters; a row has no value for a parameter that its kernel lacks.

    Attributes:
        columns: The columns from left to right: tile sizes joined in one, then the other parameters.
        kernels: Full names of the kernels.
    """

    def __init__(
        self, rows: Sequence[Candidate], requests: Iterable[KernelProblem], taken: Collection[str] = ()
    ) -> None:
        """Make the columns, with the titles and meanings that the kernels give their parameters.

        Args:
            rows: The configurations.
            requests: The kernels with their workloads.
            taken: Keys of the table's other columns; a parameter with such a name gets the key `config.NAME`.
        """
        self.kernels = {row.kernel for row in rows}
        self._names = list(dict.fromkeys(name for row in rows for name in row.config))
        self._params = {p.name: p for request in requests for p in request.spec.params(request.gpu, request.workload)}
        self._taken = {"kernel", *taken}
        kernel = Column("kernel", is_text=True, importance=95 if len(self.kernels) > 1 else EXTRA)
        tiles = [name for name in self._names if name.startswith(f"{TILE}_")]
        self._names = [*tiles, *(name for name in self._names if name not in tiles)]
        self.columns = (kernel, *map(self._column, self._names))

    def _column(self, name: str) -> Column:
        param = self._params.get(name)
        title, meaning = (param.title, param.meaning) if param is not None else ("", "")
        key = f"config.{name}" if name in self._taken else name
        if name.startswith(f"{TILE}_"):
            return Column(key, name.removeprefix(f"{TILE}_"), "", meaning, importance=95, joined=TILE)
        return Column(key, title or name, name if title else "", meaning, importance=90, is_shared=True)

    def cells(self, row: Candidate) -> list[Any]:
        """The cells of one row; None for a parameter that its kernel lacks."""
        return [Cell(row.kernel, row.kernel.rpartition(".")[2]), *(row.config.get(name) for name in self._names)]


def is_compiled(candidate: Candidate) -> bool:
    """Whether a compiler stated the candidate's resources."""
    return candidate.resources is not None and candidate.resources.compiled is not None
