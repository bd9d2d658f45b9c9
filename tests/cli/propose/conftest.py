"""The command on the tests' own kernel, alone and with a model that answers by a script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from constrint.tune.search.llm.endpoint import KEY_VARIABLE
from tests.support.model_server import ScriptedServer, Turn, serving
from tests.support.proposing import KEY, Call
from tests.tune import tiny


@pytest.fixture
def propose(run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command for the tests' own kernel, with a store of its own."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    kernel = f"{tiny.__file__}:SPEC"
    store = tmp_path / "records.sqlite"
    return lambda *more: run("propose", "--gpu", "h200", "--kernel", kernel, "--store", store, *more)


@pytest.fixture
def asked(propose: Call) -> Callable[..., tuple[int, str, str, ScriptedServer]]:
    """The same with a model that answers by a script, modelled."""

    def call(*turns: Turn, more: tuple[object, ...] = ()) -> tuple[int, str, str, ScriptedServer]:
        with serving(*turns) as server:
            code, out, err = propose("--modelled", "--llm", server.url, "--model", "scripted", *more)
        assert KEY not in out + err
        return code, out, err, server

    return call
