"""The way to a Ray cluster: bounded in time, with one line of error, and nothing on stdout."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from typing import Any

from constrint.errors import ConstrintError, UsageError

#: How long it may take until something answers at an address, and until Ray does.
KNOCK_S, CONNECT_S = 5.0, 45.0
#: Where no cluster answers, Ray tries for minutes and may hear no interrupt; a process that can be ended tries first.
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


def connect(ray: Any, address: str) -> None:
    """Join a cluster, or start one of this machine alone where the address is `local`.

    Raises:
        UsageError: When the address is malformed.
        ConstrintError: When no cluster answers there in time.
    """
    # What users do is not reported to anyone unless they say so.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address != "local":
        _try(address)
    quiet = {"log_to_driver": False, "logging_level": "error"}
    try:
        ray.init(address, include_dashboard=False, **quiet) if address == "local" else ray.init(address, **quiet)
    except Exception as error:  # Ray raises what it likes: RuntimeError, ConnectionError, ...
        raise _no_cluster(address, one_line(error)) from error


def _try(address: str) -> None:
    if address != "auto":
        found = re.fullmatch(r"(?:ray://)?(\[[^\]]+\]|[^:/\s]+):(\d{1,5})", address)
        if found is None or not 0 < int(found[2]) < 1 << 16:
            raise UsageError(f"--address {address!r} is none; write HOST:PORT, ray://HOST:PORT or auto.")
        try:
            socket.create_connection((found[1].strip("[]"), int(found[2])), timeout=KNOCK_S).close()
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
    """What an error of Ray's says: the last line of it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300].rstrip(".") if lines else type(error).__name__
