"""Compile configurations on every core, with progress on stderr; kernels compiled before are looked up."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from constrint.cli.run import Progress, Run
from constrint.select.as_compiled import CompileJob
from constrint.select.candidate import CompiledKernel
from constrint.select.compiled import compile_cached, keep, recall

#: Results about the process of a kernel, which prove nothing about the kernel.
LOST = ("NOT_RUN", "TIMED_OUT", "CRASHED")
#: Prefix of the result of a kernel that the end of the run left uncompiled.
LATE = "not compiled: "
#: Least number of kernels that other processes compile; each process takes seconds to start.
MANY = 4


def compile_shown(
    asked: Sequence[CompileJob], *, run: Run | None = None, is_apart: bool = False
) -> list[CompiledKernel | str]:
    """Compile configurations; the results keep their order.

    Args:
        asked: The configurations to compile.
        run: The run; the result of a kernel that is not compiled before its end begins with `LATE`.
        is_apart: Whether other processes compile even a few kernels, so that a crash ends only one of them.

    Returns:
        The compiled kernel, or the reason why it does not compile.

    Raises:
        UsageError: When triton or torch is not installed.
    """
    from constrint.tune.compile import require_triton

    known = [recall(one.gpu, one.spec, one.workload, one.config) for one in asked]
    missing = [place for place, found in enumerate(known) if found is None]
    if missing:
        require_triton()
        atexit.register(_mute)
        compiled = _compile([asked[place] for place in missing], run, is_apart=is_apart)
        reason = "" if run is None else run.reason()
        for place, found in zip(missing, compiled, strict=True):
            known[place] = f"{LATE}{reason}" if reason and found == "NOT_RUN" else found
    return [found for found in known if found is not None]


def _compile(asked: Sequence[CompileJob], run: Run | None, *, is_apart: bool) -> list[CompiledKernel | str]:
    cores = os.cpu_count() or 1
    progress = Progress("compiling") if run is None else run.progress
    try:
        is_worth_it = is_apart or (len(asked) >= MANY and cores > 1)
        if is_worth_it and all(_is_built_in(one) for one in asked):
            return _in_processes(asked, run, progress)
        found: list[CompiledKernel | str] = []
        for done, one in enumerate(asked):
            if run is not None and run.reason():
                return found + ["NOT_RUN"] * (len(asked) - done)
            show_progress(progress, done, len(asked))
            found.append(compile_cached(one.spec, one.gpu, one.workload, one.config))
        return found
    finally:
        progress.close()


def _in_processes(asked: Sequence[CompileJob], run: Run | None, progress: Progress) -> list[CompiledKernel | str]:
    from constrint.kernels.registry import load_spec
    from constrint.tune import Trial, compile_many

    trials = [Trial(one.spec.full_name, one.workload, dict(one.config)) for one in asked]
    found = compile_many(
        load_spec,
        asked[0].gpu,
        trials,
        say=lambda done: show_progress(progress, done, len(asked)),
        stop=None if run is None else lambda: bool(run.reason()),
    )
    for one, told in zip(asked, found, strict=True):
        if told not in LOST:
            keep(one.gpu, one.spec, one.workload, one.config, told)
    return found


def _is_built_in(one: CompileJob) -> bool:
    return one.spec.home.startswith(f"{__name__.partition('.')[0]}.")


def show_progress(progress: Progress, done: int, number: int) -> None:
    """Show on a terminal how many kernels are compiled."""
    progress.say(f"{min(done + 1, number)} of {number}", done, number)


def _mute() -> None:
    """Silence stderr at the end of the process: Triton 3.9's bindings list the objects that a Gluon kernel leaves."""
    sys.stderr.flush()
    with suppress(OSError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
