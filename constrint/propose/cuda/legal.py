"""Reads a candidate in CUDA C++ before anything is compiled: its text, and its launches, which are data.

Its host code is ours: a candidate cannot call a library, touch the timer or choose a stream. What a kernel does beside
its work is judged in what the compiler made of it (`constrint/propose/machine`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from constrint.errors import ConstrintError
from constrint.propose.cuda.sizes import names_of, read_condition, read_number
from constrint.propose.cuda.text import kernels_of, name_problems, text_problems
from constrint.propose.cuda.tokens import UnreadableText, lex
from constrint.propose.task import Task
from constrint.tune.search.llm.records import MAX_SOURCE, KernelLaunch, SourceProposal

_KERNEL = re.compile(r"[A-Za-z_]\w*(<[\w ,:<>]*>)?", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def illegal(proposal: SourceProposal, task: Task) -> str:
    """The first thing of a candidate that is not allowed, with the way out; empty if none.

    Args:
        proposal: The candidate.
        task: The task that it solves.
    """
    return next(_problems(proposal, task), "")


def _problems(proposal: SourceProposal, task: Task) -> Iterator[str]:
    if len(proposal.source) > MAX_SOURCE:
        yield f"the source has {len(proposal.source)} characters; at most {MAX_SOURCE} are read."
    try:
        tokens = list(lex(proposal.source))
    except UnreadableText as error:
        yield _line(error)
        return
    yield from text_problems(tokens)
    if not proposal.launches:
        yield "it has no launches; state the kernel, grid, block and arguments of each in `launches`."
    least = {extent.name: extent.multiple for extent in task.extents}
    ranks = {layout.name: len(layout.shape) for part in task.layouts(least, task.dtypes[0]) for layout in part}
    names = [name for tensor, rank in ranks.items() for name in names_of(tensor, rank)]
    yield from _scratch_problems(proposal.scratch, ranks, names)
    kernels, memory = kernels_of(tokens), (*ranks, *proposal.scratch)
    for number, launch in enumerate(proposal.launches):
        for problem in _launch_problems(launch, kernels, memory, names):
            yield f"launches[{number}].{problem}"


def _scratch_problems(scratch: Mapping[str, str], tensors: Mapping[str, int], names: Sequence[str]) -> Iterator[str]:
    for name, text in scratch.items():
        if not _NAME.fullmatch(name) or name in tensors:
            yield f"scratch: {name!r} is no name, or that of a tensor."
        yield from _number_problems(text, names, f"scratch.{name}")


def _launch_problems(
    launch: KernelLaunch, kernels: frozenset[str], memory: Sequence[str], names: Sequence[str]
) -> Iterator[str]:
    function = launch.kernel.partition("<")[0]
    if not _KERNEL.fullmatch(launch.kernel):
        yield f"kernel: {launch.kernel!r} is no name of a kernel, such as rows or rows<x_t, 256>."
    for problem in name_problems(launch.kernel):
        yield f"kernel: {problem}."
    if function not in kernels:
        yield f"kernel: the source defines no __global__ function {function!r}."
    for field in ("grid", "block"):
        for text in getattr(launch, field):
            yield from _number_problems(text, names, field)
    yield from _number_problems(launch.smem_bytes, names, "smem_bytes")
    for text in launch.arguments:
        if text not in memory:
            where = f"arguments: it is none of the tensors {', '.join(memory)}, and as a number"
            yield from _number_problems(text, names, where)
    if launch.when:
        try:
            read_condition(launch.when, names)
        except ConstrintError as error:
            yield f"when: {_line(error)}"


def _number_problems(text: str, names: Sequence[str], where: str) -> Iterator[str]:
    try:
        read_number(text, names)
    except ConstrintError as error:
        yield f"{where}: {_line(error)}"


def _line(error: ConstrintError) -> str:
    return str(error).splitlines()[0]
