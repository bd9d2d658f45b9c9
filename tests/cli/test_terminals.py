"""Every table on terminals of 80, 100 and 120 columns: nothing is cut, every parameter that varies is seen."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from constrint.answers.layout import lay_out
from constrint.answers.table import Page, Table, is_missing
from constrint.answers.terminal import command_text, say, width_of
from constrint.answers.trial import TUNED
from constrint.cli.output import Output
from constrint.cli.propose import COLUMNS as CANDIDATES
from constrint.kernels.registry import list_kernels
from constrint.select.candidate import CompiledKernel
from constrint.tune.store.store import RecordStore
from tests.cli.conftest import Call
from tests.support.records import record, timed
from tests.support.terminal import shown_by, terminal
from tests.tune.store.test_proposals import proposal

WIDTHS = (80, 100, 120)
GPUS = ("h200", "mi300x", "7900xtx", "a100", "b200", "rtx-4090")
TILES = str(Path(__file__).parents[2] / "examples" / "tiles.constrint")
COMMANDS = {
    "gpus": ("gpus",),
    "gpus wide": ("gpus", "--wide", "--legend"),
    "gpu": ("gpu", "mi300x"),
    "occupancy": ("occupancy", "--gpu", "h200", "--threads", 1025, "--registers", 32),
    "explain": ("explain", "--gpu", "mi300x"),
    "explain several": ("explain", "--gpu", "h200", "--kernel", "lstm", "--set", "num_warps=4"),
    "why-not": ("why-not", "--problem", TILES, "tile_m=256", "tile_n=256", "tile_k=48", "stages=4"),
    "count": ("count", "--gpu", "h200"),
    "sample": ("sample", "--gpu", "h200", "--seed", 1),
    "solve wide": ("solve", "--gpu", "h200", "--kernel", "gru", "--wide", "--legend"),
    "solve problem": ("solve", "--problem", TILES),
    "verify help": ("verify", "--help"),
}


def too_long(text: str, columns: int) -> list[str]:
    return [line for line in text.splitlines() if width_of(line) > columns]


def shown_in(page: Page, columns: int, output: Output | None = None) -> str:
    with terminal(columns) as screen:
        (output or Output()).show(page)
    return screen.text


def pages_of(run: Call, *arguments: object) -> list[Page]:
    """The pages that a command shows, which are not printed."""
    pages: list[Page] = []
    with mock.patch.object(Output, "show", lambda _, page: pages.append(page)):
        run(*arguments)
    return pages


def check_parameters(table: Table, text: str, columns: int) -> None:
    """Each parameter that varies has its title above the rows and its values in them."""
    layout = lay_out(table, columns)
    assert not layout.as_pairs
    assert not [column.key for column in layout.hidden if column.is_shared or column.joined]
    head, _, body = text.partition("\n─")
    head, body = head.rpartition("\n\n")[2], body.partition("\n\n")[0].partition("\n")[2]
    lines = body.split("\n")
    height = len(lines) // len(table.rows)
    assert height * len(table.rows) == len(lines)
    words = [" ".join(lines[at : at + height]).split() for at in range(0, len(lines), height)]
    for column in table.columns:
        cells = table.cells(column)
        if len({column.text(cell) for cell in cells if not is_missing(cell)}) < 2 or not column.is_shared:
            continue
        assert all(part in head for part in column.name.replace("_", "_ ").split()), (column.key, head)
        assert all(column.text(cell) in row for cell, row in zip(cells, words, strict=True)), (column.key, text)


@pytest.mark.parametrize("gpu", GPUS)
def test_rankings_of_every_kernel_fit(run: Call, gpu: str) -> None:
    """What fits 80 columns fits more of them, so that wider ones are looked at for the kernels with most columns."""
    num_shown = 0
    for kernel in list_kernels():
        for page in pages_of(run, "solve", "--gpu", gpu, "--kernel", kernel):
            for columns in WIDTHS:
                text = shown_in(page, columns)
                assert "…" not in text
                assert too_long(text, columns) == []
                check_parameters(page.table, text, columns)
                num_shown += 1
    assert num_shown >= len(WIDTHS), "a GPU that takes no kernel shows nothing"


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_commands_fit(arguments: tuple[object, ...]) -> None:
    for columns in WIDTHS:
        code, text = shown_by(*arguments, columns=columns)
        assert code == (arguments[0] == "occupancy")
        assert text.strip()
        assert "…" not in text
        assert too_long(text, columns) == []


def test_limits_fit_and_are_numbers_in_the_unit_beside_them(run: Call) -> None:
    (page,) = pages_of(run, "limits", "--gpu", "7900xtx")
    for columns in WIDTHS:
        text = shown_in(page, columns)
        assert too_long(text, columns) == []
        assert all(page.table.columns[2].text(row[2]) in text for row in page.table.rows)
    rows = {row["key"]: row for row in csv.DictReader(shown_in(page, 80, Output("csv")).splitlines())}
    memory = rows["dram_size_bytes"]
    assert (memory["section"], memory["value"], memory["unit"]) == ("device", "24000000000", "bytes")


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = tmp_path / "records.sqlite"
    config = {f"a_parameter_{place}": 2**place for place in range(9)}
    with RecordStore.open(path) as store:
        store.add(
            record(at, gpu=gpu, run=f"a-run-of-a-long-name-{gpu}", config=config | {"at": at}, sizes={"m": m},
                   figures=timed(1e-6 * m * (1 + at)))
            for gpu in ("H200-SXM", "RX-7900-XTX") for m in (16, 4096) for at in range(3)
        )  # fmt: skip
        store.add_proposals([proposal(at, because="it is said to be fast " * at, config=config) for at in range(4)])
    return str(path)


@pytest.mark.parametrize(
    "command",
    ["list", "list --all --wide", "proposals", "proposals --wide", "diff a-run-of-a-long-name-H200-SXM {} --wide"],
)
def test_records_fit(place: str, command: str) -> None:
    words = command.format("a-run-of-a-long-name-RX-7900-XTX").split()
    for columns in WIDTHS:
        code, text = shown_by("records", *words, "--store", place, columns=columns)
        assert code == 0
        assert too_long(text, columns) == []
        assert "…" not in text
        if words[0] == "list":
            assert "RX-7900-XTX" in text
            assert text.count("a_parameter_8=256") >= 1


def test_what_was_compiled_fits(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify`, with a compiler that says of every other kernel that it spills."""

    def compiled(asked: Any, **_: Any) -> list[CompiledKernel | str]:
        known = CompiledKernel("sm_90a", "3.9.0", 229_392, 168, 0, 0, "wgmma.mma_async m64n256k16")
        return [known if place % 2 else "it does not compile: registers" for place, _ in enumerate(asked)]

    monkeypatch.setattr("constrint.cli.verify.compile_shown", compiled)
    for kernel in ("gemm", "lstm-backward"):
        (page,) = pages_of(run, "verify", "--gpu", "h200", "--kernel", kernel)
        for columns in WIDTHS:
            text = shown_in(page, columns)
            assert too_long(text, columns) == []
            check_parameters(page.table, text, columns)


def test_candidates_and_winners_fit() -> None:
    config = " ".join(f"a_parameter_{place}={2**place}" for place in range(9))
    proposed = ["gemm 4096x4096x4096 bf16", 1, "gemm.descriptor", "some-long-model-name", *["yes"] * 4, 1e-4, config]
    tuned = ["gemm 4096x4096x4096 bf16 transpose_b", "gemm.descriptor", 1e-4, 1.05, 16, 2, config]
    for table in (Table(CANDIDATES, [proposed, [*proposed[:7], "NO", 2e-4, config]]), Table(TUNED, [tuned, tuned])):
        for columns in (40, *WIDTHS):
            text = shown_in(Page(table), columns)
            assert too_long(text, columns) == []
            # Its config may be one of the constants, and broken over lines like any text.
            assert "a_parameter_8=256" in text.replace("\n", "")


def test_a_command_that_comes_next_can_be_pasted_from_a_narrow_terminal(tmp_path: Path) -> None:
    asked = ["--gpu", "h200", "--kernel", "lstm", "--head-dim", "128", "--dtype", "fp16", "--where", "num_warps <= 4"]
    code, text = shown_by("solve", *asked, columns=80)
    assert code == 0
    pasted = text[text.index("constrint verify") :].replace("\\\n", " ")
    assert shlex.split(pasted) == ["constrint", "verify", *asked]
    with terminal(40) as screen:
        say(command_text(["constrint", "solve", "--where", "a <= 1 or b == 2", "--set", "x=1"], "to see: "))
    assert too_long(screen.text, 40) == []
    assert screen.text.startswith("to see:\nconstrint solve")
    words = shlex.split(screen.text.partition("\n")[2].replace("\\\n", " "))
    assert words == ["constrint", "solve", "--where", "a <= 1 or b == 2", "--set", "x=1"]


def test_a_gpu_of_a_file_stays_a_path_in_what_comes_next(tmp_path: Path, run: Call) -> None:
    from constrint.hwmodels import load

    path = tmp_path / "mine.yaml"
    path.write_text((Path(load.__file__).parent / "data" / "nvidia" / "t4.yaml").read_text())
    assert run("limits", "--gpu", path)[1].splitlines()[-1] == f"sources: constrint gpu {path}"
    (page,) = pages_of(run, "solve", "--gpu", path, "--top", 3)
    assert page.hints[0][1] == ["constrint", "verify", "--gpu", str(path), "--top", "3"]
