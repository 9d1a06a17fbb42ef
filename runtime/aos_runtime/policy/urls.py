"""HTTP addresses, read in exactly one way: what is checked is what is dialled and sent.

Strict where parsers differ: no control characters, no backslash, no name and password before the host.  What
a browser would encode in path and query is encoded.  Source: RFC 3986, host-abi.md 1.6, case ABI-18.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, urljoin

from aos_runtime.policy.hosts import MAX_PORT, Host, parse_host

MAX_URL_CHARS = 16_384
DEFAULT_PORTS = {"http": 80, "https": 443}

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/?#]*))?"
    r"(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?:#.*)?\Z"
)
_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]@]*)(?::(?P<port>[0-9]{0,5}))?\Z")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")
_KEPT = "!#$%&'()*+,/:;=?@[]~|^"


class UrlProblem(StrEnum):
    """Why a text is no address that can be requested: the cases of astrid:http's `error-code`."""

    INVALID = "invalid-request"
    SCHEME = "scheme-denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """`target` is path and query as they are sent, ASCII, starting with `/`."""

    scheme: str
    host: Host
    port: int
    target: str

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    @property
    def origin(self) -> tuple[str, str, int]:
        """What credentials belong to: scheme, host and port."""
        return self.scheme, self.host.text, self.port

    @property
    def authority(self) -> str:
        """Host, and port where it is not the scheme's own: what the `Host` header says."""
        if self.port == DEFAULT_PORTS[self.scheme]:
            return self.host.with_port("").removesuffix(":")
        return self.host.with_port(self.port)

    def render(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    def without_query(self) -> str:
        """What may be put on record: a query can hold a secret."""
        return f"{self.scheme}://{self.authority}{self.target.partition('?')[0]}"


def parse_url(text: str) -> Url | UrlProblem:
    """Read an absolute address.  The fragment is dropped; it is never sent."""
    if len(text) > MAX_URL_CHARS:
        return UrlProblem.INVALID
    text = text.strip(" ")
    found = _URL.match(text)
    if found is None or _FORBIDDEN.search(text):
        return UrlProblem.INVALID
    scheme = found["scheme"].lower()
    if scheme not in DEFAULT_PORTS:
        return UrlProblem.SCHEME
    authority = _AUTHORITY.match(found["authority"] or "")
    if authority is None:
        return UrlProblem.INVALID
    host = parse_host(authority["host"])
    if host is None:
        return UrlProblem.INVALID
    port = int(authority["port"] or DEFAULT_PORTS[scheme])
    if not 0 < port <= MAX_PORT:
        return UrlProblem.INVALID
    target = quote(found["path"] or "/", safe=_KEPT) + quote(found["query"] or "", safe=_KEPT)
    return Url(scheme=scheme, host=host, port=port, target=target)


def resolve_location(base: Url, location: str) -> Url | UrlProblem:
    """Where a redirect from `base` leads."""
    if _FORBIDDEN.search(location):
        return UrlProblem.INVALID
    try:
        return parse_url(urljoin(base.render(), location.strip(" ")))
    except ValueError:
        return UrlProblem.INVALID
