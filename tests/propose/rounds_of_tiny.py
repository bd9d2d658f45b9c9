"""Rounds over the tests' own kernel, whose nine configurations behave well, badly or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from constrint.hwmodels import load_gpu
from constrint.propose.llm.answer import Answer, Question, Speaker, Usage
from constrint.propose.resolve import Resolver
from constrint.propose.rounds.configs import Plan, Rounds
from constrint.propose.rounds.gates import CompileGate
from constrint.select import Operation, Workload
from constrint.select.as_compiled import CompileJob
from constrint.select.candidate import CompiledKernel
from constrint.tune.search.interface import Task
from tests.tune.tiny import SPEC

WORKLOAD = Workload("tiny", {"m": 8, "n": 8, "k": 8}, "fp32")


def tiny_task() -> Task:
    return Task(Operation("tiny", (SPEC,)), load_gpu("h200"), WORKLOAD)


def space(*values: int, **more: Any) -> dict[str, Any]:
    """A proposal of some behaviours."""
    return {"type": "space", "kernel": "tiny", "values": [{"parameter": "what", "values": list(values)}], **more}


def reply(*proposals: Any) -> str:
    return json.dumps({"proposals": list(proposals)})


@dataclass
class Script:
    """Says what it is told to say, one answer after another; the last one again and again."""

    answers: Sequence[str | Answer]
    name: str = "scripted"
    host: str = "127.0.0.1"
    asked: list[Question] = field(default_factory=list)

    def answer(self, question: Question) -> Answer:
        self.asked.append(question)
        said = self.answers[min(len(self.asked), len(self.answers)) - 1]
        counted = Usage(input_tokens=100, output_tokens=10)
        return said if isinstance(said, Answer) else Answer(text=said, usage=counted)


def compiles_all(asked: Sequence[CompileJob]) -> list[CompiledKernel | str]:
    """Nothing is asked of it for a kernel that has nothing to compile."""
    assert not asked
    return []


def tiny_rounds(script: Speaker, plan: Plan, **options: Any) -> Rounds:
    task = tiny_task()
    return Rounds(Resolver(task), script, CompileGate(task, compiles_all), plan, **options)


def configs(tried: Iterable[Any]) -> list[int]:
    return [one.candidate.config["what"] for one in tried]
