"""The calls that are compared, each beside the peer's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.call.kernels import few_arguments, many_arguments, with_descriptors
from benchmarks.call.timing import Run
from constrint import flashrnn
from constrint.flashrnn import rnn
from constrint.kernels.gemm import matmul

#: (M, N, K) that no other benchmark names; each in bf16 and fp16, by rows.
GEMM_SHAPES = (
    *((64, 64, 64), (96, 1280, 320), (200, 3000, 1000), (256, 256, 4096), (384, 384, 384), (500, 500, 500)),
    *((640, 2560, 640), (768, 2304, 768), (777, 1234, 555), (896, 896, 896), (1000, 1000, 1000), (1, 4096, 4096)),
    *(
        (1280, 5120, 1280),
        (1536, 1536, 1536),
        (1536, 1536, 6144),
        (1792, 7168, 512),
        (2, 8192, 2048),
        (2304, 2304, 2304),
    ),
    *((2560, 2560, 2560), (3072, 3072, 3072), (3328, 3328, 3328), (4, 5120, 5120), (5000, 5000, 5000), (7, 1000, 3000)),
    *((8, 28672, 4096), (32, 6144, 1536), (48, 12288, 4096), (64, 64, 65536), (112, 14336, 4096), (256, 7168, 2048)),
    *((1000, 3000, 2000), (4095, 4097, 4096), (32768, 256, 256), (16384, 1024, 1024), (6000, 700, 3500)),
)


class Case(NamedTuple):
    """A case: its name, and the calls of torch and of ours."""

    name: str
    torch: Run
    ours: Run


def gemms() -> Iterator[Case]:
    """Products from Python."""
    for m, n, k in GEMM_SHAPES:
        for dtype in (torch.bfloat16, torch.float16):
            a, b = _randn(m, k, dtype=dtype), _randn(k, n, dtype=dtype)
            yield Case(f"{m}x{n}x{k} {_name(dtype)}", partial(torch.matmul, a, b), partial(matmul, a, b))


def host_gemms() -> Iterator[Case]:
    """Products whose cost is the host's."""
    a, b = _randn(64, 64, dtype=torch.bfloat16), _randn(64, 64, dtype=torch.bfloat16)
    with_grad = a.clone().requires_grad_(), b.clone().requires_grad_()
    bias = _randn(64, dtype=torch.bfloat16)
    yield Case("matmul 64^3 bf16, no grad", silent(torch.matmul, a, b), silent(matmul, a, b))
    yield Case("matmul 64^3 bf16, grad enabled", lambda: torch.matmul(a, b), lambda: matmul(a, b))
    yield Case("matmul 64^3 bf16, requires grad", lambda: torch.matmul(*with_grad), lambda: matmul(*with_grad))
    linear = nn.functional.linear
    for case, given in (("by the library", (a, b)), ("with bias, by the library", (a, b, bias))):
        theirs = silent(torch.addmm, bias, a, b) if len(given) > 2 else silent(torch.mm, a, b)
        yield Case(f"matmul 64^3 bf16 {case}", theirs, silent(partial(matmul, kernel="library"), *given))
    yield Case("linear 64^3 bf16 with bias", silent(linear, a, b, bias), silent(lambda: matmul(a, b.t(), bias)))
    yield Case(
        "matmul 64^3 bf16, own epilogue",
        silent(lambda: torch.relu(torch.matmul(a, b) + bias)),
        silent(lambda: matmul(a, b, bias, epilogue=lambda acc, bias: torch.relu(acc + bias))),
    )


def training_gemm() -> Iterator[Case]:
    """A product of a model's size, forward and backward."""
    x = _randn(8192, 768, dtype=torch.bfloat16).requires_grad_()
    w = _randn(768, 3072, dtype=torch.bfloat16).requires_grad_()
    upstream = _randn(8192, 3072, dtype=torch.bfloat16)

    def both(multiply: Callable[[Tensor, Tensor], Tensor]) -> None:
        x.grad = w.grad = None
        out: Any = multiply(x, w)
        out.backward(upstream)

    yield Case("matmul 8192x3072x768 bf16, both", lambda: both(torch.matmul), lambda: both(matmul))


#: Name, module, (input, hidden, batch, steps), dtype.
LAYERS: tuple[tuple[str, str, tuple[int, int, int, int], torch.dtype], ...] = (
    ("LSTM(128) B1 T1 fp16", "LSTM", (128, 128, 1, 1), torch.float16),
    ("LSTM(64) B8 T16 fp32", "LSTM", (64, 64, 8, 16), torch.float32),
    ("LSTM(64) B32 T128 fp32", "LSTM", (64, 64, 32, 128), torch.float32),
    ("GRU(64) B8 T16 fp32", "GRU", (64, 64, 8, 16), torch.float32),
    ("LSTM(512) B16 T128 fp16", "LSTM", (512, 512, 16, 128), torch.float16),
)


def layers(direction: str, *, device: str = "cuda", only: tuple[str, ...] = ()) -> Iterator[Case]:
    """Modules, `forward` or `both`; parameters and outputs by torch's own defaults (time first)."""
    for name, kind, (inputs, hidden, batch, steps), dtype in LAYERS:
        if only and name not in only:
            continue
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        modules: dict[str, Any] = {
            "torch": getattr(nn, kind)(inputs, hidden, **options),
            "ours": getattr(flashrnn, kind)(inputs, hidden, **options),
        }
        modules["ours"].load_state_dict(modules["torch"].state_dict())
        x = torch.randn(steps, batch, inputs, **options)
        calls = {
            who: silent(module, x) if direction == "forward" else training_step(module, x)
            for who, module in modules.items()
        }
        yield Case(f"{name}, {direction}", calls["torch"], calls["ours"])


def fused_layer() -> dict[str, Run]:
    """`rnn` alone on projected inputs, LSTM 12x64 B16 T1024 bf16: forward, and forward and backward."""
    dtype = torch.bfloat16
    wx = _randn(16, 1024, 4, 12, 64, dtype=dtype).requires_grad_()
    r = (_randn(4, 12, 64, 64, dtype=dtype) / 8).requires_grad_()
    b = _randn(4, 12, 64, dtype=dtype).requires_grad_()
    upstream = _randn(16, 1024, 12, 64, dtype=dtype)

    def both() -> None:
        wx.grad = r.grad = b.grad = None
        out: Any = rnn(wx, r, b, hidden_only=True)[0]
        out.backward(upstream)

    return {"forward": silent(lambda: rnn(wx, r, b, hidden_only=True)), "both": both}


def compiled_layers() -> Iterator[tuple[str, dict[str, Run]]]:
    """Our modules, eager and under `torch.compile`, the forward pass also in its CUDA graphs."""
    for name, kind, (inputs, hidden, batch, steps), dtype in LAYERS:
        torch.compiler.reset()  # each is compiled on its own, as in a user's program
        module = getattr(flashrnn, kind)(inputs, hidden, device="cuda", dtype=dtype)
        compiled = torch.compile(module, fullgraph=True)
        graphs = torch.compile(module, fullgraph=True, mode="reduce-overhead")
        x = torch.randn(steps, batch, inputs, device="cuda", dtype=dtype)
        yield (
            f"{name}, forward",
            {
                "eager": silent(module, x),
                "compiled": silent(compiled, x),
                "graphs": silent(graphs, x),
            },
        )
        yield f"{name}, both", {"eager": training_step(module, x), "compiled": training_step(compiled, x)}


def training_step(module: Any, x: Tensor) -> Run:
    """Forward, and backward from the sum of all outputs."""

    def step() -> None:
        for weight in module.parameters():
            weight.grad = None
        loss: Any = module(x)[0].sum()
        loss.backward()

    return step


def silent(call: Callable[..., Any], *args: Any) -> Run:
    """The call without gradients."""

    def run() -> Any:
        with torch.no_grad():
            return call(*args)

    return run


def _randn(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def _name(dtype: torch.dtype) -> str:
    return {torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype]


def launches() -> dict[str, dict[str, Run]]:
    """Triton's own launch beside a prepared one, by kind of kernel."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    from constrint.launch import prepare

    x, y, out = (torch.randn(1024, device="cuda") for _ in range(3))
    numbers = list(range(2, 32))
    pointers = [x, y, out, x, y, out, x, y, out]
    tiles = [torch.randn(64, 64, device="cuda") for _ in range(3)]
    described = [TensorDescriptor.from_tensor(tile, [64, 64]) for tile in tiles]
    few = prepare(few_arguments, (1,), x, y, out, 1024, tile=1024)
    many = prepare(many_arguments, (1,), *pointers, *numbers, 1024, tile=1024)
    by_maps = prepare(with_descriptors, (1,), *described, tile=64)
    return {
        "5 arguments": {
            "triton": lambda: few_arguments[(1,)](x, y, out, 1024, tile=1024),
            "ours": lambda: few(x, y, out, 1024),
        },
        "41 arguments": {
            "triton": lambda: many_arguments[(1,)](*pointers, *numbers, 1024, tile=1024),
            "ours": lambda: many(*pointers, *numbers, 1024),
        },
        "3 descriptors": {
            "triton": lambda: with_descriptors[(1,)](*described, tile=64),
            "ours": lambda: by_maps(*described),
        },
    }


#: (module, options, (batch, steps)).
CPU_LAYERS: tuple[tuple[str, dict[str, Any], tuple[int, int]], ...] = (
    ("LSTM", {"input_size": 256, "hidden_size": 256}, (8, 64)),
    ("LSTM", {"input_size": 64, "hidden_size": 64}, (1, 1)),
    ("GRU", {"input_size": 256, "hidden_size": 256}, (8, 64)),
    ("LSTM", {"input_size": 128, "hidden_size": 128, "num_layers": 2, "bidirectional": True}, (4, 32)),
)


def cpu_layers() -> Iterator[Case]:
    """Forward, and forward and backward, on one thread: so wall time is the processor's."""
    torch.set_num_threads(1)
    for kind, options, (batch, steps) in CPU_LAYERS:
        theirs, ours = getattr(nn, kind)(**options), getattr(flashrnn, kind)(**options)
        ours.load_state_dict(theirs.state_dict())
        x = torch.randn(steps, batch, options["input_size"])
        name = f"{kind} {options['hidden_size']} B{batch} T{steps} fp32"
        yield Case(f"{name}, forward", silent(theirs, x), silent(ours, x))
        yield Case(f"{name}, both", training_step(theirs, x), training_step(ours, x))
