"""Compile random configs from the GEMM's space, and from just beyond its limits, for 13 targets without a GPU.

The table says whether the space is the true one: what it calls valid must launch without spilling, and what only
the shared-memory rule excludes must really be over. `fit_gemm_registers.py` fits the register model to it, and
`tests/kernels/test_gemm_compiled.py` checks the recorded table and a fresh sample. Kinds of rows:

    valid   drawn from the valid space
    free    drawn from the space without the rules on registers, accumulators within REGISTER_RIM of the limit
    smem    only shared memory excludes it, by no more than SMEM_RIM
    ranked  among the model's first choices if registers were no limit

    python benchmarks/compile_gemm_space.py --valid 60 --free 600 --ranked 2 --out tests/data/triton_gemm_space.csv
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from constrint.errors import InfeasibleError, UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.spec import SPEC
from constrint.kernels.gemm.units import ELEMENT_BYTES
from constrint.model import Domain, Problem
from constrint.select import Workload, rank
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
GPUS = TARGETS | OTHERS
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
#: Rules that say what registers a block takes.
REGISTER_LIMITS = ("registers", "register_file", "waves_per_eu")
#: Rules that say what a block takes; everything else decides what is a GEMM at all.
LIMITS = ("smem", *REGISTER_LIMITS)
#: Beyond the limit means up to this much of it: shared memory, and registers (the compiler takes minutes for more).
SMEM_RIM, REGISTER_RIM = 1.35, 1.3
RESULTS = ("smem_bytes", "registers", "agprs", "spill_bytes", "instruction", "error")
#: Without a result for so long, what is left has crashed the compiler or would take minutes.
IDLE_S = 60
#: Draws after which a kind of row counts as one that does not exist.
MOST_TRIES = 30000
Row = dict[str, Any]


@lru_cache(maxsize=512)
def problem_of(target: str, dtype: str, sizes: tuple[int, int, int], without: tuple[str, ...]) -> Problem | None:
    """The GEMM's problem without some rules and with one order of tiles, which decides nothing that is compiled."""
    gpu, workload = load_gpu(GPUS[target]), workload_of(dtype, sizes)
    try:
        SPEC.check_workload(gpu, workload)
    except (UnsupportedError, InfeasibleError):
        return None
    problem = SPEC.problem(gpu, workload)
    problem = problem.without(*({c.name for c in problem.constraints} & set(without)))
    return fixed(problem, {"group_m": 1})


@lru_cache(maxsize=512)
def space_of(
    target: str, dtype: str, sizes: tuple[int, int, int], without: tuple[str, ...], fix: tuple[tuple[str, int], ...]
) -> SearchSpace | None:
    """The solutions of `problem_of` with some parameters fixed."""
    problem = problem_of(target, dtype, sizes, without)
    return None if problem is None else enumerate_space(fixed(problem, dict(fix)))


def workload_of(dtype: str, sizes: tuple[int, int, int]) -> Workload:
    """A product of these sizes."""
    return Workload("gemm", dict(zip("mnk", sizes, strict=True)), dtype)


def fixed(problem: Problem, values: Mapping[str, int]) -> Problem:
    """The problem with single values for those of the parameters that it has."""
    for name in values.keys() & problem.variables.keys():
        problem = problem.with_domain(name, Domain.from_values([values[name]]))
    return problem


def draw_valid(target: str, rng: random.Random, fix: Mapping[str, int]) -> Row:
    """A random valid config of a random dtype and shape."""
    return _draw(target, rng, fix, ()) | {"kind": "valid"}


def draw_free(target: str, rng: random.Random, fix: Mapping[str, int]) -> Row:
    """A random config whatever registers it takes, of either kernel, short of what takes minutes to compile."""
    gpu = load_gpu(GPUS[target])
    both = {"waves_per_eu": 0, "descriptor": rng.choice([0, 1])} | dict(fix)
    while True:
        row = _draw(target, rng, both, REGISTER_LIMITS)
        config, element = row["config"], ELEMENT_BYTES[row["workload"].dtype]
        num_threads = config["num_warps"] * gpu.sm.warp_size
        sums = config["tile_m"] * config["tile_n"] // num_threads
        words = (config["tile_m"] + config["tile_n"]) * config["tile_k"] * element // (4 * num_threads)
        file = 65536 if gpu.vendor == "nvidia" else 131072
        limit = min(gpu.sm.max_registers_per_thread, file // num_threads)
        if sums <= limit and sums + words / 2 <= REGISTER_RIM * limit:
            return row | {"kind": "free"}


def draw_smem(target: str, rng: random.Random, fix: Mapping[str, int]) -> Row:
    """A random config that shared memory alone excludes, by no more than SMEM_RIM."""
    gpu = load_gpu(GPUS[target])
    most = gpu.sm.max_smem_bytes_per_block
    for _ in range(MOST_TRIES):
        row = _draw(target, rng, fix, LIMITS)
        problem = problem_of(target, row["workload"].dtype, tuple(row["workload"].sizes.values()), ())
        assert problem is not None
        stated = SPEC.use(gpu, row["workload"], problem).smem_bytes.value(row["config"])
        if most < stated <= SMEM_RIM * most:
            broken = {c.name for c in problem.constraints if not c.holds(row["config"])}
            if broken == {"smem"}:
                return row | {"kind": "smem"}
    raise InfeasibleError(f"{target}: shared memory alone excludes hardly any config.")


def _draw(target: str, rng: random.Random, fix: Mapping[str, int], without: tuple[str, ...]) -> Row:
    while True:
        dtype, sizes = rng.choice(SPEC.dtypes), rng.choice(SHAPES)
        space = space_of(target, dtype, sizes, without, tuple(fix.items()))
        if space is not None and len(space):
            config = space.sample(1, rng.randrange(2**31))[0]
            return {"target": target, "workload": workload_of(dtype, sizes), "config": config}


def ranked(target: str, top: int, fix: Mapping[str, int]) -> Iterator[Row]:
    """The configs that would be ranked first if registers were no limit: where a wrong exclusion hurts most."""
    gpu = load_gpu(GPUS[target])
    for dtype in (d for d in SPEC.dtypes if d != "fp16" and gpu.matrix_shapes(d)):
        for sizes in SHAPES[:2]:
            problem = problem_of(target, dtype, sizes, REGISTER_LIMITS)
            if problem is None:
                continue
            workload = workload_of(dtype, sizes)
            for candidate in rank(SPEC, gpu, workload, top=top, problem=fixed(problem, fix)).candidates:
                yield {"target": target, "kind": "ranked", "workload": workload, "config": dict(candidate.config)}


Draw = Callable[[str, random.Random, Mapping[str, int]], Row]


def sample(
    target: str,
    wanted: Mapping[Draw, int],
    seed: int,
    fix: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[Row]:
    """Distinct draws, so many of each kind; parameters in `fix` are not drawn."""
    rng = random.Random(f"{target} {seed}")
    seen: set[str] = set()
    for draw, number in wanted.items():
        left = number
        while left:
            row = draw(target, rng, fix)
            key = f"{row['workload']} {row['config']}"
            if key not in seen:
                seen.add(key)
                left -= 1
                yield row


def compile_row(row: Row) -> Row:
    """What the config takes as compiled; `error` if the compiler refuses."""
    from constrint.kernels.gemm.build import compile_config

    try:
        compiled = compile_config(load_gpu(GPUS[row["target"]]), row["workload"], row["config"])
    except UnsupportedError as error:
        return dict.fromkeys(RESULTS, "") | {"error": str(error)[-120:]}
    return {
        "smem_bytes": compiled.smem_bytes,
        "registers": compiled.registers_per_thread,
        "agprs": compiled.accumulator_registers,
        "spill_bytes": compiled.spill_bytes,
        "instruction": compiled.instruction,
        "error": "",
    }


def _compile_numbered(numbered: tuple[int, Row]) -> tuple[int, Row]:
    return numbered[0], compile_row(numbered[1])


def compile_rows(rows: list[Row], jobs: int) -> dict[int, Row]:
    """Results by row; rows that crash the compiler, or take minutes, are left out."""
    results: dict[int, Row] = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        with multiprocessing.Pool(jobs) as pool:
            running = pool.imap_unordered(_compile_numbered, enumerate(rows))
            while len(results) < len(rows):
                try:
                    number, result = running.next(timeout=IDLE_S)
                except multiprocessing.TimeoutError:
                    print(f"\n{len(rows) - len(results)} rows left out: no result in {IDLE_S} s", file=sys.stderr)
                    break
                results[number] = result
                print(f"\r{len(results)}/{len(rows)}    ", end="", file=sys.stderr)
            pool.terminate()
    print(file=sys.stderr)
    return results


def main() -> None:
    """Compile the sample; progress goes to stderr, one line per row to the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds: dict[str, Draw] = {"valid": draw_valid, "free": draw_free, "smem": draw_smem}
    for kind, number in (("valid", 60), ("free", 200), ("smem", 20)):
        parser.add_argument(f"--{kind}", type=int, default=number, help=f"{kind} configs per target")
    parser.add_argument("--ranked", type=int, default=0, help="first choices per target, dtype and shape")
    parser.add_argument("--targets", nargs="*", default=list(TARGETS), choices=list(GPUS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fix", nargs="*", default=[], metavar="NAME=VALUE", help="parameters that are not drawn")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    fix = {name: int(value) for name, _, value in (text.partition("=") for text in args.fix)}
    wanted = {draw: getattr(args, kind) for kind, draw in kinds.items()}
    rows = [row for target in args.targets for row in sample(target, wanted, args.seed, fix)]
    rows += [row for target in args.targets for row in ranked(target, args.ranked, fix)] if args.ranked else []
    write(rows, compile_rows(rows, args.jobs), args.out)


def write(rows: list[Row], results: Mapping[int, Row], out: Path) -> None:
    """The table, in the order of the rows."""
    import triton

    names = list(dict.fromkeys(name for row in rows for name in row["config"]))
    with out.open("w", newline="") as file:
        file.write(f"# compiled, not measured: triton {triton.__version__}, by benchmarks/compile_gemm_space.py\n")
        writer = csv.DictWriter(file, ["target", "kind", "dtype", "m", "n", "k", *names, *RESULTS])
        writer.writeheader()
        for number, result in sorted(results.items()):
            row = rows[number]
            head = {"target": row["target"], "kind": row["kind"], "dtype": row["workload"].dtype}
            writer.writerow(head | dict(row["workload"].sizes) | row["config"] | result)


if __name__ == "__main__":
    main()
