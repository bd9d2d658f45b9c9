"""The engines by name: `local`, `ray`, those of installed packages, and those that a program registers.

An engine is opened in two steps, since the GPU's model may be that of its devices: a fleet finds the devices, then
makes the engine that runs trials on them. Another package offers an engine as an entry point of the group
`constrint.engines` that names a function like those of `_BUILT_IN`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from constrint import plugins
from constrint.errors import UnknownNameError
from constrint.hwmodels import GpuModel
from constrint.tune.engine.interface import Engine, Setup

ENTRY_POINTS = "constrint.engines"


@dataclass(frozen=True)
class DeviceRequest:
    """The devices to use.

    Args:
        device: `cuda`, or `cpu` for kernels that run there.
        indices: Indices of devices of this machine; None for all.
        address: Address of a cluster; None for none.
    """

    device: str = "cuda"
    indices: Sequence[int] | None = None
    address: str | None = None


class Fleet(Protocol):
    """The devices of an engine. Close it, or the engine that it made."""

    def model(self, name: str | None) -> GpuModel:
        """The hardware model of the devices.

        Args:
            name: Name of the model; None to detect it.

        Raises:
            NoDeviceError: When there is no device.
            UsageError: When the devices are of several models, or of an unknown one.
        """

    def engine(self, setup: Setup) -> Engine:
        """Start the engine on the devices of the setup's model."""

    def close(self) -> None:
        """Release the devices."""


Maker = Callable[[DeviceRequest], Fleet]
_BUILT_IN = {
    "local": "constrint.tune.engine.local:LocalFleet",
    "ray": "constrint.tune.engine.ray:RayFleet",
}
_REGISTERED: dict[str, Maker] = {}


def register_engine(name: str, maker: Maker) -> None:
    """Register an engine; one of the same name is replaced."""
    _REGISTERED[name] = maker


def list_engines() -> tuple[str, ...]:
    """Names of all engines."""
    return tuple(dict.fromkeys((*_BUILT_IN, *_REGISTERED, *(point.name for point in plugins.offered(ENTRY_POINTS)))))


def open_fleet(name: str, request: DeviceRequest) -> Fleet:
    """Find the devices of an engine.

    Raises:
        UnknownNameError: When there is no such engine.
        UsageError: When a package is missing, or the engine has no use for a part of the request.
        ConstrintError: When no device can be reached.
    """
    if name not in _REGISTERED and name not in _BUILT_IN and (found := plugins.function_named(ENTRY_POINTS, name)):
        register_engine(name, found)
    if name in _REGISTERED:
        return _REGISTERED[name](request)
    if name not in _BUILT_IN:
        raise UnknownNameError("engine", name, list_engines(), "`register_engine` adds one.")
    module, _, attribute = _BUILT_IN[name].partition(":")
    maker: Maker = getattr(import_module(module), attribute)
    return maker(request)
