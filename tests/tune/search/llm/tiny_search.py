"""Rounds over the tests' own kernel, whose nine configurations behave well, badly or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from constrint.hwmodels import load_gpu
from constrint.select import Operation, Workload
from constrint.select.candidate import CompiledKernel
from constrint.select.compiled import CompileJob
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.llm.answer import PromptRequest, Response, Speaker, Usage
from constrint.tune.search.llm.gates import CompileGate
from constrint.tune.search.llm.resolve import Resolver
from constrint.tune.search.llm.search import Effort, LlmSearch
from constrint.tune.store.record import Figures, TuningRecord
from tests.tune.tiny import SPEC

WORKLOAD = Workload("tiny", {"m": 8, "n": 8, "k": 8}, "fp32")


def tiny_task() -> SearchTask:
    return SearchTask(Operation("tiny", (SPEC,)), load_gpu("h200"), WORKLOAD)


def space(*values: int, **more: Any) -> dict[str, Any]:
    """A proposal of some behaviours."""
    return {"type": "space", "kernel": "tiny", "values": [{"parameter": "what", "values": list(values)}], **more}


def reply(*proposals: Any) -> str:
    return json.dumps({"proposals": list(proposals)})


@dataclass
class Script:
    """Says what it is told to say, one answer after another; the last one again and again."""

    answers: Sequence[str | Response]
    name: str = "scripted"
    host: str = "127.0.0.1"
    asked: list[PromptRequest] = field(default_factory=list)

    def answer(self, question: PromptRequest) -> Response:
        self.asked.append(question)
        said = self.answers[min(len(self.asked), len(self.answers)) - 1]
        counted = Usage(input_tokens=100, output_tokens=10)
        return said if isinstance(said, Response) else Response(text=said, usage=counted)


def compiles_all(asked: Sequence[CompileJob]) -> list[CompiledKernel | str]:
    """Nothing is asked of it for a kernel that has nothing to compile."""
    assert not asked
    return []


def tiny_search(script: Speaker, effort: Effort, **options: Any) -> LlmSearch:
    task = tiny_task()
    return LlmSearch(Resolver(task), script, CompileGate(task, compiles_all), effort, **options)


def configs(attempts: Iterable[Any]) -> list[int]:
    return [one.candidate.config["what"] for one in attempts]


def record(what: int, seconds: float | None, outcome: str = "ok", message: str = "") -> TuningRecord:
    """A trial of a behaviour."""
    figures = None if seconds is None else Figures(median_s=seconds, spread_s=0.0, num_rounds=15)
    return TuningRecord(
        kernel="tiny",
        operation="tiny",
        gpu="H200-SXM",
        dtype="fp32",
        sizes={"m": 8, "n": 8, "k": 8},
        config={"what": what},
        outcome=outcome,
        message=message,
        run="r",
        created=1.0,
        figures=figures,
        error_over_bound=0.5 if outcome == "ok" else None,
    )
