"""No user, password or option of a store's URL is printed: messages, footers, JSON, tables."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from constrint.errors import ConstrintError
from constrint.tune.store.backends import explained, in_memory, shown
from constrint.tune.store.postgres import PostgresBackend
from constrint.tune.store.store import RecordStore
from tests.cli.conftest import Call
from tests.cli.conftest import run as run
from tests.support.records import record

#: A user, and passwords as they are and as a URL spells them.
SECRETS = ("someone", "pa:ss/w@rd", "pa%3Ass%2Fw%40rd", "s3cret", "sslk3y")
#: URLs that no server answers, or that cannot be read.
URLS = (
    "postgresql://someone:pa%3Ass%2Fw%40rd@127.0.0.1:1/records",
    "postgresql://someone@127.0.0.1:1/records?password=s3cret&sslkey=sslk3y",
    "postgresql://someone:s3cret@127.0.0.1:port/records",
    "postgresql://someone:s3cret@[::1/records",
    "postgresql:/someone:s3cret@127.0.0.1/records",
    "postgres:someone:s3cret",
    "postgresql://someone:s3cret@127.0.0.1:1/records?plugin=s3cret",
    "postgresql://someone:s3cret@127.0.0.1:1/records?no_such_option=s3cret",
    "postgresql+nodriver://someone:s3cret@127.0.0.1:1/records?host=/s3cret",
    "mysql://someone:s3cret@127.0.0.1/records",
    "://someone:s3cret@127.0.0.1",
    "sqlite://someone:s3cret@/x",
    "sqlite:///x?password=s3cret",
)


def assert_clean(text: str) -> None:
    assert [secret for secret in SECRETS if secret in text] == []


@pytest.mark.parametrize("url", URLS)
def test_errors_have_no_secrets(run: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConstrintError) as told:
        RecordStore.open(url)
    assert_clean(str(told.value))
    assert told.value.__suppress_context__ or told.value.__context__ is None
    monkeypatch.setenv("CONSTRINT_STORE", url)
    for command in ("list --json", f"list --store {url}", f"diff {url} {url}", "publish", f"import {__file__}"):
        code, out, err = run("records", *command.split())
        assert (code in (1, 2), err.count("\n")) == (True, 1)
        assert_clean(out + err.replace(__file__, ""))


def test_a_drivers_message_has_no_secrets() -> None:
    url = make_url(URLS[0]).update_query_dict({"sslkey": "sslk3y", "password": "s3cret"})
    text = f'FATAL: "someone" failed with pa:ss/w@rd, {url.render_as_string(hide_password=False)}'
    with pytest.raises(ConstrintError) as told, explained(url):
        raise OperationalError("SELECT 1", None, Exception(text))
    assert "FATAL" in str(told.value)
    assert_clean(str(told.value))


def test_pages_name_a_store_without_secrets(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a server that answers: a store in memory stands for it."""
    url = "postgresql://someone:s3cret@db.example:5432/team?sslkey=sslk3y"
    monkeypatch.setattr(PostgresBackend, "open", lambda *_, **__: in_memory())
    with RecordStore.open(url) as store:
        assert store.place == shown(url) == "postgresql://db.example:5432/team"
    for command in ("list", "list --all", "proposals", "list --json", "prune --failed --json", "prune --failed --yes"):
        code, out, err = run("records", *command.split(), "--store", url)
        assert code == 0
        assert_clean(out + err)
    code, out, err = run("records", "diff", url, url)
    assert_clean(out + err)
    assert code == 0


def test_names_of_files_are_printed_as_they_are() -> None:
    places: dict[Any, str] = {"a/b.sqlite": "a/b.sqlite", "sqlite:////a/b.sqlite": "/a/b.sqlite", "run-1": "run-1"}
    assert {place: shown(place) for place in places} == places
    assert record().run == "run-1"
