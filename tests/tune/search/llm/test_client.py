"""The client against a server on the loopback interface: what it does is real, only the answers are scripted."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
import socket
import threading
import time

import pytest

from benchmarks.attacks.endpoint import leaked
from constrint.errors import UsageError
from constrint.tune.search.llm.answer import Message
from constrint.tune.search.llm.client import MAX_ERROR_BYTES, MAX_REPLY_BYTES, ModelClient
from constrint.tune.search.llm.endpoint import KEY_VARIABLE, Endpoint
from tests.support.clock import PATIENCE_S
from tests.support.model_server import (
    Handler,
    Turn,
    after,
    breaks_off,
    completion,
    drips,
    endless,
    fails,
    says,
    sends,
    serving,
    silent,
    streams,
)
from tests.support.needs import needs_openai

pytestmark = needs_openai

KEY = "sk-secret-0123456789"
QUESTION = (Message("system", "Answer in JSON."), Message("user", "What is tried next?"))


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "of-another-endpoint")


def client(url: str, *, timeout_s: float = 120.0, num_retries: int = 2) -> ModelClient:
    return ModelClient(Endpoint(url, "scripted", timeout_s=timeout_s, num_retries=num_retries))


def test_a_good_answer_comes_with_what_was_counted() -> None:
    with serving(says('{"proposals": []}', usage=(123, 45))) as server:
        answer = client(server.url).ask(QUESTION, 1000)
    assert (answer.text, answer.fault) == ('{"proposals": []}', "")
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.is_estimated) == (123, 45, False)
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body["model"] == "scripted"
    assert asked.body["max_tokens"] == 1000
    assert [message["role"] for message in asked.body["messages"]] == ["system", "user"]


def test_nothing_of_the_environment_but_the_key_that_is_named_is_sent() -> None:
    with serving(says("{}")) as server:
        client(server.url).ask(QUESTION, 100)
        server_without = client(server.url)
        server_without.endpoint = Endpoint(server.url, "scripted", key_variable="NO_SUCH_VARIABLE")
        server_without.ask(QUESTION, 100)
    assert "of-another-endpoint" not in str([asked.headers for asked in server.asked])
    assert KEY in str(server.asked[0].headers)
    assert KEY not in str(server.asked[1].headers)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_endpoint_is_asked_again(status: int) -> None:
    with serving(fails(status), fails(status), says("there it is")) as server:
        answer = client(server.url).ask(QUESTION, 100)
    assert answer.text == "there it is"
    assert len(server.asked) == 3


@pytest.mark.parametrize("status", [429, 500])
def test_one_that_stays_busy_costs_a_question(status: int) -> None:
    with serving(fails(status, "come back tomorrow")) as server:
        answer = client(server.url).ask(QUESTION, 100)
    assert (answer.text, answer.fault) == ("", "busy")
    assert f"HTTP status {status}" in answer.message
    assert "come back tomorrow" in answer.message
    assert len(server.asked) == 3


def test_a_server_cannot_make_it_ask_for_ever() -> None:
    with serving(fails(400, x_should_retry="true")) as server:
        assert client(server.url).ask(QUESTION, 100).fault == "refused"
    assert len(server.asked) == 3


@pytest.mark.parametrize(("status", "hint"), [(401, KEY_VARIABLE), (403, KEY_VARIABLE), (404, "--model")])
def test_what_asking_again_does_not_mend_says_what_would(status: int, hint: str) -> None:
    with serving(fails(status)) as server:
        answer = client(server.url).ask(QUESTION, 100)
    assert answer.fault == "refused"
    assert hint in answer.message
    assert len(server.asked) == 1


#: What a server does, and the fault that it is.
BROKEN: dict[str, tuple[Turn, str]] = {
    "half an answer": (breaks_off(), "broken"),
    "half a stream": (streams('{"propo', 'sals": ['), "broken"),
    "no JSON": (sends(b"<html>hello</html>", content_type="text/html"), "broken"),
    "another schema": (sends(b'{"answer": "42"}'), "broken"),
    "no choices": (sends(b'{"choices": []}'), "broken"),
    "no text": (says(None), "broken"),
    "a number for text": (sends(b'{"choices": [{"message": {"content": 7}}]}'), "broken"),
    "brackets": (sends(b"[" * 100_000), "broken"),
    "bytes that are no text": (sends(b'{"choices": "\xff\xfe"}'), "broken"),
    "half a character": (sends(b'{"choices": [{"message": {"content": "\\ud800"}}]}'), "broken"),
    "nothing": (sends(b""), "broken"),
    "too long": (says("x" * (MAX_REPLY_BYTES + 1)), "too_long"),
    "too long when unpacked": (sends(gzip.compress(b" " * (64 << 20)), content_encoding="gzip"), "too_long"),
    "no end": (endless(), "too_long"),
    "an error without end": (endless(400), "refused"),
    "a redirection": (sends(b"", 307, location="http://127.0.0.1:9/v1/chat/completions"), "refused"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_whatever_is_no_answer_costs_a_question_and_nothing_else(name: str) -> None:
    turn, fault = BROKEN[name]
    with serving(turn) as server:
        answer = client(server.url).ask(QUESTION, 100)
    assert (answer.text, answer.fault) == ("", fault), answer.message
    assert answer.message.isprintable()
    assert len(answer.message) < 600


@pytest.mark.parametrize("turn", [silent(), drips(), fails(500, retry_after="60", retry_after_ms="60000")])
def test_one_time_limit_covers_everything(turn: Turn) -> None:
    import openai  # noqa: F401 - which takes its time, once in a process

    with serving(turn) as server:
        started = time.monotonic()
        answer = client(server.url, timeout_s=0.4).ask(QUESTION, 100)
        took = time.monotonic() - started
    assert answer.fault == "late"
    assert "0.4 s" in answer.message
    assert took < 60  # what the server asks to wait for


def test_what_is_left_of_the_run_is_a_limit_too() -> None:
    with serving(after(PATIENCE_S, says("too late"))) as server:
        assert client(server.url).ask(QUESTION, 100, limit_s=0.2).fault == "late"


def test_an_endpoint_that_is_not_there_is_unreachable_and_costs_no_tokens() -> None:
    with serving(says("")) as server:
        url = server.url
    answer = client(url, num_retries=0).ask(QUESTION, 100)
    assert answer.fault == "unreachable"
    assert answer.usage.input_tokens == 0


def test_a_proxy_of_the_environment_is_not_asked_for_a_server_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(says("directly")) as server:
        assert client(server.url).ask(QUESTION, 100).text == "directly"


def test_it_can_be_asked_from_a_running_loop() -> None:
    async def in_a_notebook(url: str) -> str:
        return client(url).ask(QUESTION, 100).text

    with serving(says("from a loop")) as server:
        assert asyncio.run(in_a_notebook(server.url)) == "from a loop"


def inner(text: str) -> Turn:
    """A completion with a reply of JSON, in which this stands in a string as it is."""
    return says(f'{{"proposals": [{{"because": "{text}"}}]}}')


def each(form: str) -> str:
    return "".join(form.format(ord(char)) for char in KEY)


def broken_protocol(handler: Handler) -> None:
    """A status line with the key in the place of the status."""
    handler.wfile.write(f"HTTP/1.1 {KEY}\r\n\r\n".encode())


#: How an endpoint may send the key back.
SENT_BACK: dict[str, Turn] = {
    "as it is": says(f"your key is {KEY}"),
    "in escapes of JSON": inner(each("\\u{:04x}")),
    "in JSON inside a string of JSON": inner(json.dumps(json.dumps(each("\\u{:04X}")))[1:-1]),
    "after an escaped backslash": inner("\\\\\\u00750073" + KEY[1:]),
    "in percent-encoding": says(each("%{:02x}")),
    "in references of HTML": says(each("&#{};")),
    "in base64": says(base64.b64encode(f"user:{KEY}".encode()).decode()),
    "in hexadecimal digits": says(KEY.encode().hex()),
    "with invisible characters": says("\u200b".join(KEY)),
    "in quoted-printable text": says(each("={:02X}")),
    "in base64 of UTF-16": says(base64.b64encode(KEY.encode("utf-16-le")).decode()),
    "in invisible tags": says("".join(chr(0xE0000 + ord(char)) for char in KEY)),
    "in capitals": says(KEY.upper()),
    "in parts": sends(
        json.dumps(completion("")).replace('""', f'[{{"text": "{KEY[:9]}"}}, {{"text": "{KEY[9:]}"}}]').encode()
    ),
    "cut short": inner(each("\\u{:04x}")[: 6 * 14]),
    "in an error": fails(401, f"wrong key {KEY}"),
    "where an error's message is cut": fails(400, "x" * 490 + KEY),
    "where an error's body is cut": sends(b" " * (MAX_ERROR_BYTES - 9) + KEY.encode(), 400),
    "where a redirection leads": sends(b"moved", 307, location=f"http://127.0.0.1:9/{KEY}"),
    "in the protocol": broken_protocol,
}


@pytest.mark.parametrize("name", SENT_BACK)
def test_a_key_that_is_sent_back_is_hidden_however_it_is_encoded_or_cut(name: str) -> None:
    with serving(SENT_BACK[name]) as server:
        answer = client(server.url, num_retries=0).ask(QUESTION, 100)
    assert answer.text or answer.message
    assert leaked(answer.text + answer.message, KEY) is None


def test_text_around_a_hidden_key_stays() -> None:
    with serving(inner("before " + each("\\u{:04x}") + "\\n after"), fails(401, f"wrong key {KEY}!")) as server:
        asking = client(server.url)
        assert json.loads(asking.ask(QUESTION, 100).text) == {"proposals": [{"because": "before [key]\n after"}]}
        refused = asking.ask(QUESTION, 100)
    assert "wrong key [key]!" in refused.message
    assert KEY not in repr(asking.endpoint)


def test_a_reply_that_is_encoded_without_end_is_not_taken() -> None:
    with serving(says("\\" * 2000)) as server:
        answer = client(server.url).ask(QUESTION, 100)
    assert (answer.text, answer.fault) == ("", "broken")
    assert "encoded more than 8 times" in answer.message


def test_logs_of_the_packages_do_not_show_headers(caplog: pytest.LogCaptureFixture) -> None:
    with serving(says("well")) as server, caplog.at_level(logging.DEBUG):
        client(server.url).ask(QUESTION, 100)
        assert client(server.url).ask(QUESTION, 100).text == "well"
    assert "authorization" not in caplog.text.lower()


def test_a_proxy_that_is_none_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://user:secret@127.0.0.1:9")
    answer = ModelClient(Endpoint("https://nobody.invalid/v1", "scripted", num_retries=0)).ask(QUESTION, 100)
    assert answer.fault == "broken"
    assert "secret" not in answer.message


def test_a_name_that_is_looked_up_for_ever_does_not_hold_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ended.wait(60))
    try:
        answer = client("https://nobody.invalid/v1", timeout_s=0.1, num_retries=0).ask(QUESTION, 100)
    finally:
        ended.set()
    assert answer.fault == "late"


@pytest.mark.parametrize(
    "usage", [None, "many", {"prompt_tokens": -5, "completion_tokens": 2}, {"prompt_tokens": True}]
)
def test_tokens_are_estimated_where_the_endpoint_does_not_count_them(usage: object) -> None:
    with serving(says("a reply of some words", usage=usage)) as server:
        answer = client(server.url).ask(QUESTION, 100)
    assert answer.usage.is_estimated
    assert answer.usage.input_tokens >= len("Answer in JSON. What is tried next?") // 4
    assert answer.usage.output_tokens >= 5


def test_the_limit_of_tokens_goes_by_its_other_name_where_the_model_wants_that() -> None:
    refusal = fails(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    with serving(refusal, says("well")) as server:
        assert client(server.url).ask(QUESTION, 300).text == "well"
    assert server.asked[1].body["max_completion_tokens"] == 300
    assert "max_tokens" not in server.asked[1].body


def test_a_reply_that_was_cut_says_so() -> None:
    with serving(says('{"proposals": [', usage=(5, 300), finish_reason="length")) as server:
        answer = client(server.url).ask(QUESTION, 300)
    assert answer.fault == ""
    assert "cut after 300 tokens" in answer.message


def test_text_may_come_in_parts() -> None:
    parts = completion("")
    parts["choices"][0]["message"]["content"] = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}, 3]
    with serving(sends(json.dumps(parts).encode())) as server:
        assert client(server.url).ask(QUESTION, 100).text == "one two"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("localhost:8000/v1", "the address of an OpenAI-compatible endpoint"),
        ("ftp://host/v1", "the address of an OpenAI-compatible endpoint"),
        ("http://host:port/v1", "the address of an OpenAI-compatible endpoint"),
        ("https://me:word@host/v1", "without user, password and query"),
        ("https://host/v1?api-key=1", "without user, password and query"),
        ("http://host.example/v1", "unencrypted"),
        ("https://host/\x1b[2J/v1", "the address of an OpenAI-compatible endpoint"),
    ],
)
def test_addresses_that_are_none_or_give_the_key_away_are_refused(url: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        Endpoint(url, "scripted")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("key", ["half\nkey-0123456789", "k\u00e9y-0123456789", "two words-0123456789"])
def test_a_key_that_no_header_takes_is_refused_unseen(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv(KEY_VARIABLE, key)
    with pytest.raises(UsageError, match="no header takes") as caught:
        Endpoint("https://host/v1", "scripted")
    assert "0123456789" not in str(caught.value)


def test_a_key_in_place_of_its_variables_name_is_refused_unseen() -> None:
    with pytest.raises(UsageError, match="name of an environment variable") as caught:
        Endpoint("https://host/v1", "scripted", key_variable=KEY)
    assert KEY not in str(caught.value)


def test_without_a_key_any_host_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    assert Endpoint("http://gpu-box.local:8000/v1", "scripted").host == "gpu-box.local:8000"
    assert Endpoint("http://[::1]:8000/v1", "scripted").host == "::1:8000"
