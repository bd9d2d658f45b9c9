"""Kernels compiled for a named GPU, remembered between runs as long as nothing that they are made of has changed."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.select import Config, KernelSpec, Workload
from constrint.tune import CompiledKernel

PACKAGE = Path(__file__).resolve().parents[2] / "constrint"
#: What decides how a kernel is compiled: its code and launch, what it is compiled by, and what the target is.
SOURCES = ("kernels", "hwmodels", "tune/compile.py")


class Cache(Protocol):
    """Values by key, between runs: pytest's cache."""

    def get(self, key: str, default: Any) -> Any:
        """The value of a key."""

    def set(self, key: str, value: Any) -> None:
        """Keep a value."""


class Compiler:
    """Compiles configurations, each once; with pytest's cache also between runs.

    Args:
        kept: Where results are kept; None: nowhere.
    """

    def __init__(self, kept: Cache | None) -> None:
        self.kept = kept

    def compile(self, spec: KernelSpec, gpu: GpuModel, workload: Workload, config: Config) -> CompiledKernel:
        """What a configuration takes as compiled.

        Raises:
            UnsupportedError: When the compiler refuses.
        """
        if self.kept is None:
            return spec.compile(gpu, workload, config)
        asked = (spec.full_name, gpu.name, str(workload), sorted(config.items()), source_digest())
        key = f"constrint/compiled/{hashlib.sha256(repr(asked).encode()).hexdigest()[:32]}"
        known = self.kept.get(key, None)
        if known is None:
            try:
                known = asdict(spec.compile(gpu, workload, config))
            except UnsupportedError as error:
                known = {"error": str(error)}
            self.kept.set(key, known)
        if "error" in known:
            raise UnsupportedError(known["error"])
        return CompiledKernel(**known)


@cache
def source_digest() -> str:
    """Changes with the compiler's version and with every file that decides what is compiled."""
    digest = hashlib.sha256(metadata.version("triton").encode())
    for source in SOURCES:
        below = [PACKAGE / source] if (PACKAGE / source).is_file() else sorted((PACKAGE / source).rglob("*"))
        for file in below:
            if file.suffix in (".py", ".yaml", ".json"):
                digest.update(file.read_bytes())
    return digest.hexdigest()
