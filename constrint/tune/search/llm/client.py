"""Questions to a language model over HTTP, through the `openai` package.

Every failure of the endpoint (silence, an endless or a broken reply, another protocol) is a `Response` with a fault: it
costs a question, and raises nothing. One time limit covers connecting, retries and reading; limits of bytes keep an
endless reply from filling memory. Redirects are not followed: the key goes to the named host alone.

`ModelClient.ask` is the only way by which text of an endpoint, of its errors or of the HTTP package comes into the
program, and it hides the key there (`hiding.py`), before anything is cut, quoted, parsed or stored.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from constrint.errors import UsageError, printed_line
from constrint.tune.search.llm.answer import Fault, Message, Response, Usage, estimated_tokens
from constrint.tune.search.llm.endpoint import Endpoint
from constrint.tune.search.llm.hiding import MOST_STAGES, EncodedTooOftenError, hidden
from constrint.tune.search.llm.parse import MAX_REPLY

if TYPE_CHECKING:
    from openai import AsyncOpenAI

#: Most bytes of a reply, and of the body of an error; of a longer body nothing is shown.
MAX_REPLY_BYTES, MAX_ERROR_BYTES = 1 << 20, 1 << 14
#: Most characters of a fault's message.
MAX_MESSAGE: Final = 500
#: Seconds after the time limit in which a request may end by itself; a name that is looked up cannot be interrupted.
GRACE_S: Final = 1.0
#: Sent in place of a missing key: local servers require the header and ignore its value.
NO_KEY: Final = "none"
#: Explanations of HTTP statuses after which a further question is of no use.
REFUSALS: Final[Mapping[int, str]] = {
    401: "it does not take the key; see the variable {variable}",
    403: "the key may not do this; see the variable {variable}",
    404: "it knows no such address or model; see --llm (it mostly ends with /v1) and --model",
}


class _Content(msgspec.Struct):
    content: str | list[Any] | None = None


class _Choice(msgspec.Struct):
    message: _Content
    finish_reason: Any = None


class _Completion(msgspec.Struct):
    """The fields of a chat completion that are read."""

    choices: list[_Choice]
    usage: Any = None


class _TokenCounts(msgspec.Struct):
    prompt_tokens: Annotated[int, msgspec.Meta(gt=0, lt=2**53)]
    completion_tokens: Annotated[int, msgspec.Meta(gt=0, lt=2**53)]


class ModelClient:
    """Asks one model at one endpoint.

    Args:
        endpoint: Address, model and key.

    Raises:
        UsageError: When the `openai` package is not installed.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        try:
            import openai  # noqa: F401
        except ImportError:
            raise UsageError("--llm needs the openai package: pip install 'constrint[llm]'.") from None

    def ask(self, messages: Sequence[Message], max_tokens: int, limit_s: float | None = None) -> Response:
        """Ask one question.

        Args:
            messages: The conversation.
            max_tokens: Most tokens of the reply.
            limit_s: Seconds left of the run; None for the endpoint's limit alone.
        """
        key = self.endpoint.key
        timeout_s = max(0.0, min(self.endpoint.timeout_s, self.endpoint.timeout_s if limit_s is None else limit_s))
        answer = _within(timeout_s, self._reply_to(messages, max_tokens, key))
        if not answer.usage.input_tokens:
            # The endpoint may have counted a question without an answer: its tokens are added as an estimate.
            question = 0 if answer.fault == "unreachable" else estimated_tokens(one.content for one in messages)
            usage = Usage(input_tokens=question, output_tokens=estimated_tokens([answer.text]), is_estimated=True)
            answer = msgspec.structs.replace(answer, usage=usage)
        try:
            text, message = hidden(answer.text, key), hidden(answer.message, key)
        except EncodedTooOftenError:
            answer = msgspec.structs.replace(answer, fault=answer.fault or "broken")
            text, message = "", f"its text is encoded more than {MOST_STAGES} times over, and is not taken"
        return msgspec.structs.replace(answer, text=text, message=printed_line(message, MAX_MESSAGE))

    async def _reply_to(self, messages: Sequence[Message], max_tokens: int, key: str) -> Response:
        import openai

        conversation = [{"role": message.role, "content": message.content} for message in messages]
        body = {"model": self.endpoint.model, "messages": conversation}
        try:
            async with self._client(key) as client:
                try:
                    status, reply = await _posted(client, body | {"max_tokens": max_tokens})
                except openai.BadRequestError as error:
                    if b"max_completion_tokens" not in error.response.content:
                        raise
                    # Models that think before they answer take the limit under this name only.
                    status, reply = await _posted(client, body | {"max_completion_tokens": max_tokens})
        except openai.APIStatusError as error:
            return self._refused(error.status_code, error.response.content)
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            return _fault("unreachable", f"{self.endpoint.host} cannot be reached: {cause or type(cause).__name__}")
        except _TooLongError:
            return _fault("too_long", f"the reply has more than {MAX_REPLY_BYTES:,} bytes")
        except Exception as error:  # noqa: BLE001 - whatever an endpoint brings about in the package is its answer
            return _fault("broken", f"the reply broke off or is none: {error or type(error).__name__}")
        return _read(reply) if status == 200 else self._refused(status, b"")

    def _client(self, key: str) -> AsyncOpenAI:
        import openai

        endpoint = self.endpoint
        # A server on this machine is asked directly, whatever proxy the environment names; over http no certificate is
        # looked at, and reading those of the system takes most of a question's time.
        http = openai.DefaultAsyncHttpxClient(
            verify=not (endpoint.is_here and endpoint.url.startswith("http://")),
            follow_redirects=False,
            event_hooks={"response": [_limit_errors]},
            trust_env=not endpoint.is_here,
        )
        for package in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
            # Their logs have headers of the endpoint, in which it may send the key back.
            logging.getLogger(package).setLevel(logging.CRITICAL)
        client = openai.AsyncOpenAI(
            api_key=key or NO_KEY,
            base_url=endpoint.url,
            max_retries=endpoint.num_retries,
            timeout=endpoint.timeout_s,
            http_client=http,
        )
        # Read from the environment by the package, and meant for its maker's endpoint.
        client.organization = client.project = None
        return client

    def _refused(self, status: int, body: bytes) -> Response:
        """The response to an HTTP error."""
        fault: Fault = "busy" if status in (408, 409, 429) or status >= 500 else "refused"
        why = REFUSALS.get(status, "").format(variable=self.endpoint.key_variable)
        reason = "; ".join(filter(None, (why, _said(body))))
        return _fault(fault, f"{self.endpoint.host} answers with HTTP status {status}: {reason}".rstrip(": "))


def _within(limit_s: float, request: Coroutine[Any, Any, Response]) -> Response:
    """Wait for an answer, in a thread: this one may run an event loop, and some waits can only be left behind."""
    answers: queue.SimpleQueue[Response] = queue.SimpleQueue()
    late = _fault("late", f"no reply within {limit_s:.3g} s")

    async def limited() -> Response:
        # Connections that break after the answer would be logged, with a traceback.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        try:
            return await asyncio.wait_for(request, limit_s)
        except (asyncio.TimeoutError, TimeoutError):
            return late

    def run() -> None:
        try:
            answers.put(asyncio.run(limited()))
        except Exception as error:  # noqa: BLE001 - no event loop can be started, say
            answers.put(_fault("broken", f"the question could not be asked: {error or type(error).__name__}"))

    threading.Thread(target=run, name="constrint-llm", daemon=True).start()
    try:
        return answers.get(timeout=limit_s + GRACE_S)
    except queue.Empty:
        return late


class _TooLongError(Exception):
    """Raised when a reply has too many bytes."""


async def _posted(client: AsyncOpenAI, body: Mapping[str, Any]) -> tuple[int, bytes]:
    """Status and body of a reply, read piece by piece up to the limit of bytes."""
    create: Any = client.chat.completions.with_streaming_response.create
    async with create(**body) as response:
        read = bytearray()
        async for piece in response.iter_bytes():
            read += piece
            if len(read) > MAX_REPLY_BYTES:
                raise _TooLongError
        return response.status_code, bytes(read)


async def _limit_errors(response: Any) -> None:
    """Cut the body of an error or a redirection, which the package would read whole."""
    if response.status_code >= 300:
        response.headers.pop("content-encoding", None)
        # The HTTP package, httpx or its successor, looks at the type.
        http = import_module(type(response).__module__.partition(".")[0])
        response.stream = type("ShortStream", (_Short, http.AsyncByteStream), {})(response.stream)


class _Short:
    """The first bytes of a stream; more than `MAX_ERROR_BYTES` where it is longer."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        num_read = 0
        async for piece in self._stream:
            yield piece
            num_read += len(piece)
            if num_read > MAX_ERROR_BYTES:
                return

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()


def _said(body: bytes) -> str:
    """The text of an error's body; empty where it was cut: a part of a key cannot be found."""
    if len(body) > MAX_ERROR_BYTES:
        return ""
    try:
        said = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return body.decode(errors="replace")
    for name in ("error", "message", "detail"):
        said = said.get(name, said) if isinstance(said, dict) else said
    return said if isinstance(said, str) else body.decode(errors="replace")


def _read(body: bytes) -> Response:
    """The response in the body of a completion."""
    try:
        completion = msgspec.json.decode(body, type=_Completion)
    except (ValueError, RecursionError) as error:
        return _fault("broken", f"the reply is no chat completion: {error}")
    text = _text_of(completion.choices[0].message.content) if completion.choices else ""
    usage = _usage_of(completion.usage)
    if not text:
        return Response(fault="broken", message="the reply has no text", usage=usage)
    if len(text) > MAX_REPLY:
        return Response(fault="too_long", message=f"the reply has more than {MAX_REPLY:,} characters", usage=usage)
    is_cut = completion.choices[0].finish_reason == "length"
    after = f" after {usage.output_tokens:,} tokens" if usage.output_tokens else ""
    return Response(text=text, message=f"it was cut{after}" if is_cut else "", usage=usage)


def _text_of(content: str | list[Any] | None) -> str:
    """The text of a message, which may be a list of parts."""
    if not isinstance(content, list):
        return content or ""
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(part for part in parts if isinstance(part, str))


def _usage_of(stated: Any) -> Usage:
    """The endpoint's count of tokens; nothing where it states none."""
    try:
        counted = msgspec.convert(stated, type=_TokenCounts)
    except msgspec.ValidationError:
        return Usage()
    return Usage(input_tokens=counted.prompt_tokens, output_tokens=counted.completion_tokens)


def _fault(fault: Fault, message: str) -> Response:
    return Response(fault=fault, message=message)
