"""What a guest's HTTP request may say, and what of it survives a redirect.

Decisions on values: no socket, no clock.  Headers are ASCII tokens and visible text, framing is the host's
own, `Host` is the host that was checked.  Source: RFC 9110, host-abi.md 1.6, cases ABI-17 and ABI-18.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aos_runtime.policy.urls import Url

MAX_HEADERS = 128
MAX_HEADER_BYTES = 64 * 1024
"""Of all names and values together."""
MAX_REDIRECTS = 10
REDIRECTS = frozenset({301, 302, 303, 307, 308})

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}\Z")
_VALUE = re.compile(r"[\t\x20-\x7e]*\Z")
_SECRET = re.compile(r"\{\{secret:([A-Za-z_][A-Za-z0-9_]{0,127})\}\}")
_SECRET_START = "{{secret:"

KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_REFUSED_METHODS = frozenset({"CONNECT", "TRACE"})
"""A tunnel past every check, and an echo of what was injected."""
_FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""The host's own; a guest's are left out."""
_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})
_OF_THE_BODY = frozenset(
    {"content-type", "content-encoding", "content-language", "content-location", "digest"}
)
_DIGESTS = {"sha256": 32, "sha384": 48, "sha512": 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request as it will be sent.  `private` are the names of headers that hold an injected secret."""

    method: str
    url: Url
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
    private: frozenset[str] = frozenset()

    def moved_to(self, url: Url, status: int) -> HttpRequest:
        """What follows a redirect: 303 and old habits turn it into a GET, a foreign origin gets no
        credentials.
        """
        headers, method, body = self.headers, self.method, self.body
        if (status == 303 and method != "HEAD") or (status in (301, 302) and method not in ("GET", "HEAD")):
            method, body = "GET", None
            headers = _without(headers, _OF_THE_BODY)
        private = self.private
        if url.origin != self.url.origin:
            headers = _without(headers, _CREDENTIALS | private)
            private = frozenset()
        return replace(self, method=method, url=url, headers=headers, body=body, private=private)


@dataclass(frozen=True, slots=True, kw_only=True)
class Integrity:
    """A digest that a body must have; `algorithm` is hashlib's name."""

    algorithm: str
    digest: bytes


class Refused(Exception):
    """A request that is not sent; `case` is that of astrid:http's `error-code`."""

    def __init__(self, case: str, why: str) -> None:
        self.case = case
        self.why = why


def check_method(name: str) -> str:
    """The method as it is sent.  `Refused` where it is none, or one that a capsule may not use."""
    upper = name.upper()
    method = upper if upper in KNOWN_METHODS | _REFUSED_METHODS else name
    if method in _REFUSED_METHODS or not _TOKEN.match(method):
        raise Refused("invalid-request", f"the method {name[:40]!r} cannot be used")
    return method


def check_headers(
    headers: Sequence[tuple[str, str]], url: Url, secret: Callable[[str], str | None]
) -> tuple[tuple[tuple[str, str], ...], frozenset[str]]:
    """The headers as they are sent, without `Host`, and the names of those that hold a secret.

    `secret(name)` gives what stands for `{{secret:name}}`, None where it is not set: then the header is left
    out.  It raises `Refused` where the capsule has no such secret.
    """
    if len(headers) > MAX_HEADERS or sum(len(n) + len(v) for n, v in headers) > MAX_HEADER_BYTES:
        raise Refused("invalid-request", "too many headers")
    sent: list[tuple[str, str]] = []
    private: set[str] = set()
    for name, value in headers:
        lower = name.lower()
        if not _TOKEN.match(name) or not _VALUE.match(value):
            raise Refused("invalid-request", f"the header {name[:64]!r} is not valid")
        if lower == "host" and value.strip().lower() != url.authority:
            raise Refused("invalid-request", "the Host header names another host than the address")
        if lower in _FRAMING or lower == "host":
            continue
        injected = _inject(value, secret)
        if injected is None:
            continue
        if injected is not value:
            private.add(lower)
        sent.append((name, injected))
    return tuple(sent), frozenset(private)


def parse_integrity(text: str) -> Integrity:
    """Read `sha256-<base64>` and the like.  `Refused` for anything else."""
    algorithm, _, encoded = text.strip().partition("-")
    try:
        digest = base64.b64decode(encoded, validate=True)
    except ValueError:
        digest = b""
    if _DIGESTS.get(algorithm) != len(digest):
        raise Refused("invalid-request", "the integrity is not sha256-, sha384- or sha512-<base64>")
    return Integrity(algorithm=algorithm, digest=digest)


def _inject(value: str, secret: Callable[[str], str | None]) -> str | None:
    """`value` with its placeholders filled, itself where it has none, None where one is not set."""
    if _SECRET_START not in value:
        return value
    parts: list[str] = []
    place = 0
    for found in _SECRET.finditer(value):
        text = secret(found[1])
        if text is None:
            return None
        parts += (value[place : found.start()], text)
        place = found.end()
        if not _VALUE.match(text):
            raise Refused("invalid-request", f"the secret {found[1]} cannot stand in a header")
    rest = value[place:]
    if any(_SECRET_START in written for written in (*parts[::2], rest)):
        raise Refused("invalid-request", "a placeholder is written {{secret:NAME}}")
    return "".join((*parts, rest))


def _without(headers: Sequence[tuple[str, str]], names: frozenset[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in headers if name.lower() not in names)
