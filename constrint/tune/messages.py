"""Messages between this process and one that runs candidates, for the tuner and for the gates of proposed source.

A message is the length of its body in eight bytes, and its body: msgpack of a record whose type the reader names. A
candidate may write anything to its process's pipes, and may stop reading. So nothing from there is unpickled or
evaluated, no length is believed beyond a limit, and the user's process never waits for a pipe.
"""

from __future__ import annotations

import os
import signal
import struct
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

#: The head of a message: the length of its body.
HEAD = struct.Struct("<Q")
#: Most bytes of one read or write, most characters of a text, and bytes kept of what a process prints.
CHUNK_BYTES, MAX_TEXT, TAIL_BYTES = 1 << 20, 600, 2000

Content = TypeVar("Content")
_ENCODER = msgspec.msgpack.Encoder()


class BrokenChannel(Exception):
    """Raised where what a process wrote is no message."""


class ClosedChannel(BrokenChannel):
    """Raised where a process has closed its pipes."""


class Channel:
    """The user's ends of the pipes of one process. No method waits.

    Args:
        requests: The pipe that the process reads.
        replies: The pipe that it writes its messages to.
        output: The pipe that it prints to.
        longest: Most bytes of one of its messages.
    """

    def __init__(self, requests: int, replies: int, output: int, *, longest: int) -> None:
        self.requests, self.replies, self.output, self._longest = requests, replies, output, longest
        self._unsent, self._got, self._printed = bytearray(), bytearray(), b""
        for pipe in (requests, replies, output):
            os.set_blocking(pipe, False)

    @property
    def has_unsent(self) -> bool:
        """Whether a request waits for room in the pipe."""
        return bool(self._unsent)

    @property
    def printed(self) -> str:
        """The last lines that the process printed, as one line."""
        self.listen()
        lines = self._printed.decode(errors="replace").strip("\0 \n").splitlines()
        return plain(" | ".join(line.strip() for line in lines[-4:]))[-400:]

    def send(self, message: Any) -> None:
        """Send a message, now or by later calls of `flush`."""
        self._unsent += packed(message)
        self.flush()

    def flush(self) -> None:
        """Write what the pipe takes; a process that is gone is noticed by `receive`."""
        with suppress(OSError):
            while self._unsent:
                del self._unsent[: os.write(self.requests, memoryview(self._unsent)[:CHUNK_BYTES].tobytes())]

    def receive(self) -> bytes | None:
        """The body of the next message; None while it is not whole.

        Raises:
            ClosedChannel: When the process has closed the pipe.
            BrokenChannel: When the message is too long.
        """
        if (body := self._taken()) is not None:
            return body
        try:
            chunk = os.read(self.replies, CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            chunk = b""
        if not chunk:
            raise ClosedChannel("the process ended")
        self._got += chunk
        return self._taken()

    def listen(self) -> None:
        """Keep the end of what the process has printed, so that it need not wait; of endless output one chunk."""
        with suppress(OSError):
            self._printed = (self._printed + os.read(self.output, CHUNK_BYTES))[-TAIL_BYTES:]

    def _taken(self) -> bytes | None:
        """The first message of what was read."""
        if len(self._got) < HEAD.size:
            return None
        end = HEAD.size + HEAD.unpack_from(self._got)[0]
        if end > self._longest:
            raise BrokenChannel(f"its answer is none: it would be {end} bytes long")
        if len(self._got) < end:
            return None
        body = bytes(self._got[HEAD.size : end])
        del self._got[:end]
        return body


def packed(message: Any) -> bytes:
    """A message with its head."""
    body = _ENCODER.encode(message)
    return HEAD.pack(len(body)) + body


def unpacked(body: bytes, decoder: msgspec.msgpack.Decoder[Content]) -> Content:
    """The record that a body is.

    Raises:
        BrokenChannel: When it is none.
    """
    try:
        return decoder.decode(body)
    except (ValueError, RecursionError) as error:  # a msgspec error is a ValueError, and so is a wrong text
        raise BrokenChannel(f"its answer is none: {error}") from None


def write_message(pipe: int, message: Any) -> None:
    """Write a whole message; waits for the reader."""
    left = packed(message)
    while left:
        left = left[os.write(pipe, left) :]


def read_message(pipe: int) -> bytes | None:
    """The body of the next message, or None at the end of the pipe; waits for the writer."""
    head = _read_bytes(pipe, HEAD.size)
    return _read_bytes(pipe, HEAD.unpack(head)[0]) if len(head) == HEAD.size else None


def plain(text: object, most: int = MAX_TEXT) -> str:
    """A text that any message, file and database can hold: what is no character is escaped, and its length bounded."""
    try:
        return str.encode(str(text), "utf-8", "backslashreplace").decode()[:most]
    except BaseException as error:  # noqa: BLE001 - a candidate's object, which may raise anything
        return f"a text that raises {type(error).__name__}"


def describe(error: BaseException) -> str:
    """An exception as one line: its type and its reason, or those of what it came from."""
    seen: list[BaseException] = [error]
    while (cause := seen[-1].__cause__) is not None and cause not in seen:
        seen.append(cause)
    lines = [line.strip() for line in plain(seen[-1], 1 << 16).splitlines() if line.strip(" ^")] or [""]
    # A compiler's first line may be the place, its last one the reason.
    return plain(f"{type(seen[-1]).__name__}: {lines[-1 if lines[0].startswith('at ') else 0]}")


def ending(code: int | None) -> str:
    """The end of a process as text; a code above 128 is that of a signal, as shells and bubblewrap tell it."""
    number = -code if code is not None and code < 0 else (code or 0) - 128
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"exit code {code}"


def _read_bytes(pipe: int, number: int) -> bytes:
    got = bytearray()
    while number and (part := os.read(pipe, min(number, CHUNK_BYTES))):
        got += part
        number -= len(part)
    return bytes(got)
