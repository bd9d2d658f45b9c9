"""Settings of all tests."""

import pytest
from hypothesis import HealthCheck, settings

from tests.support.shared import SharedResults

# How long an example takes to draw says how busy the machine is, not whether the code is right.
settings.register_profile("constrint", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("constrint")


@pytest.fixture(scope="session")
def shared_results(tmp_path_factory: pytest.TempPathFactory) -> SharedResults:
    """What one process of this run computes for all."""
    return SharedResults.of_run(tmp_path_factory)
