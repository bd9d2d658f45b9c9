"""Calls the command line in this process: exit code, stdout and stderr of one call."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from constrint.cli.app import main

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Takes the arguments one by one; returns (exit code, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["constrint", *map(str, arguments)])
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        out, err = capsys.readouterr()
        return int(str(code or 0)), out, err

    return call
