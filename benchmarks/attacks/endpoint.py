"""Replies of a hostile endpoint: `constrint propose` meets them without a traceback, a hang, or its key in any output.

    python -m benchmarks.attacks.endpoint --count 300 --seed 1

A case is a run of two rounds against a server on this machine. Status, headers, bodies, their damage and the encoding
of the key in them are drawn. Any twelve characters of the key are searched for in stdout, stderr, the transcript and
the store, as they are and after decoding; by means of its own, none of which the package uses.
"""

from __future__ import annotations

import base64
import faulthandler
import gzip
import html
import json
import os
import random
import re
import string
import sys
import tempfile
import time
import traceback
import unicodedata
import urllib.parse
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from benchmarks.attacks import asked_of, called, ended
from constrint.tune.search.llm.endpoint import KEY_VARIABLE
from tests.support.model_server import (
    Handler,
    Turn,
    breaks_off,
    completion,
    drips,
    endless,
    says,
    sends,
    serving,
    silent,
    streams,
)
from tests.tune import tiny

#: Time limit of a reply; seconds that a busy machine may add to a run; seconds after which the program gives up.
ANSWER_S, SLACK_S, HANG_S = 0.5, 60.0, 240
#: Characters of the key that are a leak.
WINDOW = 12
#: Sizes at which something may be cut: messages, errors, texts, bodies.
EDGES = (60, 200, 300, 500, 1000, 1 << 14, 200_000, 1 << 20)


def attack(count: int, seed: int, folder: Path) -> Iterator[str]:
    """Run the cases; the faults found."""
    for number in range(count):
        draw = random.Random(f"{seed}:{number}")
        key = "sk-" + "".join(draw.choices(string.ascii_letters + string.digits + "-_/+.", k=draw.randint(20, 48)))
        place = folder / str(number)
        place.mkdir()
        name, turns = "", []
        for _ in range(draw.randint(1, 2)):
            kind = draw.choice(list(KINDS))
            name += f" {kind}"
            turns.append(KINDS[kind](draw, encoded(key, draw)))
        for fault in _run(key, turns, draw, place):
            yield f"seed {seed}, case {number} ({name.strip()}): {fault}"


def _run(key: str, turns: list[Turn], draw: random.Random, place: Path) -> Iterator[str]:
    """One run against the server, and its replay; the faults."""
    transcript, store = place / "t.jsonl", place / "s.sqlite"
    subject = ["propose", "--gpu", "h200", "--kernel", f"{tiny.__file__}:SPEC", "--modelled", "--store", str(store)]
    subject += draw.choice(([], ["--json"]))
    judge = draw.choice(([], ["--judge", "model"]))
    started = time.monotonic()
    with serving(*turns) as server:
        asking = ["--llm", server.url, "--model", "scripted", "--answer-time", str(ANSWER_S), "--rounds", "2"]
        code, printed = told(key, *subject, *asking, *judge, "--trials", "1", "--transcript", str(transcript))
        limit_s = (len(server.asked) + 3) * (ANSWER_S + 1.0) + SLACK_S
    if time.monotonic() - started > limit_s:
        yield f"it took {time.monotonic() - started:.0f} s"
    again, reprinted = told(key, *subject, "--replay", str(transcript))
    _, listed = told(key, "records", "proposals", "--store", str(store), "--json")
    texts = {"output": printed, "replay": reprinted, "records": listed}
    texts |= {path.name: path.read_bytes().decode("latin-1") for path in place.iterdir()}
    for where, text in texts.items():
        if "Traceback" in text:
            yield f"traceback in {where}: {text[-400:]}"
        if (leak := leaked(text, key)) is not None:
            yield f"leak in {where}: {leak!r} of {key!r}"
    if code not in (0, 1) or again not in (0, 1):
        yield f"exit code {code}, in the replay {again}: {printed[-300:]}"


def told(key: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of the command with a key, in this process."""
    with mock.patch.dict(os.environ, {KEY_VARIABLE: key}):
        try:
            code, out, err = called(*arguments)
        except BaseException:  # noqa: BLE001 - whatever escapes is a finding
            return 0, traceback.format_exc()
    return code, out + err


def leaked(text: str, key: str) -> str | None:
    """A part of the key that can be read in a text, or in what it decodes to; None where there is none."""
    raws = key.encode(), key.encode("utf-16-le")
    wanted = [key, *(raw.hex() for raw in raws)]
    wanted += [base64.b64encode(bytes(n) + raw).decode()[4:-4] for raw in raws for n in range(3)]
    seen: list[str] = []
    while text not in seen and len(seen) < 24:
        seen.append(text)
        text = re.sub(r"\\+u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), text)
        text = re.sub(r"\\+x([0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), text)
        text = (
            html.unescape(urllib.parse.unquote(text))
            .encode("utf-16-le", "surrogatepass")
            .decode("utf-16-le", "replace")
        )
        text = "".join(chr(ord(c) - 0xE0000) if 0xE0020 <= ord(c) <= 0xE007E else c for c in text)
    seen += [re.sub(r"=([0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), each) for each in seen]
    for each in seen:
        letters = re.sub(r"[^a-z0-9]", "", unicodedata.normalize("NFKC", each).lower())
        for form in wanted:
            plain = re.sub(r"[^a-z0-9]", "", form.lower())
            for at in range(len(plain) - WINDOW + 1):
                if plain[at : at + WINDOW] in letters:
                    return plain[at : at + WINDOW]
    return None


def encoded(key: str, draw: random.Random) -> str:
    """The key as it may stand inside a string of JSON, in an encoding that is drawn."""
    text = draw.choice(ENCODINGS)(key, draw)
    for _ in range(draw.choice((0, 0, 0, 1, 2, 4))):
        text = json.dumps(text)[1:-1]
    return text


def _escaped(form: Callable[[int], str], share: float = 1.0) -> Callable[[str, random.Random], str]:
    return lambda key, draw: "".join(form(ord(c)) if draw.random() < share else c for c in key)


ENCODINGS: list[Callable[[str, random.Random], str]] = [
    lambda key, draw: key,
    lambda key, draw: key,
    _escaped("\\u{:04x}".format),
    _escaped("\\u{:04X}".format, 0.3),
    _escaped("\\\\u{:04x}".format, 0.5),
    _escaped("\\\\\\\\u00{:02X}".format, 0.9),
    _escaped("\\\\x{:02x}".format),
    _escaped("%{:02x}".format),
    _escaped("%25{:02X}".format, 0.7),
    _escaped("&#{:d};".format),
    _escaped("&amp;#x{:x};".format),
    lambda key, draw: key.replace("/", "\\/"),
    lambda key, draw: "\\u200b".join(key),
    lambda key, draw: key[:9] + "\\n" + key[9:],
    lambda key, draw: key.upper(),
    lambda key, draw: "".join(chr(ord(c) + 0xFEE0) if c.isalnum() else c for c in key),
    lambda key, draw: base64.b64encode(draw.choice(("", "u", "u:")).encode() + key.encode()).decode(),
    lambda key, draw: base64.urlsafe_b64encode(key.encode()).decode(),
    lambda key, draw: key.encode().hex(),
    _escaped("={:02X}".format, 0.8),
    lambda key, draw: base64.b64encode(key.encode("utf-16-le")).decode(),
    lambda key, draw: "".join(chr(0xE0000 + ord(c)) for c in key),
    lambda key, draw: json.dumps("".join(chr(0xE0000 + ord(c)) for c in key))[1:-1],
    lambda key, draw: "\u0332".join(key),
    lambda key, draw: json.dumps(json.dumps({"key": key})[1:-1])[1:-1],
]


def _reply(proposals: str) -> Turn:
    """A completion whose text is this; a third of its characters are escaped in the outer JSON."""

    def turn(handler: Handler) -> None:
        text = "".join(
            f"\\u{ord(c):04x}" if ord(c) % 3 == 0 and ord(c) < 0x10000 else json.dumps(c)[1:-1] for c in proposals
        )
        body = json.dumps(completion("@")).replace('"@"', f'"{text}"')
        handler.send(200, body.encode())

    return turn


def _proposal(draw: random.Random, key: str) -> Turn:
    """A proposal with the key in one of its fields, of the right type or not."""
    fields = {
        "type": '"space"',
        "kernel": '"tiny"',
        "values": '[{"parameter": "what", "values": [3]}]',
        "because": '"b"',
    }
    text = f'"{draw.choice(("", "why: ", "x" * draw.choice(EDGES[:5])))}{key}"'
    where = draw.choice(
        ["because", "kernel", "type", "values", "rules", "preferences", "field", "parameter", "strategy"]
    )
    if where == "rules":
        fields["rules"] = f'[{{"rule": {text}, "because": {text}}}, {{"rule": "what > 1", "because": {text}}}]'
    elif where == "preferences":
        fields["preferences"] = f'[{{"rule": "what > 1", "weight": {text}}}]'
    elif where == "field":
        fields[text.strip('"')] = "1"
    elif where == "parameter":
        fields["values"] = f'[{{"parameter": {text}, "values": [1]}}]'
    elif where == "strategy":
        fields |= {"type": '"strategy"', "name": text, "text": text}
        del fields["because"]
    else:
        fields[where] = text
    one = "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"
    whole = f'{{"proposals": [{one}, {{"type": "space", "kernel": "tiny", "because": {text}}}]}}'
    return _reply(draw.choice((whole, f"```json\n{whole}\n```", f"Well: {whole}", whole[: draw.randrange(len(whole))])))


def _error(draw: random.Random, key: str) -> Turn:
    """An HTTP error with the key in its body, near a place where it may be cut, or in its headers."""
    pad = draw.choice((" ", "x", "\\n")) * max(0, draw.choice((0, *EDGES)) - draw.randrange(60))
    body = draw.choice(('{{"error": {{"message": "{0}"}}}}', '{{"{0}": 1}}', "{0}", '{{"detail": [{{"a": "{0}"}}]}}'))
    status = draw.choice((300, 307, 400, 400, 401, 403, 404, 408, 418, 429, 500, 503, 599))
    headers = {"retry_after_ms": "1"}
    if key.isascii() and "\\" not in key and draw.random() < 0.4:
        headers[draw.choice(("location", "x_request_id", "content_type", "x_should_retry"))] = key
    return sends(body.format(pad + key).encode(), status, **headers)


def _protocol(draw: random.Random, key: str) -> Turn:
    """Bytes that are no HTTP, or HTTP of another kind, with the key in them."""
    lines = draw.choice((
        f"HTTP/1.1 200 {key}\r\nContent-Length: 2\r\n\r\n{{}}",
        f"HTTP/1.1 abc {key}\r\n\r\n",
        f"{key}\r\n\r\n",
        f"HTTP/1.1 200 OK\r\n{key}\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{key}\r\n",
        f"HTTP/1.1 200 OK\r\nContent-Length: {key}\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nContent-Encoding: {key}\r\nContent-Length: 2\r\n\r\n{{}}",
        f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n{key[:4]}",
        f"HTTP/1.1 101 Switching\r\nUpgrade: {key}\r\n\r\n",
        f"HTTP/1.1 {draw.choice((204, 304, 999))} {key}\r\nX-Key: {key}\r\n\r\n",
        "HTTP/1.1 200 OK\r\n" + f"X-A: {key}\r\n" * 4000 + "\r\n",
    ))  # fmt: skip

    def turn(handler: Handler) -> None:
        handler.wfile.write(lines.encode())
        handler.close_connection = True

    return turn


def _structure(draw: random.Random, key: str) -> Turn:
    """A completion of another structure: wrong types, duplicates, parts, numbers that are none, deep nesting."""
    quoted, deep = f'"{key}"', draw.choice((100, 5000, 100_000))
    content = draw.choice((
        quoted, f"[{quoted}]", f'[{{"text": "{key[:7]}"}}, {{"text": "{key[7:]}"}}]', "NaN", "1e999", "-" + "9" * 5000,
        "[" * deep + "]" * deep, f'{{"a": {quoted}}}', '"\\ud800"', '"\\udc00\\ud83d"', "null", "true",
        f'"{" " * draw.choice(EDGES)}{key}"',
    ))  # fmt: skip
    body = (
        f'{{"choices": [{{"message": {{"content": {content}}}, "finish_reason": {draw.choice((quoted, "1", "[]"))}}}]'
    )
    body += draw.choice(("", f', "choices": {quoted}', f', "usage": {quoted}', ', "usage": {"prompt_tokens": 1e400}'))
    body += draw.choice(("}", "", "}}", ", " + quoted + "}"))
    raw = body.encode("utf-16" if draw.random() < 0.1 else "utf-8", "surrogatepass")
    return sends(raw, content_type=draw.choice(("application/json", "text/html; charset=utf-7")))


def _compressed(draw: random.Random, key: str) -> Turn:
    """A compressed reply: a bomb, a broken one, or an error."""
    text = json.dumps(completion(key)).encode() + b" " * draw.choice((0, 64 << 20))
    body, name = draw.choice(
        ((gzip.compress(text, 1), "gzip"), (zlib.compress(text, 1), "deflate"), (text[:99], "gzip"))
    )
    return sends(body, draw.choice((200, 200, 400, 500)), content_encoding=name, retry_after_ms="1")


def _verdict(draw: random.Random, key: str) -> Turn:
    """A judge's verdict with the key."""
    edit = f'{{"kernel": "tiny", "add": [{{"rule": "{draw.choice(("what > 2", key))}", "because": "{key}"}}]}}'
    return _reply(
        f'{{"type": "success", "bottleneck": "{key}", "zone": "memory", "evidence": "{key}", "edit": {edit}}}'
    )


#: Replies by kind.
KINDS: dict[str, Callable[[random.Random, str], Turn]] = {
    "proposal": _proposal,
    "proposal again": _proposal,
    "error": _error,
    "error again": _error,
    "protocol": _protocol,
    "structure": _structure,
    "compressed": _compressed,
    "verdict": _verdict,
    "prose": lambda draw, key: says(f"Your key is {key}, " + "and so on " * draw.randrange(200)),
    "cut": lambda draw, key: breaks_off(draw.randrange(120)),
    "stream": lambda draw, key: streams(key[:9], key[9:]),
    "endless": lambda draw, key: endless(draw.choice((200, 307, 400, 500))),
    "drips": lambda draw, key: drips(),
    "silent": lambda draw, key: silent(),
}


def main() -> int:
    """Run as a program."""
    chosen = asked_of(__doc__, 300)
    faulthandler.dump_traceback_later(HANG_S + chosen.count * 30, exit=True)
    with tempfile.TemporaryDirectory() as folder:
        found = list(attack(chosen.count, chosen.seed, Path(folder)))
    return ended(found, f"endpoint: {chosen.count} runs, seed {chosen.seed}, {len(found)} faults")


if __name__ == "__main__":
    sys.exit(main())
