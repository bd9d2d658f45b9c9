"""The endpoint of a language model: its address, the model's name, and the key, which is read from the environment."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from constrint.errors import UsageError

#: Default environment variable of the key. No provider uses this name, so a key never goes to an endpoint that it was
#: not meant for.
KEY_VARIABLE: Final = "CONSTRINT_LLM_KEY"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


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
        UsageError: When the address is malformed, or the key would travel unencrypted or in the address. No message has
            the address or the key: a user may have mistaken one for the other.
    """

    url: str
    model: str
    key_variable: str = KEY_VARIABLE
    timeout_s: float = 120.0
    num_retries: int = 2
    max_reply_tokens: int = 8192

    def __post_init__(self) -> None:
        if not _VARIABLE.fullmatch(self.key_variable):
            raise UsageError(
                "--key-variable takes the name of an environment variable, of letters, digits and _; the key itself "
                "belongs in the variable, not on a command line."
            )
        parts = _parts(self.url)
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise UsageError(
                "--llm takes an address without user, password and query, such as https://host/v1; the key comes from "
                f"the environment variable {self.key_variable}."
            )
        if not self.model or len(self.model) > 120 or not self.model.isprintable():
            raise UsageError("--model takes the name of a model, printable and of at most 120 characters.")
        if not all("!" <= char <= "~" for char in self.key):
            raise UsageError(
                f"the key of {self.key_variable} has characters that no header takes: other than printable ASCII."
            )
        if self.key and parts.scheme == "http" and not self.is_here:
            raise UsageError(
                f"{self.host} would get the key of {self.key_variable} unencrypted; use https://, or unset the "
                "variable if the server wants no key."
            )

    @property
    def host(self) -> str:
        """Host and port, the only part of the address that is printed or stored."""
        parts = _parts(self.url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

    @property
    def is_here(self) -> bool:
        """Whether the server is on this machine."""
        host = _parts(self.url).hostname or ""
        try:
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    @property
    def key(self) -> str:
        """The key; empty where there is none."""
        return os.environ.get(self.key_variable, "").strip()


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or not url.isprintable():
        raise UsageError("--llm takes the address of an OpenAI-compatible endpoint, such as http://localhost:8000/v1.")
    return parts
