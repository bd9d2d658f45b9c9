"""Where a language model answers: an address, a model's name, and the name of the variable that holds the key.

The key is read from the environment when a question is asked. It stands in no record, no message and no error: what an
endpoint sends back is searched for it, too.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from constrint.errors import UsageError

#: The variable that holds the key, unless another one is named. It is not that of any provider, so that a key is never
#: sent to an endpoint that it was not meant for.
KEY_VARIABLE = "CONSTRINT_LLM_KEY"
#: What is sent where there is no key: servers on one's own machine want a header, and do not look at it.
NO_KEY = "none"
#: Shorter keys are no secrets, and would be found in every text.
LEAST_KEY = 8
HIDDEN = "[key]"


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible endpoint.

    Args:
        url: Its base, as `https://host/v1`.
        model: The model's name there.
        key_variable: The environment variable that holds the key; a server without keys needs none.
        timeout_s: Seconds for a question, retries and waiting included.
        num_retries: How often a question is asked again where the endpoint is busy or out of reach.
        max_reply_tokens: Tokens of a reply at most.

    Raises:
        UsageError: When the address is none, or would carry a key where others can read it.
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
        """The host, with the port if one is named: all that is kept of the address."""
        parts = _parts(self.url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

    @property
    def is_here(self) -> bool:
        """Whether it is a server on this machine."""
        return _is_loopback(_parts(self.url).hostname or "")

    @property
    def key(self) -> str:
        """The key; empty where there is none."""
        return os.environ.get(self.key_variable, "").strip()

    def without_key(self, text: str) -> str:
        """A text in which the key, if it stands there, is hidden."""
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
