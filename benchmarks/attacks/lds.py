"""Attack on what is stated of shared memory (LDS): random products and configurations, compiled without a GPU.

    python -m benchmarks.attacks.lds --target gfx950 --count 500 --seed 1

Layouts of both operands, types, sizes, stages, tiles and epilogues are drawn; the compiler says what a block takes.
A find is a configuration that certain rules allow and that exceeds the limit, or that takes more than is stated.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.attacks import ended, parser_of
from benchmarks.resources.gemm import LIMITS, TARGETS
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.product import has_tma
from constrint.kernels.gemm.spec import GemmSpec, gemm_spec
from constrint.model import Var
from constrint.select import Config, Workload
from constrint.solve import enumerate_space

#: Configurations of one product: its space takes longer to solve than one of them to compile.
PER_PRODUCT = 5
#: Drawn configurations from which these are taken.
DRAWN = 200
#: Most sums, and registers by the estimate, of a thread: compilers take minutes for more.
MOST_SUMS, MOST_REGISTERS = 300, 520
#: Shares of the limit: half of the products are drawn near it.
NEAR, BEYOND = 0.5, 1.35
LAYOUTS, ENDS = ("transpose_a", "transpose_b"), ("bias", "source", "wide_output")


class Drawn(NamedTuple):
    """A configuration, with what is stated of it.

    Args:
        is_valid: Whether no certain or redundant rule excludes it.
        stated: Shared memory that is stated.
    """

    spec: GemmSpec
    gpu: GpuModel
    workload: Workload
    config: Config
    is_valid: bool
    stated: int

    def compiled(self) -> int | None:
        """Shared memory that the compiled kernel takes; None where the compiler refuses."""
        try:
            return self.spec.compile(self.gpu, self.workload, self.config).smem_bytes
        except ConstrintError:
            return None


def drawn(target: str, seed: int, *, has_ends: bool = False) -> Iterator[Drawn]:
    """Configurations of random products, near the limit and far from it, beyond it as well."""
    gpu, rng = load_gpu(TARGETS[target]), random.Random(f"{target} {seed}")
    specs = [gemm_spec(f"gemm.{name}") for name in ("pointer", "descriptor") if name == "pointer" or has_tma(gpu)]
    dtypes = [dtype for dtype in specs[0].dtypes if gpu.dot_unit(dtype)]
    while True:
        spec, dtype = rng.choice(specs), rng.choice(dtypes)
        options = {name: rng.randint(0, 1) for name in LAYOUTS}
        options |= {name: int(rng.random() < 0.4) for name in ENDS if has_ends}
        sizes = {name: _size(rng) for name in "mnk"}
        workload = Workload("gemm", sizes, dtype, {name: 1 for name, value in options.items() if value})
        try:
            spec.check_workload(gpu, workload)
        except ConstrintError:
            continue
        yield from _of_product(spec, gpu, workload, rng)


def _size(rng: random.Random) -> int:
    """A size of any order of magnitude; most are multiples of 16, as operands of libraries are."""
    size = int(2 ** rng.uniform(4, 13))
    return size // 16 * 16 if rng.random() < 0.7 else size


def _of_product(spec: GemmSpec, gpu: GpuModel, workload: Workload, rng: random.Random) -> Iterator[Drawn]:
    problem = spec.problem(gpu, workload)
    use = spec.use(gpu, workload, {name: Var(name) for name in problem.variables})
    space = enumerate_space(problem.without(*({rule.name for rule in problem.constraints} & set(LIMITS))))
    limit, least = gpu.sm.max_smem_bytes_per_block, NEAR if rng.random() < 0.6 else 0.0
    found = 0
    for config in space.sample(min(space.size, DRAWN), rng.randrange(2**31)) if space.size else ():
        sums = config["tile_m"] * config["tile_n"] // (config["num_warps"] * gpu.sm.warp_size)
        stated = use.smem_stated.value(config)
        compiles_soon = sums <= MOST_SUMS and use.registers_per_thread.value(config) <= MOST_REGISTERS
        if compiles_soon and least * limit <= stated <= BEYOND * limit:
            yield Drawn(spec, gpu, workload, config, all(r.holds(config) for r in problem.constraints), stated)
            found += 1
        if found == PER_PRODUCT:
            return


def attack(target: str, count: int, seed: int, *, has_ends: bool = False) -> tuple[Mapping[str, int], list[str]]:
    """Compile `count` configurations; how many of each outcome, and a line for every find."""
    counts = dict.fromkeys(("compiled", "refused", "exact", "valid", "beyond"), 0)
    finds: list[str] = []
    for case in drawn(target, seed, has_ends=has_ends):
        if counts["compiled"] + counts["refused"] >= count:
            return counts, finds
        taken, limit = case.compiled(), case.gpu.sm.max_smem_bytes_per_block
        if taken is None:
            counts["refused"] += 1
            continue
        counts["compiled"] += 1
        counts["exact"] += taken == case.stated
        counts["valid"] += case.is_valid
        counts["beyond"] += taken > limit
        what = f"{case.spec.full_name} {case.workload} {dict(case.config)}: {taken:,} B, stated {case.stated:,}"
        if case.is_valid and taken > limit:
            finds.append(f"valid, but over {limit:,}: {what}")
        elif case.is_valid and taken > case.stated:
            finds.append(f"more than stated: {what}")
    return counts, finds


def main(arguments: list[str] | None = None) -> int:
    """Print the counts and the finds; 1 if there is any."""
    parser = parser_of(__doc__, 100)
    parser.add_argument("--target", choices=TARGETS, default="gfx950")
    parser.add_argument("--ends", action="store_true", help="draw biases, matrices to add and wide outputs, too")
    asked: Any = parser.parse_args(arguments)
    counts, finds = attack(asked.target, asked.count, asked.seed, has_ends=asked.ends)
    share = 100 * counts["exact"] / max(counts["compiled"], 1)
    listed = ", ".join(f"{value} {name}" for name, value in counts.items())
    return ended(finds, f"{asked.target}, seed {asked.seed}: {listed}; {share:.1f} % exact, {len(finds)} finds")


if __name__ == "__main__":
    sys.exit(main())
