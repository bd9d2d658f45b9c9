"""Clocks of random accesses of shared memory, beside those that the model of banks states; on NVIDIA.

    python -m benchmarks.banks --out banks.csv                      # on a GPU, some seconds
    python -m benchmarks.banks --patterns 50 --seed 3
    python -m benchmarks.banks --compile h100 h200 a100             # compiles the kernels and prints no clocks; no GPU

A block of eight warps repeats one pattern of addresses in all of them, so that shared memory is what they wait for.
Clocks are those of the SM between two barriers, over the accesses of all warps; the least of several runs counts. The
model states the sum of all phases' clocks. It holds if over all patterns of all kinds and widths the clocks rank as
stated (Spearman, at least 0.98), and if every pattern without a conflict takes the least time of its kind and width,
within 3 %. Exits with 1 where it does not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.table import Table, described
from constrint.hwmodels import GpuModel, bank_conflicts, load_gpu
from constrint.hwmodels.banks import KINDS, Kind
from constrint.kernels.launch.cuda.nvrtc import CudaBinary, CudaSource, compile_cuda

COLUMNS = ("kind", "width_bits", "pattern", "degree", "stated_clocks", "clocks", "is_free")
WIDTHS = (32, 64, 128)
GROUPS: tuple[tuple[Kind, int], ...] = tuple((kind, width) for kind in KINDS for width in WIDTHS)
#: Bytes that patterns reach, and warps of a block.
REACH, WARPS = 16384, 8
#: Accesses of a warp in one run of the kernel: rounds of unrolled ones.
ROUNDS, UNROLLED = 16, 16
RUNS = 5
LEAST_CORRELATION, TOLERANCE = 0.98, 0.03
SOURCE = r"""
#if WIDTH == 32
#define LOAD(a) asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(w) : "r"(a)); sum ^= w
#define STORE(a) asm volatile("st.volatile.shared.u32 [%0], %1;" :: "r"(a), "r"(sum) : "memory")
#elif WIDTH == 64
#define LOAD(a) asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(w), "=r"(x) : "r"(a)); sum ^= w ^ x
#define STORE(a) asm volatile("st.volatile.shared.v2.u32 [%0], {%1, %1};" :: "r"(a), "r"(sum) : "memory")
#else
#define LOAD(a) asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];" \
    : "=r"(w), "=r"(x), "=r"(y), "=r"(z) : "r"(a)); sum ^= w ^ x ^ y ^ z
#define STORE(a) asm volatile("st.volatile.shared.v4.u32 [%0], {%1, %1, %1, %1};" :: "r"(a), "r"(sum) : "memory")
#endif

// One block measures one pattern: `addresses` has 32 byte addresses for each.
extern "C" __global__ void __launch_bounds__(32 * WARPS) measure(const int* addresses, long long* clocks, int* sums) {
    extern __shared__ __align__(16) unsigned int memory[];
    for (int i = threadIdx.x; i < REACH / 4; i += blockDim.x) memory[i] = 0;
    unsigned int base = static_cast<unsigned int>(__cvta_generic_to_shared(memory));
    unsigned int at = base + addresses[blockIdx.x * 32 + threadIdx.x % 32];
    unsigned int sum = 0, w = 0, x = 0, y = 0, z = 0;
    long long least = 1ll << 62;
    for (int run = 0; run < RUNS; ++run) {
        __syncthreads();
        long long start = clock64();
        for (int round = 0; round < ROUNDS; ++round) {
#pragma unroll
            for (int i = 0; i < UNROLLED; ++i) {
#if IS_READ
                LOAD(at);
#else
                STORE(at);
#endif
            }
        }
        // What was read is zero; the clock is read behind a branch on it, so that nothing is still under way.
        if (sum != 0) memory[threadIdx.x] = sum;
        __syncthreads();
        long long taken = clock64() - start;
        least = taken < least ? taken : least;
    }
    if (threadIdx.x == 0) clocks[blockIdx.x] = least;
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum ^ (x & y & z & w);
}
"""


class Measured(NamedTuple):
    """A pattern with the clocks that the model states and those that were measured."""

    kind: Kind
    width: int
    pattern: int
    degree: int
    stated: int
    clocks: float


def patterns_of(width: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Random addresses of 32 lanes: strides, XOR swizzles, few words, few banks, and any words, of aligned accesses."""
    size, lanes = width // 8, np.arange(32)
    places = REACH // size
    rows = []
    for number in range(count):
        kind = number % 6
        if kind == 0:  # a stride, from a broadcast to the worst
            row = lanes * int(rng.integers(0, 130))
        elif kind == 1:  # rows of a tile, swizzled or not
            row = (
                lanes % 16 * int(2 ** rng.integers(0, 6)) ^ lanes // 16 * int(rng.integers(0, 8)) ^ rng.integers(0, 32)
            )
        elif kind == 2:  # few words
            row = rng.choice(rng.integers(0, places, int(rng.integers(1, 9))), 32)
        elif kind == 3:  # many words of few banks
            row = rng.integers(0, places // 32, 32) * 32 + rng.integers(0, int(rng.integers(1, 33)), 32)
        elif kind == 4:  # all different banks, shuffled
            row = rng.permutation(32) + 32 * int(rng.integers(0, 8))
        else:
            row = rng.integers(0, places, 32)
        rows.append(row % places * size)
    return np.array(rows)


def source_of(kind: Kind, width: int) -> CudaSource:
    """The kernel for accesses of one kind and width."""
    macros = {"WIDTH": width, "IS_READ": int(kind == "read"), "REACH": REACH, "WARPS": WARPS}
    macros |= {"ROUNDS": ROUNDS, "UNROLLED": UNROLLED, "RUNS": RUNS}
    return CudaSource(SOURCE, "measure", macros, name="banks.cu")


def measure(gpu: GpuModel, kind: Kind, width: int, patterns: NDArray[np.int64], device: Any) -> list[float]:
    """Clocks of one access of one warp, for each pattern."""
    import torch

    from constrint.kernels.launch.cuda.source_spec import CudaLaunch

    addresses = torch.tensor(patterns, dtype=torch.int32, device=device)
    clocks = torch.zeros(len(patterns), dtype=torch.int64, device=device)
    sums = torch.zeros(len(patterns) * 32 * WARPS, dtype=torch.int32, device=device)
    grid, block = (len(patterns),), (32 * WARPS,)
    launch = CudaLaunch(gpu, source_of(kind, width), grid, block, (addresses, clocks, sums), smem_bytes=REACH)
    for _ in range(2):  # the first one warms the clocks up
        launch.run()
    torch.cuda.synchronize(device)
    return [taken / (ROUNDS * UNROLLED * WARPS) for taken in clocks.tolist()]


def measured(gpu: GpuModel, count: int, seed: int, device: Any) -> Iterator[Measured]:
    """Every pattern of every kind and width."""
    rng = np.random.default_rng(seed)
    for number, (kind, width) in enumerate(GROUPS):
        share = count // len(GROUPS) + (number < count % len(GROUPS))
        patterns = patterns_of(width, share, rng)
        found = bank_conflicts(gpu, patterns, width, kind)
        stated, taken = found.clocks.sum(axis=-1), measure(gpu, kind, width, patterns, device)
        for place, clocks in enumerate(taken):
            yield Measured(kind, width, place, int(found.degree[place]), int(stated[place]), clocks)


def correlation(rows: list[Measured]) -> float:
    """Spearman's rank correlation of stated and measured clocks."""
    from scipy.stats import spearmanr

    return float(spearmanr([row.stated for row in rows], [row.clocks for row in rows]).statistic)


def judged(rows: list[Measured]) -> list[str]:
    """Print a line for each kind and width; return what does not hold."""
    faults = []
    print(f"{'kind':6}{'bits':>5}{'patterns':>9}{'free':>6}{'least':>8}{'free to':>9}{'most':>8}{'rank':>7}")
    for kind, width in GROUPS:
        group = [row for row in rows if (row.kind, row.width) == (kind, width)]
        free = [row.clocks for row in group if row.degree == 1]
        least, most = min(row.clocks for row in group), max(row.clocks for row in group)
        worst = max(free, default=least)
        shown = f"{least:8.2f}{worst:9.2f}{most:8.2f}{correlation(group):7.3f}"
        print(f"{kind:6}{width:5}{len(group):9}{len(free):6}{shown}")
        if worst > least * (1 + TOLERANCE):
            what = f"{kind} of {width} bits: a pattern without a conflict takes"
            faults.append(f"{what} {worst:.2f} clocks, not {least:.2f}")
    overall = correlation(rows)
    print(f"rank correlation over all {len(rows)}: {overall:.4f}")
    if overall < LEAST_CORRELATION:
        faults.append(f"the rank correlation is {overall:.4f}, below {LEAST_CORRELATION}")
    return faults


def compiled(name: str) -> list[CudaBinary]:
    """Every kernel for a named GPU; needs no GPU."""
    return [compile_cuda(load_gpu(name), source_of(kind, width)) for kind, width in GROUPS]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patterns", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile", nargs="+", metavar="GPU", help="compile for these GPUs and stop")
    options = parser.parse_args()
    if options.compile:
        for name in options.compile:
            every = compiled(name)
            registers, spilled = max(each.registers for each in every), sum(each.spill_bytes for each in every)
            print(f"{name}: {len(every)} kernels, at most {registers} registers, {spilled} bytes spilled")
        return
    import torch

    from constrint.kernels.launch.device import gpu_of

    device = torch.device("cuda", torch.cuda.current_device())
    gpu = gpu_of(device)
    if gpu is None or gpu.sm.warp_size != 32:
        sys.exit("this GPU has no model, or is none of NVIDIA's.")
    rows = list(measured(gpu, options.patterns, options.seed, device))
    with Table(options.out, COLUMNS, described()) as table:
        for row in rows:
            table.add(
                kind=row.kind,
                width_bits=row.width,
                pattern=row.pattern,
                degree=row.degree,
                stated_clocks=row.stated,
                clocks=row.clocks,
                is_free=int(row.degree == 1),
            )
    faults = judged(rows)
    print(f"{gpu.name}: {'; '.join(faults) or 'the model holds'}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
