"""A whole HTTP request: hop by hop through the door, then the response's body within its bounds.

Redirects are followed here, each hop admitted, looked up, checked and connected anew, with the deadlines of
the whole still running.  Source: host-abi.md 1.6, cases ABI-15 to ABI-19, SEC-05.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aos_runtime import AOS_VERSION
from aos_runtime.network.bodies import ACCEPTED, Body, decoded, encodings_of
from aos_runtime.network.door import NetworkDoor
from aos_runtime.network.exchange import Exchange, Head, Headers
from aos_runtime.network.faults import Fault, NetworkFault
from aos_runtime.network.waits import Wait
from aos_runtime.policy.http_rules import MAX_REDIRECTS, REDIRECTS, HttpRequest, Integrity
from aos_runtime.policy.urls import Url, UrlProblem, resolve_location

MAX_BODY_BYTES = 10 * 1024 * 1024
CONNECT_S = 30.0
FIRST_BYTE_S = 120.0
BETWEEN_S = 120.0
TOTAL_S = 30.0
"""Of a buffered request that sets none."""
MAX_TOTAL_S = 600.0
_BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a guest may say about one request; every limit is already within the host's."""

    connect_s: float = CONNECT_S
    first_byte_s: float = FIRST_BYTE_S
    between_s: float = BETWEEN_S
    total_s: float = TOTAL_S
    redirect: str = "follow"
    max_redirects: int = MAX_REDIRECTS
    max_response_bytes: int | None = None
    max_decompressed_bytes: int | None = None
    """None for both: `MAX_BODY_BYTES` of a buffered body, and no end of a stream, which comes in steps."""
    is_decompressed: bool = True
    is_https_only: bool = False
    integrity: Integrity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response whose body is still to be read, through `body`, whose layers undo its encodings."""

    exchange: Exchange
    status: int
    headers: Headers
    body: Body
    url: Url
    hops: int
    is_encoded: bool
    announced_bytes: int | None

    def close(self) -> None:
        self.exchange.close()


def start(door: NetworkDoor, request: HttpRequest, options: Options, wait: Wait, operation: str) -> Response:
    """Send a request and wait for the head of the response that is not a redirect to be followed."""
    hops = 0
    while True:
        with _on_record(door, operation, request) as record:
            exchange = _open(door, request, options, wait, operation, is_first=hops == 0)
            head = _send(exchange, request, options, wait)
            record(head.status)
        with _closing(exchange):
            target = _next_hop(request, head, options, hops)
            if target is None:
                return _respond(exchange, head, request, hops, options)
        exchange.close()
        request, hops = request.moved_to(target, head.status), hops + 1


def begin_upload(
    door: NetworkDoor, request: HttpRequest, options: Options, wait: Wait, operation: str
) -> Exchange:
    """Connect and send the head of a request whose body comes in parts."""
    with _on_record(door, operation, request):
        exchange = _open(door, request, options, wait, operation, is_first=True)
        with _closing(exchange):
            exchange.send_head(
                request.method, request.url.target, _headers(request, options, framing="chunked")
            )
    exchange.wait = None
    return exchange


def finish_upload(
    door: NetworkDoor, exchange: Exchange, request: HttpRequest, options: Options, wait: Wait
) -> Response:
    """End the body and wait for the head of the response; a redirect is given back, never followed."""
    with _on_record(door, "http-upload", request) as record, _closing(exchange):
        exchange.wait = wait.at_most(options.between_s)
        exchange.end_body()
        exchange.wait = wait.at_most(options.first_byte_s)
        head = exchange.receive_head()
        record(head.status)
        if head.status in REDIRECTS and options.redirect == "error":
            raise NetworkFault(Fault.REDIRECT, "the server answered with a redirect")
        return _respond(exchange, head, request, 0, options)


def read_all(response: Response, options: Options, wait: Wait) -> bytes:
    """The whole body within its bounds, its integrity checked.

    NetworkFault TOO_LARGE, BOMB, INTEGRITY, TIMEOUT, or what the connection gives.
    """
    limits = Limits(options, response, MAX_BODY_BYTES)
    parts: list[bytes] = []
    while True:
        response.exchange.wait = wait.at_most(options.between_s)
        part = response.body.read()
        if not part:
            break
        limits.count(part)
        parts.append(part)
    body = b"".join(parts)
    if options.integrity is not None:
        check_integrity(options.integrity, hashlib.new(options.integrity.algorithm, body).digest())
    return body


class Limits:
    """How much of one body may come.  `ceiling` None: as much as the guest allows."""

    __slots__ = ("_inflated", "_size", "_whole")

    def __init__(self, options: Options, response: Response, ceiling: int | None) -> None:
        self._size = 0
        self._whole = _least(options.max_response_bytes, ceiling)
        inflated = _least(options.max_decompressed_bytes, ceiling)
        self._inflated = inflated if response.is_encoded else None
        if self._whole is not None and (response.announced_bytes or 0) > self._whole:
            raise NetworkFault(Fault.TOO_LARGE, f"the body has more than {self._whole} bytes")

    def count(self, part: bytes) -> None:
        """Some more bytes, as the guest will see them.  NetworkFault BOMB or TOO_LARGE."""
        self._size += len(part)
        if self._inflated is not None and self._size > self._inflated:
            raise NetworkFault(Fault.BOMB, f"the body inflates to more than {self._inflated} bytes")
        if self._whole is not None and self._size > self._whole:
            raise NetworkFault(Fault.TOO_LARGE, f"the body has more than {self._whole} bytes")


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def check_integrity(integrity: Integrity, digest: bytes) -> None:
    """NetworkFault INTEGRITY unless they are equal."""
    if digest != integrity.digest:
        raise NetworkFault(Fault.INTEGRITY, "the body is not the one that was expected")


def _open(
    door: NetworkDoor,
    request: HttpRequest,
    options: Options,
    wait: Wait,
    operation: str,
    *,
    is_first: bool,
) -> Exchange:
    url = request.url
    if options.is_https_only and not url.is_secure:
        raise NetworkFault(Fault.SCHEME, "only https is allowed by the request itself")
    door.admit_url(url, operation)
    try:
        link = door.open_url(url, operation, wait.at_most(options.connect_s))
    except NetworkFault as fault:
        if fault.fault is Fault.REJECTED and not is_first:
            raise NetworkFault(Fault.REDIRECT, fault.text) from fault
        raise
    return Exchange(link, wait)


def _send(exchange: Exchange, request: HttpRequest, options: Options, wait: Wait) -> Head:
    with _closing(exchange):
        exchange.wait = wait.at_most(options.between_s)
        framing = _length_of(request)
        exchange.send_head(request.method, request.url.target, _headers(request, options, framing=framing))
        if request.body:
            exchange.send_body(request.body)
        exchange.end_body()
        exchange.wait = wait.at_most(options.first_byte_s)
        return exchange.receive_head()


def _next_hop(request: HttpRequest, head: Head, options: Options, hops: int) -> Url | None:
    """Where a redirect leads that is to be followed; None for a response that is the guest's."""
    locations = head.values("location")
    if head.status not in REDIRECTS or not locations or options.redirect == "manual":
        return None
    if options.redirect == "error":
        raise NetworkFault(Fault.REDIRECT, "the server answered with a redirect")
    if hops >= options.max_redirects:
        raise NetworkFault(Fault.REDIRECTS, f"more than {options.max_redirects} redirects")
    target = resolve_location(request.url, locations[0])
    if isinstance(target, UrlProblem):
        raise NetworkFault(Fault.REDIRECT, "the redirect leads to no http address")
    return target


def _respond(exchange: Exchange, head: Head, request: HttpRequest, hops: int, options: Options) -> Response:
    encodings = encodings_of(head.values("content-encoding")) if options.is_decompressed else ()
    headers = head.headers
    if encodings:
        headers = tuple(row for row in headers if row[0] not in ("content-encoding", "content-length"))
    return Response(
        exchange=exchange,
        status=head.status,
        headers=headers,
        body=decoded(exchange, encodings or ()),
        url=request.url,
        hops=hops,
        is_encoded=bool(encodings),
        announced_bytes=None if request.method == "HEAD" else head.announced_bytes,
    )


def _length_of(request: HttpRequest) -> str | None:
    if request.body is not None or request.method in _BODY_METHODS:
        return str(len(request.body or b""))
    return None


def _headers(request: HttpRequest, options: Options, *, framing: str | None) -> list[tuple[str, str]]:
    """The guest's headers between the host's own.  `framing` is a length or `chunked`."""
    given = {name.lower() for name, _ in request.headers}
    headers = [("Host", request.url.authority), *request.headers]
    if "accept" not in given:
        headers.append(("Accept", "*/*"))
    if "user-agent" not in given:
        headers.append(("User-Agent", f"aos/{AOS_VERSION}"))
    if options.is_decompressed and "accept-encoding" not in given:
        headers.append(("Accept-Encoding", ACCEPTED))
    if framing is not None:
        is_chunked = framing == "chunked"
        headers.append(("Transfer-Encoding", framing) if is_chunked else ("Content-Length", framing))
    return [*headers, ("Connection", "close")]


@contextmanager
def _closing(exchange: Exchange) -> Iterator[None]:
    """Close the exchange where what is done with it fails."""
    try:
        yield
    except BaseException:
        exchange.close()
        raise


@contextmanager
def _on_record(door: NetworkDoor, operation: str, request: HttpRequest) -> Iterator[Callable[[int], None]]:
    """Put one hop on record when it is over: method, address without its query, status or fault."""
    target = f"{request.method} {request.url.without_query()}"
    statuses: list[int] = []
    try:
        yield statuses.append
    except NetworkFault as fault:
        door.note(operation, target, fault.fault.value)
        raise
    door.note(operation, " ".join((target, *map(str, statuses))), None)
