"""Fixtures of the GEMM's tests: where Triton keeps kernels."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Triton compiles anew once a run: what it keeps elsewhere may be of another state of this repository."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield
