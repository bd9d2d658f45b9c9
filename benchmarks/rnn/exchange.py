"""Time how blocks of a grid read what all of them wrote in the step before: what the ring of the CUDA kernels rests on.

    python -m benchmarks.rnn.exchange --gpu h200 --out rnn_exchange.csv    # needs a GPU; under two minutes
    python -m benchmarks.rnn.exchange --gpu h200 --compile                 # needs none

In every step each block writes its share of `step_bytes`, waits for the others, and reads all of it; the reading alone
is timed (`exchange.cu`). States of 16 sequences of 1,024 units in bf16 are 32 KiB; those of 4,096 units, or the
gradients of all gates of 1,024, are 128 KiB.

| way | what an SM does |
|---|---|
| rows | relaxed loads; a warp's are in eight rows of 64 bytes, as a tensor has them |
| pieces | relaxed loads; a warp's are 512 bytes beside each other, as the ring has them |
| copies | `cp.async.bulk` into shared memory, `copy_bytes` each |
| multicast | the same, each block of a cluster copying its part into the shared memory of all |
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness.table import Table, described
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.cuda import CudaLaunch, CudaSource

SOURCE = Path(__file__).with_name("exchange.cu")
STEP_BYTES = tuple(kib * 1024 for kib in (32, 64, 128, 192))
#: The numbers by which the source knows the ways.
WAYS = {"rows": 0, "pieces": 1, "copies": 2, "multicast": 3}
CLUSTERS, COPY_BYTES = (2, 4), (1024, 4096)
#: As in the source: threads of a block, steps of the ring, and bytes of shared memory before what is copied.
THREADS, BUFFERED, COPIED_AT = 256, 64, 1024
#: Blocks are a multiple of this many; in clusters of four a sixteenth of them is left out, as not every GPC is whole.
WHOLE, LEFT_OUT = 8, 16
STEPS, ROUNDS = 500, 3
COLUMNS = ("step_bytes", "way", "cluster", "copy_bytes", "mean_clk", "max_clk", "bytes_per_clk")


class Case(NamedTuple):
    """What is timed: bytes of a step, the way, blocks of a cluster, and bytes of a copy; 0 where nothing is copied."""

    step_bytes: int
    way: str
    cluster: int = 1
    copy_bytes: int = 0


def cases(gpu: GpuModel) -> Iterator[Case]:
    """Every case that a GPU has the instructions for, which came with clusters, and the shared memory."""
    for step_bytes in STEP_BYTES:
        yield Case(step_bytes, "rows")
        yield Case(step_bytes, "pieces")
        if not gpu.device.max_cluster_blocks_portable or COPIED_AT + step_bytes > gpu.sm.max_smem_bytes_per_block:
            continue
        yield from (Case(step_bytes, "copies", 1, size) for size in COPY_BYTES)
        yield from (Case(step_bytes, "multicast", cluster, size) for cluster in CLUSTERS for size in COPY_BYTES)


def num_blocks(gpu: GpuModel, case: Case) -> int:
    """As many blocks as are surely resident together."""
    whole = gpu.device.sm_count // WHOLE * WHOLE
    return whole if case.cluster < max(CLUSTERS) else (whole - whole // LEFT_OUT) // case.cluster * case.cluster


def launch_of(gpu: GpuModel, case: Case, tensors: tuple[Any, Any, Any], steps: int = STEPS) -> CudaLaunch:
    """The launch of a case.

    Args:
        gpu: The model of the device.
        case: What is timed.
        tensors: The ring, a counter that is zero, and clocks of each block; None where it is compiled alone.
        steps: How many steps run.
    """
    macros = {"STEP_BYTES": case.step_bytes, "WAY": WAYS[case.way], "CLUSTER": case.cluster}
    macros["COPY_BYTES"] = case.copy_bytes
    text = SOURCE.read_text(encoding="utf-8")
    return CudaLaunch(
        gpu=gpu,
        source=CudaSource(text, "exchange", macros, ("-std=c++17",), name=SOURCE.name),
        grid=(num_blocks(gpu, case),),
        block=(THREADS,),
        arguments=(*tensors, np.int32(steps)),
        # With what the system reserves no second block has room on an SM.
        smem_bytes=max(gpu.sm.smem_bytes_per_sm // 2, COPIED_AT + case.step_bytes if case.copy_bytes else 0),
        cluster=case.cluster,
        is_cooperative=case.cluster == 1,
    )


def timed(gpu: GpuModel, case: Case) -> dict[str, Any]:
    """Clocks that reading a step takes: the mean and the most over the blocks, of the middle one of some rounds."""
    import torch

    ring = torch.zeros(BUFFERED * case.step_bytes, dtype=torch.uint8, device="cuda")
    counter = torch.zeros(1, dtype=torch.int32, device="cuda")
    clocks = torch.zeros(num_blocks(gpu, case), dtype=torch.int64, device="cuda")
    launch = launch_of(gpu, case, (ring, counter, clocks))
    launch.check_resident()
    rounds = []
    for _ in range(ROUNDS):
        counter.zero_()
        launch.run()
        per_step = clocks.double() / STEPS
        rounds.append((float(per_step.mean()), float(per_step.max())))
    mean, most = statistics.median_low(rounds)
    return {"mean_clk": round(mean), "max_clk": round(most), "bytes_per_clk": round(case.step_bytes / mean, 1)}


def main() -> None:
    """Time every case, or compile it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--out", type=Path, help="a CSV file to write")
    parser.add_argument("--compile", action="store_true", help="compile the cases, and time none")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    if args.compile:
        for case in cases(gpu):
            compiled = launch_of(gpu, case, (None, None, None)).compile(gpu)
            print(*case, f"{compiled.registers_per_thread} registers, {compiled.spill_bytes} bytes spilled", flush=True)
        return
    with Table(args.out, COLUMNS, f"measured on {described()}") as table:
        for case in cases(gpu):
            row = table.add(**case._asdict(), **timed(gpu, case))
            print(*case, f"{row['mean_clk']} clk, {row['bytes_per_clk']} bytes per clk and SM", flush=True)


if __name__ == "__main__":
    main()
