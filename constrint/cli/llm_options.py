"""The options that name a language model and its budget, shared by `constrint propose` and `constrint tune`.

`constrint tune --search llm` asks the model for the candidates of each workload that it tunes.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from constrint.answers.terminal import printable
from constrint.cli.options import as_command
from constrint.errors import UsageError

if TYPE_CHECKING:
    from constrint.tune.search.llm.answer import Spending
    from constrint.tune.search.llm.endpoint import Endpoint
    from constrint.tune.search.llm.run import Conversation
    from constrint.tune.session import Goal
    from constrint.tune.store.store import RecordStore
    from constrint.tune.tuner import Settings

#: Default time limit of a reply, in seconds.
ANSWER_S = 120.0
#: The tuner's search that asks the model.
SEARCH = "llm"
#: Most characters of foreign text in a printed line.
LONGEST = 1000


@dataclass(frozen=True)
class LlmOptions:
    """The options as given; `endpoint` and `spending` check them."""

    llm: Annotated[
        str | None,
        typer.Option(
            "--llm", metavar="URL", help="An OpenAI-compatible endpoint; without one `propose` asks built-in rules."
        ),
    ] = None
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="The model at the endpoint.")] = None
    key: Annotated[
        str | None, typer.Option("--key-variable", metavar="NAME", help="Environment variable that holds the key.")
    ] = None
    tokens: Annotated[
        int | None, typer.Option("--tokens", min=1, help="Tokens of all questions and replies at most.")
    ] = None
    dollars: Annotated[float | None, typer.Option("--dollars", min=0.0, help="Money for the same; needs --prices.")] = (
        None
    )
    prices: Annotated[
        str | None, typer.Option("--prices", metavar="IN,OUT", help="Dollars for a million tokens: 2.5,10.")
    ] = None
    answer_time: Annotated[
        float, typer.Option("--answer-time", min=0.1, help="Seconds that a reply may take, retries included.")
    ] = ANSWER_S

    def check(self) -> None:
        """Check that the options agree with each other.

        Raises:
            UsageError: When a model is named without its endpoint or the other way round, or prices cannot be read.
        """
        if self.llm is None:
            typed = {"--model": self.model, "--key-variable": self.key}
            extra = [option for option, value in typed.items() if value is not None]
            if extra:
                raise UsageError(f"{', '.join(extra)}: name the endpoint, too: --llm URL.")
        elif self.model is None:
            raise UsageError("--llm needs the model's name there: --model NAME.")
        self._prices()

    def endpoint(self) -> Endpoint | None:
        """The endpoint; None where none is named.

        Raises:
            UsageError: When the options disagree, or the address is none.
        """
        from constrint.tune.search.llm.endpoint import KEY_VARIABLE, Endpoint

        self.check()
        if self.llm is None or self.model is None:
            return None
        return Endpoint(self.llm, self.model, self.key or KEY_VARIABLE, self.answer_time)

    def spending(self) -> Spending:
        """The budget, of which nothing is spent yet."""
        from constrint.tune.search.llm.answer import Spending

        return Spending(self.tokens, self.dollars, self._prices())

    def check_search(self, search: str) -> None:
        """Check that the tuner's search and the options agree.

        Raises:
            UsageError: When `--search llm` has no endpoint, or an endpoint is named for another search.
        """
        self.check()
        if search == SEARCH and self.llm is None:
            raise UsageError(f"--search {SEARCH} asks a model: --llm URL --model NAME; or --search {SEARCH}:rules.")
        if search != SEARCH and self.llm is not None:
            raise UsageError(f"--llm names the model of --search {SEARCH}, not of --search {search}.")

    def conversation(
        self, otherwise: str, subject: Mapping[str, str], rounds: int, trials: int, *, judges: bool = False, **more: Any
    ) -> Conversation:
        """The conversation of a new run.

        Args:
            otherwise: Name of who proposes where no endpoint is named.
            subject: The fields `gpu`, `kernel` and `workload` of the transcript's head.
            rounds: Most questions.
            trials: Most candidates of a round.
            judges: Whether the model judges, too.
            more: Other parameters of `Conversation`.
        """
        from constrint.tune.search.llm.run import Conversation
        from constrint.tune.search.llm.transcript import SCHEMA, Header
        from constrint.tune.tuner import new_run

        endpoint = self.endpoint()
        proposer, host = (otherwise, "") if endpoint is None else (endpoint.model, endpoint.host)
        header = Header(
            schema=SCHEMA, run=new_run(), proposer=proposer, host=host, rounds=rounds, trials=trials,
            judge=judges and endpoint is not None, **subject,
        )  # fmt: skip
        return Conversation(header, endpoint, self.spending(), **more)

    def searching(
        self, search: str, settings: Settings, goals: Sequence[Goal], store: RecordStore, num_inputs: int
    ) -> Settings:
        """The tuner's settings with the model as its search; unchanged for any other `search`.

        A workload has one round for every `CANDIDATES` trials, and all workloads share the budget.
        """
        if search != SEARCH or self.llm is None or not goals:
            return settings
        from constrint.cli.compiling import compile_shown
        from constrint.tune.search.llm.run import LlmRun
        from constrint.tune.search.llm.search import CANDIDATES, Effort, engine_seed

        rounds, work = -(-settings.trials // CANDIDATES), goals[0].workload
        subject = {"gpu": settings.gpu.name, "kernel": work.operation, "workload": str(work)}
        talk = self.conversation("", subject, rounds, CANDIDATES, budget_s=settings.budget_s)
        effort = Effort(rounds, CANDIDATES, is_modelled=False, num_inputs=num_inputs)
        run = LlmRun(talk, store, functools.partial(compile_shown, is_apart=True), effort, say, engine_seed)
        # Not a bound method: the searches share one budget, so they are made in this process and never copied.
        return replace(settings, search=lambda task: run.search(task), run=talk.header.run)

    def _prices(self) -> tuple[float, float]:
        if self.prices is None:
            if self.dollars is not None:
                raise UsageError("--dollars needs the prices of tokens: --prices IN,OUT, in dollars for a million.")
            return 0.0, 0.0
        try:
            numbers = [float(part) for part in self.prices.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) != 2 or not all(0 <= number < 1e6 for number in numbers):
            raise UsageError(
                f"--prices {self.prices!r}: write dollars for a million tokens in and out, such as 2.5,10."
            )
        return numbers[0], numbers[1]


def taking_model(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the command's parameter of type `LlmOptions` by one option per field."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    hints = get_type_hints(LlmOptions, include_extras=True)
    options = [
        inspect.Parameter(each.name, keyword, default=each.default, annotation=hints[each.name])
        for each in fields(LlmOptions)
    ]
    own = inspect.signature(command, eval_str=True).parameters.values()
    (asking,) = (parameter.name for parameter in own if parameter.annotation is LlmOptions)
    shown = [parameter for one in own for parameter in (options if one.name == asking else [one])]
    # Options may stand before positional parameters of the command only by keyword.
    shown[1:] = [each.replace(kind=keyword) for each in shown[1:]]

    def expanded(*arguments: Any, **values: Any) -> None:
        chosen = LlmOptions(**{each.name: values.pop(each.name) for each in fields(LlmOptions) if each.name in values})
        command(*arguments, **{asking: chosen}, **values)

    return as_command(command, expanded, shown)


def plain(text: str) -> str:
    """Foreign text as one printable line: other characters are escaped, and a long text is cut."""
    return printable(text[:LONGEST]) + ("..." if len(text) > LONGEST else "")


def say(text: str) -> None:
    """Print a line of progress on stderr."""
    sys.stderr.write(plain(text) + "\n")
    sys.stderr.flush()
