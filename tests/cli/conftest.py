"""Calls the command line in this process: exit code, stdout and stderr of one call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import msgspec
import pytest

from constrint.cli import limits
from constrint.cli.app import main
from constrint.hwmodels import GpuModel

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True, scope="session")
def _heads_once() -> Iterator[None]:
    """The largest heads of a GPU are found once in a process: `limits` solves hundreds of spaces for them."""
    known: dict[tuple[bytes, str, str], int | None] = {}
    search = limits._largest_head_dim

    def largest(gpu: GpuModel, operation: str, dtype: str) -> int | None:
        key = msgspec.json.encode(gpu), operation, dtype
        if key not in known:
            known[key] = search(gpu, operation, dtype)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "_largest_head_dim", largest)
        yield


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
