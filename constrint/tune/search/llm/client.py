"""Questions to a language model over HTTP, through the `openai` package.

Every failure of the endpoint (silence, an endless or a broken reply, another protocol) is a `Response` with a fault: it
costs a question, and raises nothing. One time limit covers connecting, retries and reading; a limit of bytes keeps an
endless reply from filling memory. Redirects are not followed: the key goes to the named host alone. The key is read
from the environment for each question and appears in no record, message or error: replies are searched for it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from constrint.errors import UsageError
from constrint.tune.search.llm.answer import Fault, Message, Response, Usage, estimated_tokens

if TYPE_CHECKING:
    from openai import AsyncOpenAI


#: Most bytes of a reply, and of the body of an error.
MAX_REPLY_BYTES, MAX_ERROR_BYTES = 1 << 20, 1 << 14
#: Most characters of an endpoint's error text.
MAX_ERROR = 200
#: Explanations of HTTP statuses after which a further question is of no use.
REFUSALS = {
    401: "it does not take the key; see the variable {variable}",
    403: "the key may not do this; see the variable {variable}",
    404: "it knows no such address or model; see --llm (it mostly ends with /v1) and --model",
}


class _Content(msgspec.Struct):
    content: str | list[Any] | None = None


class _Choice(msgspec.Struct):
    message: _Content
    finish_reason: str | None = None


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
        timeout_s = min(self.endpoint.timeout_s, limit_s if limit_s is not None else self.endpoint.timeout_s)
        started = time.monotonic()
        try:
            answer = _run(asyncio.wait_for(self._reply_to(messages, max_tokens), max(timeout_s, 0.0)))
        except (asyncio.TimeoutError, TimeoutError):
            answer = _fault("late", f"no reply within {timeout_s:.3g} s")
        if answer.fault and not answer.usage.input_tokens and time.monotonic() > started:
            # The endpoint may have counted a question without an answer: its tokens are added as an estimate.
            question = estimated_tokens([message.content for message in messages])
            usage = Usage(input_tokens=0 if answer.fault == "unreachable" else question, is_estimated=True)
            answer = msgspec.structs.replace(answer, usage=usage)
        hidden = self.endpoint.without_key
        return msgspec.structs.replace(answer, text=hidden(answer.text), message=hidden(answer.message))

    async def _reply_to(self, messages: Sequence[Message], max_tokens: int) -> Response:
        import openai

        most = {"max_tokens": max_tokens}
        async with self._client() as client:
            try:
                try:
                    status, body = await _posted(client, self._body(messages, most))
                except openai.BadRequestError as error:
                    if "max_completion_tokens" not in str(error):
                        raise
                    # Models that think before they answer take the limit under this name only.
                    most = {"max_completion_tokens": max_tokens}
                    status, body = await _posted(client, self._body(messages, most))
            except openai.APIStatusError as error:
                return self._refused(error.status_code, str(error))
            except openai.APIConnectionError as error:
                cause = error.__cause__ or error
                return _fault("unreachable", f"{self.endpoint.host} cannot be reached: {_one_line(cause)}")
            except _TooLongError:
                return _fault("too_long", f"the reply has more than {MAX_REPLY_BYTES:,} bytes")
            except Exception as error:  # noqa: BLE001 - whatever an endpoint brings about in the package is its answer
                return _fault("broken", f"the reply broke off or is none: {_one_line(error)}")
        return _read(body, messages) if status == 200 else self._refused(status, "")

    def _client(self) -> AsyncOpenAI:
        import openai

        endpoint = self.endpoint
        # A server on this machine is asked directly, whatever proxy the environment names.
        http = openai.DefaultAsyncHttpxClient(
            follow_redirects=False,
            event_hooks={"response": [_limit_errors]},
            trust_env=not endpoint.is_here,
        )
        client = openai.AsyncOpenAI(
            api_key=endpoint.key or NO_KEY,
            base_url=endpoint.url,
            max_retries=endpoint.num_retries,
            timeout=endpoint.timeout_s,
            http_client=http,
        )
        # Read from the environment by the package, and meant for its maker's endpoint.
        client.organization = client.project = None
        return client

    def _body(self, messages: Sequence[Message], most: Mapping[str, int]) -> dict[str, Any]:
        conversation = [{"role": message.role, "content": message.content} for message in messages]
        return {"model": self.endpoint.model, "messages": conversation, **most}

    def _refused(self, status: int, body: str) -> Response:
        """The response to an HTTP error."""
        fault: Fault = "busy" if status in (408, 409, 429) or status >= 500 else "refused"
        why = REFUSALS.get(status, "").format(variable=self.endpoint.key_variable)
        reason = "; ".join(filter(None, (why, body[:MAX_ERROR] and _one_line(body))))
        return _fault(fault, f"{self.endpoint.host} answers with HTTP status {status}: {reason}".rstrip(": "))


def _run(request: Coroutine[Any, Any, Response]) -> Response:
    """Wait for an answer, in a second thread where this one runs an event loop, as notebooks do."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(request)
    with ThreadPoolExecutor(1, "constrint-llm") as thread:
        return thread.submit(asyncio.run, request).result()


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
    """Cut the body of an error, which the package would read whole."""
    if response.status_code >= 400:
        response.headers.pop("content-encoding", None)
        # The HTTP package, httpx or its successor, looks at the type.
        http = import_module(type(response).__module__.partition(".")[0])
        response.stream = type("ShortStream", (_Short, http.AsyncByteStream), {})(response.stream)


class _Short:
    """The first bytes of a stream."""

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


def _read(body: bytes, messages: Sequence[Message]) -> Response:
    """The response in the body of a completion."""
    try:
        completion = msgspec.json.decode(body, type=_Completion)
    except (ValueError, RecursionError) as error:
        return _fault("broken", f"the reply is no chat completion: {_one_line(error)}")
    text = _text_of(completion.choices[0].message.content) if completion.choices else ""
    usage = _usage_of(completion.usage, messages, text)
    if not text:
        return Response(fault="broken", message="the reply has no text", usage=usage)
    is_cut = completion.choices[0].finish_reason == "length"
    cut = f"it was cut after {usage.output_tokens:,} tokens" if is_cut else ""
    return Response(text=text, message=cut, usage=usage)


def _text_of(content: str | list[Any] | None) -> str:
    """The text of a message, which may be a list of parts."""
    if not isinstance(content, list):
        return content or ""
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(part for part in parts if isinstance(part, str))


def _usage_of(stated: Any, messages: Sequence[Message], text: str) -> Usage:
    """The endpoint's count of tokens, or an estimate."""
    try:
        counted = msgspec.convert(stated, type=_TokenCounts)
        return Usage(input_tokens=counted.prompt_tokens, output_tokens=counted.completion_tokens)
    except msgspec.ValidationError:
        pass
    question = estimated_tokens([message.content for message in messages])
    return Usage(input_tokens=question, output_tokens=estimated_tokens([text]), is_estimated=True)


def _fault(fault: Fault, message: str) -> Response:
    return Response(fault=fault, message=message)


def _one_line(error: object) -> str:
    """An error as one line of printable characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:MAX_ERROR]


#: Default environment variable of the key. No provider uses this name, so a key never goes to an endpoint that it was
#: not meant for.
KEY_VARIABLE = "CONSTRINT_LLM_KEY"
#: Sent in place of a missing key: local servers require the header and ignore its value.
NO_KEY = "none"
#: Shorter keys are not hidden: they would match in every text.
LEAST_KEY = 8
HIDDEN = "[key]"


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible endpoint.

    Args:
        url: Base address, `https://host/v1`.
        model: Name of the model there.
        key_variable: Environment variable of the key; it may be unset for a server without keys.
        timeout_s: Time limit of a question with its retries, in seconds.
        num_retries: Most retries where the endpoint is busy or unreachable.
        max_reply_tokens: Most tokens of a reply.

    Raises:
        UsageError: When the address is malformed, or the key would travel unencrypted or in the address.
    """

    url: str
    model: str
    key_variable: str = KEY_VARIABLE
    timeout_s: float = 120.0
    num_retries: int = 2
    max_reply_tokens: int = 8192

    def __post_init__(self) -> None:
        parts = _parts(self.url)
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise UsageError(
                "--llm takes an address without user, password and query, such as https://host/v1; the key comes from "
                f"the environment variable {self.key_variable}."
            )
        if not self.model or len(self.model) > 120 or not self.model.isprintable():
            raise UsageError("--model takes the name of a model, printable and of at most 120 characters.")
        if self.key and parts.scheme == "http" and not self.is_here:
            raise UsageError(
                f"{self.host} would get the key of {self.key_variable} unencrypted; use https://, or unset the "
                "variable if the server wants no key."
            )

    @property
    def host(self) -> str:
        """Host and port, the only part of the address that is stored."""
        parts = _parts(self.url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

    @property
    def is_here(self) -> bool:
        """Whether the server is on this machine."""
        return _is_loopback(_parts(self.url).hostname or "")

    @property
    def key(self) -> str:
        """The key; empty where there is none."""
        return os.environ.get(self.key_variable, "").strip()

    def without_key(self, text: str) -> str:
        """A text with every occurrence of the key hidden."""
        return text.replace(self.key, HIDDEN) if len(self.key) >= LEAST_KEY else text


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("--llm takes the address of an OpenAI-compatible endpoint, such as http://localhost:8000/v1.")
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
