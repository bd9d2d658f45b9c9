"""The engine of a Ray cluster: one actor per device, with the local engine inside.

Faults of candidates stay inside the actor. A lost actor is not restarted: its device is given up, and its jobs are
answered as not run, so that each is tried once on another device.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from constrint.errors import ConstrintError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.select.fingerprint import Fingerprint, fingerprint_of
from constrint.tune.engine.interface import Engine, Job, JobResult, Setup, failed
from constrint.tune.engine.ray_cluster import RayCluster, RayDevice, one_line
from constrint.tune.engine.ray_host import RemoteJob
from constrint.tune.engine.registry import DeviceRequest
from constrint.tune.trial import Outcome

#: Time that an actor waits for a result before it takes further jobs, in seconds.
TURN_S = 0.2
#: Silence after which an actor is given up, in seconds; Ray itself notices a lost machine earlier.
SILENT_S = 120.0


@dataclass
class _RaySlot:
    """A device: jobs to send to its actor, jobs without an answer, and the call under way."""

    device: RayDevice
    unsent: list[RemoteJob] = field(default_factory=list)
    owed: dict[int, Job] = field(default_factory=dict)
    turn: Any = None
    since: float = 0.0
    why_lost: str = ""


class RayEngine:
    """The devices of a Ray cluster.

    Args:
        setup: Settings of the engine.
        address: Address of the cluster, see `RayCluster`; ignored where `cluster` is given.
        cluster: The cluster; it is closed with the engine.
        num_actors: Number of actors where `setup.device` is `cpu`; one per machine if None.

    Raises:
        UsageError: When Ray is not installed, or the address is malformed.
        ConstrintError: When no cluster answers there, or it has no usable device.
    """

    def __init__(
        self,
        setup: Setup,
        address: str | None = None,
        *,
        cluster: RayCluster | None = None,
        num_actors: int | None = None,
    ) -> None:
        self._setup = setup
        self._cluster = cluster or RayCluster(address, setup.device, num_actors=num_actors)
        self._ray = self._cluster.ray
        self._done: list[JobResult] = []
        self._fingerprints: dict[str, Fingerprint] = {}
        try:
            devices = self._cluster.usable(setup.gpu.name)
        except BaseException:
            self.close()
            raise
        self._slots = [_RaySlot(device) for device in devices]
        for device in devices:
            # Calls of an actor are done in the order in which they are made.
            device.actor.open.remote(setup, device.num_cpus)

    @property
    def slots(self) -> Sequence[str]:
        """Name of each device: `node7 GPU 0`."""
        return [slot.device.name for slot in self._slots]

    @property
    def toolchain(self) -> Mapping[str, str]:
        """Versions of the tools that all devices measure with."""
        return self._slots[0].device.report.toolchain

    def submit(self, slot: int, job: Job) -> None:
        """Queue a job for a device."""
        to = self._slots[slot]
        to.owed[job.number] = job
        if to.why_lost:
            self._answer_owed(to)
        else:
            to.unsent.append(RemoteJob(job, self._fingerprint(job.trials[0].kernel)))

    def drop(self, numbers: Set[int]) -> None:
        """Forget jobs, here and where they run."""
        for slot in self._slots:
            slot.unsent = [order for order in slot.unsent if order.job.number not in numbers]
            if not slot.why_lost and numbers & set(slot.owed):
                slot.device.actor.drop.remote(set(numbers))
            slot.owed = {number: job for number, job in slot.owed.items() if number not in numbers}
        self._done = [done for done in self._done if done.job.number not in numbers]

    def poll(self, timeout_s: float) -> list[JobResult]:
        """The results since the last call; waits up to `timeout_s` for one.

        Raises:
            ConstrintError: When no device can be used any more, or the whole cluster is gone.
        """
        try:
            return self._poll(time.monotonic() + timeout_s)
        except ConnectionError as error:
            raise ConstrintError(
                f"the Ray cluster is gone ({one_line(error)}); what was measured is kept for --resume."
            ) from error

    def close(self) -> None:
        """End all actors, and leave the cluster."""
        self._cluster.close()

    def _poll(self, until: float) -> list[JobResult]:
        while True:
            for slot in self._slots:
                self._step(slot)
            if self._done:
                done, self._done = self._done, []
                return done
            if all(slot.why_lost for slot in self._slots):
                raise ConstrintError(f"no device can be used: {self._slots[0].why_lost}")
            left = until - time.monotonic()
            if left <= 0:
                return []
            self._hear(min(left, TURN_S))

    def _fingerprint(self, kernel: str) -> Fingerprint:
        if kernel not in self._fingerprints:
            self._fingerprints[kernel] = fingerprint_of(self._setup.load(kernel))
        return self._fingerprints[kernel]

    def _step(self, slot: _RaySlot) -> None:
        """Call an actor that owes answers; give it up after too long a silence."""
        if slot.turn is not None:
            if time.monotonic() - slot.since > SILENT_S:
                self._lose(slot, f"it has said nothing for {SILENT_S:.0f} s")
        elif slot.owed and not slot.why_lost:
            orders, slot.unsent = slot.unsent, []
            slot.turn, slot.since = slot.device.actor.turn.remote(orders, TURN_S), time.monotonic()

    def _hear(self, timeout_s: float) -> None:
        """Wait for one actor's results, and take those of all actors that are ready."""
        turns = {slot.turn: slot for slot in self._slots if slot.turn is not None}
        if not turns:
            time.sleep(timeout_s)
            return
        self._ray.wait(list(turns), timeout=timeout_s)
        ready, _ = self._ray.wait(list(turns), num_returns=len(turns), timeout=0)
        for turn in ready:
            slot, turns[turn].turn = turns[turn], None
            try:
                results: list[JobResult] = self._ray.get(turn)
            except self._ray.exceptions.RayError as error:
                self._lose(slot, one_line(error))
                continue
            for done in results:
                job = slot.owed.pop(done.job.number, None)
                if job is not None:  # else it was dropped meanwhile
                    self._done.append(replace(done, job=job, slot=self._slots.index(slot)))
            if any(done.slot_is_lost for done in results):
                self._lose(slot, results[-1].answers[0].message)

    def _lose(self, slot: _RaySlot, why: str) -> None:
        """Give up a device, and answer its jobs as not run."""
        slot.why_lost, slot.turn, slot.unsent = f"{slot.device.name} is lost: {why}", None, []
        print(slot.why_lost, file=sys.stderr)
        self._ray.kill(slot.device.actor)
        self._answer_owed(slot)

    def _answer_owed(self, slot: _RaySlot) -> None:
        number = self._slots.index(slot)
        owed, slot.owed = list(slot.owed.values()), {}
        for job in owed:
            answers = failed(job, Outcome.NOT_RUN, slot.why_lost)
            self._done.append(JobResult(job, number, answers, 0.0, slot_is_lost=True))


class RayFleet:
    """Free devices of a Ray cluster.

    Args:
        request: The devices to use; without an address the cluster is this machine alone.

    Raises:
        UsageError: When Ray is not installed, or the request names devices of this machine.
        ConstrintError: When no cluster answers, or it has no free device.
    """

    def __init__(self, request: DeviceRequest) -> None:
        if request.indices is not None:
            raise UsageError(
                "--gpus names GPUs of this machine: with --engine ray all free ones of the cluster are used."
            )
        self._cluster = RayCluster(request.address, request.device)

    def model(self, name: str | None) -> GpuModel:
        """The named model, else the one that most devices of the cluster are of.

        Raises:
            NoDeviceError: When no device is of a known model.
        """
        return load_gpu(name or self._cluster.model())

    def engine(self, setup: Setup) -> Engine:
        """Start the engine on the devices of the setup's model.

        Raises:
            NoDeviceError: When no device is of that model.
        """
        return RayEngine(setup, cluster=self._cluster)

    def close(self) -> None:
        """Leave the cluster."""
        self._cluster.close()
