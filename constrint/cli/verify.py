"""`constrint verify`: compile the first choices for a GPU, without a GPU, and print predicted beside compiled."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint.cli.request import Dtype, Gpu, Json, Set, Size, Where
from constrint.errors import UnsupportedError

if TYPE_CHECKING:
    from constrint.hwmodels import GpuModel
    from constrint.select import Candidate
    from constrint.tune import CompiledKernel

SCHEMA = "constrint.verify/1"


@dataclass(frozen=True)
class Verdict:
    """One configuration: what was predicted, what was compiled, and what that means."""

    candidate: Candidate
    compiled: CompiledKernel | None
    blocks_per_sm: int | None
    problem: str


def verify(
    gpu: Gpu,
    kernel: Annotated[str, typer.Option("--kernel", help="Kernel.")] = "gemm",
    m: Size = None,
    n: Size = None,
    k: Size = None,
    batch: Size = None,
    time: Size = None,
    heads: Size = None,
    head_dim: Size = None,
    dtype: Dtype = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many of the best configurations to compile.")] = 10,
    set_: Set = None,
    where: Where = None,
    json: Json = False,
) -> None:
    """Compile the best configurations for a GPU (no GPU needed) and compare them with the model."""
    from constrint.cli.request import requests
    from constrint.kernels.registry import load_compiler
    from constrint.select import rank

    sizes = {"m": m, "n": n, "k": k, "batch": batch, "time": time, "heads": heads, "head_dim": head_dim}
    (request,) = requests(gpu, kernel, sizes, dtype, set_, where)
    compile_config = load_compiler(request.spec.name)
    atexit.register(_mute)
    ranking = rank(request.spec, request.gpu, request.workload, top=top, problem=request.problem)
    verdicts = []
    for done, candidate in enumerate(ranking.candidates, 1):
        if sys.stderr.isatty():
            print(f"\rcompiling {done} of {len(ranking.candidates)}", end="", file=sys.stderr)
        try:
            compiled = compile_config(request.gpu, request.workload, candidate.config)
        except UnsupportedError as error:
            verdicts.append(Verdict(candidate, None, None, str(error)))
        else:
            verdicts.append(_judge(request.gpu, candidate, compiled))
    if sys.stderr.isatty():
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    if json:
        from constrint.cli.output import print_json

        print_json({"schema": SCHEMA, "gpu": request.gpu.name, "results": [_document(v) for v in verdicts]})
    else:
        _print(request.gpu, str(request.workload), verdicts)
    if any(v.compiled is None or not v.blocks_per_sm for v in verdicts):
        raise typer.Exit(1)


def _mute() -> None:
    """Say nothing more: Triton 3.9's bindings list pages of objects that a Gluon kernel leaves behind at the end."""
    sys.stderr.flush()
    with suppress(OSError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)


def _judge(gpu: GpuModel, candidate: Candidate, compiled: CompiledKernel) -> Verdict:
    from constrint.hwmodels import occupancy

    if compiled.smem_bytes > gpu.sm.max_smem_bytes_per_block:
        return Verdict(candidate, compiled, 0, f"over the {gpu.sm.max_smem_bytes_per_block:,} bytes of shared memory")
    blocks = int(
        occupancy(
            gpu,
            threads_per_block=candidate.resources.threads,
            registers_per_thread=compiled.registers_per_thread,
            smem_bytes_per_block=compiled.smem_bytes,
        ).blocks_per_sm
    )
    problem = f"spills {compiled.spill_bytes} bytes a thread" if compiled.spill_bytes else ""
    if not compiled.instruction:
        problem = problem or "no matrix instruction"
    return Verdict(candidate, compiled, blocks, problem if blocks else "cannot be launched: registers")


def _document(verdict: Verdict) -> dict[str, Any]:
    from constrint.kernels.gemm.triton_versions import is_verified

    use, compiled = verdict.candidate.resources, verdict.compiled
    return {
        "config": dict(verdict.candidate.config),
        "modelled": {
            "smem_bytes_per_block": use.smem_bytes,
            "registers_per_thread": use.registers_per_thread,
            "blocks_per_sm": use.blocks_per_sm,
        },
        "compiled": None
        if compiled is None
        else {
            "target": compiled.target,
            "triton_version": compiled.triton_version,
            "is_verified_version": is_verified(compiled.triton_version),
            "smem_bytes_per_block": compiled.smem_bytes,
            "registers_per_thread": compiled.registers_per_thread,
            "spill_bytes_per_thread": compiled.spill_bytes,
            "blocks_per_sm": verdict.blocks_per_sm,
            "instruction": compiled.instruction,
        },
        "problem": verdict.problem,
    }


def _print(gpu: GpuModel, workload: str, verdicts: list[Verdict]) -> None:
    from constrint.cli.config_columns import ConfigColumns
    from constrint.cli.output import print_table, say, wrap
    from constrint.kernels.gemm.triton_versions import caution

    versions = {v.compiled.triton_version for v in verdicts if v.compiled}
    say(f"{workload} on {gpu.name} ({gpu.arch.target}): modelled / compiled by triton {', '.join(sorted(versions))}")
    say()
    columns = ConfigColumns.of([verdict.candidate.config for verdict in verdicts])
    smem = "LDS" if gpu.vendor == "amd" else "smem"
    rows = []
    for place, verdict in enumerate(verdicts, 1):
        use, compiled = verdict.candidate.resources, verdict.compiled
        # What the model calls valid does not spill: 0 bytes.
        predicted = (use.smem_bytes, use.registers_per_thread, 0, use.blocks_per_sm)
        row: list[object] = [place, *columns.cells(verdict.candidate.config)]
        if compiled is None:
            rows.append([*row, *predicted, verdict.problem])
            continue
        actual = (compiled.smem_bytes, compiled.registers_per_thread, compiled.spill_bytes, verdict.blocks_per_sm)
        row += [f"{one}/{other}" for one, other in zip(predicted, actual, strict=True)]
        rows.append([*row, verdict.problem or compiled.instruction])
    print_table(
        ["#", *columns.titles, smem, "regs", "spill", "blk", "compiled to"], rows, left=(columns.title, "compiled to")
    )
    say()
    if columns.same:
        say(wrap(columns.same_text()))
    legend = columns.legend | {smem: "bytes a block", "regs": "registers a thread", "spill": "bytes a thread"}
    legend |= {"blk": f"blocks {'a CU' if gpu.vendor == 'amd' else 'an SM'}"}
    say(wrap("columns: " + ", ".join(f"{short} = {long}" for short, long in legend.items())))
    found = [v for v in verdicts if v.compiled]
    for text in filter(None, map(caution, sorted(versions))):
        say()
        say(wrap(text))
    if found:
        exact = sum(v.candidate.resources.smem_bytes == v.compiled.smem_bytes for v in found if v.compiled)
        errors = sorted(
            abs(v.candidate.resources.registers_per_thread / v.compiled.registers_per_thread - 1)
            for v in found
            if v.compiled
        )
        say()
        say(
            wrap(
                f"{smem} exact for {exact} of {len(found)}; registers off by {errors[len(errors) // 2]:.0%} (median); "
                f"{sum(bool(v.problem) for v in verdicts)} with a problem"
            )
        )
