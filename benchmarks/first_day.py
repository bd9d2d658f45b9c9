"""Do five jobs of a first day with constrint, and print their commands, lines, wall time and CPU time.

    python -m benchmarks.first_day [--package CHECKOUT]

Every job runs in an empty folder with an empty cache, each command as a process of its own. `lines` are those that a
user writes or changes besides the kernel or model that they have. A job ends at its first command that fails; its last
line on stderr stands in the table. `--package` takes constrint from another checkout. Needs torch and triton, no GPU.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = (ROOT / "tests/support/tutorial_kernel.py").read_text(encoding="utf-8")
#: The list of a file that serves NVIDIA and AMD GPUs, as users write it.
LIST = """
def listed():
    tiles = [(256, 256, 64), (128, 256, 32), (256, 128, 32), (128, 128, 64), (64, 128, 32), (128, 64, 128)]
    amd = {"matrix_instr_nonkdim": 16} if triton.runtime.driver.active.get_current_target().backend == "hip" else {}
    return [
        triton.Config({"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8, **amd}, num_warps=8)
        for m, n, k in tiles
    ]


@triton.autotune(listed(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel"""
RMS_NORM = """import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 1024}, num_warps=w) for w in (2, 4, 8)], key=["n"])
@triton.jit
def rms_norm(x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0) * n
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row + at, mask=at < n, other=0.0).to(tl.float32)
        total += value * value
    scale = tl.rsqrt(tl.sum(total) / n + eps)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row + at, mask=at < n) * scale * tl.load(w + at, mask=at < n)
        tl.store(y + row + at, value, mask=at < n)
"""
HALVE = """import yaml
from pathlib import Path

gpu = yaml.safe_load(Path("gpu.yaml").read_text())
gpu["name"] = "H200-HALF"
gpu["device"]["sm_count"] = 66
for rates in (gpu["compute"]["matrix_flop_per_s"], gpu["compute"]["vector_flop_per_s"]):
    rates.update({dtype: float(rate) / 2 for dtype, rate in rates.items()})
Path("gpu.yaml").write_text(yaml.safe_dump(gpu))
"""
MODEL = """import torch
import constrint


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = torch.nn.LSTM(64, 128, batch_first=True), torch.nn.Linear(128, 10)

    def forward(self, x):
        return self.out(self.lstm(x)[0])


model, x = Tagger(), torch.randn(4, 20, 64)
before = model(x)
constrint.patch(model)
torch.testing.assert_close(model(x), before)
"""
SPEC = (ROOT / "examples/softmax/softmax.py").read_text(encoding="utf-8").replace('"softmax", "', '"row_softmax", "')
CONSTRINT = f"{sys.executable} -m constrint"
ARGUMENTS = "--signature '*_ptr=*fp16,stride_?k=1,stride_cn=1,stride_bn=1,*=i32:16'"


@dataclass(frozen=True)
class Job:
    """A job: its files, the commands in order, and the lines that a user writes besides what they have."""

    title: str
    lines: int
    commands: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)


JOBS = (
    Job(
        "shorten a matmul's list of configurations for an MI300X and an H200",
        0,
        (f"{CONSTRINT} prune matmul.py:matmul_kernel --gpu mi300x,h200 {ARGUMENTS} --write configs.py",),
        {"matmul.py": TUTORIAL.replace("@triton.jit\ndef matmul_kernel", LIST.lstrip("\n"))},
    ),
    Job(
        "know what an RMSNorm of one's own takes on an MI300X",
        0,
        (f"{CONSTRINT} compile rms.py:rms_norm --gpu mi300x --signature '*bf16,*bf16,*bf16,i32:16,fp32'",),
        {"rms.py": RMS_NORM},
    ),
    Job(
        "rank a product for half an H200",
        11,
        (
            f"{CONSTRINT} gpu h200 --yaml > gpu.yaml",
            f"{sys.executable} halve.py",
            f"{CONSTRINT} gpu --check gpu.yaml",
            f"{CONSTRINT} solve --gpu gpu.yaml --top 3",
        ),
        {"halve.py": HALVE},
    ),
    Job("put the layers into a model", 2, (f"{sys.executable} model.py",), {"model.py": MODEL}),
    Job(
        "offer a kernel in a package",
        2 + len(SPEC[SPEC.index("class Softmax") :].splitlines()),
        (
            f"{CONSTRINT} kernels row_softmax",
            f"{CONSTRINT} solve --kernel row_softmax --gpu mi300x --top 3",
            f"{CONSTRINT} verify --kernel row_softmax --gpu mi300x --top 2",
        ),
        {
            "rows/__init__.py": "",
            "rows/kernels.py": SPEC,
            "rows-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: rows\nVersion: 1.0\n",
            "rows-1.0.dist-info/entry_points.txt": "[constrint.kernels]\nrow_softmax = rows.kernels:SPEC\n",
        },
    ),
)


def cpu_seconds() -> float:
    """CPU time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row_of(job: Job, package: Path) -> str:
    """Do a job; its row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in job.files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        caches = {"CONSTRINT_CACHE": "cache", "TRITON_CACHE_DIR": "triton", "XDG_CACHE_HOME": "home"}
        environment = os.environ | {name: str(Path(folder, place)) for name, place in caches.items()}
        environment["PYTHONPATH"] = os.pathsep.join([str(package), folder])
        wall, cpu, outcome = time.perf_counter(), cpu_seconds(), "done"
        for command in job.commands:
            ended = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
            if ended.returncode:
                outcome = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1][:120]
                break
        figures = f"{time.perf_counter() - wall:.0f} | {cpu_seconds() - cpu:.0f}"
    return f"| {job.title} | {len(job.commands)} | {job.lines} | {figures} | {outcome} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, default=ROOT, help="the checkout whose constrint is used")
    package = parser.parse_args().package.resolve()
    print("| job | commands | lines | wall, s | CPU, s | outcome |\n|---|---:|---:|---:|---:|---|")
    for job in JOBS:
        print(row_of(job, package), flush=True)


if __name__ == "__main__":
    main()
