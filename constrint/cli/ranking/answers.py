"""The same question asked of several GPUs: each has a ranking, or the reason why it has none."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from constrint.answers.question import Question
from constrint.answers.ranking import ranking_document
from constrint.cli.asked.conflicts import conflict_document
from constrint.cli.asked.kernel_options import Choice
from constrint.cli.asked.request import question_of
from constrint.errors import CancelledError, ConstrintError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.hwmodels.load import content_of
from constrint.select import Operation, Ranking


@dataclass(frozen=True)
class Answer:
    """What one GPU answers.

    Args:
        gpu: The GPU's model.
        named: How it was named.
        question: What it was asked; None where it cannot be asked.
        ranking: Its best configurations; None where there is none.
        error: Why there is none.
    """

    gpu: GpuModel
    named: str
    question: Question | None = None
    ranking: Ranking | None = None
    error: ConstrintError | None = None

    @property
    def refusal(self) -> str:
        """Why there is no ranking; empty where there is one."""
        return "" if self.error is None else str(self.error)

    def document(self) -> dict[str, Any]:
        """The ranking in the form of `constrint docs json`, or why there is none."""
        if self.ranking is not None:
            return ranking_document(self.ranking)
        refused = {"gpu": self.gpu.name, "target": self.gpu.arch.target, "refusal": self.refusal}
        return refused | conflict_document(self.error)


def command_of(answers: Sequence[Answer], command: str) -> str:
    """Another command that is asked the same of the same GPUs, to be copied."""
    asked = next((answer.question.arguments for answer in answers if answer.question is not None), ())
    gpus = [answer.named for answer in answers]
    if command == "solve":
        gpus = [word for gpu in gpus for word in ("--gpu", gpu)]
    # The first two are --gpu and its name.
    return shlex.join(("constrint", command, *gpus, *asked[2:]))


def answers_of(choice: Choice, rank: Callable[[Question], Ranking]) -> list[Answer]:
    """Ask every GPU of `choice.gpus`; `rank` answers a question of one.

    Raises:
        UsageError: When a GPU is not known, or the question is wrong for every one of them.
    """
    if choice.operation is None:
        raise UsageError("several GPUs are asked about a kernel, not about a file.")
    models = {name: load_gpu(name) for name in choice.gpus}
    # Two names of one model are asked once; a file may have the name of another model.
    named = list({content_of(model): name for name, model in reversed(models.items())}.values())[::-1]
    asked = replace(choice, dtype=choice.dtype or common_dtype(choice.operation, [models[name] for name in named]))
    answers = [_answer(replace(asked, gpu=name, gpus=(name,)), models[name], rank) for name in named]
    wrong = [answer.error for answer in answers if answer.error is not None and _is_usage(answer.error)]
    if len(wrong) == len(answers):
        raise wrong[0]
    return answers


def common_dtype(operation: Operation, gpus: Sequence[GpuModel]) -> str:
    """The operands' type where none was named: the first that every GPU takes, else what the first GPU would take."""
    for dtype in operation.dtypes:
        if all(_takes(operation, gpu, dtype) for gpu in gpus):
            return dtype
    return operation.default_workload(gpus[0]).dtype


def _takes(operation: Operation, gpu: GpuModel, dtype: str) -> bool:
    workload = replace(operation.default_workload(gpu), dtype=dtype)
    for spec in operation.implementations:
        try:
            spec.check_workload(gpu, workload)
        except ConstrintError:
            continue
        return True
    return False


def _answer(choice: Choice, gpu: GpuModel, rank: Callable[[Question], Ranking]) -> Answer:
    question = None
    try:
        question = question_of(choice)
        return Answer(gpu, str(choice.gpu), question, rank(question))
    except CancelledError:
        raise
    except ConstrintError as error:
        return Answer(gpu, str(choice.gpu), question, error=error)


def _is_usage(error: ConstrintError) -> bool:
    """Whether the question is at fault, not what the GPU has."""
    return isinstance(error, UsageError) and not isinstance(error, UnsupportedError)
