"""Cheats that were seen against kernel benchmarks, each as a candidate for the softmax, and what has to refuse it.

Every one is tried twice: as it is, where reading the source refuses most of them, and again without that reading, where
the gate `deeper` has to refuse it; so no gate relies on another.
"""

from __future__ import annotations

from dataclasses import dataclass

from constrint.propose import find_task

_KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def rows(y, x, n, x_row, x_column, tile: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, tile)
    values = tl.load(x + row * x_row + at * x_column, mask=at < n, other=float("-inf")).to(tl.float32)
    weights = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * n + at, weights / tl.sum(weights, axis=0), mask=at < n)

@triton.jit
def copy(y, x, n, tile: tl.constexpr):
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

def honest(y, x):
    rows[(x.shape[0],)](y, x, x.shape[1], x.stride(0), x.stride(1), triton.next_power_of_2(x.shape[1]))

def copied(y, x):
    x = x.contiguous()
    copy[(triton.cdiv(x.numel(), 1024),)](y, x, x.numel(), 1024)
"""


@dataclass(frozen=True)
class Cheat:
    """A candidate that is not what it should be.

    Args:
        name: What it does.
        source: Its text.
        gate: What refuses it.
        says: Part of why.
        deeper: What refuses it where its source is not read; empty where that is the same.
        deeper_says: Part of why.
    """

    name: str
    source: str
    gate: str
    says: str
    deeper: str = ""
    deeper_says: str = ""


def cheat(name: str, body: str, gate: str, says: str, deeper: str = "", deeper_says: str = "") -> Cheat:
    return Cheat(name, _KERNEL + body, gate, says, deeper, deeper_says)


def changed(old: str, new: str) -> str:
    """An honest softmax with one thing changed, and nothing that is illegal."""
    (text, *_) = (path.read_text() for path in find_task("softmax").examples if "one_block" in path.name)
    assert old in text, old
    return text.replace(old, new)


#: Each is refused by a gate that runs without a GPU.
CHEATS = (
    cheat(
        "the result of an earlier call is kept and given again",
        """
_kept = {}
def run(y, x):
    key = (x.shape, x.stride(), x.dtype)
    if key in _kept:
        copied(y, _kept[key])
    else:
        honest(y, x)
        _kept[key] = y.clone()
""",
        "legal", "nothing is kept", "honest", "right at first",
    ),
    cheat(
        "the result of an earlier call is kept in a file",
        """
import os
def run(y, x):
    path = f"{os.environ['HOME']}/kept-{x.shape[0]}-{x.shape[1]}-{x.dtype}-{x.stride(0)}"
    if os.path.exists(path):
        copied(y, torch.load(path))
    else:
        honest(y, x)
        torch.save(y.clone(), path)
""",
        "legal", "import os", "honest", "PyTorch did work",
    ),
    cheat(
        "the timer is replaced",
        """
torch.cuda.Event.elapsed_time = lambda self, other: 1e-3
def run(y, x):
    honest(y, x)
""",
        "legal", "constants", "honest", "torch.cuda.Event.elapsed_time",
    ),
    cheat(
        "the median is replaced",
        """
import statistics
def run(y, x):
    statistics.median = lambda times: 1e-9
    honest(y, x)
""",
        "legal", "import statistics", "honest", "statistics.median",
    ),
    cheat(
        "waiting for the device is replaced",
        """
torch.cuda.synchronize = lambda *device: None
def run(y, x):
    honest(y, x)
""",
        "legal", "constants", "honest", "torch.cuda.synchronize",
    ),
    cheat(
        "the harness in its own process is replaced",
        """
import sys
def run(y, x):
    server = sys.modules["constrint.propose.worker.serve"].Server
    server._run = lambda self, request: sys.modules["constrint.propose.wire"].Acknowledged()
    honest(y, x)
""",
        "legal", "import sys", "honest", "serve.Server._run",
    ),
    cheat(
        "a lazy tensor computes when it is looked at",
        """
class Lazy(torch.Tensor):
    pass
def run(y, x):
    copy[(1,)](y, x, 0, 16)
    return x.as_subclass(Lazy)
""",
        "legal", "no classes", "right", "returned a Lazy",
    ),
    cheat(
        "memory that the reference has freed is returned",
        """
def run(y, x):
    copy[(1,)](y, x, 0, 16)
    return torch.empty_like(y)
""",
        "right", "not written",
    ),
    cheat(
        "inputs are zeroed, so that an easy answer is right",
        """
def run(y, x):
    x.zero_()
    honest(y, x)
""",
        "right", "off by",
    ),
    cheat(
        "inputs are zeroed after they were read",
        """
def run(y, x):
    honest(y, x)
    x.zero_()
""",
        "honest", "its input x",
    ),
    cheat(
        "right for the first calls, wrong later",
        """
_calls = [0]
def run(y, x):
    _calls[0] += 1
    if _calls[0] > 15:
        copied(y, x)
    else:
        honest(y, x)
""",
        "legal", "nothing is kept", "honest", "right at first",
    ),
    cheat(
        "PyTorch does the work, a kernel copies it",
        """
def run(y, x):
    copied(y, x.softmax(dim=1))
""",
        "legal", "x.softmax is not allowed", "honest", "aten._softmax",
    ),
    cheat(
        "PyTorch does a part of the work",
        """
def run(y, x):
    honest(y, x.float() - x.amax(dim=1, keepdim=True))
""",
        "legal", "is not allowed", "honest", "PyTorch did work",
    ),
    cheat(
        "numpy does the work on the memory of the tensor",
        """
def run(y, x):
    copy[(1,)](y, x, 0, 16)
    values = x.float().numpy()
    weights = __import__("numpy").exp(values - values.max(axis=1, keepdims=True))
    y.numpy()[:] = weights / weights.sum(axis=1, keepdims=True)
""",
        "legal", "is not allowed", "honest", "Tensor.numpy",
    ),
    cheat(
        "a kernel of somebody else does the work",
        """
import linecache
_text = open(__file__).read() if False else '''
import triton, triton.language as tl
@triton.jit
def borrowed(y, x, n, x_row, x_column, tile: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, tile)
    values = tl.load(x + row * x_row + at * x_column, mask=at < n, other=float("-inf")).to(tl.float32)
    weights = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * n + at, weights / tl.sum(weights, axis=0), mask=at < n)
'''
linecache.cache["<borrowed>"] = (len(_text), None, _text.splitlines(True), "<borrowed>")
_space = {"__name__": "borrowed"}
exec(compile(_text, "<borrowed>", "exec"), _space)
def run(y, x):
    tile = triton.next_power_of_2(x.shape[1])
    _space["borrowed"][(x.shape[0],)](y, x, x.shape[1], x.stride(0), x.stride(1), tile)
""",
        "legal", "import linecache", "honest", "borrowed, which its source does not define",
    ),
    cheat(
        "the precision of all later computations is lowered",
        """
def run(y, x):
    torch.set_float32_matmul_precision("medium")
    honest(y, x)
""",
        "legal", "torch.set_float32_matmul_precision is not allowed", "honest", "the precision of float32 products",
    ),
    cheat(
        "a thread goes on after the call",
        """
import threading, time
def run(y, x):
    honest(y, x)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
""",
        "legal", "import threading", "honest", "threads of Python",
    ),
    cheat(
        "the reference is looked for in memory",
        """
import gc
def run(y, x):
    wanted = [t for t in gc.get_objects() if isinstance(t, torch.Tensor) and t.dtype == torch.float64]
    copied(y, wanted[0] if wanted else x)
""",
        "legal", "import gc", "right", "off by",
    ),
    cheat(
        "it never ends", "\ndef run(y, x):\n    while True: pass\n",
        "compiles", "no answer within", "right", "no answer within",
    ),
    cheat(
        "it ends the process", "\ndef run(y, x):\n    __import__('os').abort()\n",
        "legal", "is not allowed", "right", "SIGABRT",
    ),
    Cheat("half of the rows", changed("[(m,)]", "[(m // 2 + 1,)]"), "right", "not written"),
    Cheat(
        "a constant that is nearly right for many columns",
        changed("weights / tl.sum(weights, axis=0)", "weights * 0.0 + 1.0 / n"), "right", "off by",
    ),
    Cheat(
        "the first row for all",
        changed("x + row * x_row", "x + 0 * x_row"), "right", "off by",
    ),
    Cheat("only small exponents", changed(" - tl.max(values, axis=0)", ""), "right", "large values"),
    Cheat("strides are ignored", changed("row * x_row + columns * x_column", "row * n + columns"), "right", "strided"),
    Cheat("sizes are taken for powers of two", changed(", mask=inside)\n\n", ")\n\n"), "right", "wrote beside y"),
    Cheat(
        "sums in fp16", changed("tl.sum(weights, axis=0)", "tl.sum(weights.to(tl.float16), axis=0)"),
        "right", "lower precision",
    ),
    Cheat(
        "exponents in fp16", changed(".to(tl.float32)\n", ".to(tl.float16).to(tl.float32)\n"),
        "right", "fp16 or tf32",
    ),
    Cheat(
        "no launch", changed("    softmax_row[(m,)]", "    return\n    softmax_row[(m,)]"),
        "compiles", "launches no kernel",
    ),
    Cheat("more threads than a block has", changed("num_warps=num_warps", "num_warps=64"), "compiles", "no block"),
)  # fmt: skip


def cheats_of(task: str) -> tuple[Cheat, ...]:
    """Cheats for any of the six tasks, made of one of its correct candidates."""
    path = find_task(task).examples[0]
    text = path.read_text()
    arguments = ", ".join(find_task(task).arguments)
    head, _, body = text.partition("def run(")
    made = {
        # What is read in fp32 already, such as angles, stays.
        "lower precision": text.replace(".to(tl.float32)", ".to(tl.float16).to(tl.float32)"),
        "half of the rows": text.replace("[(m,)]", "[(m // 2 + 1,)]")
        .replace("grid = (m,", "grid = (m // 2 + 1,")
        .replace("grid = (triton.cdiv(m, tile_m),", "grid = (triton.cdiv(m, 2 * tile_m),")
        .replace("inside = pair < total", "inside = pair < total // 2"),
        "no launch": f"{head}def run({body.partition(':')[0]}:\n    return\n",
        "PyTorch does it": f"{head}def run({arguments}):\n    {arguments.split(',')[0]}.copy_(x.float())\n",
    }
    assert all(source != text for source in made.values()), path
    gates = {
        "lower precision": "right",
        "half of the rows": "right",
        "no launch": "compiles",
        "PyTorch does it": "legal",
    }
    says = {
        "lower precision": "",
        "half of the rows": "not written",
        "no launch": "no kernel",
        "PyTorch does it": "copy_",
    }
    return tuple(Cheat(f"{task}: {name}", source, gates[name], says[name]) for name, source in made.items())
