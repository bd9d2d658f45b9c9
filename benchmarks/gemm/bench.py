"""`matmul` beside cuBLAS, torch's other products and its Triton template, on the GPU of this machine.

    python -m benchmarks.gemm.bench --out gemm.csv              # 63 shapes in bf16 and fp16, 8 in each other dtype
    python -m benchmarks.gemm.bench --out gemm.csv --quick      # some 20 cases, under two minutes
    python -m benchmarks.gemm.bench --out gemm.csv --drawn 300  # as many products drawn at random, of bf16 and fp16
    python -m benchmarks.gemm.bench --out gemm.csv --dtypes fp8 # 8 shapes, beside torch._scaled_mm
    python -m benchmarks.gemm.bench --out gemm.csv --hard       # shapes on which kernels in Triton were slower
    python -m benchmarks.gemm.bench --out gemm.csv --template   # torch.compile(mode="max-autotune"), too: a few shapes
    python -m benchmarks.gemm.bench --show gemm.csv             # what such a file says; no GPU

Each row says who was timed (`kernels`: the first choice among our kernels; `candidate`: each of the model's first
eight of these, by which the quickest is picked; `best of 8`: that one, timed again; `matmul`: the choice among all,
which may be torch's own product; a peer) and how: `call` is the public call from plain Python, calls back to back;
`cold` and `warm` are the kernel alone in a CUDA graph, after the L2 was overwritten and back to back. Whoever is
compared is timed in turn, in several rounds.
The floor is the larger of operations over the highest rate and bytes over the highest bandwidth that this run measured.
Ratios are the peer's time over ours. Results are checked against a product in higher precision.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gemm.tables import make_tables
from benchmarks.harness.peers import products, set_precision, triton_template
from benchmarks.harness.table import Table, attempt, described, print_ratios, read_rows
from benchmarks.harness.workloads import DTYPE_SHAPES, GEMM_SHAPES, HARD_SHAPES, columns_of, drawn_gemms, gemm
from constrint.choose.decision import Decision
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.candidates import best_configs, decide_product
from constrint.kernels.gemm.library.spec import LIBRARY
from constrint.kernels.gemm.product import Product
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.launch.look import look
from constrint.kernels.launch.policy import launch_what_fits
from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.select.spec import Launch
from constrint.tune import Trial, compile_many
from constrint.tune.check import Case
from constrint.tune.measure import Call, Measurement, Timer, call_of

COLUMNS = (
    *("m", "n", "k", "dtype", "layout", "who", "how", "median_us", "spread_us", "floor_us", "outcome", "prepare_ms"),
    *("kernel", "config", "predicted_us"),
)
#: (dtype, layout of A and B) of every shape, of every third shape, and of the few shapes for other types.
EVERYWHERE = (("bf16", "rr"), ("fp16", "rc"))
EVERY_THIRD = (("bf16", "rc"), ("fp16", "cr"), ("bf16", "cc"))
OTHERS = (("fp8", "rc"), ("int8", "rc"), ("tf32", "rc"), ("fp32", "rc"))
#: Shapes of the quick run, in bf16 by rows, and of the comparison with torch's template, which takes seconds for each.
QUICK = (
    *((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)),
    *((16, 4096, 4096), (64, 8192, 8192), (128, 4096, 11008), (1024, 3072, 768), (16384, 3072, 768)),
    *((4096, 4096, 512), (333, 777, 1555)),
)
ROUNDS, FINAL_ROUNDS = 21, 45
#: Why torch's own product is not chosen where our kernels are timed.
ALONE = "our kernels alone"


@dataclass(frozen=True)
class Peaks:
    """Peak rates that this run measured on the device, for the floor."""

    flop_per_s: Mapping[str, float]
    bytes_per_s: float

    def floor_s(self, workload: Workload, num_bytes: int) -> float:
        """The least time of a product."""
        m, n, k = workload.sizes.values()
        rate = self.flop_per_s.get(workload.dtype, 0.0)
        return max(2.0 * m * n * k / rate if rate else 0.0, num_bytes / self.bytes_per_s)


def measured_peaks(timer: Timer, cases: list[Workload], gpu: GpuModel) -> Peaks:
    """The library's rate on a large product of every dtype, and what a kernel that copies reads and writes."""
    rates: dict[str, float] = {}
    for dtype in {workload.dtype for workload in cases if "three_pass" not in workload.options}:
        workload = gemm((8192, 8192, 4096), dtype, "rc")
        set_precision(workload)
        inputs = load_spec("gemm.pointer").inputs(gpu, workload, device="cuda")
        for call in products(workload, inputs["a"], inputs["b"]).values():
            seconds = timer.warm([call], 5e-4)[0].median_s
            rates[dtype] = max(rates.get(dtype, 0.0), 2.0 * 8192 * 8192 * 4096 / seconds)
    source = torch.empty(2**29, dtype=torch.bfloat16, device="cuda").normal_()
    target = torch.empty_like(source)
    # A kernel, not a copy: in a graph torch's copy becomes a transfer that runs at two thirds of the bandwidth.
    seconds = timer.warm([partial(torch.neg, source, out=target)], 5e-4)[0].median_s
    return Peaks(rates, 4 * source.numel() / seconds)


def cases_of(args: argparse.Namespace) -> list[Workload]:
    """Every shape, dtype and layout."""
    if args.drawn:
        return drawn_gemms(args.drawn, args.seed)
    if args.hard:
        shapes = (*HARD_SHAPES, (3, 50257, 768))
        return [gemm(shape, *which) for shape in shapes for which in (("bf16", "rr"), ("fp16", "rr"), ("bf16", "rc"))]
    if args.quick:
        few = [gemm(shape, dtype, layout) for dtype, layout in OTHERS for shape in DTYPE_SHAPES[1:3]]
        return [gemm(shape) for shape in QUICK] + few
    every = [gemm(shape, *which) for shape in GEMM_SHAPES for which in EVERYWHERE]
    every += [gemm(shape, *which) for shape in GEMM_SHAPES[::3] for which in EVERY_THIRD]
    every += [gemm(shape, *which) for which in OTHERS for shape in DTYPE_SHAPES]
    return [workload for workload in every if args.dtypes is None or workload.dtype in args.dtypes][:: args.every]


@dataclass(frozen=True)
class Bench:
    """State that all cases share."""

    gpu: GpuModel
    timer: Timer
    table: Table
    peaks: Peaks
    with_template: bool

    def run(self, workload: Workload, choices: list[Decision], chosen: Decision, choose_ms: float) -> None:
        """Check and time one case; write its rows."""
        set_precision(workload)
        case = Case(load_spec(choices[0].kernel), self.gpu, workload, device="cuda")
        choices, chosen = self._launched(case, choices, chosen)
        a, b = case.inputs["a"], case.inputs["b"]
        tensors = (a, b, *case.outputs.values())
        floor_s = self.peaks.floor_s(workload, sum(t.numel() * t.element_size() for t in tensors))
        ours = self._ours(case, choices, floor_s)
        is_ours = chosen.kernel != LIBRARY
        if not is_ours:
            ours["matmul"] = chosen, case_launches(case, chosen)
        wrong = {who for who, (_, launches) in ours.items() if not case.check(launches) <= 1.0}
        wrong |= {"matmul"} if not case.check([_Public(case)]) <= 1.0 else set()
        peers, prepare_ms = products(workload, a, b), dict.fromkeys(("matmul", "kernels"), choose_ms)
        if self.with_template and (*workload.sizes.values(),) in QUICK and workload.dtype == "bf16":
            peers["torch.compile"], prepare_ms["torch.compile"] = _prepared_template(a, b)
        alone = {who: call_of(launches) for who, (_, launches) in ours.items()} | peers
        calls: dict[str, Call] = {"kernels": partial(matmul, a[0], b[0], kernel="kernels"), **peers}
        if not is_ours:
            calls["matmul"] = partial(matmul, a[0], b[0])
        for how, figures in self._figures(alone, calls).items():
            if is_ours:  # the choice among all is the first one of ours, and takes what that took
                ours["matmul"], figures["matmul"] = ours["kernels"], figures["kernels"]
            for who, figure in figures.items():
                choice = ours[who][0] if who in ours else None
                outcome = "wrong result" if who in wrong else "ok"
                took_ms = prepare_ms.get(who, float("nan"))
                self._add(workload, (who, how), figure, floor_s, choice, outcome=outcome, prepare_ms=took_ms)

    def _launched(self, case: Case, choices: list[Decision], chosen: Decision) -> tuple[list[Decision], Decision]:
        """What calls launch in the end, of our kernels and among all: they pass over a first choice that spills."""

        def start(choice: Decision, /, *, may_spill: bool) -> None:
            if choice.kernel != LIBRARY and not may_spill:
                look(case_launches(case, choice))

        first = launch_what_fits(choices[0], start)
        others = [choice for choice in choices if (choice.kernel, choice.config) != (first.kernel, first.config)]
        return [first, *others][: len(choices)], launch_what_fits(chosen, start)

    def _add(
        self, workload: Workload, who_how: tuple[str, str], figure: Measurement, floor_s: float,
        choice: Decision | None, *, outcome: str = "ok", prepare_ms: float = float("nan"),
    ) -> None:  # fmt: skip
        """Write one row."""
        ours = {}
        if choice is not None:
            config = " ".join(map(str, choice.config.values()))
            ours = {"kernel": choice.kernel, "config": config, "predicted_us": 1e6 * choice.seconds}
        self.table.add(
            **columns_of(workload),
            **dict(zip(("who", "how"), who_how, strict=True)),
            median_us=1e6 * figure.median_s,
            spread_us=1e6 * figure.spread_s,
            floor_us=1e6 * floor_s,
            outcome=outcome,
            prepare_ms=prepare_ms,
            **ours,
        )

    def _ours(
        self, case: Case, choices: list[Decision], floor_s: float
    ) -> dict[str, tuple[Decision, Sequence[Launch]]]:
        """Our first choice, and the quickest of ours where there are several, with their launches."""
        every = [case_launches(case, choice) for choice in choices]
        ours = {"kernels": (choices[0], every[0])}
        if len(choices) > 1:
            cold = self.timer.cold([self.timer.graph(call_of(launches)) for launches in every], ROUNDS)
            quickest = min(range(len(choices)), key=lambda i: cold[i].median_s)
            for choice, figure in zip(choices, cold, strict=True):
                self._add(case.workload, ("candidate", "picked"), figure, floor_s, choice)
            # It is timed once more, so that the figure that picked it is not the one it is judged by.
            ours[f"best of {len(choices)}"] = choices[quickest], every[quickest]
        return ours

    def _figures(self, alone: dict[str, Call], calls: dict[str, Call]) -> dict[str, dict[str, Measurement]]:
        """By how: who took how long."""
        graphs = [self.timer.graph(call) for call in alone.values()]
        cold = self.timer.cold(graphs, FINAL_ROUNDS)
        warm = self.timer.warm(list(alone.values()), cold[0].median_s)
        python = self.timer.from_python(list(calls.values()))
        return {
            "call": dict(zip(calls, python, strict=True)),
            "cold": dict(zip(alone, cold, strict=True)),
            "warm": dict(zip(alone, warm, strict=True)),
        }


def case_launches(case: Case, choice: Decision) -> Sequence[Launch]:
    """The launches of a choice for a case."""
    return load_spec(choice.kernel).launches(case.gpu, case.workload, choice.config, case.inputs, case.outputs)


def _prepared_template(a: Any, b: Any) -> tuple[Call, float]:
    """Torch's template, compiled and tuned, and the milliseconds that took."""
    started = time.perf_counter()
    call = triton_template(a, b)
    call()
    torch.cuda.synchronize()
    return call, 1e3 * (time.perf_counter() - started)


@dataclass(frozen=True)
class _Public:
    """The public call as a launch, to be checked like one; it is no kernel that could be compiled."""

    case: Case
    compile: Any = None

    def run(self) -> None:
        """Copy what the public call returns to where the checker looks."""
        inputs, (out,) = self.case.inputs, self.case.outputs.values()
        out.copy_(matmul(inputs["a"][0], inputs["b"][0])[None])


def plan(gpu: GpuModel, cases: list[Workload], top: int) -> list[tuple[Workload, list[Decision], Decision, float]]:
    """Our choices of every case, that among all, and its milliseconds; all cores make tables and compile kernels."""
    make_tables(gpu.name, cases)
    decide_product(gpu, Product.of(gemm((128, 128, 128))))
    planned = []
    for workload in cases:
        product = Product.of(workload)
        started = time.perf_counter()
        chosen = decide_product(gpu, product)
        choose_ms = 1e3 * (time.perf_counter() - started)
        alone = replace(product, no_library=ALONE)
        planned.append((workload, best_configs(gpu, alone, top), chosen, choose_ms))
    started = time.perf_counter()
    trials = [Trial(c.kernel, workload, dict(c.config)) for workload, choices, *_ in planned for c in choices]
    failed = [outcome for outcome in compile_many(load_spec, gpu, trials, into_cache=True) if outcome]
    print(
        f"compiled {len(trials)} in {time.perf_counter() - started:.0f} s; failed: {failed[:3] or 'none'}", flush=True
    )
    return planned


def print_table(rows: list[dict[str, Any]]) -> None:
    """One line per case with its cold figures, then the ratios of every dtype, peer and how."""
    print("M x N x K            dtype      floor  us of each, cold L2")
    ratios: dict[tuple[str, str, str, str], list[float]] = {}
    for key, group in itertools.groupby(rows, key=lambda row: [row[name] for name in COLUMNS[:5]]):
        of_case = [row for row in group if row["outcome"] == "ok" and "who" in row]
        if not of_case:
            print(*key, "failed")
            continue
        shown = ", ".join(f"{r['who']} {float(r['median_us']):.1f}" for r in of_case if r["how"] == "cold")
        shape = "x".join(map(str, key[:3])).ljust(20)
        print(f"{shape} {key[3]:5s}{key[4]} {float(of_case[0]['floor_us']):8.1f}  {shown}")
        ours = [row for row in of_case if row.get("kernel")]
        for mine, theirs in itertools.product(ours, of_case):
            if mine["how"] == theirs["how"] and not theirs.get("kernel"):
                name = (key[3], theirs["who"], mine["who"], mine["how"])
                ratios.setdefault(name, []).append(float(theirs["median_us"]) / float(mine["median_us"]))
    for (dtype, peer, who, how), found in sorted(ratios.items()):
        print_ratios(f"{dtype}: {peer} / {who}, {how}", found)
    spreads = [float(r["spread_us"]) / float(r["median_us"]) for r in rows if r.get("how") == "cold"]
    of_ours = [row for row in rows if (row.get("how"), row.get("who"), row["outcome"]) == ("cold", "kernels", "ok")]
    took: dict[str, list[float]] = {}
    for row in of_ours:
        took.setdefault(row["kernel"], []).append(float(row["median_us"]) / float(row["predicted_us"]))
    for kernel, ratios_of in sorted(took.items()):
        print(f"{kernel}, measured over predicted, cold: median {statistics.median(ratios_of):.3f} of {len(ratios_of)}")
    shown_cases = [row for row in rows if row.get("how") == "cold" and row.get("who") == "matmul"]
    left = sum(row["kernel"] == LIBRARY for row in shown_cases)
    print(f"matmul leaves {left} of {len(shown_cases)} cases to torch's own product")
    if spreads:
        print(f"spread, cold (80th less 20th percentile, of the median): median {statistics.median(spreads):.3f}")


def main() -> None:
    """Choose, compile, then time case by case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=Path)
    where.add_argument("--show", type=Path, metavar="FILE", help="print what a file says instead")
    parser.add_argument("--quick", action="store_true", help="some 20 cases, the first choice alone")
    parser.add_argument("--hard", action="store_true", help="the shapes of benchmarks.gemm.cuda, three cases each")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="N products drawn at random instead")
    parser.add_argument("--seed", type=int, default=None, help="of what is drawn; another one each time if left out")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="S", help="begin no case after S seconds")
    parser.add_argument("--every", type=int, default=1, help="only every N-th case")
    parser.add_argument("--dtypes", nargs="+", default=None, help="only these, where nothing is drawn")
    parser.add_argument("--top", type=int, default=8, help="also the best of the first N choices; 1: not")
    parser.add_argument("--template", action="store_true", help="torch's Triton template, a few shapes")
    args = parser.parse_args()
    if args.show:
        print_table(read_rows(args.show))
        return
    gpu, end = gpu_of(torch.device("cuda")), time.monotonic() + args.limit
    args.seed = secrets.randbits(32) if args.seed is None else args.seed
    if gpu is None:
        parser.exit(1, "this GPU has no hardware model\n")
    cases, timer = cases_of(args), Timer()
    planned = plan(gpu, cases, 1 if args.quick else args.top)
    peaks = measured_peaks(timer, cases, gpu)
    rates = ", ".join(f"{dtype} {rate / 1e12:.0f} TFLOP/s" for dtype, rate in peaks.flop_per_s.items())
    seed = f"; drawn with seed {args.seed}" if args.drawn else ""
    note = f"measured on {described()}{seed}; {rates}, copy {peaks.bytes_per_s / 1e12:.2f} TB/s"
    print(note, flush=True)
    with Table(args.out, COLUMNS, note) as table:
        bench = Bench(gpu, timer, table, peaks, args.template)
        for workload, choices, chosen, choose_ms in planned:
            if time.monotonic() > end:
                done = {tuple(map(row.get, COLUMNS[:5])) for row in table.rows}
                print(f"the time is over: {len(done)} of {len(planned)} cases")
                break
            outcome = attempt(partial(bench.run, workload, choices, chosen, choose_ms))
            if outcome["outcome"] != "ok":
                table.add(**columns_of(workload), **outcome)
    print_table(table.rows)


if __name__ == "__main__":
    main()
