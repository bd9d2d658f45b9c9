"""First calls of new processes: how long they take beyond importing torch, and what of it goes where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: What a process does, after torch is imported and the GPU is in use; prints seconds by step.
PROGRAM = """
import json, sys, time
import torch
torch.zeros(1, device="cuda"); torch.cuda.synchronize()
seen, last = {}, time.perf_counter()
def step(name):
    global last
    torch.cuda.synchronize()
    now = time.perf_counter()
    seen[name], last = now - last, now
"""
MATMUL = """
from constrint.kernels.gemm import matmul
step("import")
a = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16); step("-")
matmul(a, a); step("first matmul")
b = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16); step("-")
matmul(b, b); step("second shape")
b = torch.randn(2048, 2080, device="cuda", dtype=torch.bfloat16); step("-")
matmul(b.t(), b.t().t()); step("third shape")
c = torch.randn(1032, 1024, device="cuda", dtype=torch.bfloat16); step("-")
matmul(c, a); step("another shape")
import random, statistics
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.candidates import decide_product
from constrint.kernels.gemm.product import Product
from constrint.kernels.launch.device import gpu_of
from constrint.select import Workload
def chosen(rows):
    product = Product.of(Workload("gemm", {"m": rows, "n": 2048, "k": 2048}, "bf16"))
    choice = decide_product(gpu_of(torch.device("cuda", 0)), product)
    return choice.kernel, {name: value for name, value in choice.config.items() if name != "group_m"}
alike = [rows for rows in range(1040, 6000, 16) if chosen(rows) == chosen(2048)]
import constrint.choose; constrint.choose.forget()
b, times = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16), []
for rows in random.Random().sample(alike, 12):
    c = torch.randn(rows, 2048, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize(); start = time.perf_counter()
    matmul(c, b); times.append(time.perf_counter() - start)
seen["a shape never seen, kernel compiled (median of 12)"] = statistics.median(times[2:])
"""
LSTM = """
from constrint.flashrnn import LSTM
step("import")
layer = LSTM(512, 512, device="cuda", dtype=torch.float16)
x = torch.randn(64, 16, 512, device="cuda", dtype=torch.float16); step("-")
with torch.no_grad(): layer(x)
step("first LSTM forward")
layer(x)[0].sum().backward(); step("first training step")
x = torch.randn(64, 12, 512, device="cuda", dtype=torch.float16); step("-")
layer(x)[0].sum().backward(); step("another batch size")
x = torch.randn(65, 10, 512, device="cuda", dtype=torch.float16); step("-")
layer(x)[0].sum().backward(); step("another length")
"""
END = """
seen.pop("-", None)
print(json.dumps(seen))
"""
PROGRAMS = {"matmul": MATMUL, "LSTM(512)": LSTM}


def first_calls() -> list[tuple[str, str, str, float]]:
    """(program, caches, step, seconds): `cold` caches are empty, `warm` ones are those that the same program left."""
    rows = []
    for name, program in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as folder:
            for caches in ("cold", "warm", "warm again"):
                for step, seconds in _run(program, Path(folder)).items():
                    rows.append((name, caches, step, seconds))
    return rows


def _run(program: str, folder: Path) -> dict[str, float]:
    environment = os.environ | {"CONSTRINT_CACHE": str(folder / "own"), "TRITON_CACHE_DIR": str(folder / "triton")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + program + END], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
