"""Compile what would be launched, for a GPU that need not be there, and list kernels whose registers go to memory.

    python -m benchmarks.launches.spills --gpu h200 --seconds 300

Products are drawn as `python -m benchmarks.launches` draws them; every product that a kernel in CUDA C++ of its own
operation computes (gated pairs, grouped, scaled, quantised), and the first choice of `matmul` among our kernels. The
table has a line for each operation: binaries, those that spill, and those that would be launched nevertheless, since
nothing else was found. Exit 1 if there is any of the last.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from benchmarks.launches.kinds import HALVES, NAMES, sizes_drawn
from constrint.choose import Decision, Refusal, Request, decide, refuse
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.select.workload import Workload

#: Decisions after the first one that are looked at, as a launch does.
MOST_NEXT = 3


class Product(NamedTuple):
    """A product whose kernels are compiled.

    Args:
        kind: Its operation.
        request: What is decided.
        launches: The launches of a configuration, on tensors without data.
        text: What it is.
    """

    kind: str
    request: Request
    launches: Callable[[dict[str, int]], Any]
    text: str


def products(gpu: GpuModel, draw: random.Random) -> Iterator[Product]:
    """Products of all operations, in turn, for ever."""
    while True:
        for make in (_gated, _grouped, _scaled, _quantised, _gemm):
            yield make(gpu, draw)


def _empty(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _gated(gpu: GpuModel, draw: random.Random) -> Product:
    from constrint.kernels.gemm.gated.launch import GatedCall, gated_launch

    m, n, k = sizes_drawn(draw)
    n, k, dtype = -(-n // 64) * 64, -(-k // 8) * 8, draw.choice(HALVES)
    by_columns, has_bias, activation = draw.random() < 0.6, draw.random() < 0.5, draw.choice(NAMES)
    a, out = _empty(m, k, dtype=dtype), _empty(m, n, dtype=dtype)
    gate, up = (_empty(n, k, dtype=dtype).t() if by_columns else _empty(k, n, dtype=dtype) for _ in range(2))
    bias = _empty(n, dtype=dtype) if has_bias else None
    options = {"transpose_b": int(by_columns), "bias": int(has_bias)}
    request = _request("gated", {"m": m, "n": n, "k": k}, dtype, options, gpu, "cuda")

    def launches(config: dict[str, int]) -> Any:
        return [gated_launch(gpu, GatedCall(a, gate, up, out, bias, bias, activation), config)]

    return Product("gated", request, launches, f"{activation} {m}x{n}x{k} {options}")


def _grouped(gpu: GpuModel, draw: random.Random) -> Product:
    from constrint.kernels.grouped.launch import GroupedCall, grouped_launch
    from constrint.kernels.grouped.op import workload_of_call

    m, n, k = sizes_drawn(draw)
    n, k, dtype, experts = -(-n // 8) * 8, -(-k // 8) * 8, draw.choice(HALVES), draw.randint(1, 32)
    by_columns, has_bias, activation = draw.random() < 0.5, draw.random() < 0.5, draw.choice((None, *NAMES))
    a = _empty(m, k, dtype=dtype)
    b = _empty(experts, n, k, dtype=dtype).transpose(1, 2) if by_columns else _empty(experts, k, n, dtype=dtype)
    out = _empty(m, n, dtype=draw.choice((dtype, torch.float32)))
    bias = _empty(experts, n, dtype=dtype) if has_bias else None
    offsets = _empty(experts, dtype=torch.int32)
    request = Request("grouped", workload_of_call(a, b, bias), gpu, kernel="cuda")

    def launches(config: dict[str, int]) -> Any:
        return [grouped_launch(gpu, GroupedCall(a, b, offsets, out, bias, 0.5, activation), config)]

    return Product("grouped", request, launches, f"{activation} {experts} of {m}x{n}x{k} {out.dtype}")


def _scaled(gpu: GpuModel, draw: random.Random) -> Product:
    from constrint.kernels.gemm.scaled.launch import ScaledCall, scaled_launches

    m, n, k = sizes_drawn(draw)
    k, in_blocks = -(-k // 16) * 16, draw.random() < 0.5
    out_dtype = draw.choice((*HALVES, torch.float32))
    fp8, along = torch.float8_e4m3fn, -(-k // 128)
    a, b = _empty(m, k, dtype=fp8), _empty(n, k, dtype=fp8).t()
    scales = ((m, along), (along, -(-n // 128))) if in_blocks else ((m, 1), (1, n))
    of_a, of_b = (_empty(*shape, dtype=torch.float32) for shape in scales)
    bias = _empty(n, dtype=out_dtype) if draw.random() < 0.5 else None
    out = _empty(m, n, dtype=out_dtype)
    options = {name: 1 for name, is_set in (("blocks", in_blocks), ("wide_output", out_dtype.itemsize == 4)) if is_set}
    request = Request("scaled_gemm", Workload("scaled_gemm", {"m": m, "n": n, "k": k}, "fp8", options), gpu)

    def launches(config: dict[str, int]) -> Any:
        return scaled_launches(gpu, ScaledCall(a, b, of_a, of_b, out, bias), config, in_blocks=in_blocks)

    return Product("scaled", request, launches, f"{m}x{n}x{k} {options} {out_dtype}")


def _quantised(gpu: GpuModel, draw: random.Random) -> Product:
    from constrint.kernels.gemm.quantised.op import LAUNCHES
    from constrint.kernels.gemm.quantised.weights import random_weight

    _, n, k = sizes_drawn(draw)
    m, bits, group, dtype = draw.randint(1, 16), draw.choice((4, 8)), draw.choice((64, 128)), draw.choice(HALVES)
    weight = random_weight(n, k, bits, group, dtype, device="meta")
    x, out = _empty(m, k, dtype=dtype), _empty(m, n, dtype=dtype)
    bias = _empty(n, dtype=dtype) if draw.random() < 0.5 else None
    request = _request("quantised_gemm", {"m": m, "n": n, "k": k}, dtype, {"bits": bits, "group": group}, gpu, "")

    def launches(config: dict[str, int]) -> Any:
        kernel = "stream" if "row_warps" in config else "cuda"
        return LAUNCHES[f"quantised_gemm.{kernel}"](gpu, x, weight, out, config, bias)

    return Product("quantised", request, launches, f"{m}x{n}x{k} {bits} bits in {group}")


def _gemm(gpu: GpuModel, draw: random.Random) -> Product:
    from constrint.kernels.gemm.candidates import request_of
    from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
    from constrint.kernels.gemm.operands import product_of
    from constrint.kernels.gemm.spec import gemm_spec

    m, n, k = sizes_drawn(draw)
    dtype = draw.choice((*HALVES, *HALVES, torch.float32))
    vector = 16 // dtype.itemsize
    n, k = (size if draw.random() < 0.3 else -(-size // vector) * vector for size in (n, k))
    a, b = _empty(1, m, k, dtype=dtype), _empty(1, n, k, dtype=dtype).transpose(1, 2)
    bias = _empty(n, dtype=dtype) if draw.random() < 0.6 else None
    source = _empty(1, m, n, dtype=dtype) if draw.random() < 0.3 else None
    activation, out = draw.choice((None, *NAMES)), _empty(1, m, n, dtype=dtype)
    precision = "ieee" if dtype != torch.float32 else draw.choice(("tf32", "tf32x3"))
    product = product_of(
        a, b, bias, source, dtype, is_three_pass=precision == "tf32x3", no_library="our kernels are compiled",
        activation=activation or "",
    )  # fmt: skip
    epilogue = Epilogue(bias, source, 0.5, 1.0 if source is not None else 0.0, activation)
    call = GemmCall(a, b, out, Machine.of(gpu), epilogue, precision)
    request = request_of(gpu, product)
    held: dict[str, str] = {}

    def launches(config: dict[str, int]) -> Any:
        return gemm_spec(held["kernel"]).call_launches(call, config)

    found = Product("gemm", request, launches, f"{activation} {m}x{n}x{k} {dtype} {precision}")
    _HELD[id(found.request)] = held
    return found


#: The kernel of a decision of `matmul`, by its request: its launches depend on it.
_HELD: dict[int, dict[str, str]] = {}


def _request(
    operation: str, sizes: dict[str, int], dtype: torch.dtype, options: dict[str, int], gpu: GpuModel, kernel: str
) -> Request:
    name = "bf16" if dtype == torch.bfloat16 else "fp16"
    return Request(operation, Workload(operation, sizes, name, options), gpu, kernel=kernel)


def compiled(gpu: GpuModel, product: Product, decision: Decision) -> list[Any]:
    """The compiled kernels of a decision, in CUDA C++; those in Triton are compiled by `constrint verify`."""
    _HELD.get(id(product.request), {})["kernel"] = decision.kernel
    launches = product.launches(dict(decision.config))
    return [launch.compile(gpu) for launch in launches if hasattr(launch, "source")]


def main() -> int:
    """Compile and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--kinds", nargs="*", help="these alone: gated, grouped, scaled, quantised, gemm")
    args = parser.parse_args()
    gpu, until = load_gpu(args.gpu), time.monotonic() + args.seconds
    counts: dict[str, list[int]] = {}
    for product in products(gpu, random.Random(args.seed)):
        if time.monotonic() > until:
            break
        if args.kinds and product.kind not in args.kinds:
            continue
        row = counts.setdefault(product.kind, [0, 0, 0])
        try:
            decision = decide(product.request)
            for tried in range(1 + MOST_NEXT):
                kernels = compiled(gpu, product, decision)
                if not kernels:
                    break
                row[0] += 1
                spilled = max(kernel.spill_bytes for kernel in kernels)
                if not spilled:
                    break
                row[1] += 1
                print(f"{spilled} bytes: {decision.kernel} {dict(decision.config)}: {product.text}", flush=True)
                if tried == MOST_NEXT:
                    row[2] += 1
                    break
                refusal = Refusal(decision.program.name, dict(decision.config), "registers", spilled, 0)
                decision = refuse(decision, refusal)
        except ConstrintError as error:
            print(f"nothing: {product.text}: {str(error)[:120]}", flush=True)
    print(f"{'operation':<12}{'binaries':>10}{'spill':>8}{'launched':>10}")
    for kind, row in counts.items():
        print(f"{kind:<12}{row[0]:>10}{row[1]:>8}{row[2]:>10}")
    return 1 if any(row[2] for row in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
