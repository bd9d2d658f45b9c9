"""Compiles what a command asks for, on every core, with progress on stderr; what was compiled before is looked up."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from constrint.select.compiled import CompiledKernel, compile_known, keep, recall
from constrint.select.facts import Asked

#: What is said of a kernel whose process was lost or ended, which says nothing of the kernel for certain.
LOST = ("NOT_RUN", "TIMED_OUT", "CRASHED")
#: From so many on, other processes compile: each takes some seconds to start.
MANY = 4


def compile_shown(asked: Sequence[Asked]) -> list[CompiledKernel | str]:
    """What each takes, in order, or why it does not compile.

    Raises:
        UsageError: When triton or torch is not installed.
    """
    from constrint.tune.compile import require_triton

    known = [recall(one.gpu, one.spec, one.workload, one.config) for one in asked]
    missing = [place for place, found in enumerate(known) if found is None]
    if missing:
        require_triton()
        atexit.register(_mute)
        compiled = _compile([asked[place] for place in missing])
        for place, found in zip(missing, compiled, strict=True):
            known[place] = found
    return [found for found in known if found is not None]


def _compile(asked: Sequence[Asked]) -> list[CompiledKernel | str]:
    cores = os.cpu_count() or 1
    try:
        if len(asked) >= MANY and cores > 1 and all(_is_built_in(one) for one in asked):
            return _in_processes(asked)
        found = []
        for done, one in enumerate(asked):
            _show(done, len(asked))
            found.append(compile_known(one.spec, one.gpu, one.workload, one.config))
        return found
    finally:
        _show_nothing()


def _in_processes(asked: Sequence[Asked]) -> list[CompiledKernel | str]:
    from constrint.kernels.registry import load_spec
    from constrint.tune import Trial, compile_many

    trials = [Trial(one.spec.full_name, one.workload, dict(one.config)) for one in asked]
    found = compile_many(load_spec, asked[0].gpu, trials, say=lambda done: _show(done, len(asked)))
    for one, told in zip(asked, found, strict=True):
        if told not in LOST:
            keep(one.gpu, one.spec, one.workload, one.config, told)
    return found


def _is_built_in(one: Asked) -> bool:
    return one.spec.home.startswith(f"{__name__.partition('.')[0]}.")


def _show(done: int, number: int) -> None:
    if sys.stderr.isatty():
        print(f"\rcompiling {min(done + 1, number)} of {number}", end="", file=sys.stderr, flush=True)


def _show_nothing() -> None:
    if sys.stderr.isatty():
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr, flush=True)


def _mute() -> None:
    """Say nothing more: Triton 3.9's bindings list pages of objects that a Gluon kernel leaves behind at the end."""
    sys.stderr.flush()
    with suppress(OSError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
