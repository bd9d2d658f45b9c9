"""Check `matmul` on the GPU of this machine: dtypes, layouts, shapes, epilogues, batches, gradients, graphs, streams.

    python -m benchmarks.gemm.check --gpu-processes 14

Every result is compared, element by element, with the product in fp64 under a bound that follows from the dtype and K.
Prints each failure and the number of checks; the exit code says whether there was a failure.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.reference import ACTIVATIONS, default_out_dtype

DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
    "fp32": torch.float32,
    "fp8": torch.float8_e4m3fn,
    "int8": torch.int8,
}
#: (batch, M, N, K)
SHAPES = (
    (1, 256, 384, 512),
    (1, 333, 777, 1555),
    (3, 100, 96, 160),
    (2, 70, 45, 33),
    (1, 1, 4096, 512),
    (1, 64, 1024, 8192),
    (1, 2048, 2048, 1024),
)
EPILOGUES = ("none", "bias relu", "all gelu")
#: Relative error of one product: none where it is exact in fp32, a rounded operand for tf32, what is left of three
#: passes for fp32; Hopper aligns 8-bit products and keeps 13 bits of them between promotions.
PRODUCT_ERROR = {"tf32": 2.0**-10, "fp32": 2.0**-20, "fp8": 2.0**-13}
ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24, torch.int32: 0.0}


def operands(case: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Random (batch, M, K) and (batch, K, N), by rows or by columns."""
    name, layout, (batch, m, n, k), _ = case
    generator = torch.Generator(device="cuda").manual_seed(hash(case[2]) % 2**31)

    def one(rows: int, columns: int, order: str) -> torch.Tensor:
        shape = (batch, rows, columns) if order == "r" else (batch, columns, rows)
        if name == "int8":
            t = torch.randint(-128, 128, shape, device="cuda", generator=generator, dtype=torch.int8)
        else:
            t = torch.randn(shape, device="cuda", generator=generator).to(DTYPES[name])
        return t if order == "r" else t.transpose(1, 2)

    return one(m, k, layout[0]), one(k, n, layout[1])


def check_product(case: tuple[Any, ...]) -> str:
    """Compare one product with fp64; "" or what is wrong."""
    name, _, (batch, m, n, k), epilogue = case
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    a, b = operands(case)
    kind = default_out_dtype(a.dtype)
    options: dict[str, Any] = {}
    bias = None
    if epilogue != "none":
        kind = torch.float16 if name == "int8" else kind
        bias = torch.randn(n, device="cuda").to(kind)
        options = {"activation": epilogue.split()[1], "out_dtype": kind}
    if epilogue.startswith("all"):
        options |= {"alpha": 2.0**-6, "beta": 2.0, "c": torch.randn(batch, m, n, device="cuda").to(kind)}
    if name == "int8" and bias is not None:
        options["alpha"] = 2.0**-12
    out = matmul(a, b, bias, **options)
    alpha = options.get("alpha", 1.0)
    z, sums = alpha * (a.double() @ b.double()), alpha * (a.double().abs() @ b.double().abs())
    if bias is not None:
        z = z + bias.double()
    if "c" in options:
        z = z + 2.0 * options["c"].double()
    terms = sums + (bias.double().abs() if bias is not None else 0.0) + 2.0 * options.get("c", out).double().abs()
    if "activation" in options:
        z = ACTIVATIONS[options["activation"]](z)
    # 1.13 is the steepest slope of gelu; fp32 arithmetic of the epilogue adds a few roundings.
    error = 1.13 * sums * (PRODUCT_ERROR.get(name, 0.0) + k * 2.0**-24 * (name != "int8")) + 2.0**-22 * terms
    least = 2.0**-24 if kind.is_floating_point else 0.0
    bound = 1.01 * error * kind.is_floating_point + ROUNDOFF[kind] * z.abs() + least
    wrong = (out.double() - z).abs() > bound
    if not bool(wrong.any()):
        return ""
    worst = ((out.double() - z).abs() / bound.clamp(min=1e-300)).nan_to_num(float("inf")).max().item()
    return f"{int(wrong.sum())} of {wrong.numel()} elements beyond the bound, the worst by {worst:.2g}"


def check_gradients() -> str:
    """Gradients of a layer against torch's own in fp64."""
    x, w = torch.randn(96, 64, device="cuda"), torch.randn(80, 64, device="cuda")
    bias = torch.randn(80, device="cuda")
    ours = [t.half().requires_grad_() for t in (x, w, bias)]
    exact = [t.detach().double().requires_grad_() for t in ours]
    of_ours = torch.autograd.grad(matmul(ours[0], ours[1].T, ours[2], activation="gelu").float().square().sum(), ours)
    z = torch.nn.functional.gelu(exact[0] @ exact[1].T + exact[2])
    for name, mine, theirs in zip(
        ("x", "w", "bias"), of_ours, torch.autograd.grad(z.square().sum(), exact), strict=True
    ):
        error = (mine.double() - theirs).norm() / theirs.norm()
        if not error < 4e-3:
            return f"gradient of {name} off by {error:.2e}"
    return ""


def check_compile() -> str:
    """torch.compile with the default back-end, in one graph."""
    x, w = torch.randn(96, 64, device="cuda").half(), torch.randn(64, 80, device="cuda").half()

    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return matmul(x, w, activation="relu") * 2

    return "" if torch.equal(torch.compile(layer, fullgraph=True)(x, w), layer(x, w)) else "another result"


def check_graphs_and_streams() -> str:
    """Split-K products, captured and not, on two streams at once: each has counters of its own."""
    a, b = torch.randn(16, 16384, device="cuda").half(), torch.randn(16384, 256, device="cuda").half()
    expected = matmul(a, b)
    torch.cuda.synchronize()
    graphs, outs = [], []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outs.append([matmul(a, b) for _ in range(20)])
        graphs.append(graph)
    cuda: Any = torch.cuda
    streams = [cuda.Stream() for _ in range(3)]
    for _ in range(10):
        for out in (t for group in outs for t in group):
            out.fill_(float("nan"))
        torch.cuda.synchronize()
        for graph, stream in zip(graphs, streams, strict=False):
            with torch.cuda.stream(stream):
                graph.replay()
        with torch.cuda.stream(streams[2]):
            direct = [matmul(a, b) for _ in range(20)]
        torch.cuda.synchronize()
        if not all(torch.equal(t, expected) for t in (*outs[0], *outs[1], *direct)):
            return "a result differs"
    return ""


def check_odd_operands() -> str:
    """Zero sizes, expanded and strided operands, values that are not finite, offsets beyond 32 bits."""
    half: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}
    assert matmul(torch.empty(0, 8, **half), torch.empty(8, 4, **half)).shape == (0, 4)
    assert bool((matmul(torch.empty(3, 0, **half), torch.empty(0, 4, **half)) == 0).all())
    a, b = torch.randn(40, 64, **half), torch.randn(64, 48, **half)
    pairs = [
        (a[:1].expand(40, 64), b),
        (a.expand(3, 40, 64), torch.randn(3, 64, 48, **half)),
        (a[::2, ::2], b[::2]),
        (torch.randn(40, 65, **half)[:, 1:], b),
        (torch.randn(200, **half).as_strided((40, 64), (1, 2)), b),
        (torch.randn(2, 40, 3, 64, **half)[:, :, 1], torch.randn(2, 64, 48, **half)),
    ]
    for x, y in pairs:
        if not torch.allclose(matmul(x, y).double(), x.double() @ y.double(), rtol=1e-3, atol=1e-2):
            return f"strides {x.stride()} and {y.stride()}"
    for value in (float("nan"), float("inf"), -float("inf")):
        x, y = a.clone(), b.clone()
        x[1, 2], y[5, 6] = value, value
        for activation in (None, *ACTIVATIONS):
            z = (x.float() @ y.float()).half()
            z = ACTIVATIONS[activation](z.float()).half() if activation else z
            found = matmul(x, y, activation=activation)
            if not torch.allclose(found.float(), z.float(), rtol=2e-3, atol=2e-2, equal_nan=True):
                return f"{value} with {activation}"
    tall = torch.randn(70000, 32768, **half)
    rows = torch.tensor([0, 35000, 65535, 69999], device="cuda")
    found, exact = matmul(tall, tall[:64].T)[rows], tall[rows].double() @ tall[:64].T.double()
    return "" if torch.allclose(found.double(), exact, rtol=2e-3, atol=0.5) else "beyond 2^31 elements"


SPECIAL = {f.__name__: f for f in (check_gradients, check_compile, check_graphs_and_streams, check_odd_operands)}


def work(jobs: list[Any]) -> list[tuple[Any, str]]:
    """Run some checks; what went wrong, by check."""
    found = []
    for job in jobs:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                found.append((job, SPECIAL[job]() if isinstance(job, str) else check_product(job)))
            except Exception as error:  # noqa: BLE001 - a failure of the check, to be printed
                lines = [line for line in str(error).splitlines() if line.strip(" ^")]
                found.append((job, f"{type(error).__name__}: {lines[-1][:160] if lines else ''}"))
    return found


def main() -> None:
    """Deal the checks to processes that share the GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu-processes", type=int, default=8)
    args = parser.parse_args()
    layouts = [x + y for x, y in itertools.product("rc", "rc")]
    jobs: list[Any] = [*SPECIAL, *itertools.product(DTYPES, layouts, SHAPES, EPILOGUES)]
    parts = [jobs[i :: args.gpu_processes] for i in range(args.gpu_processes)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.gpu_processes, mp_context=context) as pool:
        results = [result for part in pool.map(work, parts) for result in part]
    failures = [(job, what) for job, what in results if what]
    for job, what in failures:
        print(job, what)
    print(f"{len(results) - len(failures)} of {len(results)} checks passed")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
