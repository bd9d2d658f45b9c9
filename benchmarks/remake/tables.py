"""The shipped tables of measurements: where they are, whether they are stale, and archives of remade ones.

A table has a name that no move of a file changes: `winners`, `library`, `corrections-<group of types>`,
`layers-<implementation>`. `evidence.json` beside this file says of each table what it was measured on and of which
device code. No torch.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.table import environment
from constrint.errors import ConstrintError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.correction import GROUPS as GROUP_OF
from constrint.kernels.gemm.correction import path_of as corrections_path
from constrint.kernels.gemm.library.cost import MEASURED
from constrint.kernels.gemm.library.cost import path_of as library_path
from constrint.kernels.registry import load_kernel, spec_or_none
from constrint.kernels.rnn.measured import table_of
from constrint.select.fingerprint import source_hash
from constrint.select.winners import SHIPPED, read_tuned, tuned_path

EVIDENCE = Path(__file__).with_name("evidence.json")
RESULTS = Path(__file__).parents[1] / "results"
SUMMARY = "summary.json"
GROUPS = tuple(dict.fromkeys(GROUP_OF.values()))
IMPLEMENTATIONS = ("cudnn", "cuda", "wgmma", "triton", "alternating")
#: Implementations that are a library's: their times depend on its version, and on no code of ours.
LIBRARIES = ("gemm.library", "lstm.cudnn")
#: Stands for the hash of a kernel that is no longer there: no entry of it holds.
GONE = "gone"
#: A larger file in an archive is no table.
MAX_BYTES = 64 << 20


class State(NamedTuple):
    """State of the entries of one kernel in a table.

    Args:
        table: Name of the table and the GPU.
        kernel: Full name of the implementation.
        number: Entries; 0 where the table is one fit.
        stale: Entries whose device code has changed; -1 where nothing says of which code they are.
    """

    table: str
    kernel: str
    number: int
    stale: int


def slug(gpu: str) -> str:
    """The part of a file's name that stands for a GPU: `h100-sxm`."""
    return gpu.lower()


def names() -> tuple[str, ...]:
    """The names of all tables of a GPU."""
    layers = (f"layers-{implementation}" for implementation in IMPLEMENTATIONS)
    return "winners", "library", *(f"corrections-{group}" for group in GROUPS), *layers


def path_of(name: str, gpu: str) -> Path:
    """The file of a table, or of the recorded candidates that corrections are fitted to.

    Raises:
        UsageError: When there is no such table.
    """
    part, _, rest = name.partition("-")
    if name == "winners":
        return tuned_path(SHIPPED, gpu)
    if name == "library":
        return library_path(gpu)
    if part == "corrections" and rest in GROUPS:
        return corrections_path(gpu, rest)
    if part == "layers" and rest in IMPLEMENTATIONS:
        return table_of(rest, gpu)
    if part == "candidates" and rest in GROUPS:
        return results_of(gpu) / f"gemm_candidates_remade_{rest.replace('-', '_')}.csv"
    raise UsageError(f"there is no table {name!r}; tables are {', '.join(names())}")


def results_of(gpu: str) -> Path:
    """The folder with what was recorded on a GPU: `benchmarks/results/h200`."""
    return RESULTS / slug(gpu).partition("-")[0]


def kernels_of(name: str, gpu: str) -> list[str]:
    """The kernels of which a table has measurements."""
    part, _, rest = name.partition("-")
    if part == "winners":
        return sorted({entry.kernel for entry in read_tuned(path_of(name, gpu)).entries})
    if part == "corrections":
        return sorted(json.loads(path_of(name, gpu).read_bytes())["kernels"])
    return ["gemm.library" if part == "library" else f"lstm.{rest}"]


# Staleness.


def hashes_of(kernels: Iterable[str]) -> dict[str, str]:
    """Hashes of the device code of kernels, as they are now; empty for a library, `GONE` for a removed kernel."""
    return {kernel: "" if kernel in LIBRARIES else _hash_of(kernel) for kernel in kernels}


def code_stamp() -> str:
    """A short hash of the device code of all kernels that tables are measured of."""
    specs = [spec for operation in ("gemm", "lstm") for spec in load_kernel(operation).implementations]
    text = repr(sorted((spec.full_name, source_hash(spec)) for spec in specs))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _hash_of(kernel: str) -> str:
    spec = spec_or_none(kernel)
    return GONE if spec is None else source_hash(spec)


def evidence() -> dict[str, Any]:
    """Return what each table was measured on, by `<gpu>/<table>`."""
    return json.loads(EVIDENCE.read_bytes()) if EVIDENCE.is_file() else {}


def states() -> Iterator[State]:
    """The state of every kernel in every shipped table."""
    recorded = evidence()
    for model in gpus():
        for name in names():
            if not path_of(name, model).is_file():
                continue
            if name == "winners":
                yield from _winners(model)
                continue
            of_table = recorded.get(f"{slug(model)}/{name}", {}).get("kernels", {})
            for kernel, now in hashes_of(kernels_of(name, model)).items():
                before = of_table.get(kernel)
                stale = -1 if before is None and now else int(bool(now) and before != now)
                yield State(f"{name} {model}", kernel, 0, stale)


def gpus() -> list[str]:
    """The GPUs that have tables."""
    tuned = {file.stem.removeprefix("tuned-") for file in SHIPPED.glob("tuned-*.json")}
    return [load_gpu(gpu).name for gpu in sorted(tuned | {file.stem for file in MEASURED.glob("*.csv")})]


def _winners(gpu: str) -> Iterator[State]:
    entries = read_tuned(path_of("winners", gpu)).entries
    now = hashes_of({entry.kernel for entry in entries})
    stale = Counter(e.kernel for e in entries if now[e.kernel] and e.source_hash != now[e.kernel])
    for kernel, number in sorted(Counter(entry.kernel for entry in entries).items()):
        yield State(f"winners {gpu}", kernel, number, stale[kernel])


def print_check() -> int:
    """Say of every kernel in every table whether it is stale; 1 if any is."""
    is_any = False
    for state in states():
        entries = f"{state.stale} of {state.number} entries" if state.number else "the table"
        if state.stale:
            is_any = True
            why = "of unknown device code" if state.stale < 0 else f"stale: {entries}, the device code has changed"
        else:
            why = f"fresh: {state.number} entries" if state.number else "fresh"
        print(f"{state.table:36} {state.kernel:24} {why}")
    print("`python -m benchmarks.remake` measures anew on such a GPU." if is_any else "Every table is fresh.")
    return int(is_any)


# Archives.


def archive(stage: Path, gpu: str, spent: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """Write what was finished as one file, `remade-<gpu>.zip`, with what it was measured on."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"remade-{slug(gpu)}.zip"
    files = sorted(file for file in stage.iterdir() if file.is_file()) if stage.is_dir() else []
    facts = {"gpu": gpu, "made": datetime.now(timezone.utc).isoformat(timespec="seconds"), "on": environment()}
    part = path.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(SUMMARY, json.dumps({**facts, "parts": list(spent)}, indent=1))
        for file in files:
            packed.write(file, file.name)
    part.replace(path)
    return path


def take(folder: Path) -> list[Path]:
    """Put the tables of a folder's archives into the package, and note what they were measured on.

    Raises:
        UsageError: When there is no archive, or it has a file that is no table.
    """
    archives = sorted(folder.glob("remade-*.zip"))
    if not archives:
        raise UsageError(f"{folder} has no archive remade-<gpu>.zip: `python -m benchmarks.remake --into` writes one.")
    return [path for each in archives for path in _taken(each)]


def _taken(file: Path) -> list[Path]:
    written, measured = [], []
    with zipfile.ZipFile(file) as packed:
        summary = _summary(packed)
        gpu = load_gpu(str(summary["gpu"])).name
        for info in packed.infolist():
            if info.filename == SUMMARY:
                continue
            if info.file_size > MAX_BYTES or not re.fullmatch(r"[a-z0-9-]+\.(csv|json)", info.filename):
                raise UsageError(f"{file}: {info.filename} is no table")
            name = info.filename.rpartition(".")[0]
            path = path_of(name, gpu)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(packed.read(info))
            written.append(path)
            measured.append(name)
    problem = read_tuned(path_of("winners", gpu)).problem
    if problem:
        raise ConstrintError(problem)
    for name in measured:
        if name in names() and name != "winners":
            note(gpu, name, {"made": summary["made"], "on": summary["on"]})
    return written


def note(gpu: str, name: str, facts: Mapping[str, Any] | None = None) -> None:
    """Record what a table was measured on, and that it is of the device code of now."""
    recorded, key = evidence(), f"{slug(gpu)}/{name}"
    recorded[key] = {**recorded.get(key, {}), **(facts or {}), "kernels": hashes_of(kernels_of(name, gpu))}
    recorded[key].pop("same_code_as", None)
    _record(recorded)


def carry(gpu: str, name: str, kernel: str, code: str, note: str) -> None:
    """Record that what a table has of a kernel holds for device code with this hash, too.

    Args:
        gpu, name: The table.
        kernel: The kernel.
        code: The hash.
        note: What it was measured with, and how the code was compared.
    """
    recorded = evidence()
    of_table = recorded.setdefault(f"{slug(gpu)}/{name}", {})
    of_table.setdefault("kernels", {})[kernel] = code
    of_table.setdefault("same_code_as", {}).setdefault(kernel, []).append(note)
    _record(recorded)


def _record(recorded: Mapping[str, Any]) -> None:
    EVIDENCE.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def unfitted(folder: Path) -> Iterator[tuple[str, str]]:
    """GPUs and groups of types whose archives have candidates, and no corrections that were fitted to them."""
    for file in sorted(folder.glob("remade-*.zip")):
        with zipfile.ZipFile(file) as packed:
            gpu, found = load_gpu(str(_summary(packed)["gpu"])).name, packed.namelist()
        for group in GROUPS:
            if f"candidates-{group}.csv" in found and f"corrections-{group}.json" not in found:
                yield gpu, group


def _summary(packed: zipfile.ZipFile) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(packed.read(SUMMARY))
    return found
