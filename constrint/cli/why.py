"""`constrint why`: which program runs a workload on a named GPU, on which evidence, and what was passed over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from constrint.answers.terminal import print_json, say
from constrint.choose.decision import FORWARD
from constrint.choose.explain import why as explain
from constrint.choose.rendering import document
from constrint.cli.completing import complete_activation
from constrint.cli.options import Choice, Json, KernelCommand, with_counts
from constrint.errors import UsageError
from constrint.hwmodels import load_gpu
from constrint.select.workload import workload_of

SCHEMA = "constrint.why/1"
#: Options that a caller of a kernel sets by naming them: `--bias` is `--bias 1`.
SWITCHES = {"--bias": 1, "--source": 1, "--transpose-a": 1, "--transpose-b": 1, "--wide-output": 1, "--three-pass": 1}
#: Options without a value.
FLAGS = ("--inference", "--json", "--help")


def _reads(words: list[str]) -> list[str]:
    """The kernel as an option: `why matmul --bias` and `why --bias matmul` are `why --kernel gemm --bias=1`."""
    from constrint.choose.explain import ALIASES

    words = list(words)
    places = [at for at, word in enumerate(words) if not word.startswith("-") and not _is_value(words, at)]
    if places and not any(word.partition("=")[0] == "--kernel" for word in words):
        named = words.pop(places[0])
        words[:0] = ["--kernel", ALIASES.get(named, named)]
    return with_counts(words, SWITCHES)


def _is_value(words: list[str], at: int) -> bool:
    """Whether a word is the value of the option before it."""
    before = words[at - 1] if at else ""
    if before in SWITCHES:
        return words[at].isdigit()
    return before.startswith("-") and "=" not in before and before not in FLAGS


@KernelCommand.taking(files=False, rules=False, reads=_reads)
def why(
    choice: Choice,
    activation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Activation of a product, such as relu, gelu or silu.",
            autocompletion=complete_activation,
        ),
    ] = None,
    inference: Annotated[
        bool, typer.Option("--inference", help="A layer's forward direction alone; both by default.")
    ] = False,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Force a configuration of one implementation; once per parameter."),
    ] = None,
    json: Json = False,
) -> None:
    """Say which program runs a workload on a GPU, on which evidence, and what was passed over and why."""
    if choice.gpu is None or choice.operation is None:
        raise UsageError("name the GPU: constrint why matmul --gpu h200 --m 4096 --n 4096 --k 4096.")
    gpu = load_gpu(choice.gpu)
    decision = explain(
        choice.kernel or choice.operation.name,
        gpu,
        workload_of(choice.operation, gpu, choice.sizes, choice.dtype),
        config=_config(config),
        directions=(FORWARD,) if inference else (),
        activation=activation,
    )
    if json:
        print_json({"schema": SCHEMA, **document(decision)})
    else:
        say(str(decision))


def _config(pairs: Sequence[str] | None) -> dict[str, int] | None:
    config = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not value.lstrip("-").isdigit():
            raise UsageError(f"--config takes NAME=VALUE with a whole number, got {pair!r}.")
        config[name.strip()] = int(value)
    return config or None
