"""Compile public Triton kernels of other projects with `constrint compile`, and write down what became of each.

    python -m benchmarks.outside --source triton=DIR --source liger=DIR --source fla=DIR --source gems=DIR \\
        --gpu h200 --gpu mi300x --write benchmarks/results/outside.csv

A DIR is a checkout of the project that `outside.yaml` names. Each kernel is a call of the command as a user makes it:
it compiles, or the command refuses it in a sentence. A kernel that ends in a traceback makes the program fail.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import msgspec

import constrint.cli.app
from constrint.hwmodels import load_gpu

LIST = Path(__file__).with_name("outside.yaml")
#: The outcomes of a kernel on a GPU.
COMPILED, NOT_LAUNCHABLE, REFUSED, TRACEBACK = "compiled", "cannot be launched", "refused", "traceback"
#: The longest that one kernel may take, in seconds.
PATIENCE_S = 600


class OutsideCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a kernel is called: the entries of its signature before those of its project, and its constants."""

    signature: str = ""
    constants: str = ""
    options: str = ""


class OutsideProject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A project with kernels.

    Args:
        repository: Its name on GitHub.
        commit: The commit that was tried.
        folder: The folder of the files, in a checkout.
        kernels: How each kernel `FILE.py:NAME` is called.
        signature: Entries of the signature of all kernels, after their own.
        environment: Variables of the command by the maker of the GPU, `nvidia` or `amd`.
    """

    repository: str
    commit: str
    folder: str
    kernels: Mapping[str, OutsideCall]
    signature: str = ""
    environment: Mapping[str, Mapping[str, str]] = {}


class OutsideRow(msgspec.Struct, frozen=True):
    """The outcome of a kernel on a GPU; the figures are those of its first configuration that can be launched."""

    project: str
    commit: str
    kernel: str
    gpu: str
    outcome: str
    compiled: int = 0
    configurations: int = 0
    registers: int | None = None
    spill_bytes: int | None = None
    smem_bytes: int | None = None
    sentence: str = ""


def read_projects(path: Path = LIST) -> dict[str, OutsideProject]:
    """The projects of a list, by the name that `--source` takes."""
    return msgspec.yaml.decode(path.read_bytes(), type=dict[str, OutsideProject])


class OutsideJob(msgspec.Struct, frozen=True):
    """A kernel to compile for a GPU, whose maker is `nvidia` or `amd`."""

    name: str
    project: OutsideProject
    checkout: Path
    kernel: str
    gpu: str
    maker: str
    configs: int

    def command(self) -> list[str]:
        """The command that compiles it, without the program's name."""
        call = self.project.kernels[self.kernel]
        signature = ",".join(part for part in (call.signature, self.project.signature) if part)
        path = self.checkout / self.project.folder / self.kernel
        command = ["compile", str(path), "--gpu", self.gpu, "--signature", signature, "--json"]
        command += ["--constants", call.constants] if call.constants else []
        command += ["--option", call.options] if call.options else []
        return [*command, "--configs", str(self.configs)]


def row_of(
    name: str, project: OutsideProject, kernel: str, gpu: str, ended: subprocess.CompletedProcess[str]
) -> OutsideRow:
    """The row that a command's end says."""
    row = OutsideRow(name, project.commit[:12], kernel, gpu, TRACEBACK)
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    if "Traceback (most recent call last)" in ended.stderr or ended.returncode not in (0, 1, 2):
        return msgspec.structs.replace(row, sentence=lines[-1] if lines else f"exit code {ended.returncode}")
    if not ended.stdout.startswith("{"):
        return msgspec.structs.replace(row, outcome=REFUSED, sentence=lines[-1] if lines else "")
    kernels = json.loads(ended.stdout)["kernels"]
    built = [one for one in kernels if one["compiled"] is not None]
    launchable = [one for one in built if one["compiled"]["blocks_per_sm"]]
    first = next(iter(launchable or built), None)
    outcome = COMPILED if launchable else NOT_LAUNCHABLE if built else REFUSED
    sentence = "" if launchable else kernels[0]["problem"]
    row = msgspec.structs.replace(
        row, outcome=outcome, compiled=len(built), configurations=len(kernels), sentence=sentence
    )
    if first is None:
        return row
    figures = first["compiled"]
    return msgspec.structs.replace(
        row,
        registers=figures["registers_per_thread"],
        spill_bytes=figures["spill_bytes_per_thread"],
        smem_bytes=figures["smem_bytes_per_block"],
    )


class ForkedCommand:
    """A command in a fork of this process, which has loaded torch and triton already; its output goes to files."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.arguments = list(arguments)
        self._out = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - read when the fork has ended
        self._err = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            return
        code = 70
        try:
            os.dup2(self._out.fileno(), 1)
            os.dup2(self._err.fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            os.environ.update(environment)
            signal.alarm(PATIENCE_S)
            sys.argv = ["constrint", *arguments]
            constrint.cli.app.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:  # noqa: BLE001 - a traceback is a result
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def ended(self, status: int) -> subprocess.CompletedProcess[str]:
        """The texts that the command printed, and its exit code, from the status that the system tells."""
        texts = []
        for file in (self._out, self._err):
            file.seek(0)
            texts.append(file.read())
            file.close()
        return subprocess.CompletedProcess(self.arguments, os.waitstatus_to_exitcode(status), *texts)


def write_rows(path: Path, rows: Sequence[OutsideRow]) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(OutsideRow.__struct_fields__)
        writer.writerows(msgspec.structs.astuple(row) for row in rows)


def try_kernels(jobs: Sequence[OutsideJob], number: int, say: Callable[[OutsideRow], None]) -> None:
    """Compile kernels, each for a GPU in a process of its own, a number at a time; say each row."""
    left, running = deque(jobs), dict[int, tuple[OutsideJob, ForkedCommand]]()
    while left or running:
        while left and len(running) < number:
            job = left.popleft()
            command = ForkedCommand(job.command(), job.project.environment.get(job.maker, {}))
            running[command.pid] = job, command
        pid, status = os.wait()
        if pid not in running:
            continue
        job, command = running.pop(pid)
        row = row_of(job.name, job.project, job.kernel, job.gpu, command.ended(status))
        say(msgspec.structs.replace(row, sentence=row.sentence.replace(str(job.checkout.resolve()), job.name)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Try every kernel of the sources given; 1 if one ended in a traceback."""
    options = _parser().parse_args(arguments)
    projects = read_projects(options.list)
    sources = {name: Path(folder) for name, _, folder in (text.partition("=") for text in options.source)}
    if unknown := sources.keys() - projects.keys():
        print(f"--source takes NAME=DIR with one of {', '.join(projects)}; got {', '.join(unknown)}", file=sys.stderr)
        return 2
    makers = {gpu: "amd" if load_gpu(gpu).maker.triton_backend == "hip" else "nvidia" for gpu in options.gpu}
    jobs = [
        OutsideJob(name, projects[name], checkout, kernel, gpu, makers[gpu], options.configs)
        for name, checkout in sources.items()
        for kernel in projects[name].kernels
        for gpu in options.gpu
        if options.only in f"{name}/{kernel}"
    ]
    for module in ("torch", "triton", "constrint.cli.compile", "constrint.tune.no_data"):  # once, for all forks
        import_module(module)
    order = {(job.name, job.kernel, job.gpu): at for at, job in enumerate(jobs)}
    rows: list[OutsideRow] = []

    def say(row: OutsideRow) -> None:
        rows.append(row)
        rows.sort(key=lambda row: order[row.project, row.kernel, row.gpu])
        if options.write is not None:
            write_rows(options.write, rows)
        print(f"{len(rows):4} of {len(jobs)}  {row.project:7} {row.kernel:70} {row.gpu:7} {_told(row)}", flush=True)

    # In turn from each project, so that a run that is ended early has some of all.
    jobs.sort(key=lambda job: list(job.project.kernels).index(job.kernel))
    try_kernels(jobs, options.jobs, say)
    print(*summary(rows), sep="\n")
    return int(any(row.outcome == TRACEBACK for row in rows))


def _told(row: OutsideRow) -> str:
    if row.registers is None:
        return f"{row.outcome}: {row.sentence}"
    figures = f"{row.registers} registers, {row.spill_bytes} B spilled, {row.smem_bytes} B shared"
    return f"{row.outcome}: {figures}" + (f"; {row.sentence}" if row.sentence else "")


def summary(rows: Sequence[OutsideRow]) -> Iterator[str]:
    """A line for each project and GPU: how many kernels had which outcome."""
    for place in dict.fromkeys((row.project, row.gpu) for row in rows):
        counts = Counter(row.outcome for row in rows if (row.project, row.gpu) == place)
        parts = ", ".join(f"{number} {outcome}" for outcome, number in counts.most_common())
        yield f"{place[0]} for {place[1]}: {counts.total()} kernels, {parts}"
    outcomes = Counter(row.outcome for row in rows)
    number = len({(row.project, row.kernel) for row in rows})
    yield f"all: {number} kernels, {', '.join(f'{count} {outcome}' for outcome, count in outcomes.most_common())}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", action="append", required=True, metavar="NAME=DIR", help="a project's checkout")
    parser.add_argument("--gpu", action="append", required=True)
    parser.add_argument("--list", type=Path, default=LIST, help="the kernels and how they are called")
    parser.add_argument("--only", default="", help="kernels whose PROJECT/FILE.py:NAME has this text")
    parser.add_argument("--configs", type=int, default=1, help="configurations of a kernel's own list")
    parser.add_argument("--jobs", type=int, default=2, help="kernels at a time")
    parser.add_argument("--write", type=Path, metavar="CSV")
    return parser


if __name__ == "__main__":
    sys.exit(main())
