"""The recurrent kernels' sample of compiled kernels: layers drawn at random, and configurations of their spaces.

A layer has a random cell, direction, dtype and a head_dim that is any multiple of 16. The draws:

    random    from the space with looser register and shared-memory rules: there are some on both sides of the limits
    fair      from the space without any limit, short of kernels that compile for minutes
    ranked    among those that the model ranks first
    first     the first choice
    measured  from `benchmarks/results/h200/rnn_space.csv`: the fastest configurations of every layer, and others

A share of them has all optional inputs; first choices come with and without them.
"""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from benchmarks.resources.estimate import SampledKernel
from benchmarks.resources.sample import DrawRequest, KernelSample, Row, SampleRequest
from constrint import choose
from constrint.errors import ConstrintError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.resources.registers import Family
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.triton import spec
from constrint.kernels.rnn.triton.spec import SPECS as TRITON_SPECS
from constrint.model import Constraint, Expr, Problem, Var, const
from constrint.select import rank
from constrint.select.limits import most_registers
from constrint.select.toolchain import rules_of
from constrint.select.workload import Workload
from constrint.solve import enumerate_space

SPECS = {spec.operation: spec for spec in TRITON_SPECS}
TARGETS = {
    "sm_80": "a100-sxm4-80gb",
    "sm_90a": "h200",
    "sm_100a": "b200",
    "gfx90a": "mi210",
    "gfx942": "mi300x",
    "gfx950": "mi355x",
}
KEYS = ("tile_batch", "tile_out", "row_split", "num_warps", "num_stages", "split_depth", "recompute")
RULES = ("registers", "register_file", "smem", "threads")
#: Tenths of a limit that a loosened space allows.
SLACK = 13
#: Most registers and shared memory of a fair draw, relative to the limits: the compiler takes minutes for more.
FAIR, SMEM_RIM = 2.0, 1.35
#: Configurations of a layer that are tried until one is small enough.
MOST_TRIES = 60
#: Ranked configurations that a draw takes one of.
TOP = 4
#: Measured configurations of a layer that are taken: the fastest, and others.
FASTEST, SLOWER = 4, 2
#: Shares of kernels with all the optional inputs, and of random ones with a head in one program.
WITH_INPUTS, WHOLE = 0.3, 0.5

Layer = tuple[str, tuple[int, int, int, int], str, str]


def draw_layer(rng: random.Random) -> Layer:
    """Cell, sizes, dtype and direction of a layer that a user may have."""
    usual, any_dim = (16, 32, 64, 96, 128, 192, 256, 384, 512), range(16, 640, 16)
    dim = rng.choice(usual if rng.random() < 0.6 else any_dim)
    heads = rng.choice((1, 2, 4, 12))
    cell, dtype = rng.choice(("elman", "gru", "lstm", "slstm")), rng.choice(("fp16", "bf16", "bf16", "fp32"))
    sizes = (rng.choice((8, 16, 16, 64, 256)), 1024, heads, dim)
    return cell, sizes, dtype, rng.choice(("forward", "backward"))


def loosened(gpu: GpuModel, workload: Workload) -> Problem:
    """The space with the limits of registers and shared memory moved outwards."""
    spec = SPECS[workload.operation]
    problem = spec.problem(gpu, workload).without(*RULES)
    use = spec.use(gpu, workload, {name: Var(name) for name in problem.variables})
    problem.add(10 * use.registers_per_thread <= SLACK * most_registers(gpu, use.warps))
    problem.add(10 * use.smem_bytes <= SLACK * gpu.sm.max_smem_bytes_per_block)
    return problem


def random_config(gpu: GpuModel, workload: Workload, rng: random.Random) -> Mapping[str, int] | None:
    """One configuration of the loosened space; None if there is none."""
    space = enumerate_space(loosened(gpu, workload))
    if not space.size:
        return None
    few = list(space.sample(min(24, space.size), seed=rng.randrange(2**31)))
    whole = [config for config in few if config["row_split"] == 1]
    return rng.choice(whole if whole and rng.random() < WHOLE else few)


def draw_fair(draw: DrawRequest) -> Iterator[Row]:
    """Configurations of random layers valid and excluded ones, whatever resources they take."""
    gpu = load_gpu(TARGETS[draw.target])
    while True:
        layer = cell, sizes, dtype, direction = draw_layer(draw.rng)
        workload = workload_of(cell, sizes, dtype, direction)
        try:
            SPECS[workload.operation].check_workload(gpu, workload)
        except ConstrintError:
            continue
        config = fair_config(gpu, workload, draw)
        if config is not None:
            yield _row(draw.target, layer, config, has_inputs=False)


def fair_config(gpu: GpuModel, workload: Workload, draw: DrawRequest) -> Mapping[str, int] | None:
    """One configuration of the space without limits that is compiled within seconds; None if hardly any is."""
    spec = SPECS[workload.operation]
    space = enumerate_space(spec.problem(gpu, workload).without(*RULES))
    use = spec.use(gpu, workload, {name: Var(name) for name in KEYS})
    most = most_registers(gpu, use.warps)
    few = space.sample(min(MOST_TRIES, space.size), seed=draw.rng.randrange(2**31)) if space.size else ()
    for config in few:
        is_small = use.smem_stated.value(config) <= SMEM_RIM * gpu.sm.max_smem_bytes_per_block
        is_small = is_small and use.registers_per_thread.value(config) <= FAIR * most.value(config)
        if is_small and all(config[name] == value for name, value in draw.fix.items()):
            return config
    return None


def drawn(draw: DrawRequest, top: int) -> Iterator[Row]:
    """Configurations of random layers: one of the first `top` of the ranking, or any if `top` is 0."""
    gpu_name, rng = TARGETS[draw.target], draw.rng
    gpu = load_gpu(gpu_name)
    while True:
        layer = cell, sizes, dtype, direction = draw_layer(rng)
        workload = workload_of(cell, sizes, dtype, direction)
        spec = SPECS[workload.operation]
        has_inputs = rng.random() < WITH_INPUTS
        try:
            spec.check_workload(gpu, workload)
            config: Mapping[str, int] | None
            if top:
                config = rng.choice(rank(spec, gpu, workload, top=top).candidates).config
            else:
                config = random_config(gpu, workload, rng)
        except ConstrintError:
            continue
        if config is not None and all(config[name] == value for name, value in draw.fix.items()):
            for inputs in (False, True) if top == 1 else (has_inputs,):
                yield _row(draw.target, layer, config, has_inputs=inputs)


def measured(draw: DrawRequest) -> Iterator[Row]:
    """For each measured layer the first choice, the fastest configurations and some of the others."""
    if draw.table is None:
        raise UsageError(
            "the draw 'measured' chooses from a table of measured layers. Name it: --table rnn_space.csv, which is in "
            "benchmarks/results/h200."
        )
    layers: dict[Layer, list[dict[str, str]]] = defaultdict(list)
    with draw.table.open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if row["outcome"] == "ok":
                sizes = (int(row["batch"]), 1024, int(row["heads"]), int(row["head_dim"]))
                layers[row["cell"], sizes, row["dtype"], row["direction"]].append(row)
    rng, seen = random.Random(1), set()
    for layer, rows in layers.items():
        rows.sort(key=lambda row: float(row["loop_ms"]))
        some = rows[:FASTEST] + rng.sample(rows[FASTEST:], min(SLOWER, len(rows[FASTEST:])))
        configs = [{key: int(row[key]) for key in KEYS} for row in some]
        workload = workload_of(*layer)
        gpu = load_gpu(TARGETS[draw.target])
        first = dict(choose.decide(choose.Request(SPECS[workload.operation].full_name, workload, gpu)).config)
        for config in [first] * (first not in configs) + configs:
            kernel = (layer[0], layer[1][3], *layer[2:], *config.values())
            if kernel not in seen:  # sizes of the batch and of heads are no part of it
                seen.add(kernel)
                kind = {} if config in configs else {"kind": "first"}
                yield _row(draw.target, layer, config, has_inputs=False) | kind


def _row(target: str, layer: Layer, config: Mapping[str, int], *, has_inputs: bool) -> dict[str, Any]:
    cell, (batch, _, heads, dim), dtype, direction = layer
    row = {"gpu": TARGETS[target], "target": target, "cell": cell, "direction": direction, "batch": batch}
    row |= {"heads": heads, "head_dim": dim, "dtype": dtype}
    return row | {key: int(config[key]) for key in KEYS} | {"inputs": int(has_inputs)}


def request_of(row: Row) -> SampleRequest:
    """The configuration of a row, under the rules of its compiler; a row that is drawn names none."""
    sizes = (int(row["batch"]), 1024, int(row["heads"]), int(row["head_dim"]))
    workload = workload_of(row["cell"], sizes, row["dtype"], row["direction"])
    spec = SPECS[workload.operation].under(row.get("compiler", "").removeprefix("triton "))
    return SampleRequest(load_gpu(row["gpu"]), spec, workload, {key: int(row[key]) for key in KEYS})


def compile_row(row: Row) -> Any:
    """Compile the configuration of a row."""
    gpu, _, workload, config = request_of(row)
    spec = SPECS[workload.operation]
    grads = ("grad_last", "grad1", "grad2", "grad3")[: spec.cell.num_states] if row["direction"] == "backward" else ()
    optional = ("initial", "rows", "lengths", "reset", *grads) if int(row["inputs"]) else ()
    return spec.compile(gpu, workload, config, optional)


def with_inputs(terms: Mapping[str, Expr]) -> dict[str, Expr]:
    """Terms with those of the optional inputs: addresses, lengths, flags, first states and gradients."""
    return {**terms, "inputs": const(1), "inputs_own": terms["own"], "inputs_states": terms["own_states"]}


@cache
def expressions(
    name: str, cell: str, direction: str, dim: int, dtype: str, is_split: bool, reads_again: bool
) -> tuple[tuple[Family, ...], dict[str, Expr]]:
    """Families of weights, and terms with those of the optional inputs."""
    gpu, workload = load_gpu(name), workload_of(cell, (16, 16, 1, dim), dtype, direction)
    layer = SPECS[workload.operation].layer(workload)
    terms = spec.register_terms(gpu, layer, {key: Var(key) for key in KEYS}, is_split)
    return spec.families(gpu, layer, is_split, reads_again=reads_again), with_inputs(terms)


@cache
def warp_rules(name: str, cell: str, direction: str, dim: int) -> tuple[Constraint, ...]:
    """Rules of the space on warps, which are not limits of the GPU."""
    workload = workload_of(cell, (64, 16, 1, dim), "fp16", direction)
    problem = SPECS[workload.operation].problem(load_gpu(name), workload)
    return tuple(rule for rule in problem.constraints if rule.name.startswith("warps"))


def kernel_of(row: Row, is_latest: bool) -> SampledKernel | None:
    """A row as numbers; every compiler's count. Tables may be older than today's space."""
    if row["error"] and "takes more" not in row["error"]:
        return None
    gpu, config = load_gpu(row["gpu"]), {key: int(row[key]) for key in KEYS}
    layer = (row["gpu"], row["cell"], row["direction"], int(row["head_dim"]))
    if not all(rule.holds(config) for rule in warp_rules(*layer)):
        return None
    reads_again = rules_of(row.get("compiler", "").removeprefix("triton ")).reads_weights_again
    families, terms = expressions(*layer, row["dtype"], config["row_split"] > 1, reads_again)
    limit = most_registers(gpu, const(config["num_warps"])).value({})
    # A kernel that the compiler gave up on counts as spilling without end.
    count, spilled = int(row["registers"] or limit), int(row["spill_bytes"] or 1 << 20)
    return SampledKernel(
        target=row["target"],
        families=families,
        terms={
            name: 0 if name.startswith("inputs") and not int(row["inputs"]) else term.value(config)
            for name, term in terms.items()
        },
        registers=count,
        limit=limit,
        spills=spilled > 0,
    )


SAMPLE = KernelSample(
    tables=("triton_rnn_resources_3.6.0.csv", "triton_rnn_resources_3.9.0.csv", "triton_rnn_resources_3.8.0.csv"),
    targets=TARGETS,
    draws={
        "random": lambda draw: drawn(draw, 0),
        "fair": draw_fair,
        "ranked": lambda draw: drawn(draw, TOP),
        "first": lambda draw: drawn(draw, 1),
        "measured": measured,
    },
    request=request_of,
    compile=compile_row,
    kernel=kernel_of,
)
