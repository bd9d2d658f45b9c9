"""The GEMM's sample of compiled kernels: random configurations from its space and from just beyond its limits.

The tables say whether the space is the true one: what it calls valid must launch without spilling, and what only the
shared-memory rule excludes must really be over. The register weights are fitted to them.
`tests/kernels/gemm/test_space_compiled.py` checks the recorded table and a fresh sample. The draws:

    valid   from the valid space
    free    from the space without the rules on registers, accumulators within REGISTER_RIM of the limit
    smem    only shared memory excludes it, by no more than SMEM_RIM
    near    valid, and estimated to take nearly as many registers as there are, or somewhat more
    ranked  among the model's first choices per dtype and shape, if registers were no limit
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product as combinations
from typing import Any

from benchmarks.resources.estimate import SampledKernel
from benchmarks.resources.sample import DrawRequest, KernelSample, Row, SampleRequest
from constrint.errors import InfeasibleError, UnsupportedError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.descriptor.spec import DescriptorSpec
from constrint.kernels.gemm.pointer.spec import PointerSpec
from constrint.kernels.gemm.product import Product, has_tma
from constrint.kernels.gemm.rules import TermKind, families, kinds_of, register_terms
from constrint.kernels.gemm.spec import GemmSpec
from constrint.kernels.gemm.units import ELEMENT_BYTES, async_share, unit
from constrint.model import Domain, Expr, Problem, Var, const
from constrint.select import Operation, Workload
from constrint.select.limits import most_registers
from constrint.select.rank import KernelProblem as Ask
from constrint.select.rank import rank_requests
from constrint.solve import SearchSpace, enumerate_space

#: Target and a GPU of it: those that the rules are claimed for, and others.
TARGETS = {
    "sm_80": "a100-sxm4-80gb",
    "sm_90": "h200",
    "sm_100": "b200",
    "gfx90a": "mi210",
    "gfx942": "mi300x",
    "gfx950": "mi355x",
}
OTHERS = {
    "sm_75": "t4",
    "sm_86": "rtx-3090",
    "sm_89": "rtx-4090",
    "sm_120": "rtx-5090",
    "gfx908": "mi100",
    "gfx1100": "rx-7900-xtx",
    "gfx1201": "rx-9070-xt",
}
#: Square, wide, decode, ragged in every size, in K alone, rows of 8 and of 4 bytes.
SHAPES = (
    (4096, 4096, 4096),
    (16384, 3072, 768),
    (16, 8192, 8192),
    (333, 777, 1555),
    (1024, 1024, 1000),
    (512, 1028, 2052),
    (1000, 1030, 1030),
)
#: Rules on the registers of a block.
REGISTER_LIMITS = ("registers", "register_file")
#: Rules on the resources of a block; all other rules decide whether a configuration is a GEMM at all.
LIMITS = ("threads", "smem", *REGISTER_LIMITS)
#: Beyond the limit means up to this much of it: shared memory, and registers (the compiler takes minutes for more).
SMEM_RIM, REGISTER_RIM = 1.35, 1.3
#: Sums of a thread in a fair draw, in registers that it may have.
FAIR_SUMS = 2
#: Registers of a near draw, of the most that a thread may have.
NEAR = 0.65, 1.25
#: Draws after which a kind of row counts as one that does not exist.
MOST_TRIES = 30000
#: Parameters that decide the registers.
PARAMS = ("tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "split_k", "persistent")
VARIABLES = {name: Var(name) for name in PARAMS}

#: The kernels whose registers are fitted, by the column `descriptor` of the tables.
SPECS: tuple[GemmSpec, GemmSpec] = (PointerSpec(), DescriptorSpec())

Sizes = tuple[int, int, int]


@lru_cache(maxsize=512)
def problem_of(target: str, dtype: str, sizes: Sizes, without: tuple[str, ...], descriptor: int = 0) -> Problem | None:
    """A kernel's problem without some rules and with one order of tiles, which decides nothing that is compiled."""
    gpu, workload, spec = load_gpu(SAMPLE.targets[target]), workload_of(dtype, sizes), SPECS[descriptor]
    try:
        spec.check_workload(gpu, workload)
    except (UnsupportedError, InfeasibleError):
        return None
    problem = spec.problem(gpu, workload)
    problem = problem.without(*({c.name for c in problem.constraints} & set(without)))
    return fixed(problem, {"group_m": 1})


@lru_cache(maxsize=512)
def space_of(
    target: str, dtype: str, sizes: Sizes, without: tuple[str, ...], fix: tuple[tuple[str, int], ...], descriptor: int
) -> SearchSpace | None:
    """The solutions of `problem_of` with some parameters fixed."""
    problem = problem_of(target, dtype, sizes, without, descriptor)
    return None if problem is None else enumerate_space(fixed(problem, dict(fix)))


def workload_of(dtype: str, sizes: Sizes) -> Workload:
    """A product of these sizes."""
    return Workload("gemm", dict(zip("mnk", sizes, strict=True)), dtype)


def fixed(problem: Problem, values: Mapping[str, int]) -> Problem:
    """The problem with single values for those of the parameters that it has."""
    for name in values.keys() & problem.variables.keys():
        problem = problem.with_domain(name, Domain.from_values([values[name]]))
    return problem


def draw_valid(request: DrawRequest) -> Iterator[Row]:
    """Random valid configurations of random dtypes and shapes."""
    while True:
        yield _draw(request.target, request.rng, request.fix, ())


def draw_free(request: DrawRequest) -> Iterator[Row]:
    """Random configurations of either kernel with any number of registers, short of those that compile for minutes."""
    gpu = load_gpu(SAMPLE.targets[request.target])
    while True:
        descriptor = request.rng.choice([0, 1]) if has_tma(gpu) else 0
        both = {"waves_per_eu": 0, "descriptor": descriptor} | dict(request.fix)
        row = _draw(request.target, request.rng, both, REGISTER_LIMITS)
        num_threads = row["num_warps"] * gpu.sm.warp_size
        sums = row["tile_m"] * row["tile_n"] // num_threads
        operands = (row["tile_m"] + row["tile_n"]) * row["tile_k"] * ELEMENT_BYTES[row["dtype"]]
        limit = limit_of(request.target, row["num_warps"])
        if sums <= limit and sums + operands // (4 * num_threads) / 2 <= REGISTER_RIM * limit:
            yield row


def draw_fair(request: DrawRequest) -> Iterator[Row]:
    """Random configurations whatever they take: a random shape each, of a random kernel unless one is named."""
    gpu, rng = load_gpu(SAMPLE.targets[request.target]), request.rng
    kernels = [0, 1] if has_tma(gpu) else [0]
    if "descriptor" in request.fix:
        kernels = [kernel for kernel in kernels if kernel == request.fix["descriptor"]]
    while kernels:
        dtype, kernel = rng.choice(SPECS[0].dtypes), rng.choice(kernels)
        sizes = _any_size(rng), _any_size(rng), _any_size(rng)
        problem = problem_of.__wrapped__(request.target, dtype, sizes, LIMITS, kernel)
        if problem is None:
            continue
        space = enumerate_space(problem)
        use = SPECS[kernel].use(gpu, workload_of(dtype, sizes), {name: Var(name) for name in problem.variables})
        for config in space.sample(min(space.size, 8), rng.randrange(2**31)) if space.size and use else ():
            limit = limit_of(request.target, config["num_warps"])
            sums = config["tile_m"] * config["tile_n"] // (config["num_warps"] * gpu.sm.warp_size)
            if (
                sums <= FAIR_SUMS * limit
                and use.smem_stated.value(config) <= SMEM_RIM * gpu.sm.max_smem_bytes_per_block
            ):
                yield _row(request.target, dtype, sizes, config, kernel)
                break


def draw_near(request: DrawRequest) -> Iterator[Row]:
    """Random valid configurations whose estimate is near the most that a thread may have: where the curve is steep."""
    gpu, rng = load_gpu(SAMPLE.targets[request.target]), request.rng
    least, most = NEAR
    while True:
        kernel = rng.choice([0, 1]) if has_tma(gpu) else 0
        fix = {"waves_per_eu": 0, "descriptor": kernel} | dict(request.fix)
        row = _draw(request.target, rng, fix, ())
        _, spec, workload, config = request_of(row)
        use = spec.use(gpu, workload, {name: Var(name) for name in config})
        if use is not None:
            share = use.registers_per_thread.value(config) / most_registers(gpu, use.warps).value(config)
            if least <= share <= most:
                yield row


def _any_size(rng: random.Random) -> int:
    """A size up to 8192 of any order of magnitude; every other one is a multiple of 16."""
    size = int(2 ** rng.uniform(4, 13))
    return size // 16 * 16 if rng.random() < 0.5 else size


def draw_smem(request: DrawRequest) -> Iterator[Row]:
    """Random configurations that shared memory alone excludes, by no more than SMEM_RIM."""
    most = load_gpu(SAMPLE.targets[request.target]).sm.max_smem_bytes_per_block
    for _ in range(request.number * MOST_TRIES):
        row = _draw(request.target, request.rng, request.fix, LIMITS)
        gpu, spec, workload, config = request_of(row)
        problem = problem_of(request.target, workload.dtype, _sizes(row), (), int(row["descriptor"]))
        use = spec.use(gpu, workload, {name: Var(name) for name in config})
        if problem is None or use is None:
            continue
        stated = use.smem_bytes.value(config)
        broken = {rule.name for rule in problem.constraints if not rule.holds(config)}
        if most < stated <= SMEM_RIM * most and broken == {"smem"}:
            yield row
    raise InfeasibleError(f"{request.target}: shared memory alone excludes hardly any config.")


def _draw(target: str, rng: random.Random, fix: Mapping[str, int], without: tuple[str, ...]) -> Row:
    kernels = [fix["descriptor"]] if "descriptor" in fix else [0, 1]
    values = tuple((name, value) for name, value in fix.items() if name != "descriptor")
    while True:
        dtype, sizes = rng.choice(SPECS[0].dtypes), rng.choice(SHAPES)
        spaces = {kernel: space_of(target, dtype, sizes, without, values, kernel) for kernel in kernels}
        weights = [0 if space is None else len(space) for space in spaces.values()]
        if any(weights):
            kernel = rng.choices(kernels, weights)[0]
            space = spaces[kernel]
            if space is not None:
                return _row(target, dtype, sizes, space.sample(1, rng.randrange(2**31))[0], kernel)


def _row(target: str, dtype: str, sizes: Sizes, config: Mapping[str, int], descriptor: int) -> dict[str, Any]:
    sized = dict(zip("mnk", sizes, strict=True))
    return {"target": target, "dtype": dtype, **sized, **config, "descriptor": descriptor}


def ranked(request: DrawRequest) -> Iterator[Row]:
    """The configs that would be ranked first if registers were no limit: where a wrong exclusion hurts most."""
    gpu = load_gpu(SAMPLE.targets[request.target])
    for dtype in (d for d in SPECS[0].dtypes if d != "fp16" and gpu.matrix_shapes(d)):
        for sizes, (descriptor, spec) in combinations(SHAPES[:2], enumerate(SPECS)):
            problem = problem_of(request.target, dtype, sizes, REGISTER_LIMITS, descriptor)
            if problem is None:
                continue
            ranking_request = Ask(spec, gpu, workload_of(dtype, sizes), fixed(problem, request.fix))
            operation = Operation(spec.full_name, (spec,))
            for candidate in rank_requests(operation, [ranking_request], {}, top=request.number).candidates:
                yield _row(request.target, dtype, sizes, candidate.config, descriptor)


def _sizes(row: Row) -> Sizes:
    return int(row["m"]), int(row["n"]), int(row["k"])


@lru_cache(maxsize=512)
def _parameters(gpu_name: str, dtype: str, descriptor: int) -> tuple[str, ...]:
    return tuple(param.name for param in SPECS[descriptor].tile_params(load_gpu(gpu_name), dtype))


def request_of(row: Row) -> SampleRequest:
    """The configuration of a row; parameters that a table does not have are zero."""
    name, descriptor = SAMPLE.targets[row["target"]], int(row.get("descriptor") or 0)
    config = {parameter: int(row.get(parameter) or 0) for parameter in _parameters(name, row["dtype"], descriptor)}
    return SampleRequest(load_gpu(name), SPECS[descriptor], workload_of(row["dtype"], _sizes(row)), config)


def compile_row(row: Row) -> Any:
    """Compile the configuration of a row."""
    gpu, spec, workload, config = request_of(row)
    return spec.compile(gpu, workload, config)


def is_refused(row: Row) -> bool:
    """Whether the assembler had no registers for a single instruction."""
    return "ptxas" in row["error"]


def is_used(gpu: GpuModel, row: Row) -> bool:
    """Whether the row's registers say anything: compiled, with the matrix unit, and not squeezed to keep a promise."""
    if row["error"] and not is_refused(row):
        return False
    reaches = row["instruction"] or is_refused(row) or unit(gpu, row["dtype"]).kind == "fma"
    return bool(reaches) and int(row.get("waves_per_eu") or 0) <= 1 and not int(row.get("producer") or 0)


@lru_cache(maxsize=512)
def limit_of(target: str, num_warps: int) -> int:
    """Registers that the compiler may give a thread of a block.

    gfx908 counts as if its two register files were one, as they are on the later targets that it shares weights with.
    """
    gpu = load_gpu(SAMPLE.targets["gfx90a" if target == "gfx908" else target])
    return most_registers(gpu, const(num_warps)).value({})


@lru_cache(maxsize=512)
def _terms(kind: TermKind) -> dict[str, Expr]:
    return register_terms(kind, VARIABLES)


def kernel_of(row: Row, is_latest: bool) -> SampledKernel | None:
    """A row as numbers."""
    gpu = load_gpu(SAMPLE.targets[row["target"]])
    if not is_used(gpu, row):
        return None
    config = {name: int(row[name]) for name in PARAMS}
    aligned = Product.of(workload_of(row["dtype"], _sizes(row))).aligned
    own, *others = kinds_of(gpu, row["dtype"], aligned, has_descriptors=bool(int(row.get("descriptor") or 0)))
    kind = own if async_share(unit(gpu, row["dtype"]), VARIABLES).value(config) else others[0]
    registers = int(row["registers"] or gpu.sm.max_registers_per_thread)
    limit = limit_of(row["target"], config["num_warps"])
    return SampledKernel(
        target=row["target"],
        families=families(gpu, kind),
        terms={name: term.value(config) for name, term in _terms(kind).items()},
        registers=registers,
        limit=limit,
        spills=is_refused(row) or int(row["spill_bytes"] or 0) > 0,
        counts=is_latest,
    )


SAMPLE = KernelSample(
    tables=(
        "triton_gemm_space.csv",
        "triton_gemm_space_3_6.csv",
        "triton_gemm_descriptor.csv",
        "triton36_gemm_descriptor.csv",
        "triton_gemm_fair.csv",
    ),
    targets=TARGETS | OTHERS,
    draws={
        "valid": draw_valid,
        "fair": draw_fair,
        "near": draw_near,
        "free": draw_free,
        "smem": draw_smem,
        "ranked": ranked,
    },
    request=request_of,
    compile=compile_row,
    kernel=kernel_of,
)
