"""Variants of the CUDA GEMM's source side by side: what each of them is worth on short products, beside cuBLAS.

    mkdir -p before && git archive REVISION:constrint/kernels/gemm/cuda/source | tar x -C before
    python -m benchmarks.gemm.wgmma.variants --gpu h200 --before before --limit 200 --out gemm_cuda_variants.csv

For each product some configurations are timed with every variant: what the cost model ranks first, and first of those
with clusters, without them and with K in parts. All calls of a product take turns, each in a CUDA graph after the L2
was overwritten. `--warm` times calls back to back instead, where launches may overlap.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.gemm.wgmma.configs import DEALT, Config, named, product_of, ranked
from benchmarks.gemm.wgmma.products import End, exact_product, launch_of, made, share_of
from benchmarks.harness.table import Table, described
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.cuda.source import FOLDER
from constrint.kernels.launch.cuda import CudaLaunch, CudaSource, compile_cuda, loaded

#: Products that take little time, whose start and end count; those of one slice take nearly nothing else.
SHAPES = (
    (1536, 1536, 64), (4096, 4096, 64), (512, 512, 512), (1000, 1000, 1000), (1536, 1536, 1536), (256, 7168, 2048),
    (1536, 1536, 6144), (64, 8192, 8192), (1024, 1024, 4096), (2304, 2304, 2304), (16384, 3072, 768),
)  # fmt: skip
COLUMNS = (
    "m",
    "n",
    "k",
    "dtype",
    "layout",
    "variant",
    "config",
    *DEALT,
    "us",
    "spread_us",
    "cublas_us",
    "ratio",
    "note",
)
#: Configurations that are looked through for some of each kind, and rounds of each call.
LOOKED, ROUNDS = 3000, 101
KERNEL = "kernel.cu"


@dataclass(frozen=True)
class Variant:
    """A variant of the source, and what its launch has to be told.

    Args:
        name: In a word.
        macros: That differ.
        folder: Where its source is; None: the package's.
        overlaps: Whether it may begin before the launch ahead of it has ended.
    """

    name: str
    macros: Mapping[str, int] = field(default_factory=dict)
    folder: Path | None = None
    overlaps: bool = False

    def of(self, launch: CudaLaunch) -> CudaLaunch:
        """The launch of a configuration in this variant."""
        source = launch.source
        if self.folder is not None:
            own = (FOLDER / KERNEL).read_text(encoding="utf-8")
            text = source.text.removesuffix(own) + (self.folder / KERNEL).read_text(encoding="utf-8")
            source = replace(source, text=text, folders=(self.folder,))
        macros = {**source.macros, **self.macros}
        return replace(launch, source=replace(source, macros=macros))

    def call(self, launch: CudaLaunch) -> Callable[[], object]:
        """What launches it."""
        return partial(run_overlapping, launch) if self.overlaps else launch.run


def run_overlapping(launch: CudaLaunch) -> None:
    """Launch it so that it may begin before the launch ahead of it in its stream has ended."""
    usual = loaded._attributes

    def attributes(cluster: int, is_cooperative: bool) -> list[Any]:
        from cuda.bindings import driver

        added = driver.CUlaunchAttribute()
        added.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        added.value.programmaticStreamSerializationAllowed = 1
        return [*usual(cluster, is_cooperative), added]

    with mock.patch.object(loaded, "_attributes", attributes):
        launch.run()


def variants(before: Path | None, *, is_warm: bool) -> list[Variant]:
    """What is compared; the first is what others are compared with."""
    found = [] if before is None else [Variant("before", folder=before)]
    found.append(Variant("now"))
    return found + ([Variant("overlapping", {"OVERLAPS": 1}, overlaps=True)] if is_warm else [])


def chosen(gpu: GpuModel, shape: tuple[int, int, int], dtype: str, layout: str, top: int) -> list[Config]:
    """Configurations that are ranked first, of all and of each kind; no two differ in the order of tiles alone."""
    found: dict[tuple[tuple[str, int], ...], Config] = {}
    kinds: dict[tuple[bool, bool, bool], int] = defaultdict(int)
    for place, config in enumerate(ranked(gpu, product_of(shape, dtype, layout), LOOKED)):
        kind = config["cluster_m"] * config["cluster_n"] > 1, config["split_k"] > 1, bool(config["turned"])
        if place < top or kinds[kind] < 2:
            found[tuple(sorted(config.items()))] = config
            kinds[kind] += 1
    return list(found.values())


def prepare(gpu: GpuModel, sources: Iterable[CudaSource]) -> None:
    """Compile many at once; what cannot be compiled says so when it is launched."""
    each = {(source.text, tuple(source.macros.items())): source for source in sources}
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(compile_cuda, gpu, source) for source in each.values()]:
            done.exception()
    print(f"{len(each)} sources are compiled", flush=True)


def calls_of(
    gpu: GpuModel, timer: Any, configs: Sequence[Config], compared: Sequence[Variant], given: Any, dtype: str
) -> Iterator[tuple[Variant, Config, Callable[[], object] | None, str]]:
    """Every configuration in every variant as a graph, or why there is none."""
    exact = exact_product(given, dtype, End())
    for config in configs:
        launch = launch_of(gpu, config, given, End())
        for variant in compared:
            given.whole.fill_(float("nan"))
            try:
                call = timer.graph(variant.call(variant.of(launch)))
                timer.synchronize()
                off = share_of(exact, given)
            except (ConstrintError, RuntimeError) as error:
                yield variant, config, None, str(error)[:80]
                continue
            yield variant, config, (call if off <= 1 else None), "" if off <= 1 else f"wrong: {off:.3g}"


def sizes_of(words: str) -> tuple[int, int, int]:
    """M, N and K."""
    m, n, k = map(int, words.split("x"))
    return m, n, k


def compare(gpu: GpuModel, args: argparse.Namespace) -> int:
    """Time every variant on every product; how many calls failed or were wrong."""
    import torch

    from constrint.tune.measure import Timer

    end, compared = time.monotonic() + args.limit, variants(args.before, is_warm=args.warm)
    shapes = [sizes_of(shape) for shape in args.shape] or list(SHAPES)
    configs = {shape: chosen(gpu, shape, args.dtype, args.layout, args.top) for shape in shapes}
    given_of = {shape: made(shape, args.dtype, args.layout, End(), device="meta") for shape in shapes}
    launches = (launch_of(gpu, one, given_of[shape], End()) for shape, each in configs.items() for one in each)
    prepare(gpu, (variant.of(launch).source for launch in launches for variant in compared))
    timer, bad = Timer(), 0
    with Table(args.out, COLUMNS, f"{'warm' if args.warm else 'cold'}, measured on {described()}") as table:
        for shape, each in configs.items():
            if time.monotonic() > end:
                print("the time is over", flush=True)
                break
            given = made(shape, args.dtype, args.layout, End())
            other = torch.empty(shape[:2], dtype=given.out.dtype, device="cuda")
            entries = list(calls_of(gpu, timer, each, compared, given, args.dtype))
            right = [entry for entry in entries if entry[2] is not None]
            for variant, config, _, note in (entry for entry in entries if entry[2] is None):
                bad += 1
                print(*shape, variant.name, named(config), note, flush=True)
            peer = partial(torch.mm, given.a, given.b, out=other)
            if args.warm:
                launch = [v.call(v.of(launch_of(gpu, c, given, End()))) for v, c, _, _ in right]
                measured = timer.warm([peer, *launch], 1e-5, rounds=9)
            else:
                graphs = [call for _, _, call, _ in right if call is not None]
                measured = timer.cold([timer.graph(peer), *graphs], ROUNDS)
            us = [one.median_s * 1e6 for one in measured]
            facts = dict(zip("mnk", shape, strict=True)) | {"dtype": args.dtype, "layout": args.layout}
            for (variant, config, _, note), taken, one in zip(right, us[1:], measured[1:], strict=True):
                dealt = {name: config[name] for name in DEALT}
                table.add(
                    **facts, variant=variant.name, config=named(config), **dealt, us=taken,
                    spread_us=one.spread_s * 1e6, cublas_us=us[0], ratio=us[0] / taken, note=note,
                )  # fmt: skip
            show(shape, compared, [(variant, config) for variant, config, _, _ in right], us)
    return bad


def show(
    shape: Sequence[int], compared: Sequence[Variant], entries: Sequence[tuple[Variant, Config]], us: Sequence[float]
) -> None:
    """The fastest configuration of each variant, and by how much it is faster than the first one with the same ones."""
    of: dict[str, dict[str, float]] = defaultdict(dict)
    for (variant, config), taken in zip(entries, us[1:], strict=True):
        of[variant.name][f"{named(config)} parts {config['split_k']}"] = taken
    print("x".join(map(str, shape)), f"cuBLAS {us[0]:.2f} us", flush=True)
    first = of[compared[0].name]
    for name, times in of.items():
        best = min(times, key=lambda config: times[config])
        shared = [first[config] / times[config] for config in times if config in first]
        gain = statistics.geometric_mean(shared) if shared else float("nan")
        words = f"{times[best]:.2f} us, {us[0] / times[best]:.3f} of cuBLAS ({best}); x{gain:.3f} over {len(shared)}"
        print(f"  {name}: {words}", flush=True)


def main() -> None:
    """Compare variants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--before", type=Path, help="a folder with the source of another revision")
    parser.add_argument("--shape", action="append", default=[], metavar="MxNxK", help="instead of the usual ones")
    parser.add_argument("--dtype", choices=["bf16", "fp16"], default="bf16")
    parser.add_argument("--layout", choices=["rr", "rc", "cr", "cc"], default="rr", help="A and B, by rows or columns")
    parser.add_argument("--top", type=int, default=6, help="configurations that are ranked first")
    parser.add_argument("--warm", action="store_true", help="back to back, not after the L2 was overwritten")
    parser.add_argument("--limit", type=float, default=200.0, help="seconds")
    parser.add_argument("--out", type=Path, help="a CSV file to write")
    args = parser.parse_args()
    raise SystemExit(compare(load_gpu(args.gpu), args) > 0)


if __name__ == "__main__":
    main()
