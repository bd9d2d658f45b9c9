import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def strategies() -> ModuleType:
    """The shared strategies; test folders are no packages, so the file is loaded by its path."""
    path = Path(__file__).parent / "model" / "strategies.py"
    spec = importlib.util.spec_from_file_location("constrint_test_strategies", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
