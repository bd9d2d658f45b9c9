"""What a step of a recurrent CUDA loop gains without each of its parts: where the time of a layer goes.

    python -m benchmarks.rnn.parts 768x64 768x256 2688x16 --gpu h200 --out rnn_parts.csv --limit 120

The kernel's sources are copied, a part is cut by replacing its text, and the loop that the layer takes is timed as it
is and without the part. Results are wrong on purpose. Parts that hide behind each other gain less than they take: what
no single part gains is a chain of waiting. Beside it, where `ncu` may read counters:

    ncu --replay-mode kernel --profile-from-start off -k regex:recurrent_ python -m benchmarks.rnn.parts 768x64 --once
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.table import Table, described
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.cuda import CudaLaunch
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.candidates import choose_for
from constrint.kernels.rnn.cuda.launch import SOURCE
from constrint.kernels.rnn.spec import RnnSpec, workload_of
from constrint.select.spec import Workload

COLUMNS = ("dim", "batch", "time", "dtype", "config", "without", "ms", "step_ns", "gain_ns")
ROUNDS = 5
#: Tiles whose streamed weights are replaced by what lies in registers anyway.
_ASK = "    if constexpr (is_far(PAIR)) weights.template ask<FAR + ASKED>();"
_REST = "      const uint4* at = weights.rest + ((NEAR - RP) * EIGHTS + 2 * TILE) * 32;"
_MULTIPLY = "    multiply_halves(first, second, low, high, given.of);\n#endif"


class Cut(NamedTuple):
    """A part that is left out.

    Args:
        name: What a step is without.
        file: The source that it stands in.
        text: Its text, which stands there once.
        instead: What stands there instead.
    """

    name: str
    file: str
    text: str
    instead: str


CUTS = (
    Cut(
        *("matrix instructions", "weights.cuh", _MULTIPLY),
        "    first[0][0] += __uint_as_float(low.x ^ high.x ^ given.of[0].x);\n"
        "    first[NT - 1][1] += __uint_as_float(low.z ^ high.w ^ given.of[NT - 1].z);\n#endif",
    ),
    Cut(
        "waiting for the exchange",
        "exchange.cuh",
        "            if (is_unwritten(window[i][n])) {",
        "            if (false) {",
    ),
    Cut(
        "reading the exchange",
        "exchange.cuh",
        "            window[i][n] = load(PAIR + i, n);\n          } else if",
        "            window[i][n].x = threadIdx.x;\n          } else if",
    ),
    Cut(
        "partial sums",
        "items.cuh",
        "  if constexpr (SUMS) write_sums(sums, shared);",
        "  if constexpr (SUMS) { if (sums[0][0][0] == 1.2345f) write_sums(sums, shared); }",
    ),
    Cut(
        "special functions",
        "ptx.cuh",
        '  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));',
        "  y = x * 0.5f;",
    ),
    Cut("weights in shared memory", "weights.cuh", _REST, "      const uint4* at = weights.rest;"),
    Cut("streamed weights", "weights.cuh", _ASK, ""),
    Cut("outputs", "forward.cu", "    outputs.write(now.parity, tile, t);", ""),
)


def launches_of(gpu: GpuModel, workload: Workload, device: str) -> tuple[dict[str, int], list[CudaLaunch]]:
    """The configuration that a forward layer takes for inference, and its launches: the last one is the loop."""
    spec = load_spec("lstm.cuda")
    assert isinstance(spec, RnnSpec)
    config = choose_for(spec, gpu, workload, 1).config
    inputs = spec.inputs(gpu, workload, device=device)
    made: list[Any] = list(spec.launches(gpu, workload, config, inputs, spec.outputs(gpu, workload, inputs)))
    return dict(config), made


def without(cut: Cut, launches: Sequence[CudaLaunch], folder: Path) -> list[CudaLaunch]:
    """The launches with a part of the loop left out; its sources lie in a folder then.

    Raises:
        ValueError: When the part's text does not stand there once any more.
    """
    shutil.copytree(SOURCE, folder, dirs_exist_ok=True)
    whole = (folder / cut.file).read_text(encoding="utf-8")
    if whole.count(cut.text) != 1:
        raise ValueError(f"{cut.file} has the text of {cut.name!r} {whole.count(cut.text)} times, not once.")
    (folder / cut.file).write_text(whole.replace(cut.text, cut.instead), encoding="utf-8")
    loop = launches[-1]
    text = (folder / "forward.cu").read_text(encoding="utf-8")
    source = replace(loop.source, text=text, folders=(folder,), is_settled=False)
    return [*launches[:-1], replace(loop, source=source)]


def ms_of(launches: Sequence[CudaLaunch]) -> float:
    """Median milliseconds of all launches of a call."""
    import torch

    cuda: Any = torch.cuda
    times = []
    for _ in range(ROUNDS + 1):
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for launch in launches:
            launch.run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return float(statistics.median(times[1:]))


def measured(gpu: GpuModel, workload: Workload, until: float) -> Iterator[dict[str, Any]]:
    """A row for the layer as it is, and one for each part."""
    config, launches = launches_of(gpu, workload, "cuda")
    steps, sizes = workload.sizes["time"], workload.sizes
    facts = {"dim": sizes["head_dim"], "batch": sizes["batch"], "time": steps, "dtype": workload.dtype}
    facts["config"] = " ".join(f"{name}={value}" for name, value in sorted(config.items()))
    whole = ms_of(launches)
    yield facts | {"without": "nothing", "ms": whole, "step_ns": 1e6 * whole / steps, "gain_ns": 0.0}
    for cut in CUTS:
        if time.monotonic() > until:
            return
        with tempfile.TemporaryDirectory(prefix="parts_") as folder:
            ms = ms_of(without(cut, launches, Path(folder)))
        gain = 1e6 * (whole - ms) / steps
        yield facts | {"without": cut.name, "ms": ms, "step_ns": 1e6 * ms / steps, "gain_ns": gain}


def once(gpu: GpuModel, workload: Workload) -> None:
    """Launch a layer twice, the second time where a profiler looks."""
    import torch

    cuda: Any = torch.cuda
    _, launches = launches_of(gpu, workload, "cuda")
    for is_shown in (False, True):
        if is_shown:
            cuda.cudart().cudaProfilerStart()
        for launch in launches:
            launch.run()
        cuda.synchronize()
    cuda.cudart().cudaProfilerStop()


def main() -> None:
    """Time every layer that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layers", nargs="+", metavar="DxB", help="units and sequences of an LSTM")
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--time", type=int, default=1024, help="steps")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds")
    parser.add_argument("--once", action="store_true", help="launch once where a profiler looks, and time nothing")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    gpu, until = load_gpu(args.gpu), time.monotonic() + args.limit
    layers = [tuple(int(size) for size in layer.split("x")) for layer in args.layers]
    workloads = [workload_of("lstm", (batch, args.time, 1, dim), args.dtype, "forward") for dim, batch in layers]
    if args.once:
        for workload in workloads:
            once(gpu, workload)
        return
    with Table(args.out, COLUMNS, f"measured on {described()}") as table:
        for workload in workloads:
            for row in measured(gpu, workload, until):
                table.add(**row)
                print(f"{row['dim']} x {row['batch']} without {row['without']}: {row['step_ns']:.0f} ns", flush=True)


if __name__ == "__main__":
    main()
