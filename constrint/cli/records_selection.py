"""The options that sub-commands of `records` share: the store, and the selection of its records."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint.cli.completing import complete_dtype_name, complete_outcome
from constrint.cli.completion import complete_gpu, complete_kernel
from constrint.cli.options import as_command
from constrint.errors import UsageError

if TYPE_CHECKING:
    from constrint.tune.store.record import TuningRecord
    from constrint.tune.store.store import RecordStore

Store = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="A file, sqlite:///FILE or postgresql://... (else your own store)."),
]
Gpu = Annotated[str | None, typer.Option("--gpu", help="Only records of this GPU.", autocompletion=complete_gpu)]
Kernel = Annotated[
    str | None,
    typer.Option("--kernel", help="Only of this kernel: gemm, or gemm.pointer.", autocompletion=complete_kernel),
]
Dtype = Annotated[
    str | None, typer.Option("--dtype", help="Only of this operand type.", autocompletion=complete_dtype_name)
]
Outcome = Annotated[
    str | None,
    typer.Option("--outcome", help="Only with this outcome: ok, crashed, ...", autocompletion=complete_outcome),
]
Run = Annotated[str | None, typer.Option("--run", help="Only of this run of the tuner.")]
Workload = Annotated[
    str | None, typer.Option("--workload", metavar="m=1,n=2", help="Only with these sizes and options.")
]


@dataclass(frozen=True)
class Selection:
    """Records that match all stated fields.

    Args:
        gpu: A name of the GPU.
        kernel: An operation, or one of its implementations.
        dtype: The operand type.
        outcome: The outcome of the trial.
        run: The run of the tuner.
        workload: Sizes and options as `m=1,n=2`; other sizes may have any value.
    """

    gpu: str | None = None
    kernel: str | None = None
    dtype: str | None = None
    outcome: str | None = None
    run: str | None = None
    workload: str | None = None
    numbers: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", numbers_of(self.workload))

    @property
    def is_all(self) -> bool:
        """Whether no field is stated."""
        return not any((self.gpu, self.kernel, self.dtype, self.outcome, self.run, self.workload))

    @property
    def filters(self) -> Any:
        """The fields that the database filters."""
        kernel = "kernel" if self.kernel and "." in self.kernel else "operation"
        named = {"gpu": gpu_name(self.gpu), kernel: self.kernel, "dtype": self.dtype}
        return {k: v for k, v in {**named, "outcome": self.outcome, "run": self.run}.items() if v is not None}

    def find(self, store: RecordStore) -> Iterator[TuningRecord]:
        """The matching records, by time."""
        for record in store.find(**self.filters):
            # Records omit options with default values.
            numbers: dict[str, int | None] = {**record.options, **record.sizes}
            missing = self.numbers.keys() - numbers.keys()
            numbers |= {name: _defaults(record.operation).get(name) for name in missing}
            if all(numbers[name] == value for name, value in self.numbers.items()):
                yield record


#: The options of a selection by the fields of `Selection`.
_OPTIONS = {"gpu": Gpu, "kernel": Kernel, "dtype": Dtype, "outcome": Outcome, "run": Run, "workload": Workload}


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """A decorator that replaces a command's `selection` parameter by the options that state it."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [inspect.Parameter(name, keyword, default=None, annotation=hint) for name, hint in _OPTIONS.items()]
    shown: list[inspect.Parameter] = []
    for own in inspect.signature(command, eval_str=True).parameters.values():
        shown += options if own.name == "selection" else [own.replace(kind=keyword)]

    def selected(**values: Any) -> None:
        command(selection=Selection(**{name: values.pop(name) for name in _OPTIONS}), **values)

    return as_command(command, selected, shown)


@lru_cache(maxsize=64)
def _defaults(operation: str) -> Mapping[str, int]:
    """The defaults of an operation's options; empty for an unknown operation.

    Records come from anywhere, so a name that would load a file is not followed.
    """
    from constrint.kernels.registry import load_kernel

    try:
        return {} if ":" in operation else {option.name: option.default for option in load_kernel(operation).options}
    except UsageError:
        return {}


def gpu_name(name: str | None) -> str | None:
    """The name of a GPU in records; an unknown name stays as it is, since the store may know it."""
    from constrint.hwmodels.files import match_device_name

    return name and (match_device_name(name) or name)


def numbers_of(text: str | None) -> dict[str, int]:
    """`m=1,n=2` as numbers.

    Raises:
        UsageError: When the text has another form.
    """
    numbers: dict[str, int] = {}
    for part in text.split(",") if text else ():
        name, equals, value = part.partition("=")
        digits = value.strip().removeprefix("-")
        if not equals or not name.strip() or not (digits.isascii() and digits.isdecimal()) or len(digits) > 18:
            raise UsageError(f"--workload {text!r}: write sizes and options as m=4096,n=4096,transpose_b=1.")
        numbers[name.strip()] = int(value)
    return numbers


@contextmanager
def opened(place: str | None, *, is_made: bool = False) -> Iterator[RecordStore]:
    """Open a store; its warnings are printed as notes.

    Args:
        place: The named store; None for the user's own.
        is_made: Whether a missing file is made. Else nothing is written before records are added or removed, and the
            user's own store, where it is missing, reads as empty.

    Raises:
        UsageError: When the named file is missing.
    """
    from constrint.tune.store.backends import shown
    from constrint.tune.store.place import url_of
    from constrint.tune.store.store import RecordStore

    url = url_of(place)
    if place and not is_made and url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise UsageError(f"there is no store {shown(place)}; `constrint tune` and `constrint records import` make one.")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = _print_note
        with RecordStore.open(place, is_made=is_made) as store:
            yield store


def _print_note(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"note: {message}", file=sys.stderr)
