"""What a report is asked about: the command line's choice for each GPU as a question of `constrint.report`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from constrint.answers.question import Question
from constrint.answers.ways_out import ways_out
from constrint.cli.asked.kernel_options import Choice
from constrint.cli.asked.request import question_of
from constrint.errors import ConstrintError, UsageError
from constrint.hwmodels import load_gpu
from constrint.report import GpuQuestion
from constrint.solve import minimal_conflict


def questions_of(choice: Choice) -> list[GpuQuestion]:
    """The question about each GPU that was named; one that cannot take the workload beside others says why.

    Raises:
        UsageError: When no GPU is named, one is unknown, or none can take the workload.
    """
    names = list(dict.fromkeys(choice.gpus))
    if not names:
        raise UsageError(
            "say which GPU: --gpu NAME (for example mi300x; `constrint gpus` lists them); it may be repeated."
        )
    gpus = [load_gpu(name) for name in names]
    questions: list[GpuQuestion] = []
    last: ConstrintError | None = None
    for name, gpu in zip(names, gpus, strict=True):
        one = replace(choice, gpu=name)
        try:
            questions.append(_asked(question_of(one)))
        except ConstrintError as error:
            last = error
            if one.operation is None:
                raise
            title = f"{one.operation.name} on {gpu.name}"
            refusal = str(error)
            arguments = ("--gpu", name)
            questions.append(GpuQuestion(gpu, title, None, one.operation, arguments=arguments, refusal=refusal))
    if last is not None and all(question.refusal for question in questions):
        raise last
    return questions


def _asked(question: Question) -> GpuQuestion:
    assert question.operation is not None  # a report takes no files
    requests = tuple(question.requests)

    def helps(kernel: str) -> Sequence[str]:
        asked = next(one for one in question.asked if one.kernel == kernel)
        return ways_out(asked, minimal_conflict(asked.problem, domains_in_force=True)) if asked.own else ()

    return GpuQuestion(
        gpu=requests[0].gpu,
        title=question.title,
        workload=requests[0].workload,
        operation=question.operation,
        requests=requests,
        refusals=question.refusals,
        notes=question.notes,
        own=[id(rule) for asked in question.asked for rule in asked.own],
        arguments=question.arguments,
        ways_out=helps,
    )


def command_of(questions: Sequence[GpuQuestion], options: Sequence[str]) -> str:
    """The command that makes the same report again."""
    asked = next(question.arguments for question in questions if not question.refusal)
    gpus = [word for question in questions for word in question.arguments[:2]]
    return shlex.join(("constrint", "report", *gpus, *asked[2:], *options))
