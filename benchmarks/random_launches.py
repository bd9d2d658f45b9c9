"""Launch random products and layers, and count the launched kernels that spill: there should be none.

    python -m benchmarks.random_launches --number 1000 --seed 5 [--out launches.csv]

Shapes, dtypes, layouts and epilogues of products, and cells, sizes, dtypes and optional inputs of layers, are drawn
anew with each seed. Every kernel that Triton loads is noted; of those that are then launched, the ones whose registers
go to memory are counted. Each result is compared with plain PyTorch, so that nothing is launched for its own sake.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.table import Table, described
from constrint.flashrnn import rnn
from constrint.kernels.gemm.op import matmul
from constrint.kernels.launch import look, policy

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
ACTIVATIONS = (None, None, "relu", "gelu", "silu")


def product(rng: random.Random) -> tuple[str, Callable[[], Any]]:
    """A product of random sizes, layouts and end."""
    m, n, k = (int(2 ** rng.uniform(0, 12)) for _ in "mnk")
    if rng.random() < 0.6:
        m, n, k = (max(16, size // 16 * 16) for size in (m, n, k))
    dtype, is_a, is_b = rng.choice(DTYPES), rng.random() < 0.3, rng.random() < 0.4
    a = torch.randn((k, m) if is_a else (m, k), device="cuda").to(dtype)
    b = torch.randn((n, k) if is_b else (k, n), device="cuda").to(dtype)
    a, b = a.t() if is_a else a, b.t() if is_b else b
    end: dict[str, Any] = {"activation": rng.choice(ACTIVATIONS), "implementation": "kernels"}
    if rng.random() < 0.5:
        end["bias"] = torch.randn(n, device="cuda").to(dtype)
    if rng.random() < 0.3:
        end |= {"c": torch.randn((m, n), device="cuda").to(dtype), "beta": rng.choice((1.0, 0.5))}
    if rng.random() < 0.2:
        end["alpha"] = 0.5
    if rng.random() < 0.2 and dtype != torch.float32:
        end["out_dtype"] = torch.float32
    words = ", ".join(name for name, value in end.items() if value is not None and name != "implementation")
    return f"matmul {m}x{n}x{k} {dtype} {'t' if is_a else 'n'}{'t' if is_b else 'n'} {words}", lambda: matmul(
        a, b, **end
    )


def layer(rng: random.Random) -> tuple[str, Callable[[], Any]]:
    """A recurrence of random sizes with random optional inputs, and its gradients every other time."""
    cell = rng.choice(("lstm", "gru", "slstm", "elman"))
    gates = {"lstm": 4, "gru": 3, "slstm": 4, "elman": 1}[cell]
    dim = rng.choice((16, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768))
    heads, batch, steps = rng.choice((1, 2, 4)), rng.choice((1, 3, 8, 16, 33, 64)), rng.choice((1, 5, 16))
    dtype = rng.choice(DTYPES)
    trains = rng.random() < 0.5
    wx = torch.randn((batch, steps, gates, heads, dim), device="cuda").to(dtype).requires_grad_(trains)
    r = (torch.randn((gates, heads, dim, dim), device="cuda") / dim**0.5).to(dtype).requires_grad_(trains)
    given: dict[str, Any] = {}
    if rng.random() < 0.5:
        given["b"] = torch.randn((gates, heads, dim), device="cuda").to(dtype)
    if rng.random() < 0.3:
        given["lengths"] = torch.randint(1, steps + 1, (batch,), device="cuda")
    if rng.random() < 0.3:
        given["reset"] = torch.rand((batch, steps), device="cuda") < 0.2

    def call() -> Any:
        states, _ = rnn(wx, r, cell=cell, backend="triton", **given)
        if trains:
            torch.autograd.backward(states[0].sum())
        return states[0]

    words = ", ".join([*given, *(["gradients"] if trains else [])])
    return f"{cell} B{batch} T{steps} {heads}x{dim} {dtype} {words}", call


def main() -> None:
    """Draw, launch and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--limit", type=float, default=500.0, help="seconds after which no more are drawn")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rng, started = random.Random(args.seed), time.time()
    torch.manual_seed(args.seed)
    launched: list[tuple[str, Any]] = []
    passed = Counter[str]()
    watch(launched, passed)
    columns = ["call", "kernels", "spilling", "bytes", "passed_over"]
    counts = Counter[str]()
    with Table(args.out, columns, f"launched on {described()}; seed {args.seed}") as table:
        for number in range(args.number):
            if time.time() > started + args.limit:
                break
            text, call = (product if rng.random() < 0.6 else layer)(rng)
            launched.clear()
            before = passed.total()
            result = call()
            settle(launched)
            counts["calls"] += 1
            counts["not finite"] += not bool(torch.isfinite(result.float()).all())
            spilling = {name: kernel.n_spills for name, kernel in launched if kernel.n_spills}
            counts["launches of kernels"] += len(launched)
            counts["spilling"] += len(spilling)
            if spilling or passed.total() > before:
                table.add(
                    call=text,
                    kernels=len(launched),
                    spilling=" ".join(spilling),
                    bytes=4 * max(spilling.values(), default=0),
                    passed_over=passed.total() - before,
                )
                print(number, text, f"spills: {spilling}", f"passed over: {passed.total() - before}", flush=True)
    print(
        f"{dict(counts)}; {passed.total()} choices were passed over because they spill; {time.time() - started:.0f} s"
    )


#: Kernels of which it is not known yet whether they are launched or passed over.
PENDING: list[tuple[str, Any]] = []


def settle(launched: list[tuple[str, Any]]) -> None:
    """What was compiled and not passed over is launched."""
    launched += PENDING
    PENDING.clear()


def watch(launched: list[tuple[str, Any]], passed: Counter[str]) -> None:
    """Note kernels as they are looked at for a launch, and choices as they are passed over."""
    from constrint.kernels.launch.plan import recipe

    check, compile_all, remember = look.check_spills, recipe.compile_all, policy._remember

    def noted(launches: Any) -> Any:
        kernels = compile_all(launches)
        if threading.current_thread() is threading.main_thread():  # others compile ahead, and launch nothing
            settle(launched)
            PENDING[:] = [(kernel.metadata.name, kernel) for kernel in kernels]
        return kernels

    def looked(kernels: Any) -> None:
        kernels = list(kernels)
        PENDING[:] = [(kernel.metadata.name, kernel) for kernel in kernels]
        try:
            check(kernels)
        except look.SpilledError:
            PENDING.clear()
            raise
        settle(launched)

    def counted(choice: Any, given: Any, compiled: Any) -> None:
        passed[choice.kernel] += 1
        remember(choice, given, compiled)

    recipe.compile_all, look.check_spills, policy._remember = noted, looked, counted


if __name__ == "__main__":
    main()
