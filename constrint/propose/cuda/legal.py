"""Reads a candidate in CUDA C++ before anything is compiled: its text, and its launches, which are data.

Its host code is ours: a candidate cannot call a library, touch the timer or choose a stream. What a kernel could do
beside its work is looked for in its PTX (`ptx.py`). Here only that is refused which could hide something from the
compiler's reader or reach files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from constrint.errors import ConstrintError
from constrint.propose.cuda.sizes import names_of, read_condition, read_number
from constrint.propose.task import Task
from constrint.tune.search.llm.records import MAX_SOURCE, KernelLaunch, SourceProposal

#: Longest line.
MAX_LINE = 1000
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
#: Directives of the preprocessor that neither read files nor make names that nobody reads.
DIRECTIVES = ("define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "pragma unroll")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*([a-z]*[ \t]*(?:unroll)?)", re.MULTILINE)
_KERNEL = re.compile(r"[A-Za-z_]\w*(<[\w ,:<>]*>)?")
_NAME = re.compile(r"[A-Za-z_]\w*")


def illegal(proposal: SourceProposal, task: Task) -> str:
    """The first thing of a candidate that is not allowed, with the way out; empty if none.

    Args:
        proposal: The candidate.
        task: The task that it solves.
    """
    return next(_problems(proposal, task), "")


def _problems(proposal: SourceProposal, task: Task) -> Iterator[str]:
    yield from _text_problems(proposal.source)
    if not proposal.launches:
        yield "it has no launches; state the kernel, grid, block and arguments of each in `launches`."
    least = {extent.name: extent.multiple for extent in task.extents}
    ranks = {layout.name: len(layout.shape) for part in task.layouts(least, task.dtypes[0]) for layout in part}
    names = [name for tensor, rank in ranks.items() for name in names_of(tensor, rank)]
    yield from _scratch_problems(proposal.scratch, ranks, names)
    for number, launch in enumerate(proposal.launches):
        for problem in _launch_problems(launch, proposal, (*ranks, *proposal.scratch), names):
            yield f"launches[{number}].{problem}"


def _text_problems(source: str) -> Iterator[str]:
    if len(source) > MAX_SOURCE:
        yield f"the source has {len(source)} characters; at most {MAX_SOURCE} are read."
    if "\0" in source or not source.isascii():
        yield "the source has characters that are not ASCII; write it in ASCII."
    for number, line in enumerate(source.splitlines(), 1):
        if len(line) > MAX_LINE:
            yield f"line {number} has {len(line)} characters; at most {MAX_LINE} are read."
        if line.rstrip().endswith("\\"):
            yield f"line {number} ends with a backslash; write it in one line."
    code = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n") or " ", source)
    for directive in _DIRECTIVE.finditer(code):
        word = " ".join(directive[1].split())
        if word and word not in DIRECTIVES:
            at = code.count("\n", 0, directive.start()) + 1
            yield (
                f"line {at}: `#{word}` is not allowed; only {', '.join(f'#{one}' for one in DIRECTIVES)} are. No "
                "header is there: fp16, bf16, to_float and round_to<T> are known."
            )
    for text, why in (("##", "names are written out"), ("%:", "write #"), ("??", "no trigraphs"), ("_Pragma", "none")):
        if text in code:
            yield f"`{text}` is not allowed: {why}."


def _scratch_problems(scratch: Mapping[str, str], tensors: Mapping[str, int], names: Sequence[str]) -> Iterator[str]:
    for name, text in scratch.items():
        if not _NAME.fullmatch(name) or name in tensors:
            yield f"scratch: {name!r} is no name, or that of a tensor."
        yield from _number_problems(text, names, f"scratch.{name}")


def _launch_problems(
    launch: KernelLaunch, proposal: SourceProposal, memory: Sequence[str], names: Sequence[str]
) -> Iterator[str]:
    function = launch.kernel.partition("<")[0]
    if not _KERNEL.fullmatch(launch.kernel):
        yield f"kernel: {launch.kernel!r} is no name of a kernel, such as rows or rows<x_t, 256>."
    elif not re.search(rf"__global__[^;{{}}]*\b{function}\s*\(", proposal.source):
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
