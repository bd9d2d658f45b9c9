"""`constrint --version`: the version, and what was found here that answers depend on."""

from __future__ import annotations

import platform
from importlib import metadata

from constrint import __version__

#: Packages without which some commands do not work.
OPTIONAL = ("torch", "triton", "ortools", "ray")


def version_text() -> str:
    """The version in the first line, then Python, the solver's core, and optional packages."""
    system = f"{platform.system()} {platform.machine()}".strip()
    lines = [
        f"constrint {__version__}",
        f"python {platform.python_version()} ({platform.python_implementation()}, {system})",
        f"core: {_core()}",
    ]
    return "\n".join([*lines, *(f"{name} {_version(name)}" for name in OPTIONAL)])


def _core() -> str:
    from constrint.core import compiled

    return "compiled" if compiled is not None else "numpy, which is slower: no compiled core of this version is here"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
