"""The actor of one device of a Ray cluster, with the local engine inside.

A candidate that crashes or hangs ends a process of that engine, never the actor. This module does not import Ray.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from constrint import __version__
from constrint.errors import NoDeviceError
from constrint.hwmodels import detect
from constrint.select.fingerprint import Fingerprint, fingerprint_of
from constrint.select.toolchain import toolchain
from constrint.tune.engine.interface import Job, JobResult, Setup, failed
from constrint.tune.engine.local import LocalEngine
from constrint.tune.trial import Outcome

#: Variables by which Ray assigns a device to a process.
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True)
class DeviceReport:
    """An actor's report on its device.

    Args:
        machine: Name of the machine.
        version: Version of this package there.
        device_name: The device's own name; empty without a device.
        model: Its hardware model; None where it is unknown, or for the CPU.
        index: Index of the device on its machine; None where it is unknown.
        toolchain: Versions of the tools that it measures with.
    """

    machine: str
    version: str
    device_name: str
    model: str | None
    index: int | None
    toolchain: Mapping[str, str]


@dataclass(frozen=True)
class RemoteJob:
    """A job, with the fingerprint that the kernel must have on the actor's machine."""

    job: Job
    fingerprint: Fingerprint


class Host:
    """The actor of one device.

    Args:
        device: `cuda`, or `cpu` for kernels that run there.
    """

    def __init__(self, device: str) -> None:
        # Child processes would otherwise run the main file of Ray's own processes.
        vars(sys.modules["__main__"]).pop("__file__", None)
        self._device = device
        self._engine: LocalEngine | None = None
        #: Reason for which a kernel cannot run here, by name; empty for those that can.
        self._refused: dict[str, str] = {}

    def report(self) -> DeviceReport:
        """Report on this device."""
        name, model = _device() if self._device != "cpu" else ("", None)
        return DeviceReport(socket.gethostname(), __version__, name, model, _index(), dict(toolchain()))

    def open(self, setup: Setup, num_compilers: int) -> None:
        """Start the engine."""
        self._setup = setup
        self._engine = LocalEngine(setup, (0,), num_compilers=num_compilers)

    def turn(self, orders: Sequence[RemoteJob], timeout_s: float) -> list[JobResult]:
        """Queue jobs, and return results; waits up to `timeout_s` for one."""
        assert self._engine is not None
        for order in orders:
            why = self._why_not(order)
            if why:
                return [JobResult(order.job, 0, failed(order.job, Outcome.NOT_RUN, why), 0.0, slot_is_lost=True)]
            self._engine.submit(0, order.job)
        return self._engine.poll(timeout_s)

    def drop(self, numbers: Set[int]) -> None:
        """Forget jobs."""
        if self._engine is not None:
            self._engine.drop(numbers)

    def close(self) -> None:
        """End the engine's processes."""
        if self._engine is not None:
            self._engine.close()

    def _why_not(self, order: RemoteJob) -> str:
        """Reason for which a job cannot run here: its kernels are absent, or differ."""
        for name in {trial.kernel for trial in order.job.trials}:
            if name not in self._refused:
                self._refused[name] = self._of_kernel(name, order.fingerprint)
            if self._refused[name]:
                return self._refused[name]
        return ""

    def _of_kernel(self, name: str, fingerprint: Fingerprint) -> str:
        where = f"on {socket.gethostname()}"
        try:
            own = fingerprint_of(self._setup.load(name))
        except Exception as error:  # noqa: BLE001 - a file of the user, which may raise anything
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return f"kernel {name} cannot be loaded {where} ({first}); it has to be there by the same name"
        if own != fingerprint:
            return f"kernel {name} {where} is not the one of this machine; bring the same files to every machine"
        return ""


def _device() -> tuple[str, str | None]:
    """Name and model of this process's only device."""
    try:
        detected = detect()
    except NoDeviceError:
        return "", None
    # Without torch all devices of the machine are visible: they are taken to be of one model.
    return detected[0].name, detected[0].model


def _index() -> int | None:
    """Index of this process's device on its machine; None where the variable names none by number."""
    for variable in _VISIBLE:
        value = os.environ.get(variable, "")
        if value.isdecimal():
            return int(value)
    return None
