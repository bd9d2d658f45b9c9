"""`constrint doctor`: the parts of this installation, what is missing, stale or broken, and the way out."""

from __future__ import annotations

import os
import platform
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata, util
from typing import Any, NamedTuple

import typer

from constrint import cache, plugins
from constrint.answers.table import EXTRA, Column, Page, Table, counted
from constrint.cli.output import Output, printing
from constrint.cli.settings import apply_store, settings
from constrint.errors import ConstrintError, printed_line

SCHEMA = "constrint.doctor/1"
#: States of a part. Only the last one makes the command end with 1.
OK, ABSENT, STALE, BROKEN = "ok", "absent", "stale", "broken"
#: Optional packages: the module, the extra that installs it, and what it is for.
PACKAGES = (
    ("torch", "torch", "torch", "layers, products, tuning on a GPU"),
    ("triton", "triton", "torch", "compiling and launching Triton kernels"),
    ("cuda-bindings", "cuda.bindings", "cuda", "compiling CUDA C++ kernels"),
    ("nvidia-cuda-nvrtc", "nvidia", "cuda", "compiling CUDA C++ kernels without a toolkit"),
    ("ortools", "ortools", "solvers", "CP-SAT, for scheduling and other hard problems"),
    ("python-constraint2", "constraint", "solvers", "a second opinion: --backend python-constraint"),
    ("ray", "ray", "ray", "tuning on several machines"),
    ("optuna", "optuna", "optuna", "constrint tune --search optuna"),
    ("openai", "openai", "llm", "proposals of a language model"),
    ("plotly", "plotly", "report", "constrint report"),
    ("jinja2", "jinja2", "report", "constrint report"),
    ("psycopg", "psycopg", "postgres", "records in PostgreSQL"),
)
#: Programs: the name, and what it is for.
PROGRAMS = (
    ("bwrap", "the sandbox of `constrint propose` (package bubblewrap)"),
    ("c++", "compiling the solver's core, where no wheel fits"),
)
#: Groups of entry points, and what they offer.
GROUPS = {"constrint.kernels": "kernel", "constrint.searches": "search", "constrint.engines": "engine"}


class Finding(NamedTuple):
    """One part.

    Args:
        part: The area: "packages".
        name: The thing: "torch".
        state: `OK`, `ABSENT`, `STALE` or `BROKEN`.
        detail: Version, place, or reason.
        remedy: What to do; empty where nothing need be done.
    """

    part: str
    name: str
    state: str
    detail: str = ""
    remedy: str = ""


COLUMNS = (
    Column("part", is_text=True, importance=100),
    Column("name", is_text=True, importance=100, wraps=True),
    Column("state", is_text=True, importance=100),
    Column("detail", "what it is", is_text=True, importance=90, wraps=True),
    Column("remedy", "what helps", is_text=True, importance=EXTRA, wraps=True),
)


@printing
def doctor(*, output: Output) -> None:
    """Say which tools, GPUs, plug-ins, caches and tables there are, what is stale or broken, and the way out.

    Plug-ins are loaded, which runs their code. The exit code is 1 if anything is broken.
    """
    findings = [finding for check in CHECKS for finding in _checked(check)]
    counts = Counter(finding.state for finding in findings)
    summary = ", ".join(f"{counts[state]} {state}" for state in (OK, ABSENT, STALE, BROKEN) if counts[state])

    def document(_: object) -> dict[str, Any]:
        return {"schema": SCHEMA, "findings": [finding._asdict() for finding in findings]}

    rows = [[cell or None for cell in finding] for finding in findings]
    remedies = [f"{finding.name}: {finding.remedy}" for finding in findings if finding.remedy]
    output.show(Page(Table(COLUMNS, rows), document, below=[summary, *remedies]))
    if counts[BROKEN]:
        raise typer.Exit(1)


def _checked(check: Callable[[], Iterator[Finding]]) -> Sequence[Finding]:
    """The findings of a check; one that fails is a finding itself."""
    found: list[Finding] = []
    try:
        found.extend(check())
    except Exception as error:  # noqa: BLE001 - whatever is broken here is what was asked for
        reason = str(error) if isinstance(error, ConstrintError) else f"{type(error).__name__}: {error}"
        found.append(Finding(check.__name__.strip("_"), "this check", BROKEN, printed_line(reason)))
    return found


def _package() -> Iterator[Finding]:
    """The package itself."""
    from constrint import __version__
    from constrint.core import compiled

    python = f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield Finding("package", "constrint", OK, f"{__version__} on {python}")
    if compiled is None:
        remedy = "install a wheel of this version for this system, or a C++ compiler, and install again"
        yield Finding("package", "compiled core", ABSENT, "numpy solves instead, more slowly", remedy)
    else:
        yield Finding("package", "compiled core", OK)


def _packages() -> Iterator[Finding]:
    """Optional packages, by their metadata: none is imported."""
    for name, module, extra, purpose in PACKAGES:
        try:
            yield Finding("packages", name, OK, f"{metadata.version(name)}, for {purpose}")
        except metadata.PackageNotFoundError:
            if _has_module(module):
                yield Finding("packages", name, OK, f"without metadata, for {purpose}")
            else:
                yield Finding("packages", name, ABSENT, f"for {purpose}", f"pip install 'constrint[{extra}]'")


def _has_module(module: str) -> bool:
    try:
        return "." not in module and module != "nvidia" and util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _programs() -> Iterator[Finding]:
    """Programs of the system."""
    for name, purpose in PROGRAMS:
        path = shutil.which(name)
        yield Finding("programs", name, ABSENT if path is None else OK, path or f"for {purpose}")


def _gpus() -> Iterator[Finding]:
    """GPUs of this machine."""
    from constrint.hwmodels import detect

    try:
        devices = detect()
    except ConstrintError as error:
        remedy = "none is needed to solve, explain and verify; name one with --gpu"
        yield Finding("GPUs", "this machine", ABSENT, str(error), remedy)
        return
    for device in devices:
        name = f"device {device.index}"
        if not device.model:
            yield Finding("GPUs", name, ABSENT, f"{device.name}: no model", "constrint gpu --detect --write")
        elif device.disagreements:
            yield Finding("GPUs", name, STALE, f"{device.model}: {'; '.join(device.disagreements)}")
        else:
            yield Finding("GPUs", name, OK, f"{device.name}: the model {device.model}")


def _own_models() -> Iterator[Finding]:
    """The user's own models of GPUs."""
    from constrint.hwmodels.files import user_folders
    from constrint.hwmodels.load import check_file

    for folder in user_folders():
        for path in sorted(folder.glob("*.yaml")) if folder.is_dir() else ():
            model, broken = check_file(path)
            if broken or model is None:
                yield Finding("own GPUs", path.name, BROKEN, broken[0], f"constrint gpu --check {path}")
            else:
                yield Finding("own GPUs", path.name, OK, model.name)


def _plug_ins() -> Iterator[Finding]:
    """Entry points of installed packages; each is loaded."""
    for group, noun in GROUPS.items():
        for point in plugins.offered(group):
            package = getattr(point.dist, "name", "") if point.dist is not None else ""
            name = f"{noun} {point.name}"
            try:
                plugins.load(point)
            except ConstrintError as error:
                yield Finding("plug-ins", name, BROKEN, str(error), f"repair or uninstall {package or 'its package'}")
            else:
                yield Finding("plug-ins", name, OK, f"of {package}" if package else "")


def _settings() -> Iterator[Finding]:
    """The user's settings that hold in this folder."""
    try:
        found = settings()
    except ConstrintError as error:
        yield Finding("settings", "constrint.toml", BROKEN, str(error), "mend or remove the file")
        return
    apply_store(found)
    for name, values in found.values.items():
        yield Finding("settings", name, OK, f"{', '.join(values)} ({found.sources[name]})")


def _cache() -> Iterator[Finding]:
    """The folder of decisions, tables and compiled kernels, and whether it can be written to."""
    folder = cache.folder()
    if folder is None:
        remedy = "unset CONSTRINT_CACHE, or name a folder that you alone may write to"
        yield Finding("cache", "decisions and plans", ABSENT, "nothing is kept", remedy)
        return
    place = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
    if os.access(place, os.W_OK):
        yield Finding("cache", "decisions and plans", OK, str(folder))
    else:
        yield Finding("cache", "decisions and plans", BROKEN, f"{folder} cannot be written to", "set CONSTRINT_CACHE")


def _store() -> Iterator[Finding]:
    """The store of records."""
    from constrint.tune.store.store import RecordStore

    remedy = "`constrint records` says more; name another store with CONSTRINT_STORE"
    try:
        with warnings.catch_warnings(), RecordStore.open(is_made=False) as store:
            warnings.simplefilter("ignore")
            records, unreadable = counted(store.count(), "record"), len(store.unreadable_ids())
            place = store.place
    except ConstrintError as error:
        yield Finding("store", "records", BROKEN, str(error), remedy)
        return
    if unreadable:
        yield Finding("store", "records", BROKEN, f"{unreadable} cannot be read, {records}, {place}", remedy)
    else:
        yield Finding("store", "records", OK, f"{records}, {place}")


def _tables() -> Iterator[Finding]:
    """Tables of measured winners: the shipped ones and the user's own."""
    from constrint.kernels.registry import code_of
    from constrint.select.winners import SHIPPED, read_tuned

    for folder, whose in ((SHIPPED, "shipped"), (cache.user_folder(), "own")):
        for path in sorted(folder.glob("tuned-*.json")) if folder is not None and folder.is_dir() else ():
            table = read_tuned(path)
            if table.problem:
                yield Finding("tables", path.name, BROKEN, table.problem)
                continue
            stale = sum(entry.source_hash != code_of(entry.kernel) for entry in table.entries)
            detail = f"{whose}, {counted(len(table.entries), 'winner')} for {table.gpu}"
            if stale:
                remedy = f"on a {table.gpu}: constrint tune; until then models choose"
                yield Finding("tables", path.name, STALE, f"{detail}, {stale} of other device code", remedy)
            else:
                yield Finding("tables", path.name, OK, detail)


#: All checks, in the order of the table. Each yields findings; one that raises becomes a finding.
CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _package,
    _packages,
    _programs,
    _gpus,
    _own_models,
    _plug_ins,
    _settings,
    _cache,
    _store,
    _tables,
)
