"""The recurrent CUDA kernels' sample of compiled kernels: layers drawn at random, and configurations of their spaces.

A layer has a random cell, direction, dtype and head dimension. The draws:

    random    from the space, up to estimates far above the registers of a thread
    first     the first choice
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from benchmarks.resources.estimate import SampledKernel
from benchmarks.resources.sample import DrawRequest, KernelSample, Row, SampleRequest
from constrint import choose
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.resources.registers import Family
from constrint.kernels.rnn.cuda import resources
from constrint.kernels.rnn.cuda.spec import SPECS as CUDA_SPECS
from constrint.kernels.rnn.spec import workload_of
from constrint.model import Expr, Var, const
from constrint.select.limits import most_registers
from constrint.select.workload import Workload
from constrint.solve import enumerate_space

SPECS = {spec.operation: spec for spec in CUDA_SPECS}
TARGETS = {"sm_80": "a100-sxm4-80gb", "sm_90a": "h200", "sm_100a": "b200", "sm_120a": "rtx-5090"}
KEYS = (
    *("placement", "units", "tile_batch", "num_tiles", "warps_rows", "warps_depth", "register_pairs"),
    *("streamed_pairs", "prefetch", "recompute"),
)
#: Most estimated registers of a random draw, relative to the limit: kernels with more take long to compile.
MOST_SHARE = 1.5
#: Configurations of a layer that are tried until one needs no more.
MOST_TRIES = 40
#: Share of random draws from the whole space; the others are estimated to fit within 5 %.
SHARE_OF_ALL = 0.3


def draw_workload(rng: random.Random) -> Workload:
    """A direction of a layer that a user may have."""
    usual, others = (64, 128, 256, 512, 768, 1024, 2048, 2688), range(32, 1056, 32)
    dim = rng.choice(usual if rng.random() < 0.5 else others)
    cell, dtype = (
        rng.choice(("elman", "gru", "lstm", "lstm", "slstm")),
        rng.choice(("bf16", "bf16", "fp16", "fp32", "tf32")),
    )
    sizes = (rng.choice((1, 8, 16, 16, 64, 256)), 1024, rng.choice((1, 2, 12)), dim)
    return workload_of(cell, sizes, dtype, rng.choice(("forward", "backward")))


def draw_random(draw: DrawRequest) -> Iterator[Row]:
    """Configurations of random layers, short of those that take long to compile."""
    gpu = load_gpu(TARGETS[draw.target])
    while True:
        workload = draw_workload(draw.rng)
        config = random_config(gpu, workload, draw.rng)
        if config is not None:
            yield _row(draw.target, workload, config)


def random_config(gpu: GpuModel, workload: Workload, rng: random.Random) -> Mapping[str, int] | None:
    """One configuration of the space; None if none of `MOST_TRIES` is small enough."""
    spec = SPECS[workload.operation]
    space = enumerate_space(spec.problem(gpu, workload))
    if not space.size:
        return None
    use = spec.use(gpu, workload, {name: Var(name) for name in KEYS})
    most, share = most_registers(gpu, use.warps), MOST_SHARE if rng.random() < SHARE_OF_ALL else 1.05
    for config in space.sample(min(MOST_TRIES, space.size), seed=rng.randrange(2**31)):
        if use.registers_per_thread.value(config) <= share * most.value(config):
            return config
    return None


def draw_first(draw: DrawRequest) -> Iterator[Row]:
    """First choices of random layers."""
    gpu = load_gpu(TARGETS[draw.target])
    while True:
        workload = draw_workload(draw.rng)
        try:
            request = choose.Request(SPECS[workload.operation].full_name, workload, gpu)
            yield _row(draw.target, workload, choose.decide(request).config)
        except ConstrintError:
            continue


def _row(target: str, workload: Workload, config: Mapping[str, int]) -> dict[str, Any]:
    spec, sizes = SPECS[workload.operation], workload.sizes
    row: dict[str, Any] = {
        "gpu": TARGETS[target],
        "target": target,
        "cell": spec.cell.name,
        "direction": spec.direction,
    }
    row |= {name: sizes[name] for name in ("batch", "heads", "head_dim")} | {"dtype": workload.dtype}
    return row | {key: int(config[key]) for key in KEYS}


def request_of(row: Row) -> SampleRequest:
    """The configuration of a row."""
    sizes = (int(row["batch"]), 1024, int(row["heads"]), int(row["head_dim"]))
    workload = workload_of(row["cell"], sizes, row["dtype"], row["direction"])
    return SampleRequest(
        load_gpu(row["gpu"]), SPECS[workload.operation], workload, {key: int(row[key]) for key in KEYS}
    )


def compile_row(row: Row) -> Any:
    """Compile the configuration of a row."""
    gpu, spec, workload, config = request_of(row)
    return spec.compile(gpu, workload, config)


@cache
def expressions(
    name: str, cell: str, direction: str, dim: int, dtype: str
) -> tuple[tuple[Family, ...], dict[str, Expr]]:
    """Families of weights, and terms."""
    gpu, workload = load_gpu(name), workload_of(cell, (16, 16, 1, dim), dtype, direction)
    shape = SPECS[workload.operation].shape(workload, {key: Var(key) for key in KEYS})
    return resources.families(gpu, shape), resources.register_terms(shape)


def kernel_of(row: Row, is_latest: bool) -> SampledKernel | None:
    """A row of the table as numbers."""
    if row["error"] and "takes more" not in row["error"]:
        return None
    gpu, config = load_gpu(row["gpu"]), {key: int(row[key]) for key in KEYS}
    families, terms = expressions(row["gpu"], row["cell"], row["direction"], int(row["head_dim"]), row["dtype"])
    warps = const(config["warps_rows"] * config["warps_depth"])
    limit = most_registers(gpu, warps).value({})
    # A kernel that the compiler gave up on counts as spilling without end.
    count, spilled = int(row["registers"] or limit), int(row["spill_bytes"] or 1 << 20)
    return SampledKernel(
        target=row["target"],
        families=families,
        terms={name: term.value(config) for name, term in terms.items()},
        registers=count,
        limit=limit,
        spills=spilled > 0,
    )


SAMPLE = KernelSample(
    tables=("rnn_cuda_resources.csv",),
    targets=TARGETS,
    draws={"random": draw_random, "first": draw_first},
    request=request_of,
    compile=compile_row,
    kernel=kernel_of,
)
