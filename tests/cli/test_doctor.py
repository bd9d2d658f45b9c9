"""`constrint doctor`: what is there, what is broken, and what helps."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from constrint import plugins
from constrint.cli import doctor
from tests.cli.conftest import Call


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the caches, the store, the user's models and the working folder."""
    for name, folder in {"CONSTRINT_CACHE": "cache", "CONSTRINT_GPU_PATH": "gpus"}.items():
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("CONSTRINT_STORE", str(tmp_path / "records.sqlite"))
    monkeypatch.setattr(plugins, "offered", lambda group: [])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def findings(run: Call) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code and findings by name."""
    code, out, _ = run("doctor", "--json")
    return code, {f"{one['part']}: {one['name']}": one for one in json.loads(out)["findings"]}


def test_a_sound_installation_has_nothing_broken(run: Call, machine: Path) -> None:
    code, found = findings(run)
    assert (code, {name for name, one in found.items() if one["state"] == "broken"}) == (0, set())
    assert found["packages: ortools"]["detail"].startswith(metadata.version("ortools"))
    assert found["tables: tuned-h200-sxm.json"]["state"] == "ok"
    assert str(machine) in found["store: records"]["detail"]
    assert run("doctor")[1].count("\n") > len(found)


def test_each_broken_part_is_named_with_its_way_out(run: Call, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("no such\x1b[31m symbol")

    point = SimpleNamespace(name="bad", group="constrint.kernels", value="x:y", load=fails, dist=None)
    monkeypatch.setattr(plugins, "offered", lambda group: [point] if group == "constrint.kernels" else [])
    monkeypatch.setattr(doctor, "PACKAGES", (("no-such-package", "no_such_package", "torch", "nothing"),))
    (machine / "constrint.toml").write_text("gpu = 3")
    (machine / "gpus" / "mine.yaml").write_text("schema: 3")
    (machine / "records.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    (machine / "cache" / "tuned-h200-sxm.json").write_text("{")
    code, found = findings(run)
    assert code == 1
    broken = {name for name, one in found.items() if one["state"] == "broken"}
    assert broken == {
        "own GPUs: mine.yaml",
        "plug-ins: kernel bad",
        "settings: constrint.toml",
        "store: records",
        "tables: tuned-h200-sxm.json",
    }
    assert "RuntimeError: no such" in found["plug-ins: kernel bad"]["detail"]
    assert "\x1b" not in found["plug-ins: kernel bad"]["detail"]
    assert found["packages: no-such-package"]["remedy"] == "pip install 'constrint[torch]'"


def test_a_check_that_fails_is_a_finding(run: Call, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def _clocks() -> Any:
        yield doctor.Finding("clocks", "one", doctor.OK)
        raise OSError("no clock")

    monkeypatch.setattr(doctor, "CHECKS", (_clocks,))
    code, found = findings(run)
    assert code == 1
    assert found["clocks: this check"]["detail"] == "OSError: no clock"
