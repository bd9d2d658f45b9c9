"""Transcripts: questions and answers as lines of a file, which replays them without a model.

A line is on the disk before its answer is used. No answer has the key of an endpoint (`hiding.py`), and
nothing else of the environment is written. A transcript is untrusted data: its answers go through the same parser and
the same gates as a model's.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Annotated

import msgspec
from msgspec import Meta

from constrint.errors import UsageError
from constrint.tune.search.llm.answer import FINAL, PromptRequest, Purpose, Response, Speaker

SCHEMA = "constrint.transcript/1"
#: Largest file that is read.
MAX_BYTES = 64 << 20


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of a transcript: the subject of the run.

    Args:
        schema: The version of the format.
        run: Name of the run in the store.
        proposer: Name of the speaker.
        host: The endpoint's host; empty for built-in rules.
        gpu: The GPU's name.
        kernel: The operation, or the implementation, as named by the request.
        workload: The workload as text.
        rounds: Most rounds.
        trials: Most candidates of a round.
        judge: Whether the speaker judged candidates.
    """

    schema: str
    run: Annotated[str, Meta(pattern="^[0-9A-Za-z_.-]{1,64}$")]
    proposer: Annotated[str, Meta(max_length=200)]
    host: Annotated[str, Meta(max_length=300)]
    gpu: str
    kernel: str
    workload: str
    rounds: Annotated[int, Meta(ge=1, le=1000)]
    trials: Annotated[int, Meta(ge=1, le=64)]
    judge: bool = False


class Exchange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question, as its digest, and the answer."""

    purpose: Purpose
    round: int
    digest: str
    answer: Response


class Transcript:
    """A speaker that replays a transcript, and continues it with another speaker's answers.

    Args:
        header: The subject of the run.
        exchanges: Exchanges to replay.
        file: Receives new exchanges; None to write none.
        note: Called once, when a question differs from the recorded one.
    """

    def __init__(
        self, header: Header, exchanges: Sequence[Exchange], file: IO[bytes] | None, note: Callable[[str], None]
    ) -> None:
        self.header, self.name, self.host = header, header.proposer, header.host
        self._left, self._file, self._note = deque(exchanges), file, note
        self._speaker: Speaker | None = None
        self._has_noted = False

    def speaking(self, speaker: Speaker) -> Transcript:
        """Continue with a speaker after the recorded exchanges; without one the run ends there."""
        self._speaker = speaker
        return self

    def answer(self, question: PromptRequest) -> Response:
        """The recorded answer, else the speaker's, which is recorded."""
        purpose, number = question.purpose, question.facts.round
        if self._left:
            return self._again(purpose, number, question.digest)
        if self._speaker is None:
            return Response(fault="spent", message="the transcript ends here")
        answer = self._speaker.answer(question)
        if self._file is not None:
            _append(self._file, Exchange(purpose=purpose, round=number, digest=question.digest, answer=answer))
        return answer

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _again(self, purpose: Purpose, number: int, digest: str) -> Response:
        exchange = self._left.popleft()
        if (exchange.purpose, exchange.round) != (purpose, number):
            self._left.clear()
            was = f"it has an answer to {exchange.purpose!r} of round {exchange.round + 1}"
            message = (
                f"the transcript is of another course of events: {was}, and {purpose!r} of round {number + 1} is asked"
            )
            return Response(fault="spent", message=message)
        if exchange.digest != digest and not self._has_noted:
            self._has_noted = True
            self._note(
                f"from round {exchange.round + 1} on the questions are other ones than the transcript's: kernels, "
                "rules, the store or measured times have changed."
            )
        return exchange.answer


def recorded(path: Path, header: Header, *, resume: bool, note: Callable[[str], None]) -> Transcript:
    """Open a transcript for writing: a new file, or with `resume` an existing one, which is continued.

    Raises:
        UsageError: When the file exists and `resume` is false, is about another subject, or cannot be written.
    """
    exchanges: list[Exchange] = []
    is_old = resume and path.exists()
    if is_old:
        header, exchanges = _read_for(path, header, ("gpu", "kernel", "workload", "proposer", "judge"), note)
        while exchanges and exchanges[-1].answer.fault in FINAL:
            exchanges.pop()  # what ended the earlier run does not end this one
    try:
        if is_old:
            part = path.with_name(path.name + ".part")
            part.write_bytes(b"".join(map(_line, (header, *exchanges))))
            os.replace(part, path)
        file = path.open("ab" if is_old else "xb")
    except FileExistsError:
        raise UsageError(
            f"the transcript {path} is there already: --replay {path} runs it again, --resume goes on with it; or name "
            "another file."
        ) from None
    except OSError as error:
        raise _unwritable(path, error) from None
    if not is_old:
        _append(file, header)
    return Transcript(header, exchanges, file, note)


def replayed(path: Path, header: Header, note: Callable[[str], None]) -> Transcript:
    """Open a transcript for replay.

    Raises:
        UsageError: When it cannot be read, or is about another workload than `header`.
    """
    return Transcript(*_read_for(path, header, ("gpu", "kernel", "workload"), note), None, note)


def read(path: Path, note: Callable[[str], None]) -> tuple[Header, list[Exchange]]:
    """Read a transcript. An incomplete last line is left out, with a note.

    Raises:
        UsageError: When the file is no transcript; names the line.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read the transcript {path}: {error.strerror}.") from None
    if len(text) > MAX_BYTES:
        raise UsageError(f"{path} has more than {MAX_BYTES:,} bytes: it is no transcript.")
    lines = text.split(b"\n")
    if lines.pop():
        note(f"the last line of {path} was not written to its end, and is left out.")
    if not lines:
        raise UsageError(f"{path} is no transcript: it has no line.")
    number, exchanges = 1, []
    try:
        header = msgspec.json.decode(lines[0], type=Header)
        if header.schema != SCHEMA:
            raise UsageError(f"{path} has the schema {header.schema[:40]!r}, and this version reads {SCHEMA}.")
        if not (header.proposer + header.host).isprintable():
            raise UsageError(f"{path}, line 1: the proposer's name has control characters.")
        for line in lines[1:]:
            number += 1
            exchanges.append(msgspec.json.decode(line, type=Exchange))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError(f"{path}, line {number}: it is no line of a transcript: {error}.") from None
    return header, exchanges


def _read_for(
    path: Path, new: Header, names: Sequence[str], note: Callable[[str], None]
) -> tuple[Header, list[Exchange]]:
    """Read a transcript that has the same subject as a new one."""
    old, exchanges = read(path, note)
    for name in names:
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            raise UsageError(
                f"the transcript {path} is of the {name} {before!r}, and {now!r} is asked; name another file."
            )
    return old, exchanges


def _line(line: msgspec.Struct) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def _append(file: IO[bytes], line: msgspec.Struct) -> None:
    """Write a line and wait until it is on the disk.

    Raises:
        UsageError: When it cannot be written.
    """
    try:
        file.write(_line(line))
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        raise _unwritable(Path(file.name), error) from None


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write the transcript {path}: {error.strerror}; name another file.")
