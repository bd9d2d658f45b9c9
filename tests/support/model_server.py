"""An OpenAI-compatible endpoint on the loopback interface that answers from a script: well, badly or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.clock import PATIENCE_S

#: Answers one request: it writes whatever it likes.
Turn = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers the n-th question with the n-th turn of the script; the last one goes on."""

    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = Asked(self.path, self.named_headers(), json.loads(body))
        self.server.asked.append(asked)
        turn = self.server.script[min(len(self.server.asked), len(self.server.script)) - 1]
        try:
            turn(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do_GET(self) -> None:
        self.server.asked.append(Asked(self.path, self.named_headers(), None))
        self.send(200, b"{}")

    def named_headers(self) -> dict[str, str]:
        """The headers of the request by their names in lower case."""
        return {name.lower(): value for name, value in self.headers.items()}

    def send(self, status: int, body: bytes, **headers: str) -> None:
        """A whole answer."""
        self.send_response(status)
        self.send_header("Content-Type", headers.pop("content_type", "application/json"))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Asked:
    """A request."""

    path: str
    headers: dict[str, str]
    body: Any

    @property
    def text(self) -> str:
        """All that was said to the model."""
        return "\n".join(message["content"] for message in self.body["messages"])


@dataclass
class ScriptedServer(ThreadingHTTPServer):
    """The server, and what it was asked."""

    script: Sequence[Turn]
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        ThreadingHTTPServer.__init__(self, ("127.0.0.1", 0), Handler)
        self.daemon_threads, self.ended = True, threading.Event()

    def __hash__(self) -> int:
        return id(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client went away."""


@contextmanager
def serving(*script: Turn) -> Iterator[ScriptedServer]:
    """A server for as long as the block lasts."""
    server = ScriptedServer(script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def completion(text: str | None, *, usage: Any = None, finish_reason: str = "stop") -> dict[str, Any]:
    """A chat completion."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    told = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "scripted", "choices": [choice]}
    return told | ({} if usage is None else {"usage": usage})


def says(text: str | None, *, usage: Any = (40, 10), finish_reason: str = "stop") -> Turn:
    """An answer as it should be; `usage` is a pair of counts, or whatever is sent in their place."""
    counts = usage
    if isinstance(usage, tuple):
        counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}

    def turn(handler: Handler) -> None:
        handler.send(200, json.dumps(completion(text, usage=counts, finish_reason=finish_reason)).encode())

    return turn


def sends(body: bytes, status: int = 200, **headers: str) -> Turn:
    """Bytes as they are."""
    return lambda handler: handler.send(status, body, **headers)


def fails(status: int, message: str = "it failed", **headers: str) -> Turn:
    """An error; asked again, the client need not wait."""
    body = json.dumps({"error": {"message": message, "type": "error"}}).encode()
    return sends(body, status, **{"retry_after_ms": "1", **headers})


def breaks_off(num_bytes: int = 40) -> Turn:
    """Half of an answer, then the end of the connection."""

    def turn(handler: Handler) -> None:
        body = json.dumps(completion("{}")).encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[:num_bytes])
        handler.close_connection = True

    return turn


def streams(*pieces: str) -> Turn:
    """Events, although nobody asked for a stream; the last one is missing."""

    def turn(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        for piece in pieces:
            event = {"choices": [{"index": 0, "delta": {"content": piece}}]}
            handler.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        handler.close_connection = True

    return turn


def endless(status: int = 200) -> Turn:
    """An answer that does not end."""

    def turn(handler: Handler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        while not handler.server.ended.is_set():
            handler.wfile.write(b" " * 65536)

    return turn


def drips(pause_s: float = 0.05) -> Turn:
    """A byte now and then, for ever: no single read takes long."""

    def turn(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        while not handler.server.ended.wait(pause_s):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    return turn


def silent() -> Turn:
    """No answer for as long as the server is there."""

    def turn(handler: Handler) -> None:
        handler.server.ended.wait(PATIENCE_S)
        handler.close_connection = True

    return turn


def after(pause_s: float, turn: Turn) -> Turn:
    """The same, late."""

    def later(handler: Handler) -> None:
        handler.server.ended.wait(pause_s)
        turn(handler)

    return later
