"""Time configurations of the recurrent kernels' modelled spaces on a GPU, and fit the cost model's weights to them.

    python benchmarks/bench_rnn_space.py plan --gpu h200 --out plan.json       # no GPU; needs constrint
    python benchmarks/bench_rnn_space.py run plan.json --out rnn_space.csv     # needs torch, triton and the GPU
    python benchmarks/bench_rnn_space.py fit rnn_space.csv --gpu h200          # no GPU: weights of a step's parts
    python benchmarks/bench_rnn_space.py score rnn_space.csv --gpu h200        # no GPU: first choice against the best

`run` compiles in parallel, checks every configuration against the reference in fp64 on fresh inputs, and writes one
row per configuration.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import random
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

# cell, heads, head_dim, dtype; T = 1024
LAYERS = [
    ("lstm", 24, 32, "bf16"), ("lstm", 12, 64, "bf16"), ("lstm", 8, 96, "bf16"), ("lstm", 6, 128, "bf16"),
    ("lstm", 1, 256, "bf16"), ("lstm", 1, 512, "bf16"), ("lstm", 1, 768, "bf16"), ("lstm", 1, 1024, "bf16"),
    ("gru", 12, 64, "bf16"), ("gru", 6, 128, "bf16"), ("gru", 1, 768, "bf16"),
    ("slstm", 12, 64, "bf16"), ("slstm", 1, 768, "bf16"),
    ("elman", 12, 64, "bf16"), ("elman", 6, 128, "bf16"), ("elman", 1, 768, "bf16"),
    ("lstm", 12, 64, "fp32"), ("lstm", 12, 64, "tf32"), ("lstm", 1, 256, "fp32"), ("lstm", 12, 64, "fp16"),
]  # fmt: skip
BATCHES = (16, 64)
TIME = 1024
KEYS = ("tile_batch", "tile_out", "row_split", "num_warps", "num_stages", "split_depth", "recompute")
FIELDS = ("cell", "heads", "head_dim", "dtype", "batch", "direction", *KEYS)
#: Relative error of outputs and gradients that a correct kernel stays below, by the rounding of its operands: 2^-9
#: (bf16), 2^-11 (fp16, tf32), and 2^-21 of three tf32 products, times 16 for the sums of the check's 13 steps.
BOUNDS = {"bf16": 16 * 2.0**-9, "fp16": 16 * 2.0**-11, "tf32": 16 * 2.0**-11, "fp32": 16 * 2.0**-21}
TORCH_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "tf32": "float32", "fp32": "float32"}


def write_plan(args: argparse.Namespace) -> None:
    """Choose configurations: the model's first ones and a random sample of the valid ones, for every layer."""
    from constrint.errors import ConstrintError
    from constrint.hwmodels import load_gpu
    from constrint.kernels.registry import load_spec
    from constrint.kernels.rnn.spec import workload_of
    from constrint.select import rank
    from constrint.solve import enumerate_space

    gpu = load_gpu(args.gpu)
    rng = random.Random(args.seed)
    rows: list[list[Any]] = []
    for cell, heads, dim, dtype in LAYERS:
        for batch in BATCHES if (cell, dtype) == ("lstm", "bf16") else BATCHES[:1]:
            for direction in ("forward", "backward"):
                workload = workload_of(cell, (batch, TIME, heads, dim), dtype, direction)
                spec = load_spec(f"{workload.operation}.triton")
                try:
                    first = [dict(c.config) for c in rank(spec, gpu, workload, top=args.top).candidates]
                except ConstrintError as error:
                    print(f"{workload}: {str(error).splitlines()[0]}", file=sys.stderr)
                    continue
                space = enumerate_space(spec.problem(gpu, workload))
                sample = list(space.sample(min(args.sample, space.size), seed=rng.randrange(2**31)))
                if direction == "backward":
                    sample = [dict(c) | {"recompute": 0} for c in sample]
                chosen = {tuple(c[key] for key in KEYS): None for c in [*first, *sample]}
                rows += [[cell, heads, dim, dtype, batch, direction, *config] for config in chosen]
    args.out.write_text(json.dumps({"gpu": gpu.name, "rows": rows}))
    print(f"{len(rows)} configurations", file=sys.stderr)


def inputs(row: dict[str, Any], batch: int, time: int, seed: int = 0) -> tuple[Any, ...]:
    """Random wx, r, b and gradients of the states, on the device."""
    import torch

    from constrint.kernels.rnn.cells import CELLS

    cell = CELLS[row["cell"]]
    dtype = getattr(torch, TORCH_DTYPES[row["dtype"]])
    generator = torch.Generator(device="cuda").manual_seed(seed)
    heads, dim, gates = row["heads"], row["head_dim"], cell.num_gates

    def draw(*sizes: int) -> Any:
        return torch.randn(sizes, generator=generator, device="cuda")

    wx = draw(batch, time, gates, heads, dim).to(dtype)
    r = (draw(gates, heads, dim, dim) / dim**0.5).to(dtype)
    b = (0.3 * draw(gates, heads, dim)).to(dtype)
    return wx, r, b, (draw(batch, time, heads, dim).to(dtype), *[None] * (cell.num_states - 1))


def choice_of(row: dict[str, Any], direction: str) -> Any:
    """The configuration in a row, as if it had been chosen."""
    from constrint.kernels.rnn.spec import workload_of
    from constrint.select.first_choice import Choice

    sizes = (row["batch"], TIME, row["heads"], row["head_dim"])
    workload = workload_of(row["cell"], sizes, row["dtype"], direction)
    return Choice(None, f"{workload.operation}.triton", {key: row[key] for key in KEYS}, workload=workload)


def relative_error(actual: Any, expected: Any) -> float:
    """Norm of the difference over the norm, in fp64."""
    return float(((actual.double() - expected).norm() / expected.norm()).item())


def check(row: dict[str, Any]) -> tuple[str, float]:
    """Compile a configuration and compare it with the reference: (outcome, largest error over bound)."""
    import torch

    from constrint.kernels.rnn.interface import RnnInputs, RnnSaved, RnnUpstream
    from constrint.kernels.rnn.reference import rnn_reference
    from constrint.kernels.rnn.triton import launch

    try:
        wx, r, b, grads = inputs(row, 5, 13)
        given, choice = RnnInputs(row["cell"], wx, r, b, None, None, None), choice_of(row, row["direction"])
        exact = [x.double().requires_grad_(True) for x in (wx, r, b)]
        expected = rnn_reference(row["cell"], *exact)[0]
        if row["direction"] == "forward":
            saved = launch.forward(given, choice, save_gates=not row["recompute"])
            errors = [relative_error(saved.states, expected.detach())]
        else:
            wanted = torch.autograd.grad((expected[0] * grads[0].double()).sum(), exact)
            states = expected.detach().to(wx.dtype)
            upstream = RnnUpstream(grads, (None,) * len(grads))
            found = launch.backward(given, RnnSaved(states, None), upstream, choice, clip=0.0)
            errors = [relative_error(a, e) for a, e in zip((found.wx, found.r, found.b), wanted, strict=True)]
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - recorded as the row's outcome
        return type(error).__name__ + ": " + str(error).splitlines()[0][:60], float("nan")
    worst = max(errors) / BOUNDS[row["dtype"]]
    return ("ok" if worst <= 1.0 else "wrong result"), worst


def median_ms(call: Any, repeats: int = 9) -> float:
    """Median time of a call by device events, after two calls to warm up."""
    import torch

    call()
    call()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def measure(row: dict[str, Any]) -> tuple[float, float]:
    """(loop, whole call) in ms; in the backward direction the whole call has the weight gradients."""
    from constrint.kernels.rnn import gradients
    from constrint.kernels.rnn.interface import RnnInputs, RnnUpstream
    from constrint.kernels.rnn.triton import launch

    wx, r, b, grads = inputs(row, row["batch"], TIME)
    cell, choice = row["cell"], choice_of(row, row["direction"])
    given = RnnInputs(cell, wx, r, b, None, None, None)
    if row["direction"] == "forward":
        whole = median_ms(lambda: launch.forward(given, choice, save_gates=not row["recompute"]))
        return whole, whole
    forward = FORWARD.get((cell, row["head_dim"], row["dtype"]), row)
    saved = launch.forward(given, choice_of(forward, "forward"), save_gates=True)
    upstream, no_bias = RnnUpstream(grads, (None,) * len(grads)), RnnInputs(cell, wx, r, None, None, None, None)
    whole = median_ms(lambda: launch.backward(given, saved, upstream, choice, clip=0.0))
    gradient = gradients.weight_gradient
    gradients.weight_gradient = lambda *_, **__: r  # the loop alone
    try:
        loop = median_ms(lambda: launch.backward(no_bias, saved, upstream, choice, clip=0.0))
    finally:
        gradients.weight_gradient = gradient
    return loop, whole


#: A row whose forward configuration worked, to make the backward direction's inputs.
FORWARD: dict[tuple[str, int, str], dict[str, Any]] = {}


def run_plan(args: argparse.Namespace) -> None:
    """Check all configurations in parallel, then time the right ones one after the other."""
    import torch
    import triton

    plan = json.loads(args.plan.read_text())
    rows = [dict(zip(FIELDS, row, strict=True)) for row in plan["rows"]]
    outcomes: dict[int, tuple[str, float]] = {}
    pool = ProcessPoolExecutor(max(1, (os.cpu_count() or 2) - 1), mp_context=multiprocessing.get_context("spawn"))
    futures = {pool.submit(check, row): i for i, row in enumerate(rows)}
    try:
        for future in as_completed(futures, timeout=args.check_limit):
            outcomes[futures[future]] = future.result()
    except Exception as error:  # noqa: BLE001 - what was checked until then is timed
        print(f"checks ended early: {type(error).__name__}", file=sys.stderr)
    for process in list(pool._processes.values()):
        process.kill()
    with args.out.open("w", newline="") as file:
        version = f"torch {torch.__version__}, triton {triton.__version__}, {torch.cuda.get_device_name()}"
        file.write(f"# measured: {version}, T={TIME}\n")
        writer = csv.writer(file)
        writer.writerow([*FIELDS, "outcome", "error_over_bound", "loop_ms", "whole_ms"])
        for i, row in enumerate(rows):
            outcome, error = outcomes.get(i, ("not checked", float("nan")))
            times = (float("nan"), float("nan"))
            if outcome == "ok":
                try:
                    times = measure(row)
                    if row["direction"] == "forward":
                        FORWARD[row["cell"], row["head_dim"], row["dtype"]] = row
                except Exception as failure:  # noqa: BLE001 - recorded as the row's outcome
                    outcome = type(failure).__name__ + " at full size"
            writer.writerow([*(row[f] for f in FIELDS), outcome, f"{error:.3f}", *(f"{t:.4f}" for t in times)])
            file.flush()
    bad = [o for o, _ in outcomes.values() if o != "ok"]
    print(f"{len(rows)} configurations, {len(outcomes)} checked, not ok: {len(bad)} {sorted(set(bad))}")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The right and timed rows of a table."""
    with path.open() as file:
        file.readline()
        rows = [r for r in csv.DictReader(file) if r["outcome"] == "ok" and r["loop_ms"] != "nan"]
    integers = {"heads", "head_dim", "batch", *KEYS}
    return [{k: int(v) if k in integers else v for k, v in row.items()} for row in rows]


def main() -> None:
    """Dispatch to plan, run, fit or score."""
    from rnn_space_fit import fit, score

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    plan = commands.add_parser("plan")
    plan.add_argument("--gpu", required=True)
    plan.add_argument("--top", type=int, default=4)
    plan.add_argument("--sample", type=int, default=7)
    plan.add_argument("--seed", type=int, default=1)
    plan.add_argument("--out", type=Path, required=True)
    plan.set_defaults(call=write_plan)
    run = commands.add_parser("run")
    run.add_argument("plan", type=Path)
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--check-limit", type=float, default=240.0, help="seconds for all checks together")
    run.set_defaults(call=run_plan)
    for name, call in (("fit", fit), ("score", score)):
        command = commands.add_parser(name)
        command.add_argument("results", type=Path)
        command.add_argument("--gpu", required=True)
        command.set_defaults(call=call)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
