"""What runs on a Ray cluster's machines: an actor for each device, with the engine of one machine inside it.

A candidate that crashes or hangs ends a process of that engine, and never the actor. Nothing here imports Ray.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from constrint import __version__
from constrint.errors import NoDeviceError
from constrint.hwmodels import detect
from constrint.select.fingerprint import Fingerprint, fingerprint_of
from constrint.select.toolchain import toolchain
from constrint.tune.engine.interface import Job, JobResult, Setup, failed
from constrint.tune.engine.local import LocalEngine
from constrint.tune.trial import Outcome

#: What a process finds its own device by, where Ray gave it one of several.
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True)
class DeviceReport:
    """What an actor says of itself.

    Args:
        machine: The name of its machine.
        version: Of this package, there.
        device_name: The device's own name; empty where there is none.
        model: Its hardware model; None where none is known, or for the CPU.
        index: Of the device, among those of its machine; None where that is not known.
        toolchain: The tools by which it measures.
    """

    machine: str
    version: str
    device_name: str
    model: str | None
    index: int | None
    toolchain: Mapping[str, str]


@dataclass(frozen=True)
class RemoteJob:
    """A job, and what the kernel's sources have to be for its answer to be one of the kernel that was meant."""

    job: Job
    fingerprint: Fingerprint


class Host:
    """The actor of one device.

    Args:
        device: `cuda`, or `cpu` for kernels that run there.
    """

    def __init__(self, device: str) -> None:
        # Processes that are started here would otherwise run the file that Ray's own processes begin with.
        vars(sys.modules["__main__"]).pop("__file__", None)
        self._device = device
        self._engine: LocalEngine | None = None
        #: Why a kernel cannot be run here, by name; empty for those that can.
        self._refused: dict[str, str] = {}

    def report(self) -> DeviceReport:
        """Say what this device is."""
        name, model = _device() if self._device != "cpu" else ("", None)
        return DeviceReport(socket.gethostname(), __version__, name, model, _index(), dict(toolchain()))

    def open(self, setup: Setup, num_compilers: int) -> None:
        """Start the engine."""
        self._setup = setup
        self._engine = LocalEngine(setup, (0,), num_compilers=num_compilers)

    def turn(self, orders: Sequence[RemoteJob], timeout_s: float) -> list[JobResult]:
        """Take jobs, and give those that are done; waits for one, but no longer than so many seconds."""
        assert self._engine is not None
        for order in orders:
            why = self._why_not(order)
            if why:
                return [JobResult(order.job, 0, failed(order.job, Outcome.NOT_RUN, why), 0.0, slot_is_lost=True)]
            self._engine.submit(0, order.job)
        return self._engine.poll(timeout_s)

    def close(self) -> None:
        """End the engine's processes."""
        if self._engine is not None:
            self._engine.close()

    def _why_not(self, order: RemoteJob) -> str:
        """Why a job cannot be run here: its kernels are not there, or are others."""
        for name in {trial.kernel for trial in order.job.trials}:
            if name not in self._refused:
                self._refused[name] = self._of_kernel(name, order.fingerprint)
            if self._refused[name]:
                return self._refused[name]
        return ""

    def _of_kernel(self, name: str, fingerprint: Fingerprint) -> str:
        where = f"on {socket.gethostname()}"
        try:
            found = fingerprint_of(self._setup.load(name))
        except Exception as error:  # noqa: BLE001 - a file of the user, which may raise anything
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return f"kernel {name} cannot be loaded {where} ({first}); it has to be there by the same name"
        if found != fingerprint:
            return f"kernel {name} {where} is not the one of this machine; bring the same files to every machine"
        return ""


def _device() -> tuple[str, str | None]:
    """The name and the model of the only device that this process has."""
    try:
        found = detect()
    except NoDeviceError:
        return "", None
    # Where torch does not tell, all devices of the machine are seen: they are taken for those of one model.
    return found[0].name, found[0].model


def _index() -> int | None:
    """Which of its machine's devices this process was given; None where the variable names none by number."""
    for variable in _VISIBLE:
        value = os.environ.get(variable, "")
        if value.isdecimal():
            return int(value)
    return None
