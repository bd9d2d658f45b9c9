"""Origami and nvMatmulHeuristics beside the models of this package, on published times.

The packages are installed into an environment of their own in a temporary folder, never into that of this project. One
that pip cannot install there is left out with the reason; `--peers PYTHON` names an environment that has them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from math import exp
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.elsewhere.judge import SMALL, Judged, by_gpu_and_type, judged
from benchmarks.elsewhere.written import PAGE, fill, today
from constrint.hwmodels import load_gpu

WORKER = Path(__file__).with_name("peers_worker.py")
#: Seconds for an installation, and for all answers of a peer.
INSTALL_S, ANSWER_S = 600, 1800


class Peer(NamedTuple):
    """Another model of products.

    Args:
        name: Its name on the page.
        key: Its name in the worker.
        package: The package, with the version.
        vendor: Vendor of the GPUs that it models.
        dtypes: Types that it is asked for.
        gpus: GPUs that it knows, as the data name them; all of the vendor if empty.
    """

    name: str
    key: str
    package: str
    vendor: str
    dtypes: tuple[str, ...]
    gpus: tuple[str, ...] = ()


PEERS = (
    Peer("Origami 0.0.3", "origami", "rocm-origami==0.0.3", "amd", ("bf16", "fp16", "fp8", "int8")),
    Peer(
        "nvMatmulHeuristics 0.1.0.27",
        "nvidia",
        "nvidia-matmul-heuristics==0.1.0.27",
        "nvidia",
        ("bf16", "fp16"),
        ("a100", "h100", "h200", "b200", "l40s"),
    ),
)


def main(python: Path | None, gpus: Sequence[str], *, write: bool) -> None:
    """Print the table of both peers, and write it into the page of figures if asked."""
    rows = [row for row in judged(gpus, all_of_them=True) if row.size != SMALL]
    with tempfile.TemporaryDirectory(prefix="constrint-peers-") as folder:
        lines = list(table_lines(rows, Path(folder), python))
    print("\n".join(lines))
    if write:
        fill(PAGE, "peers", [f"Asked on {today()}.", "", *lines])


def table_lines(rows: Sequence[Judged], folder: Path, python: Path | None) -> Iterator[str]:
    """The table in Markdown: predicted over published time of the peer and of ours, on the same products."""
    yield "| peer | GPU, type (n) | its mean | its spread | our mean | our spread | same tile |"
    yield "|---|---|---|---|---|---|---|"
    skipped = []
    for peer in PEERS:
        asked = [row for row in rows if _takes(peer, row)]
        interpreter, reason = (python, "") if python is not None else _installed(peer, folder)
        answers, reason = _answers(peer, interpreter, asked) if interpreter is not None else ([], reason)
        if reason:
            skipped.append(f"{peer.name} is left out: {reason}")
        yield from _rows_of(peer, asked, answers)
    yield from ["", *skipped] if skipped else []


def _takes(peer: Peer, row: Judged) -> bool:
    known = not peer.gpus or row.time.gpu in peer.gpus
    return load_gpu(row.gpu).vendor == peer.vendor and known and row.time.dtype in peer.dtypes


def _installed(peer: Peer, folder: Path) -> tuple[Path | None, str]:
    """A Python that has the package; None with the reason why pip did not install it."""
    environment = folder / peer.key
    python = environment / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=INSTALL_S)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", peer.package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        return None, f"pip install {peer.package} took more than {INSTALL_S} s"
    if done.returncode:
        errors = [line.strip() for line in done.stderr.splitlines() if "error" in line.lower()]
        return None, f"pip install {peer.package} failed: {errors[-1] if errors else done.stderr[-200:]}"
    return python, ""


def _answers(peer: Peer, python: Path, rows: Sequence[Judged]) -> tuple[list[Mapping[str, Any]], str]:
    jobs = json.dumps([_job(row) for row in rows])
    command = [str(python), str(WORKER), peer.key]
    done = subprocess.run(command, input=jobs, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    if done.returncode:
        return [], (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return json.loads(done.stdout.splitlines()[-1]), ""


def _job(row: Judged) -> dict[str, Any]:
    gpu, time = load_gpu(row.gpu), row.time
    facts = {
        "target": gpu.arch.target,
        "cus": gpu.device.sm_count,
        "lds_bytes": gpu.sm.max_smem_bytes_per_block,
        "l2_bytes": gpu.memory.l2.size_bytes_per_xcd or gpu.memory.l2.size_bytes,
        "clock_hz": gpu.device.boost_clock_hz,
    }
    sizes = {"m": time.m, "n": time.n, "k": time.k, "transpose_b": time.transpose_b}
    result = time.dtype if time.dtype in ("bf16", "fp16") else "bf16"
    return {"gpu": time.gpu, "dtype": time.dtype, "result": result, "facts": facts, **sizes}


def _rows_of(peer: Peer, rows: Sequence[Judged], answers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    answered = {id(row): answer for row, answer in zip(rows, answers, strict=False)}
    for (gpu, dtype), of_type in by_gpu_and_type(rows).items():
        both = [(row, answered[id(row)]) for row in of_type if "us" in answered.get(id(row), {})]
        errors = [answer["error"] for row in of_type if "error" in (answer := answered.get(id(row), {}))]
        if not both:
            yield from [f"| {peer.name} | {gpu} {dtype} (0) | {errors[0][:60]} | | | | |"] if errors else []
            continue
        theirs = np.log([answer["us"] / row.time.us for row, answer in both])
        ours = np.log([row.ratio for row, _ in both])
        same = np.mean([answer["tile"] == [row.config.get(f"tile_{axis}") for axis in "mnk"] for row, answer in both])
        means = [f"{exp(float(logs.mean())):.2f} | {logs.std():.2f}" for logs in (theirs, ours)]
        yield f"| {peer.name} | {gpu} {dtype} ({len(both)}) | {' | '.join(means)} | {same:.0%} |"
