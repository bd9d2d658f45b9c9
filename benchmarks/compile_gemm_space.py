"""Compile random configs from the GEMM's valid space, and from just beyond its limits, for six targets without a GPU.

The table says whether the space is the true one: what it calls valid must launch without spilling, and what only
the shared-memory or register rules exclude must really be over. `tests/kernels/test_gemm_compiled.py` checks the
recorded table and a fresh sample.

    python benchmarks/compile_gemm_space.py --per-target 60 --seed 1 --out tests/data/triton_gemm_space.csv
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from constrint.errors import InfeasibleError, UnsupportedError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.spec import SPEC
from constrint.model import Domain, Problem
from constrint.select import Workload, rank
from constrint.solve import enumerate_space

#: Target and a GPU of it.
TARGETS = {
    "sm_80": "a100-sxm4-80gb",
    "sm_90": "h200",
    "sm_100": "b200",
    "gfx90a": "mi210",
    "gfx942": "mi300x",
    "gfx950": "mi355x",
}
#: Square, wide, decode, ragged in every size, ragged in K alone.
SHAPES = ((4096, 4096, 4096), (16384, 3072, 768), (16, 8192, 8192), (333, 777, 1555), (1024, 1024, 1000))
#: Rules that say what a block takes; everything else decides what is a GEMM at all.
LIMITS = ("smem", "registers", "register_file")
#: Beyond the limit means up to this much of it: shared memory, and registers (the compiler takes minutes for more).
RIM, REGISTER_RIM = 1.35, 1.2
RESULTS = ("smem_bytes", "registers", "agprs", "spill_bytes", "instruction", "error")


def draw_valid(gpu: GpuModel, rng: random.Random, fixed: Mapping[str, int]) -> dict[str, Any]:
    """A random valid config of a random dtype and shape."""
    workload, problem = _workload(gpu, rng, fixed)
    config = enumerate_space(problem).sample(1, rng.randrange(2**31))[0]
    return {"kind": "valid", "workload": workload, "config": config}


def draw_beyond(gpu: GpuModel, rng: random.Random, fixed: Mapping[str, int]) -> dict[str, Any]:
    """A random config that only the limits of a block exclude, by no more than RIM."""
    while True:
        workload, problem = _workload(gpu, rng, fixed)
        whole = enumerate_space(problem.without(*LIMITS))
        limits = [c for c in problem.constraints if c.name in LIMITS]
        for config in whole.sample(200, rng.randrange(2**31)):
            broken = [c.name for c in limits if not c.holds(config)]
            use = SPEC.use(gpu, workload, problem)
            near = (
                use.smem_bytes.value(config) <= RIM * gpu.sm.max_smem_bytes_per_block
                and use.registers_needed.value(config) <= REGISTER_RIM * gpu.sm.max_registers_per_thread
            )
            if broken and near:
                return {"kind": "+".join(broken), "workload": workload, "config": config}


def ranked(target: str, top: int, fixed: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """The configs that would be ranked first if registers were no limit: where a wrong exclusion hurts most."""
    gpu = load_gpu(TARGETS[target])
    for dtype in (d for d in SPEC.dtypes if d != "fp16" and gpu.matrix_shapes(d)):
        for shape in SHAPES[:2]:
            workload = Workload("gemm", dict(zip("mnk", shape, strict=True)), dtype)
            problem = _fixed(SPEC.problem(gpu, workload), fixed).without("registers", "register_file")
            for candidate in rank(SPEC, gpu, workload, top=top, problem=problem).candidates:
                yield {"target": target, "kind": "ranked", "workload": workload, "config": dict(candidate.config)}


def _fixed(problem: Problem, fixed: Mapping[str, int]) -> Problem:
    for name in fixed.keys() & problem.variables.keys():
        problem = problem.with_domain(name, Domain.from_values([fixed[name]]))
    return problem


def _workload(gpu: GpuModel, rng: random.Random, fixed: Mapping[str, int]) -> tuple[Workload, Problem]:
    while True:
        shape = rng.choice(SHAPES)
        workload = Workload("gemm", dict(zip("mnk", shape, strict=True)), rng.choice(SPEC.dtypes))
        try:
            SPEC.check_workload(gpu, workload)
        except (UnsupportedError, InfeasibleError):
            continue
        return workload, _fixed(SPEC.problem(gpu, workload), fixed)


def sample(
    target: str, per_target: int, beyond: int, seed: int, fixed: Mapping[str, int] = MappingProxyType({})
) -> Iterator[dict[str, Any]]:
    """Distinct draws: `per_target` valid ones, then `beyond` from the rim; `fixed` parameters are not drawn."""
    gpu, rng = load_gpu(TARGETS[target]), random.Random(f"{target} {seed}")
    seen: set[str] = set()
    for draw, wanted in ((draw_valid, per_target), (draw_beyond, beyond)):
        while wanted:
            row = draw(gpu, rng, fixed)
            key = f"{row['workload']} {row['config']}"
            if key not in seen:
                seen.add(key)
                wanted -= 1
                yield {"target": target} | row


def compile_row(row: dict[str, Any]) -> dict[str, Any]:
    """What the config takes as compiled; `error` if the compiler refuses."""
    from constrint.kernels.gemm.build import compile_config

    try:
        compiled = compile_config(load_gpu(TARGETS[row["target"]]), row["workload"], row["config"])
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


def main() -> None:
    """Compile the sample; progress goes to stderr, one line per row to the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-target", type=int, default=60, help="valid configs per target")
    parser.add_argument("--beyond", type=int, default=20, help="configs beyond a limit per target")
    parser.add_argument("--ranked", type=int, default=0, help="first choices per target, dtype and shape")
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fix", nargs="*", default=[], metavar="NAME=VALUE", help="parameters that are not drawn")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    fixed = {name: int(value) for name, _, value in (text.partition("=") for text in args.fix)}
    rows = [row for target in args.targets for row in sample(target, args.per_target, args.beyond, args.seed, fixed)]
    rows += [row for target in args.targets for row in ranked(target, args.ranked, fixed)] if args.ranked else []
    names = list(dict.fromkeys(name for row in rows for name in row["config"]))
    with tempfile.TemporaryDirectory() as cache, args.out.open("w", newline="") as file:
        os.environ["TRITON_CACHE_DIR"] = cache
        import triton

        file.write(f"# compiled, not measured: triton {triton.__version__}, by benchmarks/compile_gemm_space.py\n")
        writer = csv.DictWriter(file, ["target", "kind", "dtype", "m", "n", "k", *names, *RESULTS])
        writer.writeheader()
        for done, row in enumerate(rows, 1):
            head = {"target": row["target"], "kind": row["kind"], "dtype": row["workload"].dtype}
            writer.writerow(head | dict(row["workload"].sizes) | row["config"] | compile_row(row))
            file.flush()
            print(f"\r{done}/{len(rows)} {row['target']}    ", end="", file=sys.stderr)
    print(file=sys.stderr)


if __name__ == "__main__":
    main()
