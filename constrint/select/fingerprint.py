"""What tells that a kernel has changed: hashes of its device code, and of its space, rules and costs.

Both are of source text, so they are the same on every machine that has the same sources.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from constrint import cache
from constrint.select.spec import KernelSpec

#: Digits of a hash, and what fingerprints are kept as.
DIGITS, _KIND = 16, "fingerprints"
#: Files beside a spec that hold what runs on the device begin with this.
KERNEL = "kernel"
_PACKAGE = "constrint."
#: Parts that every kernel rests on: a change in them is no change of a kernel.
_FOUNDATION = tuple(
    f"{_PACKAGE}{part}" for part in ("cache", "core", "errors", "hwmodels", "lazy", "model", "select", "solve", "tune")
)


class Fingerprint(NamedTuple):
    """Hashes of a kernel: hexadecimal digits."""

    source: str
    spec: str


def fingerprint_of(spec: KernelSpec) -> Fingerprint:
    """The fingerprint of a kernel's sources.

    The device code is in the files `kernel*.py` beside the spec and what they import of the package; a spec that is one
    file with its kernel is hashed as a whole for both.
    """
    home = getattr(sys.modules.get(spec.home), "__file__", None)
    if home is None:  # typed in, or run from text: nothing says when it changes
        return Fingerprint("", "")
    made, files = _fingerprint(spec.home, home), spec.device_files
    return made._replace(source=_hash([Path(home), *files])) if files else made


@lru_cache(maxsize=256)
def _fingerprint(module: str, home: str) -> Fingerprint:
    is_ours = module.startswith(_PACKAGE)
    # The cache begins anew with every change of the package's files, and knows nothing of those of others.
    kept = cache.load(_KIND, module.encode()) if is_ours else None
    if kept is not None and len(kept) == 2 * DIGITS:
        return Fingerprint(kept[:DIGITS].decode(), kept[DIGITS:].decode())
    path = Path(home)
    device = sorted({file for kernel in _kernels_of(path) for file in _with_imports(kernel)}) if is_ours else []
    host = sorted(set(_with_imports(path)) - set(device))
    made = Fingerprint(_hash(device), _hash(host)) if device else Fingerprint(_hash([path]), _hash([path]))
    if is_ours:
        cache.store(_KIND, module.encode(), "".join(made).encode())
    return made


def _kernels_of(spec: Path) -> Iterator[Path]:
    """The files with device code beside a spec of the package, and in the folders around it."""
    folder = spec.parent
    while folder.name != "kernels" and folder != folder.parent:
        yield from folder.glob(f"{KERNEL}*.py")
        folder = folder.parent


def _with_imports(path: Path) -> list[Path]:
    """A file and the package's own files that it imports when it is loaded, the foundation left out."""
    found, waiting = {path}, [path]
    while waiting:
        for module in _imports(waiting.pop()):
            file = None if module.startswith(_FOUNDATION) else _file_of(module)
            if file is not None and file.name != "__init__.py" and file not in found:
                found.add(file)
                waiting.append(file)
    return sorted(found)


def _imports(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PACKAGE):
            yield f"{node.module}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@lru_cache(maxsize=1024)
def _file_of(module: str) -> Path | None:
    try:
        found = find_spec(module)
    except ModuleNotFoundError:
        return None
    origin = None if found is None else found.origin
    return Path(origin) if origin and origin.endswith(".py") else None


def _hash(files: list[Path]) -> str:
    seen = hashlib.sha256()
    for file in files:
        seen.update(f"{file.parent.name}/{file.name}\0".encode())
        seen.update(file.read_bytes().replace(b"\r\n", b"\n"))
    return seen.hexdigest()[:DIGITS]
