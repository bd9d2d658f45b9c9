"""The score of whoever writes kernels: suggestions from a folder, each taken through the gates, and their sum.

A suggestion is a file: Triton in `.py`, CUDA C++ in `.cu` with its launches in lines `//!`. No suggestion is executed
outside the sandbox of the gates. Without a GPU a suggestion in Triton is judged by Triton's interpreter, one in CUDA
C++ is compiled, so that it stays undecided whether it is right, and none is timed; scores are then ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from constrint.errors import NoDeviceError, UsageError, printed_line
from constrint.hwmodels import GpuModel, detect, load_gpu
from constrint.propose.examination import GateSettings, examine
from constrint.propose.rubric import (
    MOST_SUGGESTIONS,
    Level,
    bootstrap,
    level_of,
    of_one_in,
    pass_at,
    wilson,
)
from constrint.propose.score import Examined
from constrint.propose.task import find_task, list_tasks
from constrint.propose.writing import proposal_of_text
from constrint.tune.search.llm.records import MAX_REASON, MAX_SOURCE, GateResult

#: The programming models, by the suffix of a file.
MODELS = {"triton": ".py", "cuda": ".cu"}
OTHER = "other"
#: The GPU that suggestions are compiled for where none is named and none is here.
USUAL_GPU = "h200"
#: Factors of fast_p, and the numbers of suggestions of pass@k.
FACTORS, COUNTS = (0.5, 1.0, 2.0), (1, 10)
#: Longest name of a file that is printed whole.
MAX_FILE = 60


@dataclass(frozen=True)
class Suggestion:
    """One suggestion with what the gates found.

    Args:
        name: The file's name, printable.
        model: The programming model that it is written in: `triton`, `cuda` or `other`.
        examined: The gates; None for another programming model than the one asked for, which no gate takes.
    """

    name: str
    model: str
    examined: Examined | None

    @property
    def is_right(self) -> bool | None:
        """Whether no gate refuses it; None where it compiles and nothing here could run it."""
        if self.examined is None or self.examined.refused_by:
            return False
        return True if self.examined.is_sound else None

    @property
    def refused_by(self) -> str:
        """The gate that refuses it; `model` for another programming model, empty where none does."""
        return "model" if self.examined is None else self.examined.refused_by

    @property
    def message(self) -> str:
        """The reason of the refusal, or the message of the last gate."""
        if self.examined is None:
            return "it is written in another programming model than the one asked for."
        return self.examined.message

    @property
    def speed_up(self) -> float | None:
        """Time of plain PyTorch over its own; None where it was not timed."""
        return None if self.examined is None else self.examined.speed_up


@dataclass(frozen=True)
class Spread:
    """A score between two bounds, which differ where some suggestions are undecided.

    Args:
        least: The score if no undecided suggestion is right.
        most: The score if all are.
        interval: The interval of 95 %, from the lower end with `least` to the upper end with `most`.
    """

    least: float | None
    most: float | None
    interval: tuple[float, float] = (0.0, 1.0)

    @property
    def is_decided(self) -> bool:
        """Whether the bounds agree."""
        return self.least == self.most


@dataclass(frozen=True)
class PromptScore:
    """The score of one prompt: a kernel in a programming model.

    Args:
        kernel: The task's name.
        model: The programming model.
        suggestions: The suggestions in the order of their names.
    """

    kernel: str
    model: str
    suggestions: tuple[Suggestion, ...]

    @property
    def num_right(self) -> tuple[int, int]:
        """How many suggestions are right: at least, and at most."""
        verdicts = [one.is_right for one in self.suggestions]
        return verdicts.count(True), len(verdicts) - verdicts.count(False)

    @property
    def levels(self) -> tuple[Level, Level]:
        """The level of the rubric: the least, and the largest that undecided suggestions leave open."""
        others = sum(one.examined is None for one in self.suggestions)
        least, most = self.num_right
        return level_of(len(self.suggestions), least, others), level_of(len(self.suggestions), most, others)

    def pass_at(self, k: int) -> Spread:
        """pass@k; the interval is Wilson's, also where k suggestions are more than there are."""
        number, (least, most) = len(self.suggestions), self.num_right
        ends = of_one_in(k, (wilson(least, number)[0], wilson(most, number)[1]))
        return Spread(pass_at(k, number, least), pass_at(k, number, most), ends)

    def fast(self, p: float) -> Spread:
        """fast_p: the share of suggestions that are right and more than p times as fast as plain PyTorch."""
        if not any(self.num_right):
            return Spread(0.0, 0.0, wilson(0, len(self.suggestions)))
        if all(one.speed_up is None for one in self.suggestions):
            return Spread(None, None)
        number = sum(one.is_right is True and (one.speed_up or 0.0) > p for one in self.suggestions)
        share = number / len(self.suggestions)
        return Spread(share, share, wilson(number, len(self.suggestions)))


@dataclass(frozen=True)
class Evaluation:
    """The scores of all prompts.

    Args:
        gpu: The name of the GPU that suggestions are compiled for.
        has_gpu: Whether it is here, so that suggestions ran on it.
        prompts: The scores.
    """

    gpu: str
    has_gpu: bool
    prompts: tuple[PromptScore, ...]

    def mean(self, of: Callable[[PromptScore], Spread]) -> Spread:
        """The mean of a score over prompts; its interval is a bootstrap over the prompts. None where one has none."""
        scores = [of(prompt) for prompt in self.prompts]
        least, most = ([one for one in ends if one is not None] for ends in _ends(scores))
        if len(least) < len(scores) or len(most) < len(scores):
            return Spread(None, None)
        interval = (bootstrap(least)[0], bootstrap(most)[1])
        return Spread(sum(least) / len(scores), sum(most) / len(scores), interval)

    @property
    def conditions(self) -> str:
        """Where each gate was judged, in a sentence."""
        if self.has_gpu:
            return f"Judged on this {self.gpu}."
        return (
            f"Compiled for {self.gpu}, which is not here: Triton's interpreter judges `right` and `honest` on the CPU, "
            "CUDA C++ is compiled only, and `fast` is not judged."
        )

    def document(self) -> dict[str, Any]:
        """The evaluation as a JSON document."""
        return {
            "gpu": self.gpu,
            "has_gpu": self.has_gpu,
            "conditions": self.conditions,
            "prompts": [_prompt_document(prompt) for prompt in self.prompts],
        }


def _ends(scores: Sequence[Spread]) -> tuple[list[float | None], list[float | None]]:
    return [one.least for one in scores], [one.most for one in scores]


def rubric_of(prompt: PromptScore) -> Spread:
    """The rubric of a prompt as a score."""
    least, most = prompt.levels
    return Spread(least.score, most.score)


def evaluate(
    suggestions: str | Path,
    *,
    kernel: str | None = None,
    model: str | None = None,
    gpu: str | GpuModel | None = None,
    settings: GateSettings | None = None,
    watcher: Callable[[str, str, Suggestion], None] | None = None,
) -> Evaluation:
    """Score suggestions, each taken through the gates of proposals in the sandbox.

    Args:
        suggestions: A folder of at most ten suggestions for one prompt; without `kernel` a folder with a folder for
            each kernel, in which there is one for each programming model.
        kernel: The task: `axpy`, `gemv`, `gemm`, `spmv`, `jacobi`, `cg`, or another one of `constrint.propose`.
        model: The programming model that was asked for, `triton` or `cuda`; without it both, where there is no
            `kernel`.
        gpu: The GPU to compile for; by default that of this machine, or an H200.
        settings: The settings of the gates.
        watcher: Called with the kernel, the programming model and each suggestion as it is decided.

    Raises:
        UsageError: When the folder is missing, has no suggestion or too many, or nothing here can examine source.
        UnknownNameError: When there is no such kernel, or no such GPU.
    """
    if model is not None and model not in MODELS:
        raise UsageError(f"the programming model is one of {', '.join(MODELS)}, got {printed_line(model, MAX_FILE)!r}.")
    settings = settings or GateSettings()
    named = _gpu_of(gpu)
    prompts = list(_prompts(Path(suggestions), kernel, model))
    scores = []
    for folder, name, asked in prompts:
        files = _files(folder)
        decided = []
        for path in files:
            decided.append(_examined(path, name, asked, named, settings))
            if watcher is not None:
                watcher(name, asked, decided[-1])
        scores.append(PromptScore(name, asked, tuple(decided)))
    return Evaluation(named.name, settings.device != "cpu" and _is_here(named), tuple(scores))


def _prompts(folder: Path, kernel: str | None, model: str | None) -> Iterator[tuple[Path, str, str]]:
    """The folder, the kernel and the programming model of each prompt; all of them are checked first."""
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "is not there"
        raise UsageError(f"suggestions {_shown(folder)}: the folder {what}.")
    if kernel is not None:
        find_task(kernel)
        if model is None:
            raise UsageError("name the programming model that was asked for, triton or cuda.")
        _files(folder)
        yield folder, kernel, model
        return
    known = list_tasks()
    # The order of the tasks, so that a table and a plot have it, too.
    found = [
        (folder / name / one, name, one)
        for name in known
        for one in MODELS
        if model in (None, one) and (folder / name / one).is_dir()
    ]
    if not found:
        raise UsageError(
            f"suggestions {_shown(folder)}: there is no folder KERNEL/MODEL in it, such as axpy/triton; or name the "
            "kernel that all its files are for."
        )
    for place, _, _ in found:
        _files(place)
    yield from found


def _files(folder: Path) -> list[Path]:
    """The suggestions in a folder, by name; hidden files and folders are none.

    Raises:
        UsageError: When there are none, or too many.
    """
    try:
        files = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file())
    except OSError as error:
        raise UsageError(f"suggestions {_shown(folder)}: {error.strerror}.") from None
    if not files:
        raise UsageError(f"suggestions {_shown(folder)}: the folder has no files; a suggestion is a file .py or .cu.")
    if len(files) > MOST_SUGGESTIONS:
        raise UsageError(
            f"suggestions {_shown(folder)}: {len(files)} files; a prompt has at most {MOST_SUGGESTIONS} suggestions, "
            "the first ones that a generator gave."
        )
    return files


def _examined(path: Path, kernel: str, asked: str, gpu: GpuModel, settings: GateSettings) -> Suggestion:
    name = printed_line(path.name, MAX_FILE)
    text, fault = _text_of(path)
    model = model_of(path.suffix, text)
    if fault:
        return Suggestion(name, asked, _refused(kernel, fault))
    if model != asked:
        return Suggestion(name, model, None)
    try:
        proposal = proposal_of_text(kernel, asked, text, because=f"from the file {name}")
    except UsageError as error:
        return Suggestion(name, model, _refused(kernel, str(error)))
    return Suggestion(name, model, examine(proposal, gpu, settings))


def model_of(suffix: str, text: str) -> str:
    """The programming model of a file: `triton` for Python that names Triton, `cuda` for `.cu`, else `other`."""
    if suffix == MODELS["cuda"]:
        return "cuda"
    return "triton" if suffix == MODELS["triton"] and "triton" in text else OTHER


def _text_of(path: Path) -> tuple[str, str]:
    """The text of a suggestion, and why it is none; it is read no further than the longest that is examined."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SOURCE + 1)
        text = data.decode()
    except OSError as error:
        return "", f"the file cannot be read: {error.strerror}."
    except UnicodeDecodeError:
        return "", "the file is no UTF-8 text."
    if len(data) > MAX_SOURCE:
        return "", f"the file has more than {MAX_SOURCE:,} bytes, the longest source that is examined."
    return (text, "") if text.strip() else ("", "the file is empty.")


def _refused(kernel: str, why: str) -> Examined:
    """The result of a suggestion that is no text to read: the first gate refuses it."""
    return Examined((GateResult(gate="legal", passed=False, kernel=kernel, message=printed_line(why, MAX_REASON)),))


def _gpu_of(gpu: str | GpuModel | None) -> GpuModel:
    if isinstance(gpu, GpuModel):
        return gpu
    if gpu is not None:
        return load_gpu(gpu)
    return load_gpu(next((name for name in _models_here() if name), USUAL_GPU))


def _is_here(gpu: GpuModel) -> bool:
    return gpu.name in _models_here()[:1]


def _models_here() -> list[str]:
    try:
        return [device.model or "" for device in detect()]
    except NoDeviceError:
        return []


def _shown(path: Path) -> str:
    return printed_line(str(path), 200)


def _prompt_document(prompt: PromptScore) -> dict[str, Any]:
    least, most = prompt.levels
    document: dict[str, Any] = {
        "kernel": prompt.kernel,
        "model": prompt.model,
        "num_suggestions": len(prompt.suggestions),
        "num_right": list(prompt.num_right),
        "rubric": [least.score, most.score],
        "level": [least.name, most.name],
    }
    document |= {f"pass_at_{k}": _spread_document(prompt.pass_at(k)) for k in COUNTS}
    document |= {f"fast_{p:g}": _spread_document(prompt.fast(p)) for p in FACTORS}
    return document | {"suggestions": [_suggestion_document(one) for one in prompt.suggestions]}


def _spread_document(spread: Spread) -> dict[str, Any]:
    return {"least": spread.least, "most": spread.most, "interval": list(spread.interval)}


def _suggestion_document(one: Suggestion) -> dict[str, Any]:
    results = () if one.examined is None else one.examined.results
    gates = [{name: getattr(result, name) for name in ("gate", "passed", "message")} for result in results]
    return {
        "name": one.name,
        "model": one.model,
        "is_right": one.is_right,
        "refused_by": one.refused_by,
        "message": one.message,
        "speed_up": one.speed_up,
        "gates": gates,
    }
