"""A Ray cluster and its free devices, one actor each. Connecting is bounded in time, and prints nothing on stdout."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from constrint import __version__
from constrint.errors import ConstrintError, NoDeviceError, UsageError
from constrint.tune.engine.ray_host import DeviceReport, Host

#: Time limits of the first actor's report, and of the others after it, which wait for a device; in seconds.
START_S, LATE_S = 90.0, 20.0
#: Time for actors to end their processes before they are killed, in seconds.
END_S = 3.0


@dataclass(frozen=True)
class _ActorPlace:
    """Place of an actor: Ray's name of the machine, its host name, and a device's share of its CPUs."""

    node: str
    machine: str
    num_cpus: int


@dataclass(frozen=True)
class RayDevice:
    """A device of the cluster.

    Args:
        actor: Ray's handle of its actor.
        name: Name of the device, `node7 GPU 0`.
        num_cpus: Its share of the machine's CPUs.
        report: The actor's report on it.
    """

    actor: Any
    name: str
    num_cpus: int
    report: DeviceReport


class RayCluster:
    """The free devices of a Ray cluster.

    Args:
        address: `HOST:PORT`, `ray://HOST:PORT` or `auto`; None for that of the environment (`RAY_ADDRESS`), or else for
            a cluster of this machine alone, which ends with this object.
        device: `cuda`, or `cpu` for kernels that run there.
        num_actors: Number of actors where the device is `cpu`; one per machine if None.

    Raises:
        UsageError: When Ray is not installed, or the address is malformed.
        NoDeviceError: When the cluster has no free device.
        ConstrintError: When no cluster answers there.
    """

    def __init__(self, address: str | None = None, device: str = "cuda", *, num_actors: int | None = None) -> None:
        self.ray = ray_module()
        self.device, self._num_actors = device, num_actors
        self._is_ours = not self.ray.is_initialized()
        self._guard = None
        if self._is_ours:
            self._guard = connect(self.ray, address or os.environ.get("RAY_ADDRESS") or "local")
        self._actors: list[Any] = []
        #: Reasons for which devices are unused.
        self._unused: list[str] = []
        try:
            self.devices = self._start()
        except BaseException:
            self.close()
            raise

    def model(self) -> str:
        """The name of the hardware model that most devices are of.

        Raises:
            NoDeviceError: When no device is of a known model.
        """
        models = Counter(device.report.model for device in self.devices if device.report.model is not None)
        if not models:
            names = ", ".join(sorted({device.report.device_name for device in self.devices} - {""}))
            if not names:
                raise NoDeviceError("no process of the Ray cluster sees its GPU: it takes torch or nvidia-ml-py there.")
            raise NoDeviceError(
                f"no hardware model is known of the cluster's {names}; name one that is alike with --gpu."
            )
        return min(models, key=lambda model: (-models[model], model))

    def usable(self, model: str) -> list[RayDevice]:
        """The devices of a model with this package and the same tools; prints the others on stderr.

        Raises:
            NoDeviceError: When there is none.
        """
        chosen, unused = choose(self.devices, model, is_cpu=self.device == "cpu")
        unused, self._unused = self._unused + unused, []
        if not chosen:
            raise NoDeviceError(f"the Ray cluster has no {model} that can be used: {'; '.join(unused)}.")
        if unused:
            print(f"not used: {'; '.join(unused)}", file=sys.stderr)
        self._end([device.actor for device in self.devices if device not in chosen])
        self.devices = chosen
        return chosen

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all actors, first by request, and the Ray processes that this program started."""
        try:
            self._end(list(self._actors))
        finally:
            if self._is_ours:
                self.ray.shutdown()
            if self._guard is not None:
                self._guard.communicate()
            self._is_ours, self._guard = False, None

    def _end(self, actors: Sequence[Any]) -> None:
        self._actors = [actor for actor in self._actors if not any(actor is each for each in actors)]
        # The whole cluster may be gone, which ends them as well; any call would then start one of this machine.
        if not self.ray.is_initialized():
            return
        with suppress(Exception):
            closing = [actor.close.remote() for actor in actors]
            if closing:
                self.ray.wait(closing, num_returns=len(closing), timeout=END_S)
        for actor in actors:
            with suppress(Exception):
                self.ray.kill(actor)

    def _start(self) -> list[RayDevice]:
        """Start an actor on each free device."""
        places = list(self._places())
        if not places:
            nodes = sum(bool(node["Alive"]) for node in self.ray.nodes())
            what = "CPU" if self.device == "cpu" else "GPU"
            raise NoDeviceError(f"no machine of the Ray cluster offers a {what} (machines: {nodes}).")
        for place in places:
            self._actors.append(self._actor(place))
        waiting = {actor.report.remote(): place for actor, place in zip(self._actors, places, strict=True)}
        actor_of = dict(zip(waiting, self._actors, strict=True))
        devices: list[RayDevice] = []
        until = time.monotonic() + START_S
        while waiting:
            ready, _ = self.ray.wait(list(waiting), timeout=max(0.0, until - time.monotonic()))
            if not ready:
                break
            place = waiting.pop(ready[0])
            try:
                report = self.ray.get(ready[0])
            except self.ray.exceptions.RayError as error:
                self._unused.append(f"a device of {place.machine} does not start: {one_line(error)}")
                continue
            devices.append(RayDevice(actor_of[ready[0]], self._name(devices, report), place.num_cpus, report))
            until = min(until, time.monotonic() + LATE_S)
        for ref, place in waiting.items():
            self._unused.append(f"a device of {place.machine} is not free")
            self.ray.kill(actor_of[ref])
        if not devices:
            raise NoDeviceError(f"no device of the Ray cluster can be used: {'; '.join(self._unused)}.")
        return sorted(devices, key=lambda device: device.name)

    def _name(self, devices: Sequence[RayDevice], report: DeviceReport) -> str:
        kind = "CPU" if self.device == "cpu" else "GPU"
        taken = {device.name for device in devices}
        numbers = [report.index] if report.index is not None else []
        names = (f"{report.machine} {kind} {number}" for number in [*numbers, *range(len(devices) + 1)])
        return next(name for name in names if name not in taken)

    def _places(self) -> Iterator[_ActorPlace]:
        """Places of actors: every GPU, or CPUs in turn."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        resource = "CPU" if self.device == "cpu" else "GPU"
        nodes = [node for node in nodes if node["Resources"].get(resource, 0) >= 1]
        numbers = [int(node["Resources"][resource]) for node in nodes]
        if self.device == "cpu":
            num_actors = self._num_actors or len(nodes)
            numbers = [len(range(place, num_actors, len(nodes))) for place in range(len(nodes))]
        for node, number in zip(nodes, numbers, strict=True):
            cpus = int(node["Resources"].get("CPU", 1))
            for _ in range(number):
                yield _ActorPlace(node["NodeID"], node["NodeManagerHostname"], max(1, cpus // number))

    def _actor(self, place: _ActorPlace) -> Any:
        """An actor on one machine; it reserves a GPU, or a CPU where that is measured."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        is_cpu = self.device == "cpu"
        remote = self.ray.remote(
            num_cpus=1 if is_cpu else 0,
            num_gpus=0 if is_cpu else 1,
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=place.node, soft=False),
        )
        return remote(Host).remote(self.device)


def choose(devices: Sequence[RayDevice], model: str, *, is_cpu: bool) -> tuple[list[RayDevice], list[str]]:
    """The devices of a model with this package and the same tools, and the reason for each other device."""
    unused: list[str] = []

    def keep(
        from_: Sequence[RayDevice], chosen_devices: list[RayDevice], why: Callable[[RayDevice], str]
    ) -> list[RayDevice]:
        unused.extend(f"{device.name} {why(device)}" for device in from_ if device not in chosen_devices)
        return chosen_devices

    of_version = [device for device in devices if device.report.version == __version__]
    chosen = keep(devices, of_version, lambda d: f"has constrint {d.report.version}, not {__version__}")
    if not is_cpu:
        of_model = [device for device in chosen if device.report.model == model]
        # A named model may replace the unknown model of all devices.
        unknown = [device for device in chosen if device.report.model is None and device.report.device_name]
        chosen = keep(chosen, of_model or unknown, lambda d: f"is {d.report.device_name or 'no GPU'}, not {model}")
    if chosen:
        ((most, _),) = Counter(map(_tools, chosen)).most_common(1)
        with_most_tools = [device for device in chosen if _tools(device) == most]
        chosen = keep(chosen, with_most_tools, lambda d: f"has {_tools(d)}, where others have {most}")
    return chosen, unused


def _tools(device: RayDevice) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(device.report.toolchain.items())) or "no tools"


#: Time limits of a connection to the address, and of Ray's answer, in seconds.
KNOCK_S, CONNECT_S = 5.0, 45.0
#: Without a cluster Ray tries for minutes and ignores interrupts: a second process, which can be killed, tries first.
_TRY = """
import sys, ray
try:
    ray.init(sys.argv[1], log_to_driver=False, logging_level="error")
    ray.nodes()
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def ray_module() -> Any:
    """Ray itself.

    Raises:
        UsageError: When it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise UsageError("--engine ray needs Ray, which is not installed: pip install 'constrint[ray]'.") from error
    return ray


#: Ends what a cluster of this machine alone leaves behind when the program that started it is gone, however it went:
#: Ray's agents would stay for a minute to tell of it. The cluster's processes have a mark in their environment.
MARK = "CONSTRINT_RAY_CLUSTER"
_GUARD = """
import os, sys
sys.stdin.read()
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{name}/environ", "rb") as file:
            if sys.argv[1].encode() in file.read():
                os.kill(int(name), 9)
    except OSError:
        pass
"""


def connect(ray: Any, address: str) -> subprocess.Popen[bytes] | None:
    """Join a cluster, or start one of this machine alone where the address is `local`.

    Returns:
        The process that ends what is left of a cluster that was started, once its pipe is closed.

    Raises:
        UsageError: When the address is malformed.
        ConstrintError: When no cluster answers there in time.
    """
    # What users do is not reported to anyone unless they say so.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    guard = None
    if address == "local":
        quiet["include_dashboard"] = False
        mark = uuid4().hex
        command = [sys.executable, "-I", "-S", "-c", _GUARD, mark]
        guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        os.environ[MARK] = mark
    else:
        _try(address)
    try:
        ray.init(address, **quiet)
    except Exception as error:  # Ray raises what it likes: RuntimeError, ConnectionError, ...
        if guard is not None:
            guard.communicate()
        raise _no_cluster(address, one_line(error)) from error
    finally:
        # Other processes of this program are no part of the cluster.
        os.environ.pop(MARK, None)
    return guard


def _try(address: str) -> None:
    if address != "auto":
        match = re.fullmatch(r"(?:ray://)?(\[[^\]]+\]|[^:/\s]+):(\d{1,5})", address)
        if match is None or not 0 < int(match[2]) < 1 << 16:
            raise UsageError(f"--address {address!r} is none; write HOST:PORT, ray://HOST:PORT or auto.")
        try:
            socket.create_connection((match[1].strip("[]"), int(match[2])), timeout=KNOCK_S).close()
        except OSError as error:
            raise _no_cluster(address, str(error)) from error
    if address.startswith("ray://"):
        return  # that way of Ray's gives up by itself
    command = [sys.executable, "-c", _TRY, address]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=CONNECT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise _no_cluster(address, f"none within {CONNECT_S:.0f} s") from error
    if done.returncode != 0:
        raise _no_cluster(address, one_line(done.stderr) or f"ended with {done.returncode}")


def _no_cluster(address: str, why: str) -> ConstrintError:
    return ConstrintError(
        f"no Ray cluster answers at {address}: {why}. `ray status` on its head says whether it runs; from a machine "
        "outside of it the address is ray://HOST:10001; one that asks for a token is asked with RAY_AUTH_MODE=token."
    )


def one_line(error: object) -> str:
    """An error of Ray as one line: its last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300].rstrip(".") if lines else type(error).__name__
