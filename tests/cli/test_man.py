"""The manual page: every command and option of the help, and nothing that `man` would take for a request."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from constrint.cli.app import COMMANDS
from tests.cli.conftest import Call


def test_the_page_has_every_command_and_its_options(run: Call) -> None:
    code, page, err = run("docs", "--man")
    assert (code, err) == (0, "")
    sections = dict(re.findall(r"^\.SS constrint (\S+)$(.*?)(?=^\.S[SH] )", page, re.M | re.S))
    assert {name.replace("\\-", "-") for name in sections} >= set(COMMANDS)
    for option in ("max\\-seconds", "top", "export", "where"):
        assert f".B \\-\\-{option}" in sections["solve"]
    assert "constrint solve \\-\\-gpu mi300x" in sections["solve"]
    assert "constrint records " in page  # a group of commands has each of them


def test_every_line_is_text_or_a_known_request(run: Call) -> None:
    _, page, _ = run("docs", "--man")
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".I", ".RS", ".RE", ".nf", ".fi"}
    assert run("docs", "language", "--man")[0] == 2


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_takes_it_without_a_warning(run: Call) -> None:
    _, page, _ = run("docs", "--man")
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-z"], input=page, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
