"""Every example of the README, of CONTRIBUTING and of the pages in `docs/` runs, or says why it does not.

What was not run is a skip with its reason. Commands run in this process, in a folder of the page's own that has the
repository's `examples` and `tests`. Output that a page shows is compared with what was printed.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from constrint import parse
from tests.support.needs import has_nvrtc, missing_packages
from tests.support.pages import PAGES, REASONS, ROOT, Fence, fences_of, is_shown
from tests.support.records import record, timed

FENCES = {page: list(fences_of(page)) for page in PAGES}
NOT_RUN = [fence for fences in FENCES.values() for fence in fences if fence.reason]
#: What an example imports or calls, and what it takes.
NEEDS = (
    (r"torch|flashrnn|autotune| matmul|\.py:|verify|compile", ("torch", "triton"), "[torch]"),
    (r"cuda|convolution|vector_add", ("torch", "triton", "cuda"), "[torch,cuda]"),
)
#: What is no command is at least read.
READ: dict[str, Callable[[str], object]] = {"json": json.loads, "yaml": yaml.safe_load, "constrint": parse}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a page's examples run: the files that they name are there, and a store with some records."""
    for name in ("examples", "tests", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CONSTRINT_STORE", str(tmp_path / "records.sqlite"))
    load_kernels()
    # Triton's kernels of the pages are interpreted, as there is no GPU.
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    known = set(sys.modules)
    yield tmp_path
    # A page's own files are modules of the page alone.
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(f"{tmp_path}{os.sep}"):
            del sys.modules[name]


def fill_store(folder: Path) -> None:
    """Records as the guide to records has them: two runs, and the stores of before and after."""
    from constrint.tune.store.store import RecordStore

    for name, runs in (
        ("records", ("2026-11-21-a", "2026-11-22-b")), ("before", ("a",)), ("after", ("b",)),
    ):  # fmt: skip
        with RecordStore.open(folder / f"{name}.sqlite") as store:
            store.add(
                record(number, gpu="H200-SXM", run=run, sizes={"m": m, "n": 4096, "k": 4096}, figures=timed(1e-6 * m))
                for run in runs for number, m in enumerate((16, 256))
            )  # fmt: skip


@pytest.mark.parametrize("page", [page for page in PAGES if FENCES[page]], ids=name_of)
def test_the_examples_of_a_page(
    page: Path, folder: Path, subtests: pytest.Subtests, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, object] = {"__name__": "page"}
    printed = ""
    if page.name == "records.md":
        fill_store(folder)
    for fence in FENCES[page]:
        if fence.reason:
            printed = ""
            continue
        with subtests.test(fence.place):
            need_packages(fence)
            if fence.title:
                (folder / fence.title).write_text(fence.text, encoding="utf-8")
            elif fence.language == "sh":
                printed = "\n".join(run(command, capsys) for command in fence.commands)
            elif fence.language == "python":
                run_python(fence, folder, names)
                printed = capsys.readouterr().out
            elif fence.language in READ:
                READ[fence.language](fence.text)
            elif fence.language == "text" and printed:
                missing = [line for line in fence.text.splitlines() if line.strip() and not is_shown(line, printed)]
                assert not missing, f"{fence.place} shows what was not printed:\n" + "\n".join([*missing, "", printed])


@pytest.mark.parametrize("fence", NOT_RUN, ids=lambda fence: fence.place)
def test_what_is_not_run_is_at_least_written_well(fence: Fence) -> None:
    assert fence.reason.startswith(REASONS), f"say what it needs: {fence.reason}"
    if fence.language == "python":
        compile(fence.text, fence.place, "exec")
    elif fence.language == "sh":
        for command in fence.commands:
            if command[0] == "constrint":
                has_these_options(command[1:])
    pytest.skip(f"{fence.language} not run: {fence.reason}")


def test_most_examples_are_run() -> None:
    run_here = [f for fences in FENCES.values() for f in fences if f.language in ("sh", "python") and not f.reason]
    assert len(run_here) > 1.2 * len(NOT_RUN)


def test_no_command_stands_outside_a_fence() -> None:
    for page in PAGES:
        text = re.sub(r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert not re.findall(r"^ {4,}(?:constrint|python|pip|make) .*", text, flags=re.MULTILINE), page


@cache
def load_kernels() -> None:
    """Load what Triton compiles for commands: what is defined while it interprets is interpreted from then on."""
    if not missing_packages("torch", "triton"):
        for path in sorted((ROOT / "constrint").rglob("kernel*.py")):
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def need_packages(fence: Fence) -> None:
    for pattern, packages, extra in NEEDS:
        is_used = re.search(pattern, fence.text) is not None
        if is_used and (missing_packages(*packages) or ("cuda" in packages and not has_nvrtc())):
            pytest.skip(f"needs the extra {extra}")


def run(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints on stdout; it has to end well."""
    from constrint.cli.app import main

    assert command[0] == "constrint", f"{command[0]} is not run: say why, {{.norun reason=...}}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", command)
        # As for a user: the compiler does not interpret.
        patch.delenv("TRITON_INTERPRET")
        with pytest.raises(SystemExit) as ended:
            main()
    out, err = capsys.readouterr()
    assert not ended.value.code, err
    assert out.strip() or {"-o", "--out", "--output"} & set(command), f"{' '.join(command)} prints nothing"
    return out + err


def run_python(fence: Fence, folder: Path, names: dict[str, object]) -> None:
    """Run an example from a file, because Triton reads a kernel's source; lines are numbered as on the page."""
    file = folder / f"page_{fence.line}.py"
    text = fence.text.replace('device="cuda"', 'device="cpu"')
    file.write_text("\n" * (fence.line - 1) + text, encoding="utf-8")
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)  # noqa: S102 - our own text


def has_these_options(arguments: list[str]) -> None:
    """A command that is not run has a name and options that there are."""
    import typer

    from constrint.cli.app import application

    words = [word for word in arguments if not word.startswith("-")]
    command = typer.main.get_command(application([] if arguments[0].startswith("-") else arguments)[0])
    for word in words[:2]:
        command = getattr(command, "commands", {}).get(word, command)
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    used = {word.split("=")[0] for word in arguments if word.startswith("--")}
    assert used <= known | {"--help"}, f"{' '.join(arguments)}: no option {', '.join(sorted(used - known))}"
