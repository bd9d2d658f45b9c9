"""Check the forward kernel for many sequences beside a reference, and time it beside `cuda`.

    python -m benchmarks.rnn.wgmma --gpu h200 --out wgmma.csv --limit 600       # needs a GPU
    python -m benchmarks.rnn.wgmma --gpu h200 --out wgmma_check.csv --only-check
    python -m benchmarks.rnn.wgmma --gpu h200 --list                            # needs none: what would run
    python -m benchmarks.rnn.wgmma --gpu h200 --kinds cuda call --out calls.csv # jobs of these kinds alone

Jobs run in another process. One that takes longer than its seconds is ended with that process, and the next job begins
in a new one: a kernel that waits for ever costs some seconds. Where results are checked, waits end by themselves, too.
Where a check fails nothing is timed, unless `--anyway` is given.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.table import Table, described
from benchmarks.rnn.wgmma.jobs import KINDS, Job, checks, compile_all, times
from constrint.hwmodels import load_gpu

#: Seconds until a job begins: imports.
START_S = 60.0
COLUMNS = (
    "kind",
    "cell",
    "batch",
    "time",
    "heads",
    "dim",
    "dtype",
    "optional",
    "config",
    "outcome",
    "ms",
    "step_us",
    "more",
)


class Runner:
    """The process that runs jobs, and the lines that it says."""

    def __init__(self, file: Path, first: int, gpu: str) -> None:
        command = [sys.executable, "-m", "benchmarks.rnn.wgmma.run", str(file), str(first), gpu]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def next(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message of the process; None where it has ended.

        Raises:
            TimeoutError: When it says nothing for so long.
        """
        until = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, until - time.monotonic()))
            except queue.Empty:
                raise TimeoutError from None
            if line is None:
                return None
            if line.startswith("{"):
                said: dict[str, Any] = json.loads(line)
                return said

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def rows_of(jobs: Sequence[Job], gpu: str, until: float) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Yield the result of each job, until the time is over."""
    with tempfile.TemporaryDirectory(prefix="wgmma_") as folder:
        file = Path(folder) / "jobs.json"
        file.write_text(json.dumps([job.to_plain() for job in jobs]), encoding="utf-8")
        number = 0
        while number < len(jobs) and time.monotonic() < until:
            runner = Runner(file, number, gpu)
            begun, is_ready, seconds = False, False, min(START_S, until - time.monotonic())
            try:
                while time.monotonic() < until:
                    said = runner.next(seconds)
                    if said is None:
                        if not (begun or is_ready):
                            raise SystemExit("the process that runs jobs ended before it could begin")
                        if begun:
                            yield jobs[number], {"outcome": "ended"}
                            number += 1
                        break
                    is_ready = True
                    if "begin" in said:
                        begun, seconds = True, jobs[said["begin"]].seconds
                    elif "end" in said:
                        number, begun, seconds = said["end"] + 1, False, START_S
                        yield jobs[said["end"]], said["row"]
                        if number == len(jobs):
                            break
            except TimeoutError:
                yield jobs[number], {"outcome": f"HANGS: nothing for {seconds:.0f} s"}
                number += 1
            finally:
                runner.end()


def summarise(done: Sequence[tuple[Job, dict[str, Any]]]) -> None:
    """The fastest loop of each layer beside that of `cuda`."""
    timed = [(job, row) for job, row in done if job.kind in ("cuda", "loop") and "ms" in row]
    for dim, batch in dict.fromkeys((job.dim, job.batch) for job, _ in timed):
        alike = [(row["ms"], job) for job, row in timed if (job.dim, job.batch) == (dim, batch)]
        cuda = min((ms for ms, job in alike if job.kind == "cuda"), default=float("nan"))
        own = min(((ms, job) for ms, job in alike if job.kind == "loop"), default=None, key=lambda one: one[0])
        if own is not None:
            print(f"{dim} units, {batch} sequences: {own[0]:.3f} ms, cuda {cuda:.3f} ms; {own[1].title()}")


def main() -> None:
    """Check, and time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--only-check", action="store_true")
    parser.add_argument("--only-times", action="store_true")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="jobs of these kinds alone")
    parser.add_argument("--anyway", action="store_true", help="time, even if a check failed")
    parser.add_argument("--list", action="store_true", help="name the jobs, run none")
    args = parser.parse_args()
    gpu, until = load_gpu(args.gpu), time.monotonic() + args.limit
    parts = [] if args.only_times else [list(checks(gpu))]
    parts += [] if args.only_check else [list(times(gpu))]
    parts = [[job for job in part if job.kind in args.kinds] for part in parts]
    if args.list:
        for job in (job for part in parts for job in part):
            print(job.title())
        return
    failed, done = 0, []
    with Table(args.out, COLUMNS, described()) as table:
        began = time.monotonic()
        compile_all([job for jobs in parts for job in jobs], args.gpu)
        print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
        for jobs in parts:
            if failed and not args.anyway:
                print(f"{failed} checks failed: nothing is timed (--anyway does)")
                break
            for job, row in rows_of(jobs, args.gpu, until):
                failed += row["outcome"] != "ok"
                done.append((job, row))
                more = {name: value for name, value in row.items() if name not in COLUMNS}
                shown = " ".join(f"{n}={v:.4g}" if isinstance(v, float) else f"{n}={v}" for n, v in row.items())
                print(f"{job.title()}: {shown}", flush=True)
                plain = {name: value for name, value in job.to_plain().items() if name in COLUMNS}
                config = " ".join(f"{name}={value}" for name, value in job.config.items())
                told = {name: row[name] for name in ("outcome", "ms", "step_us") if name in row}
                table.add(**(plain | {"config": config} | told | {"more": json.dumps(more)}))
    summarise(done)
    print(f"{failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
