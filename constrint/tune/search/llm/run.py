"""The searches of one run: each workload has its own, and all share a conversation, a store and a compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from constrint.select.as_compiled import Compile
from constrint.select.candidates import Candidates
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.llm.gates import CompileGate
from constrint.tune.search.llm.provenance import ProposalLog, Provenance, Subject
from constrint.tune.search.llm.records import PredictedConfig
from constrint.tune.search.llm.resolve import Resolver
from constrint.tune.search.llm.search import Effort, LlmSearch
from constrint.tune.search.llm.speakers import Conversation, built_in
from constrint.tune.store.store import RecordStore


@dataclass(frozen=True)
class LlmRun:
    """Makes the searches of a run.

    Args:
        conversation: The speaker, the budget and the transcript.
        store: Keeps proposals with their gates.
        compile_all: Compiles candidates for a GPU that need not be present.
        effort: Bounds of each search.
        say: Prints a line of progress.
        draw_seed: Draws the seed of a round's inputs; a random one where it is None.
    """

    conversation: Conversation
    store: RecordStore
    compile_all: Compile
    effort: Effort
    say: Callable[[str], None]
    draw_seed: Callable[[], int | None] | None = None

    def search(
        self,
        task: SearchTask,
        candidates: Candidates | None = None,
        profile: Callable[[PredictedConfig], Mapping[str, float]] | None = None,
    ) -> LlmSearch:
        """Make the search of a workload.

        Args:
            task: The workload and the GPU.
            candidates: The valid configurations; those of all kernels of the operation if None.
            profile: Takes metrics of a candidate; None without a profiler.
        """
        resolver = Resolver(task, candidates)
        speaker = self.conversation.speaker(built_in(resolver))
        run, is_replayed = self.conversation.header.run, self.conversation.is_replayed
        provenance = Provenance(run, Subject.of(task), speaker, is_replayed)
        return LlmSearch(
            resolver,
            speaker,
            CompileGate(task, self.compile_all),
            self.effort,
            spending=self.conversation.spending,
            watcher=ProposalLog(provenance, self.store, self.say),
            profile=profile,
            draw_seed=self.draw_seed,
        )
