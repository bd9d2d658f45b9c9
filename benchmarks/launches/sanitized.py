"""A few launches of every kernel, small enough for compute-sanitizer; operands and exact results come from the host.

Memory ends with the operands. The library's own kernels read pairs of 16-bit elements beyond rows of an odd length
(`cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_..._align2`, cuBLASLt 13.0 on an H200), which ends the process: leave
them out by `--kernel-name-exclude kns=cutlass`, and see whatever else there is by `--destroy-on-device-error kernel`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import partial

from benchmarks.launches.group import KINDS, Group, Outcome
from benchmarks.launches.kinds import CONFIGURED, LIMITS, Drawn, RefusedError, drawn_direct
from benchmarks.launches.memory import BEHIND
from constrint.errors import ConstrintError
from constrint.kernels.launch.look import SpilledError

#: Largest side of a product: blocks at the edge and whole ones, several along K.
SIDE = 300
#: Kinds whose calls choose among kernels.
WHOLE = ("gated", "grouped", "scaled", "quantised", "gradients", "matmul", "axpy", "gemv", "spmv", "jacobi", "cg")
#: Launches of each kernel, and draws until one is computed.
EACH, MANY, MOST_DRAWS = 4, 200, 40


def run_sanitized(device: str, part: str = "1/1", seconds: float = 1e9, kind: str = "") -> int:
    """Launch them; the number of wrong results.

    Args:
        device: The device.
        part: Which part of the kernels, "1/4" for the first quarter.
        seconds: Begin nothing after this time.
        kind: One kind alone, many times.
    """
    # Every tensor has memory of its own, which ends with it, so that the sanitizer sees what lies beyond it.
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    BEHIND.guard = 0
    LIMITS.side = SIDE
    first, of = (int(number) for number in part.split("/"))
    makers: list[tuple[str, Callable[[random.Random], Drawn]]] = [
        (f"gemm.{kernel}", partial(drawn_direct, kernel=kernel)) for kernel in CONFIGURED
    ]
    makers += [(name, KINDS[name][1]) for name in WHOLE]
    outcome, begun = Outcome(), time.monotonic()
    each = MANY if kind else EACH
    jobs = [(name, make, number) for number in range(each) for name, make in makers if kind in ("", name)]
    for place, (name, make, number) in enumerate(jobs):
        if place % of != first - 1 or time.monotonic() - begun > seconds:
            continue
        draw = random.Random(f"sanitized:{name}:{number}")
        for attempt in range(MOST_DRAWS):
            try:
                drawn = make(draw)
                print(f"begins {drawn}", flush=True)
                Group(0, place, attempt, drawn, device, outcome, draw).run_twice()
            except (RefusedError, SpilledError, ConstrintError):
                continue
            print(f"launched {drawn}", flush=True)
            break
    print(f"{outcome.launches} launches, {len(outcome.failures)} wrong")
    print("\n".join(outcome.failures))
    return 1 if outcome.failures else 0
