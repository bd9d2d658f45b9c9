"""Candidates that attack the tuner's processes: pipes, clocks, signals, children, inputs and the interpreter itself.

    python -m benchmarks.attacks.workers --count 200 --seed 7
    python -m benchmarks.attacks.workers --count 50 --seed 7 --gates      # the processes of `constrint propose`

Each candidate does one to three things of the list below, drawn by its seed, when it is checked or when it is timed. An
innocent one runs after each. A find is an innocent one that is refused, an answer that does not come in time, a process
that outlives the run, code of a candidate that runs in this process, or a time that cannot be and is believed.
"""

# ruff: noqa: D102 - the methods of a kernel
from __future__ import annotations

import ctypes
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.attacks import ended, parser_of
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.registry import load_spec
from constrint.propose import wire
from constrint.propose.process import SandboxWorker, WorkerLost, WorkerRefused
from constrint.propose.sandbox import PLAIN
from constrint.select import Param, Workload
from constrint.select.candidate import Config
from constrint.select.spec import Launch
from constrint.select.workload import Size
from constrint.tune import Outcome, Trial
from constrint.tune.engine.interface import Job, JobResult, Setup
from constrint.tune.engine.local import LocalEngine
from constrint.tune.floor import implausible
from constrint.tune.keeper import descendants
from tests.tune.hostile import HostileSpec

#: Stands in the environment of all processes of a run; a file of this name appears where code of a candidate ran.
MARK = "CONSTRINT_ATTACK"
WORKLOAD = Workload("attacked", {"n": 64}, "fp32")
#: Runs after which a candidate takes itself to be timed.
CHECKS = 2
PIPES = range(3, 48)


class Betrayal(Exception):
    """An exception whose text is none."""

    def __str__(self) -> Any:
        return None


class Raising(Exception):
    """An exception whose text raises."""

    def __str__(self) -> str:
        raise SystemExit(7)


class Evil:
    """Unpickled, it leaves a file."""

    def __reduce__(self) -> Any:
        return Path(os.environ[MARK] + ".ran").touch, ()


def _write_everywhere(data: bytes) -> None:
    for pipe in PIPES:
        try:
            os.set_blocking(pipe, False)
            os.write(pipe, data)
        except OSError:
            pass


def _head(length: int) -> bytes:
    return length.to_bytes(8, "little")


def _message(content: Any) -> bytes:
    body = msgspec.msgpack.encode(content)
    return _head(len(body)) + body


def _forge(rng: random.Random) -> None:
    figures = {"median_s": rng.choice([1e-12, -5.0, 1e-3]), "spread_s": 0.0, "num_rounds": 9}
    answer = msgspec.msgpack.encode([[{"outcome": 1, "figures": figures}], False])
    _write_everywhere(b"".join(_message([number, answer, ""]) for number in range(rng.choice([1, 3, 200]))))


def _fork(rng: random.Random) -> None:
    for _ in range(rng.choice([1, 3, 12])):
        if os.fork() == 0:
            if rng.random() < 0.7:
                os.setsid()
                if os.fork():
                    os._exit(0)
            time.sleep(600)
            os._exit(0)


def _later(rng: random.Random, act: Callable[[], Any]) -> None:
    threading.Timer(rng.choice([0.01, 0.1, 0.4]), act).start()


def _raise(error: BaseException) -> None:
    raise error


def _looped() -> BaseException:
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    return one


def _both(one: Callable[[], Any], other: Callable[[], Any]) -> None:
    one()
    other()


def _patch(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


def _refuse(*_: Any, **__: Any) -> Any:
    raise OSError("patched")


def _torch() -> Any:
    import torch

    return torch


#: The things that a candidate may do.
STEPS: dict[str, Callable[[random.Random], Any]] = {
    "garbage": lambda rng: _write_everywhere(rng.randbytes(rng.choice([1, 7, 8, 9, 4000]))),
    "huge length": lambda rng: _write_everywhere(_head(rng.choice([2**20 + 1, 2**40, 2**63, 2**64 - 1]))),
    "half a message": lambda rng: _write_everywhere(_head(500) + b"x" * 17),
    "nothing": lambda rng: _write_everywhere(_message(None)),
    "deep": lambda rng: _write_everywhere(_head(90_000) + b"\x91" * 90_000),
    "no text": lambda rng: _write_everywhere(_message([0, b"", "xx"]).replace(b"xx", b"\xff\xfe")),
    "pickle": lambda rng: _write_everywhere(pickle.dumps(Evil())),
    "pickle in a message": lambda rng: _write_everywhere(_message(pickle.dumps(Evil()))),
    "old protocol": lambda rng: _write_everywhere(len(p := pickle.dumps(Evil())).to_bytes(4, "big") + p),
    "forge": _forge,
    "close all": lambda rng: os.closerange(0, 4096),
    "close pipes": lambda rng: os.closerange(3, 4096),
    "close and hang": lambda rng: _both(lambda: os.closerange(0, 4096), lambda: time.sleep(600)),
    "stdout": lambda rng: _patch(sys, rng.choice(["stdout", "stderr"]), None),
    "os.write": lambda rng: _patch(os, rng.choice(["write", "read"]), _refuse),
    "encode": lambda rng: _patch(msgspec.msgpack, "encode", rng.choice([_refuse, lambda _: b"", lambda _: None])),
    "surrogate": lambda rng: _raise(RuntimeError("lone \ud800 surrogate \udfff")),
    "no string": lambda rng: _raise(Betrayal()),
    "raising string": lambda rng: _raise(Raising()),
    "much text": lambda rng: _raise(RuntimeError("x" * (32 << 20))),
    "looped cause": lambda rng: _raise(_looped()),
    "exit": lambda rng: _raise(rng.choice([SystemExit(3), KeyboardInterrupt(), GeneratorExit()])),
    "named": lambda rng: _raise(type("\ud800", (Exception,), {})("\x1b[2J\x07")),
    "os._exit": lambda rng: os._exit(rng.choice([0, 1, 139, 255])),
    "fork": _fork,
    "child": lambda rng: subprocess.Popen(["sleep", "600"], start_new_session=rng.random() < 0.5),
    "later exit": lambda rng: _later(rng, lambda: os._exit(0)),
    "later garbage": lambda rng: _later(rng, lambda: _write_everywhere(b"later")),
    "later close": lambda rng: _later(rng, lambda: os.closerange(3, 4096)),
    "later hang": lambda rng: _later(rng, lambda: ctypes.PyDLL(None).sleep(600)),
    "alarm": lambda rng: signal.setitimer(signal.ITIMER_REAL, rng.choice([0.01, 0.3])),
    "own signal": lambda rng: os.kill(os.getpid(), rng.choice([2, 3, 6, 9, 11, 15, 19, 31])),
    "group": lambda rng: os.killpg(0, rng.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])),
    "stop keeper": lambda rng: os.kill(os.getppid(), rng.choice([signal.SIGSTOP, signal.SIGINT, signal.SIGCHLD])),
    "clock": lambda rng: _patch(time, "perf_counter", rng.choice([lambda: 0.0, lambda: -time.time(), _refuse])),
    "torch": lambda rng: _patch(_torch(), rng.choice(["equal", "empty_like", "randn"]), _refuse),
    "copy": lambda rng: _patch(_torch().Tensor, rng.choice(["copy_", "clone", "fill_"]), lambda self, *_: self),
    "print": lambda rng: [os.write(1, b"\xff\x1b]0;x\x07" * 1000) for _ in range(rng.choice([1, 100, 3000]))],
    "hang": lambda rng: time.sleep(600),
    "folder": lambda rng: _both(lambda: os.chdir("/"), os.environ.clear),
    "recursion": lambda rng: sys.setrecursionlimit(40),
}
#: Further things that are done with the tensors.
TENSOR_STEPS = ("inputs", "skip")


@dataclass
class AttackLaunch:
    """A launch on the CPU that counts its runs."""

    inputs: Mapping[str, Any]
    out: Any
    seed: int

    def run(self) -> None:
        if self.seed:
            rng = random.Random(self.seed)
            is_timed = _count(self.seed) > CHECKS
            when = rng.choice(["checked", "timed", "always"])
            names = rng.sample([*STEPS, *TENSOR_STEPS], rng.choice([1, 1, 2, 3]))
            if when == "always" or (when == "timed") == is_timed:
                for name in names:
                    if name == "inputs":
                        self.inputs["x"].add_(1.0)
                    elif name == "skip":
                        return
                    else:
                        STEPS[name](rng)
        if self.out is not None:
            self.out.copy_(2 * self.inputs["x"])

    def warm_up(self) -> None:
        """Nothing is compiled."""


_runs: Counter[int] = Counter()


def _count(seed: int) -> int:
    _runs[seed] += 1
    return _runs[seed]


class AttackSpec(HostileSpec):
    """Doubles its input; with a seed it attacks before that."""

    operation = "attacked"
    summary = "y = 2 x, and an attack"
    sizes = (Size("n", 64, "elements"),)

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        return (Param("seed", (0, 1), "what it does", "0 is innocent"),)

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        return [AttackLaunch(inputs, outputs["y"], config["seed"])]  # type: ignore[list-item]


SPEC = AttackSpec()
KERNEL = f"{Path(__file__).resolve()}:SPEC"


def attack(count: int, seed: int, patience_s: float = 3.0, slots: int = 2) -> tuple[list[str], Counter[str]]:
    """Run attacks; returns what was found, and the outcomes of the attackers.

    Args:
        count: Number of attackers.
        seed: Seed of the first one; the others follow.
        patience_s: Time that a candidate may run.
        slots: Number of devices.
    """
    with tempfile.TemporaryDirectory() as folder:
        mark = f"{folder}/mark"
        os.environ[MARK] = mark
        setup = Setup(load_spec, load_gpu("h200"), device="cpu").with_patience(patience_s)
        engine = LocalEngine(setup, tuple(range(slots)), num_compilers=1)
        try:
            finds, outcomes = _attacked(engine, count, seed, patience_s)
        finally:
            engine.close()
        left = left_over(mark)
        finds += [f"{len(left)} processes outlive the run: {left}"] * bool(left)
        finds += ["code of a candidate ran here"] * Path(f"{mark}.ran").exists()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    return finds, outcomes


def _attacked(engine: LocalEngine, count: int, seed: int, patience_s: float) -> tuple[list[str], Counter[str]]:
    finds: list[str] = []
    outcomes: Counter[str] = Counter()
    slots = len(engine.slots)
    for number in range(2 * count):
        config = {"seed": seed + number // 2 if number % 2 == 0 else 0}
        engine.submit(number // 2 % slots, Job(number, (Trial(KERNEL, WORKLOAD, config),)))
    # A refusal takes a second process.
    until = time.monotonic() + 60 + count * (2 * patience_s + 10)
    waiting = 2 * count
    while waiting and time.monotonic() < until:
        for done in engine.poll(0.2):
            waiting -= 1
            finds += _judged(done, seed, outcomes)
    return [*finds, *([f"{waiting} are not answered"] if waiting else [])], outcomes


def _judged(done: JobResult, seed: int, outcomes: Counter[str]) -> list[str]:
    (answer,), own = done.answers, seed + done.job.number // 2
    if done.job.number % 2:
        return [] if answer.outcome == Outcome.OK else [f"after {own}: {answer.outcome.name}, {answer.message}"]
    outcome, figures = answer.outcome, answer.figures
    if figures is not None and implausible(SPEC, load_gpu("h200"), WORKLOAD, figures.median_s):
        outcome = Outcome.IMPLAUSIBLE
    outcomes[outcome.name] += 1
    answer.message.encode()
    return [f"{own}: a message of {len(answer.message)} characters"] if len(answer.message) > 2000 else []


def left_over(mark: str) -> list[int]:
    """Processes other than this one and its fork server in whose environment the mark stands, after a while."""
    until, left = time.monotonic() + 10, [0]
    while left and time.monotonic() < until:
        left = [pid for pid in _marked(mark) if pid != os.getpid()]
        time.sleep(0.05)
    return left


def _marked(mark: str) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            is_alive = "State:\tZ" not in (folder / "status").read_text()
            is_server = b"forkserver import main" in command or b"resource_tracker" in command
            if is_alive and mark.encode() in (folder / "environ").read_bytes():
                # What a server forked has its command line, and it has no children when all is over.
                ours = (folder / "stat").read_text().rsplit(")", 1)[1].split()[1] == str(os.getpid())
                if not (is_server and ours):
                    yield int(folder.name)
        except OSError:
            continue


def escaped(source: str) -> str:
    """Source that runs with all of Python in a worker that gives a candidate few names: by the way of its classes."""
    return f"""
_opener = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == "_wrap_close"][0]
_system = _opener.__init__.__globals__["sys"]
_names = _system.modules["candidate"].__dict__
_names["__builtins__"], _names["__file__"] = _system.modules["builtins"], ""
_names["__builtins__"].exec({source!r}, _names)
"""


def attack_gates(count: int, seed: int, patience_s: float = 3.0) -> tuple[list[str], Counter[str]]:
    """The same against the processes of proposed source, without a sandbox around them; none of it is read before."""
    finds: list[str] = []
    outcomes: Counter[str] = Counter()
    source = Path(__file__).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.environ[MARK] = f"{folder}/mark"
        for own in range(seed, seed + count):
            # The mark's variable is no part of a worker's environment.
            told = f"{source}\nos.environ[MARK] = {os.environ[MARK]!r}\n"
            told += f"_runs[{own}] = {own % 2 * CHECKS}\n"
            told += f"def attacked():\n    AttackLaunch({{'x': bytearray()}}, None, {own}).run()\n"
            with SandboxWorker(PLAIN) as worker:
                started = time.monotonic()
                try:
                    worker.ask(wire.Load(source=escaped(told), entry="attacked"), wire.Acknowledged, 60)
                    started = time.monotonic()
                    worker.ask(wire.CallOnce(outputs=(), inputs=()), wire.Called, patience_s)
                    outcomes["answered"] += 1
                except (WorkerLost, WorkerRefused) as error:
                    outcomes[type(error).__name__] += 1
                    str(error).encode()
                if time.monotonic() - started > 2 * patience_s + 5:
                    finds.append(f"{own}: {time.monotonic() - started:.0f} s")
                inside = [worker.pid, *descendants(worker.pid)]
            left = [pid for pid in inside if Path(f"/proc/{pid}").exists()]
            finds += [f"{own}: {len(left)} processes are left"] * bool(left)
        finds += ["code of a candidate ran here"] * Path(f"{folder}/mark.ran").exists()
    return finds, outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack, print a summary, and return the exit code."""
    parser = parser_of(__doc__, 100)
    parser.add_argument("--patience", type=float, default=3.0)
    parser.add_argument("--gates", action="store_true", help="attack the processes of proposed source")
    options = parser.parse_args(arguments)
    finds, outcomes = (attack_gates if options.gates else attack)(options.count, options.seed, options.patience)
    told = ", ".join(f"{number} {name.lower()}" for name, number in sorted(outcomes.items()))
    return ended(finds, f"workers: {options.count} attackers from seed {options.seed}: {told}; {len(finds)} finds")


if __name__ == "__main__":
    sys.exit(main())
