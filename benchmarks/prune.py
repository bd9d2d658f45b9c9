"""What `constrint.prune` saves and whether it is right: lists of a tutorial's matmul, compiled whole without a GPU.

    python -m benchmarks.prune --out benchmarks/results/prune.csv

For each GPU and list: configurations before and after, seconds of compiling them all, and of those that were left out.
Every configuration is compiled, kept or not. One that was left out must not be able to run: its binary takes more
shared memory than a block has, or the compiler refuses it. One that was kept must not be refused for shared memory.
Ends with 1 if either is otherwise. About five minutes on one core.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.table import Table, described
from benchmarks.pruning.lists import RENAME, SIGNATURE, SIZES, lists
from constrint import load_gpu, prune
from constrint.errors import InfeasibleError, UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.select.compiled import problem_of, taken_by
from constrint.tune import build_triton, triton_source

GPUS = ("h200", "a100", "mi300x")
SPEC = "gemm.pointer"
COLUMNS = (
    *("gpu", "list", "tile_m", "tile_n", "tile_k", "num_stages", "num_warps", "is_kept"),
    *("smem_bytes_per_block", "max_smem_bytes_per_block", "registers_per_thread", "spill_bytes_per_thread"),
    *("blocks_per_sm", "problem", "compile_s"),
)


def processor_s() -> float:
    """Processor time of this process and of the assemblers that it started, in seconds."""
    return sum(os.times()[:4])


def kept_of(configs: Sequence[dict[str, int]], gpu: GpuModel) -> list[dict[str, int]]:
    """Return the configurations that pruning leaves."""
    try:
        return prune(configs, SPEC, gpu=gpu, rename={**RENAME}, dtype="fp16", **SIZES)
    except InfeasibleError:
        return []


def compiled(gpu: GpuModel, config: dict[str, int]) -> dict[str, object]:
    """Compile one configuration; return the compiler's figures and the seconds."""
    from benchmarks.pruning.kernel import matmul_kernel

    constants = {name: value for name, value in config.items() if name.isupper()}
    options = {name: value for name, value in config.items() if not name.isupper()}
    source = triton_source(matmul_kernel, SIGNATURE, constants, options)
    started = processor_s()
    try:
        built = build_triton(gpu, source)
    except UnsupportedError as error:
        return {"problem": str(error), "blocks_per_sm": 0, "compile_s": processor_s() - started}
    seconds = processor_s() - started
    taken = taken_by(gpu, built.threads, built.taken)
    return {
        "smem_bytes_per_block": taken.smem_bytes,
        "max_smem_bytes_per_block": gpu.sm.max_smem_bytes_per_block,
        "registers_per_thread": taken.registers_per_thread,
        "spill_bytes_per_thread": built.taken.spill_bytes,
        "blocks_per_sm": taken.blocks_per_sm,
        "problem": problem_of(gpu, taken),
        "compile_s": seconds,
    }


def measure(gpu: GpuModel, name: str, configs: Sequence[dict[str, int]], table: Table) -> list[dict[str, object]]:
    """Compile a whole list; a row for each configuration, whether it was kept or not."""
    kept = kept_of(configs, gpu)
    rows: list[dict[str, object]] = []
    for config in configs:
        own = {RENAME.get(n, n): value for n, value in config.items() if n != "GROUP_SIZE_M"}
        row = {"gpu": gpu.name, "list": name, **own, "is_kept": config in kept, **compiled(gpu, config)}
        table.add(**row)
        rows.append(row)
    return rows


def summary(rows: Sequence[dict[str, object]]) -> tuple[str, int]:
    """A line on one list for one GPU, and how many configurations were judged wrongly."""
    removed = [row for row in rows if not row["is_kept"]]
    kept = [row for row in rows if row["is_kept"]]
    whole, saved = (sum(float(str(row["compile_s"])) for row in of) for of in (rows, removed))
    wrong = sum(bool(row["blocks_per_sm"]) for row in removed)
    late = sum("bytes of" in str(row["problem"]) for row in kept)
    line = (
        f"{rows[0]['gpu']!s:15} {rows[0]['list']!s:14} {len(rows):4} configs, {len(kept):4} kept; {whole:6.1f} s to "
        f"compile all, {saved:6.1f} s saved ({saved / whole:.0%}); {wrong} removed that could run, {late} kept that do "
        "not fit"
    )
    return line, wrong + late


def main() -> None:
    """Prune and compile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="CSV file of all configurations")
    parser.add_argument("--gpus", nargs="+", default=GPUS)
    parser.add_argument("--lists", nargs="+", default=list(lists()), choices=list(lists()))
    arguments = parser.parse_args()
    num_wrong = 0
    with tempfile.TemporaryDirectory() as fresh:
        os.environ["TRITON_CACHE_DIR"] = fresh  # what was compiled before would count as quick
        with Table(
            arguments.out, COLUMNS, f"compiled without a GPU; compile_s is processor time; {described()}"
        ) as table:
            for gpu in map(load_gpu, arguments.gpus):
                for name in arguments.lists:
                    line, wrong = summary(measure(gpu, name, lists()[name], table))
                    print(line, flush=True)
                    num_wrong += wrong
    sys.exit(1 if num_wrong else 0)


if __name__ == "__main__":
    main()
