"""`constrint prune`: a file's own `triton.autotune` list for named GPUs: what cannot run and why, the rest in order.

Every configuration is compiled, so that a reason is the compiler's or the binary's. The order is an estimate.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from constrint.answers.compiled import CompiledRow
from constrint.answers.registry import PAGES, PageFormat
from constrint.answers.table import Column, Page, Shown, Table, counted, pairs_text
from constrint.cli.compile import CompilerJob, compile_rows
from constrint.cli.completing import complete_dtype_name, complete_kernel_of_file
from constrint.cli.completion import complete_gpu, complete_kernel
from constrint.cli.kernel_file import autotuned_configs, load_function, setting_of
from constrint.cli.output import Output, printing, refuse_existing, write_file
from constrint.errors import InfeasibleError, UsageError, printed_line
from constrint.hwmodels import GpuModel, load_gpu
from constrint.select.toolchain import triton_version
from constrint.tune.signature import read_value, split_commas, text_of_dtype
from constrint.tune.store.record import time_text

SCHEMA = "constrint.prune/1"
#: Most configurations of a list.
MOST = 512
#: The figures of a configuration; the keys are those of the JSON document.
FIGURES = (
    Column("predicted_s", "time", "modelled", importance=92, show=time_text),
    Column("registers_per_thread", "regs", "registers a thread", importance=85),
    Column("spill_bytes_per_thread", "spill", "bytes a thread in memory", importance=90),
    Column("smem_bytes_per_block", "smem", "bytes of shared memory (LDS) a block", importance=85, show="{:,}".format),
    Column("blocks_per_sm", "blk", "blocks that an SM (CU) holds at once", importance=60),
    Column("occupancy", "occ.", "warps (waves) of what it holds", importance=88, show="{:.0%}".format),
)
#: Options of `triton.Config` that are arguments of its own, with Triton's defaults.
OWN_OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "ir_override": None}


@dataclass(frozen=True)
class ListedConfig:
    """A configuration of a file's list on a GPU.

    Args:
        row: Its place in the file's list, from 1.
        config: The object of `triton.Config`.
        compiled: The compiled kernel.
        predicted_s: The modelled time; None without a model.
    """

    row: int
    config: Any
    compiled: CompiledRow
    predicted_s: float | None = None

    @property
    def reason(self) -> str:
        """Why it cannot run; empty where it can."""
        taken = self.compiled.taken
        return self.compiled.problem if taken is None or not taken.blocks_per_sm else ""

    @property
    def figures(self) -> dict[str, Any]:
        """Registers, memory and occupancy; empty where the compiler refuses it."""
        taken, built, sm = self.compiled.taken, self.compiled.built, self.compiled.gpu.sm
        if taken is None or built is None:
            return {}
        warps = taken.blocks_per_sm * -(-taken.threads // sm.warp_size)
        return {
            "registers_per_thread": built.taken.registers_per_thread,
            "spill_bytes_per_thread": built.taken.spill_bytes,
            "smem_bytes_per_block": built.taken.smem_bytes,
            "blocks_per_sm": taken.blocks_per_sm,
            "occupancy": warps / sm.max_warps_per_sm,
        }

    @property
    def place(self) -> tuple[Any, ...]:
        """The key by which configurations are ordered: those that can run first, the most promising one of them."""
        figures = self.figures
        return (
            bool(self.reason),
            math.inf if self.predicted_s is None else self.predicted_s,
            figures.get("spill_bytes_per_thread", 0),
            -figures.get("occupancy", 0.0),
            self.row,
        )


@dataclass(frozen=True)
class PrunedList:
    """A file's list on a GPU, in its new order, those that cannot run last, and the model that ordered it."""

    gpu: GpuModel
    configs: tuple[ListedConfig, ...]
    model: ModelledTimes | None = None

    @property
    def running(self) -> tuple[ListedConfig, ...]:
        """The configurations that can run."""
        return tuple(one for one in self.configs if not one.reason)


@dataclass(frozen=True)
class PrunedPage(Page):
    """A page that can also be printed as Python."""

    python: str = ""


def _write_python(shown: Shown) -> Iterator[str]:
    if not isinstance(shown.page, PrunedPage):
        raise UsageError("--format python is the list of `constrint prune`; another command prints no Python.")
    yield shown.page.python


PAGES.add("python", PageFormat("the shortened list of `constrint prune`", _write_python))


@printing
def prune(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:FUNCTION",
            help="A function below triton.autotune. The file is imported.",
            autocompletion=complete_kernel_of_file,
        ),
    ],
    gpu: Annotated[
        list[str],
        typer.Option("--gpu", metavar="NAME[,NAME]", help="GPUs; may be repeated.", autocompletion=complete_gpu),
    ],
    signature: Annotated[
        str,
        typer.Option(
            "--signature",
            metavar="TYPES",
            help='As for `constrint compile`: "*fp16,*fp16,i32:16,1"; NAME=TYPE. Left out: says which it needs.',
        ),
    ] = "",
    constants: Annotated[
        list[str] | None,
        typer.Option("--constants", metavar="NAME=VALUE", help="Constants that the list does not set."),
    ] = None,
    top: Annotated[int | None, typer.Option("--top", min=1, help="Keep the best N of each GPU.")] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            metavar="KERNEL",
            help="Order by the modelled time of this kernel: gemm.pointer.",
            autocompletion=complete_kernel,
        ),
    ] = None,
    rename: Annotated[
        str | None,
        typer.Option("--rename", metavar="YOURS=OURS[,...]", help="With --like: its names of your parameters."),
    ] = None,
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="NAME=N[,...]", help="With --like: m=4096,n=4096,k=4096.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", help="With --like: type of the operands.", autocompletion=complete_dtype_name),
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write the shortened list as Python, too.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over the --write that is there.")] = False,
    *,
    output: Output,
) -> None:
    """Read a kernel's own triton.autotune list, and say for each GPU what cannot run, why, and what is promising.

    Ends with exit code 1 where no configuration can run on some GPU.
    """
    if write is not None and not force:
        refuse_existing(write)
    model = _model_of(like, rename, sizes, dtype)
    gpus = _gpus_of(gpu)
    fixed = {name: read_value(text) for name, text in _pairs(constants or (), "--constants").items()}
    lists = [_pruned(kernel, one, signature, fixed, model) for one in gpus]
    kept = [PrunedList(one.gpu, one.configs if top is None else _best(one, top)) for one in lists]
    python = python_of(kept, lists, _command_of(sys.argv))
    output.show(_page(lists, top, python))
    if write is not None:
        write_file(write, [python], error=lambda why: UsageError(f"--write {_shown(write)} cannot be written: {why}."))
    if not all(one.running for one in lists):
        raise typer.Exit(1)


@dataclass(frozen=True)
class ModelledTimes:
    """The cost model by which a list is ordered.

    Args:
        like: The kernel's name.
        rename: Our names by the user's.
        sizes: The sizes of the workload by name.
        dtype: Type of the operands.
        usual: Our names by those of the user that `rename` does not have, as tiles are usually called.
    """

    like: str
    rename: Mapping[str, str]
    sizes: Mapping[str, int]
    dtype: str | None
    usual: Mapping[str, str] = field(default_factory=dict)

    def predicted_s(self, gpu: GpuModel, values: Mapping[str, Any]) -> float | None:
        """The modelled time of a configuration; None where the model says that it cannot run."""
        from constrint.kernels.launch.pruning import perf_model

        numbers = {name: value for name, value in values.items() if isinstance(value, int)}
        rename = {name: ours for name, ours in self.usual.items() if name in numbers} | dict(self.rename)
        seconds = perf_model(self.like, gpu, rename=rename, dtype=self.dtype)(**{**numbers, **self.sizes})
        return seconds if math.isfinite(seconds) else None

    def knowing(self, gpu: GpuModel, theirs: Sequence[str]) -> ModelledTimes:
        """The same with names of a list's parameters that are usual for tiles.

        Raises:
            UsageError: When the model has none of the parameters, so that all times would be the same.
        """
        from constrint.kernels.launch.pruning.limits import LAUNCH_PARAMS, target_of, usual_names

        found = usual_names(theirs, self.rename, target_of(self.like), gpu)
        own = [name for name in theirs if name not in LAUNCH_PARAMS]
        if own and not any(name in found for name in own):
            raise UsageError(
                f"--like {self.like} has none of the list's parameters {', '.join(own)}: --rename {own[0]}=tile_m, for "
                "example, says which of them stands for which of its own."
            )
        usual = {name: ours for name, ours in found.items() if name.lower() != ours and name not in self.rename}
        return replace(self, usual=usual)

    def __str__(self) -> str:
        names = ", ".join(f"{name} = {ours}" for name, ours in {**self.usual, **self.rename}.items())
        sizes = pairs_text(self.sizes) or "its usual sizes (--sizes names others)"
        return f"the modelled time of {self.like} at {sizes}" + (f", where {names}" if names else "")


def _model_of(like: str | None, rename: str | None, sizes: str | None, dtype: str | None) -> ModelledTimes | None:
    if like is None:
        if rename or sizes or dtype:
            raise UsageError(
                "--rename, --sizes and --dtype are about the kernel of --like; name it, or leave them out."
            )
        return None
    numbers = _pairs([sizes] if sizes else (), "--sizes")
    wrong = [text for text in numbers.values() if not text.isdecimal() or not text.isascii() or len(text) > 18]
    if wrong:
        raise UsageError(f"--sizes takes whole numbers, m=4096,n=4096,k=4096; got {printed_line(wrong[0], 40)!r}.")
    names = _pairs([rename] if rename else (), "--rename")
    return ModelledTimes(like, names, {name: int(text) for name, text in numbers.items()}, dtype)


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Values by name in texts such as `m=4096,n=4096`.

    Raises:
        UsageError: When a part is no `NAME=VALUE`.
    """
    values: dict[str, str] = {}
    for part in (part for text in texts for part in split_commas(text)):
        name, equals, value = part.partition("=")
        if not equals or not name.strip().isidentifier() or not value.strip():
            raise UsageError(f"{option} takes NAME=VALUE[,NAME=VALUE], got {printed_line(part, 60)!r}.")
        values[name.strip()] = value.strip()
    return values


def _gpus_of(names: Sequence[str]) -> list[GpuModel]:
    texts = [text.strip() for name in names for text in ([name] if "/" in name else name.split(","))]
    found = {gpu.name: gpu for gpu in map(load_gpu, filter(None, texts))}
    if not found:
        raise UsageError("name a GPU: --gpu mi300x,h200.")
    return list(found.values())


def _pruned(
    named: str, gpu: GpuModel, signature: str, fixed: Mapping[str, Any], model: ModelledTimes | None
) -> PrunedList:
    """The list that the file has for a GPU, compiled and ordered."""
    function = load_function(named, gpu)
    configs = autotuned_configs(function)
    if not configs:
        raise UsageError(
            f"{_shown(named)}: the function has no list of triton.autotune; `constrint compile` takes any."
        )
    if len(configs) > MOST:
        raise UsageError(f"{_shown(named)}: the list has {len(configs):,} configurations; at most {MOST} are compiled.")
    settings = [setting_of(function, config) for config in configs]
    if both := [name for name in fixed if any(name in one.constants for one in settings)]:
        raise UsageError(
            f"--constants sets {both[0]}, which the list sets itself; `constrint compile` overrides a list."
        )
    jobs = [CompilerJob(gpu, function, type(one)({**fixed, **one.constants}, one.options)) for one in settings]
    names = list(dict.fromkeys(name for one in settings for name in one.constants))
    model = None if model is None else model.knowing(gpu, names)
    rows = compile_rows(jobs, signature)
    listed = [
        ListedConfig(at, config, row, None if model is None else model.predicted_s(gpu, setting.values))
        for at, (config, setting, row) in enumerate(zip(configs, settings, rows, strict=True), 1)
    ]
    return PrunedList(gpu, tuple(sorted(listed, key=lambda one: one.place)), model)


def _best(one: PrunedList, top: int) -> tuple[ListedConfig, ...]:
    return one.running[:top]


def _page(lists: Sequence[PrunedList], top: int | None, python: str) -> PrunedPage:
    every = [(one.gpu, config) for one in lists for config in one.configs]
    names = list(dict.fromkeys(name for _, config in every for name in config.compiled.setting.values))
    texts = {n for _, one in every for n, value in one.compiled.setting.values.items() if isinstance(value, str)}
    settings = [Column(name, is_text=name in texts, is_shared=True, importance=95) for name in names]
    columns = (
        Column("gpu", "GPU", is_text=True, importance=100),
        Column("place", "#", "place in the new order", importance=99),
        Column("row", meaning="place in the file's list, from 1", importance=98),
        *settings,
        *FIGURES,
        Column("reason", meaning="why it cannot run", is_text=True, wraps=True, importance=0),
    )
    rows, items, reasons = [], [], []
    for pruned in lists:
        for place, one in enumerate(pruned.configs, 1):
            figures = {"predicted_s": one.predicted_s, **one.figures}
            values = one.compiled.setting.values
            rank = None if one.reason else place
            cells = [_plain(values.get(name)) for name in names]
            rows.append(
                [pruned.gpu.name, rank, one.row, *cells, *(figures.get(c.key) for c in FIGURES), one.reason or None]
            )
            items.append(_document(pruned.gpu, one, rank))
            if one.reason:
                reasons.append(f"{pruned.gpu.name} row {one.row}: {one.reason}")
    counts = [
        f"{one.gpu.name}: {len(one.running)} of {counted(len(one.configs), 'configuration')} can run" for one in lists
    ]
    models = list(dict.fromkeys(str(one.model) for one in lists if one.model is not None))
    order = "; ".join(models) or "spills, then occupancy, which says little; --like gemm.pointer orders by its model"
    cut = f"; the best {top} of each GPU are written" if top is not None else ""
    below = [f"{'; '.join(counts)}. Order: {order}{cut}."]
    document = {"schema": SCHEMA, "triton_version": triton_version()}
    return PrunedPage(
        Table(columns, rows, items=items),
        lambda shown: {**document, "configs": list(shown)},
        above=[f"compiled by triton {triton_version()}; no GPU was used"],
        answer=reasons,
        below=below,
        python=python,
    )


def _document(gpu: GpuModel, one: ListedConfig, place: int | None) -> dict[str, Any]:
    setting = one.compiled.setting
    return {
        "gpu": gpu.name,
        "target": gpu.compiler_target,
        "place": place,
        "row": one.row,
        "constants": {name: _plain(value) for name, value in setting.constants.items()},
        "options": {name: _plain(value) for name, value in setting.options.items()},
        "can_run": not one.reason,
        "reason": one.reason,
        "predicted_s": one.predicted_s,
        "compiled": one.figures or None,
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | None) else str(value)


def python_of(kept: Sequence[PrunedList], lists: Sequence[PrunedList], command: str) -> str:
    """The shortened lists as a Python file: `CONFIGS` by Triton's name of the architecture, and `configs()`.

    Of GPUs of one architecture, a list has what can run on each of them, in the order of the first.

    Raises:
        UsageError: When a configuration holds a value that Python cannot write down.
        InfeasibleError: When nothing can run on any GPU.
    """
    if not any(one.running for one in kept):
        raise InfeasibleError("no configuration can run: " + _first_reason(lists))
    hooks = sorted({_hook_of(one.config) for pruned in kept for one in pruned.running} - {""})
    lines = [f"# {command}", f"# Compiled by triton {triton_version()}; no GPU was used."]
    for pruned in lists:
        lines.append(f"# {pruned.gpu.name}: {len(pruned.running)} of {len(pruned.configs)} can run.")
        lines += [f"#   not row {one.row}: {one.reason}" for one in pruned.configs if one.reason]
    lines += [f"# Import {name}, a hook of the list, from its file." for name in hooks]
    body = ["", "CONFIGS = {"]
    by_target: dict[Any, list[PrunedList]] = {}
    for pruned in kept:
        by_target.setdefault(pruned.gpu.maker.triton_target(pruned.gpu)[1], []).append(pruned)
    for target, several in by_target.items():
        shared = set.intersection(*({one.row for one in pruned.running} for pruned in several))
        body.append(f"    {target!r}: [  # {', '.join(pruned.gpu.name for pruned in several)}")
        body += [f"        {_config_text(one.config)}," for one in several[0].running if one.row in shared]
        body.append("    ],")
    body += ["}", "", ""]
    body += [
        "def configs():",
        '    """The list of the GPU that Triton compiles for."""',
        "    return CONFIGS[triton.runtime.driver.active.get_current_target().arch]",
    ]
    text = "\n".join(body)
    imports = ["import triton", *(["import triton.language as tl"] if "tl." in text else [])]
    return (
        "\n".join(printed_line(line) if line else "" for line in lines) + "\n" + "\n".join(imports) + "\n" + text + "\n"
    )


def _first_reason(lists: Sequence[PrunedList]) -> str:
    pruned = lists[0]
    one = min(pruned.configs, key=lambda one: one.row)
    return f"{pruned.gpu.name} row {one.row} {pairs_text(one.compiled.setting.values)}: {one.reason}."


def _config_text(config: Any) -> str:
    values = ", ".join(f"{name!r}: {_literal(value)}" for name, value in config.kwargs.items())
    own = [
        f"{name}={_literal(value)}"
        for name, usual in OWN_OPTIONS.items()
        if (value := getattr(config, name, usual)) is not None
        and (value != usual or name in ("num_warps", "num_stages"))
    ]
    hook = _hook_of(config)
    return f"triton.Config({{{values}}}{''.join(f', {text}' for text in own)}{f', pre_hook={hook}' if hook else ''})"


def _hook_of(config: Any) -> str:
    """The name of a configuration's hook; empty where it has none."""
    hook = getattr(config, "pre_hook", None)
    if hook is None:
        return ""
    name = str(getattr(hook, "__qualname__", ""))
    if not name.isidentifier():
        raise UsageError(
            "a configuration has a pre_hook without a name of its own; write it as a function in the file."
        )
    return name


def _literal(value: Any) -> str:
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    if type(value) is float and math.isfinite(value):
        return repr(value)
    if type(value) in (tuple, list):
        texts = [_literal(one) for one in value]
        inside = ", ".join(texts) + ("," if type(value) is tuple and len(texts) == 1 else "")
        return f"({inside})" if type(value) is tuple else f"[{inside}]"
    if dtype := text_of_dtype(value):
        return dtype
    raise UsageError(f"a configuration has a value that cannot be written as Python: {printed_line(repr(value), 80)}.")


def _command_of(arguments: Sequence[str]) -> str:
    """The command in the first line of the file."""
    words = [word for word in arguments[1:] if word not in ("--force",)]
    return shlex.join(("constrint", *words)) if words[:1] == ["prune"] else "constrint prune"


def _shown(path: str | Path) -> str:
    return printed_line(str(path), 200)
