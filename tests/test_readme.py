"""Every example of the README runs: the `constrint` commands and the Python blocks. Documents link to what exists."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text()
COMMANDS = [
    line.split("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)
    for line in block.splitlines()
    if line.startswith("constrint ")
]
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_readme_has_examples() -> None:
    assert len(COMMANDS) >= 7
    assert len(SNIPPETS) >= 2
    assert "make demo" in TEXT
    assert "make test" in TEXT


@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from constrint.cli.app import main

    if (" verify " in command or ".py:" in command) and importlib.util.find_spec("triton") is None:
        pytest.skip("needs the extra [torch]: triton is not installed")
    if command.startswith("constrint tune"):
        pytest.skip("needs a GPU, and minutes: tests/tune runs the command on other kernels")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert not ended.value.code, printed.err
    assert len(printed.out) > 20


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_python_runs(snippet: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(snippet, "README.md", "exec"), {})  # noqa: S102 - our own text
    assert capsys.readouterr().out.strip()


DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "benchmarks/results/**/*.md", "constrint/hwmodels/data/*.md")
    for path in ROOT.glob(pattern)
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`(?!\])", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert (document.parent / target).exists(), target
