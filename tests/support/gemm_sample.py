"""Random configurations of the GEMM's kernels: valid ones, and ones that shared memory alone excludes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.spec import GemmSpec
from constrint.kernels.gemm.units import ELEMENT_BYTES
from constrint.model import Domain
from constrint.select import Config, Workload
from constrint.solve import SearchSpace, enumerate_space
from support.gemm import able_kernels, gemm, use_of

#: Targets that the rules are claimed for, and a GPU of each.
TARGETS = {
    "sm_80": "a100-sxm4-80gb",
    "sm_90": "h200",
    "sm_100": "b200",
    "gfx90a": "mi210",
    "gfx942": "mi300x",
    "gfx950": "mi355x",
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
#: Rules that say what a block takes; everything else decides what is a GEMM at all.
LIMITS = {"smem", "registers", "register_file", "waves_per_eu"}
#: Beyond the limit means up to this much of shared memory.
SMEM_RIM = 1.35

Spaces = list[tuple[GemmSpec, SearchSpace]]


class Drawn(NamedTuple):
    """A configuration and what it is for."""

    spec: GemmSpec
    workload: Workload
    config: Config


@cache
def valid_spaces(target: str, dtype: str, sizes: tuple[int, int, int]) -> Spaces:
    """The space of every kernel with one order of tiles, which decides nothing that is compiled."""
    gpu, workload = load_gpu(TARGETS[target]), gemm(*sizes, dtype)
    one_order = Domain.from_values([1])
    return [
        (spec, enumerate_space(spec.problem(gpu, workload).with_domain("group_m", one_order)))
        for spec in able_kernels(gpu, workload)
    ]


@cache
def spaces_beyond_smem(target: str, dtype: str, sizes: tuple[int, int, int]) -> Spaces:
    """What is excluded by shared memory alone, and by no more than `SMEM_RIM`."""
    gpu, workload = load_gpu(TARGETS[target]), gemm(*sizes, dtype)
    most, spaces = gpu.sm.max_smem_bytes_per_block, []
    for spec in able_kernels(gpu, workload):
        problem = spec.problem(gpu, workload)
        smem = use_of(spec, gpu, workload, problem).smem_bytes
        problem = problem.without("smem").with_domain("group_m", Domain.from_values([1]))
        problem.add(smem > most)
        problem.add(smem <= int(SMEM_RIM * most))
        spaces.append((spec, enumerate_space(problem)))
    return spaces


def draw(
    spaces_of: Callable[[str, str, tuple[int, int, int]], Spaces], target: str, number: int, rng: random.Random
) -> Iterator[Drawn]:
    """So many distinct configurations of random dtypes and shapes; kernels in proportion to their spaces."""
    seen: set[str] = set()
    while len(seen) < number:
        dtype, sizes = rng.choice(list(ELEMENT_BYTES)), rng.choice(SHAPES)
        spaces = spaces_of(target, dtype, sizes)
        offered = [len(space) for _, space in spaces]
        if not any(offered):
            continue
        spec, space = rng.choices(spaces, offered)[0]
        config = space.sample(1, rng.randrange(2**31))[0]
        drawn = Drawn(spec, gemm(*sizes, dtype), config)
        key = f"{spec.full_name} {drawn.workload} {config}"
        if key not in seen:
            seen.add(key)
            yield drawn
