"""A kernel whose configurations do whatever a candidate may do to its tuner; beside them, one that is right."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.select import KernelSpec, Param, Workload
from constrint.select.candidate import Config
from constrint.select.limits import BlockUse
from constrint.select.spec import Launch, Rule, Vars
from constrint.select.workload import Size
from constrint.tune import Outcome

#: What each value of the parameter does, and what has to be recorded of it.
BEHAVIOURS: dict[str, Outcome] = {
    "right": Outcome.OK,
    "slow": Outcome.OK,
    "prints": Outcome.OK,
    "wrong": Outcome.WRONG_RESULT,
    "wrong_later": Outcome.WRONG_RESULT,
    "unwritten": Outcome.WRONG_RESULT,
    "writes_inputs": Outcome.WRONG_RESULT,
    "raises": Outcome.LAUNCH_FAILED,
    "exits": Outcome.CRASHED,
    "segfaults": Outcome.CRASHED,
    "is_killed": Outcome.CRASHED,
    "eats_memory": Outcome.CRASHED,
    "hangs": Outcome.TIMED_OUT,
    "hangs_in_c": Outcome.TIMED_OUT,
    "prints_without_end": Outcome.TIMED_OUT,
    "closes_everything": Outcome.CRASHED,
    "refused": Outcome.COMPILE_FAILED,
    "kills_compiler": Outcome.CRASHED,
    "hangs_compiler": Outcome.TIMED_OUT,
}
NAMES = tuple(BEHAVIOURS)


@dataclass(frozen=True)
class HostileLaunch:
    """A launch, on the CPU."""

    inputs: Mapping[str, Any]
    out: Any
    what: str

    def run(self) -> None:
        getattr(self, f"_{self.what}", self._compute)()

    def warm_up(self) -> None:
        if self.what == "refused":
            raise UnsupportedError("the compiler refuses this configuration")
        if self.what == "kills_compiler":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.what == "hangs_compiler":
            time.sleep(1000)

    def _compute(self) -> None:
        self.out.copy_(2 * self.inputs["x"])

    def _slow(self) -> None:
        time.sleep(0.005)
        self._compute()

    def _prints(self) -> None:
        os.write(1, b"\xff\xfe{garbage]\n" * 1000)
        sys.stderr.write("more of it\n")
        self._compute()

    def _prints_without_end(self) -> None:
        while True:
            os.write(1, b"x" * (1 << 20))

    def _wrong(self) -> None:
        self.out.copy_(2 * self.inputs["x"] + 1)

    def _wrong_later(self) -> None:
        # Right on the first set of inputs alone.
        self.out.copy_(2 * self.inputs["x"] + (self.inputs["x"][0] != self.inputs["first"][0]))

    def _unwritten(self) -> None:
        pass

    def _writes_inputs(self) -> None:
        self._compute()
        self.inputs["x"].zero_()

    def _raises(self) -> None:
        raise RuntimeError("this configuration cannot be launched\nand says so at length")

    def _exits(self) -> None:
        os._exit(3)

    def _segfaults(self) -> None:
        ctypes.string_at(0)

    def _is_killed(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _eats_memory(self) -> None:
        kept = []
        while True:
            kept.append(b"x" * (256 << 20))

    def _hangs(self) -> None:
        time.sleep(1000)

    def _hangs_in_c(self) -> None:
        # Holds the interpreter's lock, as a kernel launch that never returns may.
        ctypes.PyDLL(None).sleep(1000)

    def _closes_everything(self) -> None:
        os.closerange(0, 1024)


class HostileSpec(KernelSpec):
    """Doubles its input, or does something else."""

    operation = "hostile"
    summary = "y = 2 x, or something else"
    sizes = (Size("n", 8, "elements"),)
    dtypes = ("fp32",)
    times: tuple[int, ...] = (1, 2)

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        return (
            Param("what", tuple(range(len(NAMES))), "how it behaves", "one value for each behaviour"),
            Param("times", self.times, "nothing", "so that there are more configurations"),
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        yield from ()

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse | None:
        return None

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        import torch

        n = workload.sizes["n"]
        if device == "meta":
            return {"x": torch.empty(n, device="meta"), "first": torch.empty(n, device="meta")}
        x, first = (torch.randn(n, generator=torch.Generator().manual_seed(s)) for s in (seed, 0))
        return {"x": x, "first": first}

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        return {"y": torch.empty_like(inputs["x"])}

    def launches(
        self,
        gpu: GpuModel,
        workload: Workload,
        config: Config,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
    ) -> Sequence[Launch]:
        return [HostileLaunch(inputs, outputs["y"], NAMES[config["what"]])]  # type: ignore[list-item]

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"y": 2 * inputs["x"].double()}


class OnceSpec(HostileSpec):
    """Behaves in each way once: some take all of their time."""

    times = (1,)


class PatientSpec(HostileSpec):
    """Does not hang: for runs in which no time limit matters."""

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        for name in ("hangs", "hangs_in_c", "hangs_compiler"):
            yield Rule(v["what"] != NAMES.index(name), name, "it would take all of its time")


#: A run of `HeldSpec` comes no further than this many candidates before there is a file `go` beside this one.
FREE = 4


@dataclass(frozen=True)
class HeldLaunch(HostileLaunch):
    """A launch that waits for the file, unless its candidate is one of the first to run."""

    times: int = 0

    def run(self) -> None:
        folder = Path(__file__).parent
        began = folder / f"began-{self.what}-{self.times}"
        if not began.exists():
            while len(list(folder.glob("began-*"))) >= FREE and not (folder / "go").exists():
                time.sleep(0.01)
            began.touch()
        super().run()


class HeldSpec(HostileSpec):
    """A run of it does not end before it is told to, however quick it is: only a few candidates run before the file."""

    times = (1, 2, 3, 4)

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        for name in NAMES:
            if name not in ("right", "slow", "wrong", "raises"):
                yield Rule(v["what"] != NAMES.index(name), name, "it takes its time, or a process")

    def launches(
        self,
        gpu: GpuModel,
        workload: Workload,
        config: Config,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
    ) -> Sequence[Launch]:
        return [HeldLaunch(inputs, outputs["y"], NAMES[config["what"]], config["times"])]  # type: ignore[list-item]


SPEC, ONCE, PATIENT, HELD = HostileSpec(), OnceSpec(), PatientSpec(), HeldSpec()
