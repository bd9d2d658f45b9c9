"""Compile configurations on every core, with progress on stderr; compiled kernels come from the cache on disk."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from constrint.cli.run import Progress, Run
from constrint.errors import UsageError
from constrint.select.candidate import CompiledKernel
from constrint.select.compiled import CompileJob, compile_cached, keep, recall

#: Results that tell of the compiling process, not of the kernel; they are not cached.
LOST = ("NOT_RUN", "TIMED_OUT", "CRASHED")
#: Prefix of the result of a kernel that the end of the run left uncompiled.
LATE = "not compiled: "
#: Least number of kernels that other processes compile; each process takes seconds to start.
MANY = 4


def compile_shown(
    jobs: Sequence[CompileJob], *, run: Run | None = None, is_apart: bool = False
) -> list[CompiledKernel | str]:
    """Compile configurations; the results keep their order.

    Args:
        jobs: The configurations to compile.
        run: The run; the result of a kernel that is not compiled before its end begins with `LATE`.
        is_apart: Whether other processes compile even a few kernels, so that a crash ends only one of them.

    Returns:
        The compiled kernel, or the reason why it does not compile.

    Raises:
        UsageError: When triton or torch is not installed.
    """
    from constrint.tune.compile import require_triton

    results = [recall(one.gpu, one.spec, one.workload, one.config) for one in jobs]
    missing = [place for place, result in enumerate(results) if result is None]
    if missing:
        require_triton()
        atexit.register(_mute)
        compiled = _compile([jobs[place] for place in missing], run, is_apart=is_apart)
        reason = "" if run is None else run.reason()
        for place, result in zip(missing, compiled, strict=True):
            results[place] = f"{LATE}{reason}" if reason and result == "NOT_RUN" else result
    return [result for result in results if result is not None]


def _compile(jobs: Sequence[CompileJob], run: Run | None, *, is_apart: bool) -> list[CompiledKernel | str]:
    cores = os.cpu_count() or 1
    progress = Progress("compiling") if run is None else run.progress
    try:
        is_worth_it = is_apart or (len(jobs) >= MANY and cores > 1)
        names = _names(jobs) if is_worth_it else None
        if names is not None:
            return _in_processes(jobs, names, run, progress)
        results: list[CompiledKernel | str] = []
        for done, one in enumerate(jobs):
            if run is not None and run.reason():
                return results + ["NOT_RUN"] * (len(jobs) - done)
            show_progress(progress, done, len(jobs))
            results.append(compile_cached(one.spec, one.gpu, one.workload, one.config))
        return results
    finally:
        progress.close()


def _names(jobs: Sequence[CompileJob]) -> list[str] | None:
    """Names by which other processes find the kernels: built-in ones, and cells of a file; None if one is another's."""
    from constrint.kernels.registry import importable_name

    if not all(one.spec.home.startswith("constrint.") for one in jobs):
        return None
    try:
        return [importable_name(one.spec) for one in jobs]
    except UsageError:
        return None


def _in_processes(
    jobs: Sequence[CompileJob], names: Sequence[str], run: Run | None, progress: Progress
) -> list[CompiledKernel | str]:
    from constrint.kernels.registry import load_spec
    from constrint.tune import Trial, compile_many

    trials = [Trial(name, one.workload, dict(one.config)) for name, one in zip(names, jobs, strict=True)]
    results = compile_many(
        load_spec,
        jobs[0].gpu,
        trials,
        say=lambda done: show_progress(progress, done, len(jobs)),
        stop=None if run is None else lambda: bool(run.reason()),
    )
    for one, result in zip(jobs, results, strict=True):
        if result not in LOST:
            keep(one.gpu, one.spec, one.workload, one.config, result)
    return results


def show_progress(progress: Progress, done: int, number: int) -> None:
    """Show on a terminal how many kernels are compiled."""
    progress.say(f"{min(done + 1, number)} of {number}", done, number)


def _mute() -> None:
    """Silence stderr at the end of the process: Triton 3.9's bindings list the objects that a Gluon kernel leaves."""
    sys.stderr.flush()
    with suppress(OSError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
