"""`import constrint` and `constrint solve` stay light: no torch, no triton, nothing heavy before it is used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.clock import PATIENCE_S


def modules_after(code: str) -> set[str]:
    """Top-level modules in sys.modules after running `code` in a fresh interpreter."""
    script = f"{code}\nimport json, sys\nprint()\nprint(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.strip().splitlines()[-1]))


def test_import_constrint_loads_nothing_heavy() -> None:
    loaded = modules_after("import constrint")
    assert not loaded & {"torch", "triton", "numpy", "ortools", "typer", "rich", "yaml", "msgspec"}


@pytest.mark.parametrize("arguments", [["solve", "--gpu", "mi300x"], ["explain", "--gpu", "h200"]])
def test_commands_load_neither_torch_nor_triton(arguments: list[str]) -> None:
    code = (
        f"import sys\nsys.argv = ['constrint'] + {arguments!r}\n"
        "from constrint.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as e:\n    assert not e.code, e.code\n"
        "assert not [name for name in sys.modules if name.startswith('constrint.propose')]"
    )
    loaded = modules_after(code)
    assert "constrint" in loaded
    assert not loaded & {"torch", "triton", "ortools", "constraint", "pandas", "scipy", "sqlalchemy", "openai"}


def test_only_the_command_that_needs_proposals_loads_them() -> None:
    code = (
        "import sys\nsys.argv = ['constrint', 'solve', '--gpu', 'h200']\nfrom constrint.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not [m for m in sys.modules if m.startswith(('constrint.propose', 'constrint.cli.propose'))]"
    )
    modules_after(code)
    assert "openai" not in modules_after("import constrint.tune.search.llm.client, constrint.tune.search.llm.search")


def test_source_of_candidates_is_imported_without_what_it_needs() -> None:
    """The tasks, the gates and the sandbox; a worker loads torch and triton in its own process."""
    loaded = modules_after("import constrint.propose")
    assert not loaded & {"torch", "triton", "openai", "ortools", "sqlalchemy", "scipy"}
