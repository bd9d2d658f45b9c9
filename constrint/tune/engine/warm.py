"""Warm-up of the fork server: work that every process that compiles or launches would repeat.

Importing this module loads torch's nearly thousand modules for a first operation on the `meta` device, and lets Triton
hash its own files. It touches no GPU: a forked process could not use the parent's context.
"""

from __future__ import annotations

import importlib
from contextlib import suppress

#: Modules that hold Triton's hash of its own files, by version; the hash lasts as long as the process.
_KEYS = ("triton.runtime.cache", "triton.compiler.compiler")


def warm() -> None:
    """Warm up; a package that is absent, or differs in this version, is skipped."""
    with suppress(Exception):
        import torch

        torch.empty(1, device="meta") * 2
    for name in _KEYS:
        with suppress(Exception):
            importlib.import_module(name).triton_key()


warm()
