"""Settings of all tests."""

import gc
import os
import random
import sys
import zlib
from collections.abc import Iterator

# Tests run side by side: threads of one that wait for the cores of another make small products slower. NumPy and torch
# read these when they are loaded, so that they are set before anything else is imported.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from constrint.choose import forget
from tests.support.shared import SharedResults, use_few_shapes, use_whole_tables

# Options and hooks of tests that take turns.
from tests.support.turns import (  # noqa: F401
    SEED_VARIABLE,
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_report_header,
)

# Nothing that a test computes, with patched constants perhaps, reaches later runs or the user's own cache.
os.environ["CONSTRINT_CACHE"] = "0"
# Which kernel runs does not depend on how busy the GPU is; tests of trials switch them on.
os.environ["CONSTRINT_TRIALS"] = "0"
# No GPU models but those that ship: the user's own could bear any name.
os.environ["CONSTRINT_GPU_PATH"] = os.path.join(os.path.dirname(__file__), "no-such-folder")

# What is collected stays: every process would look through half a million objects again and again for what does not.
gc.disable()

# How long an example takes to draw says how busy the machine is, not whether the code is right. Every run has the same
# examples, so that a change is judged by what it changes; `--hypothesis-profile=search` draws others, new in each run.
COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("constrint", COMMON, derandomize=True)
settings.register_profile("search", COMMON, derandomize=False)
settings.load_profile("constrint")


def pytest_collection_finish() -> None:
    """Tests run as programs do, beside what was collected.

    Expressions and compilers make many small objects that live for a while: looking for those that nothing refers to
    every 700 of them takes a fifteenth of the tests' time, every 20,000 next to nothing.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """`-n auto` is two workers more than cores: tests wait for processes, browsers and what another worker computes."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # pytest-xdist reads it
    usable = getattr(os, "sched_getaffinity", None)
    return 2 + (len(usable(0)) if usable else os.cpu_count() or 1)


@pytest.fixture(autouse=True)
def _draws_of_its_own(request: pytest.FixtureRequest) -> None:
    """What a test draws without a seed does not depend on which tests ran before it in this process."""
    seed = zlib.crc32(f"{os.environ.get(SEED_VARIABLE, '')}{request.node.nodeid}".encode())
    random.seed(seed)
    np.random.seed(seed)
    if "torch" in sys.modules:
        import torch

        torch.manual_seed(seed)


@pytest.fixture(scope="session")
def shared_results(tmp_path_factory: pytest.TempPathFactory) -> SharedResults:
    """What one process of this run computes for all."""
    return SharedResults.of_run(tmp_path_factory)


@pytest.fixture(autouse=True, scope="session")
def _tables_of_the_run(shared_results: SharedResults) -> Iterator[None]:
    """GEMMs' tables are made once in a run; what changes them asks for `_tables_of_its_own`."""
    with pytest.MonkeyPatch.context() as patch:
        use_few_shapes(shared_results, patch)
        yield


@pytest.fixture
def whole_tables(shared_results: SharedResults, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """GEMMs' tables are those that users have: for tests of which configuration is chosen, and how good it is."""
    use_whole_tables(shared_results, monkeypatch)
    yield
    forget()
