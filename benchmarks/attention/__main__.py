"""Check and time the attention of examples/attention on a GPU, beside torch's own and, where its file is, a tutorial's.

    python -m benchmarks.attention --write benchmarks/results/h200/attention.csv [--tutorial 06-fused-attention.py]

Every configuration is first held against fp64 on the last head of keys of the last sequence; a wrong one is not timed.
Times are medians of launches with cold caches, by `triton.testing.do_bench`; torch's is taken before and after.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.attention import FILE, load_attention
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel
from constrint.select import Candidate, Workload, rank
from constrint.tune import Trial, compile_many

SIZES = ("batch", "heads", "kv_heads", "length", "head_dim", "causal")
#: Batch, heads, heads of keys, positions, elements of a head, whether causal.
CASES = (
    (4, 32, 32, 4096, 128, 0),
    (4, 32, 32, 4096, 128, 1),
    (4, 32, 8, 4096, 128, 1),
    (4, 32, 32, 4096, 64, 1),
    (1, 32, 8, 16384, 128, 1),
    (16, 16, 16, 1024, 64, 0),
)
COLUMNS = (
    *SIZES,
    "dtype",
    "what",
    "tile_m",
    "tile_n",
    "num_warps",
    "num_stages",
    "predicted_us",
    "us",
    "tflops",
    "error",
)
CONFIG = ("tile_m", "tile_n", "num_warps", "num_stages")


def error_of(out: Any, wanted: Any) -> float:
    """The largest difference, over the largest expected magnitude."""
    return float((out.double() - wanted).abs().max() / wanted.abs().max())


def expected(q: Any, k: Any, v: Any, causal: int) -> Any:
    """Attention of the last head of keys of the last sequence in fp64."""
    import torch

    q, k, v = q[-1:, -(q.shape[1] // k.shape[1]) :].double(), k[-1:, -1:].double(), v[-1:, -1:].double()
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=True)


def median_us(call: Any) -> float:
    """Median time of a call with cold caches."""
    from triton.testing import do_bench

    return float(do_bench(call, warmup=10, rep=60, return_mode="median")) * 1e3


def candidates_of(case: tuple[int, ...], gpu: str, top: int) -> tuple[Workload, list[Candidate]]:
    """A case's workload and the first configurations of its ranking."""
    workload = Workload("attention", dict(zip(SIZES[:-1], case[:-1], strict=True)), "bf16", {"causal": case[-1]})
    return workload, list(rank(load_kernel(f"{FILE}:SPEC"), load_gpu(gpu), workload, top=top).candidates)


def rows_of(
    gpu: str, workload: Workload, candidates: Sequence[Candidate], refusals: Sequence[str], tutorial: Any
) -> list[dict[str, Any]]:
    """A row for each configuration, for torch and for the tutorial's kernel."""
    import torch

    sizes, causal = workload.sizes, workload.options["causal"]
    model, spec = load_gpu(gpu), load_attention("attention")
    torch.manual_seed(0)
    inputs = spec.inputs(model, workload, device="cuda")
    outputs = spec.outputs(model, workload, inputs)
    wanted = expected(inputs["q"], inputs["k"], inputs["v"], causal)
    operations = spec.num_operations(workload)
    known = {**sizes, "causal": causal, "dtype": "bf16"}

    def row(what: str, call: Any, result: Any, **more: Any) -> dict[str, Any]:
        off = error_of(result[-1:, -wanted.shape[1] :], wanted)
        us = median_us(call) if off < 0.02 else float("nan")
        return {
            **known,
            "what": what,
            **more,
            "us": round(us, 2),
            "tflops": round(operations / us / 1e6, 1),
            "error": off,
        }

    def torch_call() -> Any:
        q, k, v = inputs["q"], inputs["k"], inputs["v"]
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=True)

    rows = [row("torch", torch_call, torch_call())]
    for one, refusal in zip(candidates, refusals, strict=True):
        config = {name: one.config[name] for name in CONFIG}
        predicted = {"predicted_us": round(one.cost.seconds * 1e6, 2)}
        if refusal:
            rows.append({**known, "what": "constrint", **config, **predicted, "error": refusal})
            continue
        launch = spec.launches(model, workload, one.config, inputs, outputs)[0]
        outputs["out"].fill_(float("nan"))
        launch.run()
        rows.append(row("constrint", launch.run, outputs["out"], **config, **predicted))
    rows.append(row("torch", torch_call, torch_call()))
    if tutorial is not None and sizes["heads"] == sizes["kv_heads"] and sizes["length"] == 4096:
        known["dtype"] = "fp16"  # its only type of 16 bits
        q, k, v = (inputs[name].half() for name in "qkv")

        def tutorial_call() -> Any:
            return tutorial.attention(q, k, v, bool(causal), inputs["scale"], False)

        rows.append(row("tutorial", tutorial_call, tutorial_call()))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Time all cases; 1 if a configuration was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="h200", help="the model that ranks the configurations")
    parser.add_argument("--top", type=int, default=12, help="configurations of each case")
    parser.add_argument("--tutorial", type=Path, help="a file with Triton's tutorial of attention")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no further case is begun after these")
    parser.add_argument("--write", type=Path, required=True, metavar="CSV")
    options = parser.parse_args(arguments)
    tutorial = None
    if options.tutorial is not None:
        spec = importlib.util.spec_from_file_location("tutorial_attention", options.tutorial)
        if spec is None or spec.loader is None:
            print(f"{options.tutorial}: no Python file", file=sys.stderr)
            return 2
        tutorial = sys.modules["tutorial_attention"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(tutorial)
    start, wrong = time.monotonic(), 0
    with options.write.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        cases = [candidates_of(case, options.gpu, options.top) for case in CASES]
        trials = [Trial("attention", workload, dict(one.config)) for workload, found in cases for one in found]
        results = iter(compile_many(load_attention, load_gpu(options.gpu), trials, into_cache=True))
        print(f"{time.monotonic() - start:5.1f} s: compiled {len(trials)}", flush=True)
        for case, (workload, found) in zip(CASES, cases, strict=True):
            refusals = [str(next(results)) for _ in found]
            if time.monotonic() - start > options.seconds:
                print("no time for", case)
                continue
            rows = rows_of(options.gpu, workload, found, refusals, tutorial)
            writer.writerows(rows)
            file.flush()
            wrong += sum(isinstance(row["error"], float) and not row["error"] < 0.02 for row in rows)
            best = min((row for row in rows if row["what"] == "constrint" and "us" in row), key=lambda row: row["us"])
            others = ", ".join(f"{row['what']} {row['us']}" for row in rows if row["what"] != "constrint")
            print(f"{time.monotonic() - start:5.1f} s {case}: best {best['us']} us, {others}", flush=True)
    print(wrong, "wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
