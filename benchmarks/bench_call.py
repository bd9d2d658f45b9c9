"""Cost of public calls from plain Python beside torch's: the host's time, times with a cold L2, first calls.

    python -m benchmarks.bench_call --out call.csv                   # everything, some five minutes
    python -m benchmarks.bench_call --only host first                # some sections
    python -m benchmarks.bench_call --only cpu                       # on a machine without a GPU

Sections: `host` (microseconds of the host per call), `cold` (a call between two events, the L2 overwritten before:
`triton.testing.do_bench`), `gemm` (70 products from Python, as `cold`), `compile` (modules under torch.compile beside
eager), `launch` (prepared launches beside Triton's), `first` (first
calls of new processes, with empty caches and with those of an earlier one), `cpu` (layers on CPU tensors, the
processor's time). Whoever is compared is timed in turn, in several rounds; ratios are the peer's time over ours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.harness.table import Table, described, print_ratios

COLUMNS = ("section", "case", "who", "how", "median_us", "spread_us", "ratio")
Rows = Iterator[tuple[str, str, str, float, float]]


def host() -> Rows:
    """The host's time."""
    from benchmarks.call import cases, timing

    every = [*cases.host_gemms(), *cases.training_gemm(), *cases.layers("forward"), *cases.layers("both")]
    for case in every:
        for who, figure in timing.host({"torch": case.torch, "ours": case.ours}).items():
            yield case.name, who, "host", *figure
    for direction, call in cases.fused_layer().items():
        yield f"rnn LSTM 12x64 B16 T1024 bf16, {direction}", "ours", "host", *timing.host({"": call})[""]


def cold() -> Rows:
    """Calls between events."""
    from benchmarks.call import cases, timing

    for case in [*cases.training_gemm(), *cases.layers("forward"), *cases.layers("both")]:
        for who, figure in timing.cold({"torch": case.torch, "ours": case.ours}).items():
            yield case.name, who, "do_bench", *figure
    for direction, call in cases.fused_layer().items():
        yield f"rnn LSTM 12x64 B16 T1024 bf16, {direction}", "ours", "do_bench", *timing.cold({"": call})[""]


def gemm() -> Rows:
    """Products from Python."""
    from benchmarks.call import cases, timing

    for case in cases.gemms():
        for who, figure in timing.cold({"torch": case.torch, "ours": case.ours}).items():
            yield case.name, who, "do_bench", *figure


def compile_modules() -> Rows:
    """Modules under torch.compile."""
    from benchmarks.call import cases, timing

    for name, calls in cases.compiled_layers():
        for who, figure in timing.cold(calls).items():
            yield name, who, "do_bench", *figure
        for who, figure in timing.host(calls).items():
            yield name, who, "host", *figure


def launch() -> Rows:
    """Prepared launches."""
    from benchmarks.call import cases, timing

    for name, calls in cases.launches().items():
        for who, figure in timing.host(calls).items():
            yield name, who, "host", *figure


def first() -> Rows:
    """First calls of new processes."""
    from benchmarks.call.first import first_calls

    for program, caches, step, seconds in first_calls():
        yield f"{program}: {step}", "ours", caches, 1e6 * seconds, 0.0


def cpu() -> Rows:
    """Layers on CPU tensors."""
    from benchmarks.call import cases, timing

    for case in cases.cpu_layers():
        calls = {"torch": case.torch, "ours": case.ours}
        for who, figure in timing.host(calls, is_cpu=True).items():
            yield case.name, who, "host", *figure


SECTIONS: Mapping[str, Callable[[], Rows]] = {
    "host": host,
    "cold": cold,
    "gemm": gemm,
    "compile": compile_modules,
    "launch": launch,
    "first": first,
    "cpu": cpu,
}
PEERS = ("torch", "triton", "eager")
US = ("ours", "compiled", "graphs")


def main() -> None:
    """Run the sections that are asked for and print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where the CSV goes; nowhere if left out")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=[n for n in SECTIONS if n != "cpu"])
    options = parser.parse_args()
    with Table(options.out, COLUMNS, described()) as table:
        for section in options.only:
            started = time.perf_counter()
            print(f"-- {section}")
            _run(section, table)
            print(f"   ({time.perf_counter() - started:.0f} s)")


def _run(section: str, table: Table) -> None:
    peers: dict[tuple[str, str], float] = {}
    ratios = []
    for case, who, how, median, spread in SECTIONS[section]():
        ratio = peers[case, how] / median if who in US and (case, how) in peers else None
        if who in PEERS:
            peers[case, how] = median
        if ratio is not None:
            ratios.append(ratio)
        table.add(section=section, case=case, who=who, how=how, median_us=median, spread_us=spread, ratio=ratio or "")
        shown = "" if ratio is None else f"  ratio {ratio:.2f}"
        print(f"   {case:52s} {who:9s} {how:10s} {median:12.2f} us +- {spread:.2f}{shown}")
    print_ratios(f"   {section}: peer / ours", ratios, (0.8, 1.0))


if __name__ == "__main__":
    main()
