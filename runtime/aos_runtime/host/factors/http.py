"""astrid:http/host@1.0.0 and @1.1.0 (host-abi.md 1.6): requests, streamed responses, streamed bodies.

One implementation for both versions; 1.0 never hears of the five error cases that came with 1.1.  Who may be
reached is the door's to say, what a request may hold `policy.http_rules`'.  Every wait is one of this call:
the leader is asked to go on without it first, and its deadline and cancellation end it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, TypeVar

from aos_runtime.host.codecs import Case, Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors.factor import Published, published
from aos_runtime.host.factors.http_types import (
    ERROR,
    OLD_ERROR,
    OLD_RESPONSE,
    OPTIONS,
    PAIRS,
    REQUEST,
    RESPONSE,
)
from aos_runtime.host.factors.outside import added, attempt, gives, gives_pollable, held, method
from aos_runtime.host.streams import INPUT_STREAM, OUTPUT_STREAM, LentInput, LentOutput
from aos_runtime.host.wit import BYTES, OWN, U16, Option, Result, Variant
from aos_runtime.network import Fault, NetworkDoor, NetworkFault
from aos_runtime.network.client import (
    BETWEEN_S,
    CONNECT_S,
    FIRST_BYTE_S,
    MAX_TOTAL_S,
    TOTAL_S,
    Options,
    Response,
    begin_upload,
    read_all,
    start,
)
from aos_runtime.network.http_streams import HttpStream, HttpUpload
from aos_runtime.network.waits import Wait
from aos_runtime.policy.http_rules import (
    MAX_REDIRECTS,
    HttpRequest,
    Refused,
    check_headers,
    check_method,
    parse_integrity,
)
from aos_runtime.policy.urls import UrlProblem, parse_url

STREAM, UPLOAD = "http-stream", "http-upload"
MAX_REQUEST_BYTES = 10 * 1024 * 1024
_T = TypeVar("_T")

_CASES: Mapping[Fault, str] = {
    Fault.DENIED: "capability-denied",
    Fault.INVALID: "invalid-request",
    Fault.SCHEME: "scheme-denied",
    Fault.UNRESOLVED: "dns-error",
    Fault.REJECTED: "airlock-rejected",
    Fault.TLS: "tls-error",
    Fault.TIMEOUT: "timeout",
    Fault.REFUSED: "connection-error",
    Fault.RESET: "connection-error",
    Fault.CLOSED: "closed",
    Fault.TOO_LARGE: "body-too-large",
    Fault.CROWDED: "quota",
    Fault.REDIRECT: "redirect-blocked",
    Fault.REDIRECTS: "too-many-redirects",
    Fault.INTEGRITY: "integrity-mismatch",
    Fault.BOMB: "decompression-bomb",
}
"""Of 1.1; `protocol` and `unknown` carry the text of every other fault."""
_OLD: Mapping[str, Case] = {
    "scheme-denied": Case("invalid-request"),
    "redirect-blocked": Case("airlock-rejected"),
    "too-many-redirects": Case("protocol", "too many redirects"),
    "integrity-mismatch": Case("protocol", "the body is not the one that was expected"),
    "decompression-bomb": Case("body-too-large"),
}
"""What 1.0 says instead."""


def request_old(context: GuestContext, request: dict[str, Any]) -> dict[str, object] | Err:
    """`http-request` of 1.0: a buffered response without its meta."""
    answer = _buffered(context, request, None)
    if isinstance(answer, Err):
        return _as_old(answer)
    return {name: answer[name] for name in ("status", "headers", "body")}


def request_new(context: GuestContext, request: dict[str, Any]) -> dict[str, object] | Err:
    """`http-request` of 1.1."""
    return _buffered(context, request, None)


def request_with_options(
    context: GuestContext, request: dict[str, Any], options: dict[str, Any]
) -> dict[str, object] | Err:
    """`http-request-opts`."""
    return _buffered(context, request, options)


def stream_old(context: GuestContext, request: dict[str, Any]) -> int | Err:
    """`http-stream-start` of 1.0: a handle, once the head of the response is here."""
    answer = _stream(context, request, None)
    return _as_old(answer) if isinstance(answer, Err) else answer


def stream_new(context: GuestContext, request: dict[str, Any]) -> int | Err:
    """`http-stream-start` of 1.1."""
    return _stream(context, request, None)


def stream_with_options(context: GuestContext, request: dict[str, Any], options: dict[str, Any]) -> int | Err:
    """`http-stream-start-opts`."""
    return _stream(context, request, options)


def upload_start(context: GuestContext, request: dict[str, Any], options: dict[str, Any]) -> int | Err:
    """`http-upload-start`: a handle, once the head of the request is on its way."""

    def begin(door: NetworkDoor) -> int:
        asked, ends = _options(options, is_buffered=False)
        sent = _request(door, request | {"body": None})
        wait = Wait(ends=ends, is_over=context.is_over)
        release = door.exchanges.take()
        try:
            exchange = begin_upload(door, sent, asked, wait, "http-upload")
        except BaseException:
            release()
            raise
        return added(context, UPLOAD, HttpUpload(door, exchange, sent, asked, ends, release))

    return _attempt(context, begin)


def upload_finish(context: GuestContext, handle: int) -> int | Err:
    """`http-upload.finish`: the response, once its head is here."""
    upload: HttpUpload | None = context.resources.get(UPLOAD, handle)  # type: ignore[assignment]  # by its kind
    if upload is None:
        return Err("closed")
    return _attempt(context, lambda _door: added(context, STREAM, upload.finish(context.is_over)))


def stream_status(context: GuestContext, handle: int) -> int:
    """`http-stream.status`."""
    return int(held(context, STREAM, handle).status)


def stream_headers(context: GuestContext, handle: int) -> list[dict[str, str]]:
    """`http-stream.headers`."""
    return _pairs(held(context, STREAM, handle).headers)


def read_chunk(context: GuestContext, handle: int) -> bytes | Err:
    """`http-stream.read-chunk` of 1.1; empty at the end of the body, and only there."""
    stream: HttpStream | None = context.resources.get(STREAM, handle)  # type: ignore[assignment]  # by its kind
    if stream is None:
        return Err("closed")
    return _attempt(context, lambda _door: stream.read_chunk(context.is_over))


def read_chunk_old(context: GuestContext, handle: int) -> bytes | Err:
    """`http-stream.read-chunk` of 1.0."""
    answer = read_chunk(context, handle)
    return _as_old(answer) if isinstance(answer, Err) else answer


def close_stream(context: GuestContext, handle: int) -> None:
    """`http-stream.close`; again and again is fine."""
    stream = context.resources.get(STREAM, handle)
    if stream is not None:
        stream.close()


def stream_trailers(context: GuestContext, handle: int) -> list[dict[str, str]] | Err | None:
    """`http-stream.trailers`; none before the end of the body."""
    stream: HttpStream | None = context.resources.get(STREAM, handle)  # type: ignore[assignment]  # by its kind
    if stream is None:
        return Err("closed")
    return None if stream.trailers is None else _pairs(stream.trailers)


def _buffered(
    context: GuestContext, request: dict[str, Any], options: dict[str, Any] | None
) -> dict[str, object] | Err:
    def run(door: NetworkDoor) -> dict[str, object]:
        started = monotonic()
        asked, ends = _options(options, is_buffered=True)
        wait = Wait(ends=ends, is_over=context.is_over)
        response = start(door, _request(door, request), asked, wait, "http-request")
        try:
            body = read_all(response, asked, wait)
        finally:
            response.close()
        return {
            "status": response.status,
            "headers": _pairs(response.headers),
            "body": body,
            "meta": _meta(response, started),
        }

    return _attempt(context, run)


def _stream(context: GuestContext, request: dict[str, Any], options: dict[str, Any] | None) -> int | Err:
    def begin(door: NetworkDoor) -> int:
        asked, ends = _options(options, is_buffered=False)
        sent = _request(door, request)
        release = door.exchanges.take()
        try:
            wait = Wait(ends=ends, is_over=context.is_over)
            response = start(door, sent, asked, wait, "http-stream")
            try:
                stream = HttpStream(response, asked, ends, release)
            except BaseException:
                response.close()
                raise
        except BaseException:
            release()
            raise
        return added(context, STREAM, stream)

    return _attempt(context, begin)


def _attempt(context: GuestContext, run: Callable[[NetworkDoor], _T]) -> _T | Err:
    """`outside.attempt`; a request that is refused unsent says why in the capsule's log."""
    try:
        return attempt(context, run, _err)
    except Refused as refused:
        context.log("warn", f"http: refused: {refused.why}")
        return Err(refused.case)


def _err(fault: NetworkFault) -> Err:
    case = _CASES.get(fault.fault)
    if case is not None:
        return Err(case)
    return Err("protocol" if fault.fault is Fault.PROTOCOL else "unknown", fault.text)


def _as_old(answer: Err) -> Err:
    old = _OLD.get(str(answer.case))
    return answer if old is None else Err(old.name, old.payload)


def _request(door: NetworkDoor, request: dict[str, Any]) -> HttpRequest:
    """The request as it will be sent.  `Refused` where it cannot be."""
    url = parse_url(request["url"])
    if isinstance(url, UrlProblem):
        raise Refused(url.value, "the address is not one of http or https")
    method: Case = request["method"]
    body = request["body"]
    if body is not None and len(body) > MAX_REQUEST_BYTES:
        raise Refused("body-too-large", f"the body has more than {MAX_REQUEST_BYTES} bytes")
    name = check_method(method.payload if method.name == "other" else method.name)
    asked = [(pair["key"], pair["value"]) for pair in request["headers"]]
    headers, private = check_headers(asked, url, lambda key: _secret(door, key))
    return HttpRequest(method=name, url=url, headers=headers, body=body, private=private)


def _secret(door: NetworkDoor, name: str) -> str | None:
    try:
        return door.secret(name)
    except KeyError:
        raise Refused("capability-denied", f"the manifest declares no secret {name}") from None


def _options(options: dict[str, Any] | None, *, is_buffered: bool) -> tuple[Options, float]:
    """What the guest may say, within the host's limits, and the moment when all of it must be over."""
    asked = options or {}
    times = asked.get("timeouts") or {}
    total_s = _seconds(times.get("total-ms"), TOTAL_S if is_buffered else math.inf, MAX_TOTAL_S)
    integrity = asked.get("integrity")
    return Options(
        connect_s=_seconds(times.get("connect-ms"), CONNECT_S, CONNECT_S),
        first_byte_s=_seconds(times.get("first-byte-ms"), FIRST_BYTE_S, FIRST_BYTE_S),
        between_s=_seconds(times.get("between-bytes-ms"), BETWEEN_S, BETWEEN_S),
        redirect=asked.get("redirect") or "follow",
        max_redirects=_least(asked.get("max-redirects"), MAX_REDIRECTS),
        max_response_bytes=asked.get("max-response-bytes"),
        max_decompressed_bytes=asked.get("max-decompressed-bytes"),
        is_decompressed=asked.get("auto-decompress") is not False,
        is_https_only=bool(asked.get("https-only")),
        integrity=None if integrity is None else parse_integrity(integrity),
    ), monotonic() + total_s


def _seconds(asked_ms: int | None, default_s: float, most_s: float) -> float:
    return default_s if asked_ms is None else min(asked_ms / 1000, most_s)


def _least(asked: int | None, most: int) -> int:
    return most if asked is None else min(asked, most)


def _meta(response: Response, started: float) -> dict[str, object]:
    return {
        "final-url": response.url.render(),
        "redirect-count": response.hops,
        "elapsed-ms": int((monotonic() - started) * 1000),
        "wire-bytes": response.exchange.received_bytes,
    }


def _pairs(headers: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"key": name, "value": value} for name, value in headers]


def _lent(upload: HttpUpload) -> LentOutput:
    return LentOutput(upload, upload.source)


def _stream_methods(error: Variant, read: Any) -> dict[str, Published]:
    return {
        "[method]http-stream.status": method(stream_status, U16),
        "[method]http-stream.headers": method(stream_headers, PAIRS),
        "[method]http-stream.read-chunk": method(read, Result(BYTES, error)),
        "[method]http-stream.close": method(close_stream, Result(None, error)),
        "[method]http-stream.subscribe-readable": method(gives_pollable(STREAM), OWN),
        "[method]http-stream.body-stream": method(gives(STREAM, INPUT_STREAM, LentInput), OWN),
    }


FUNCTIONS_1_0 = {
    "http-request": published(request_old, Result(OLD_RESPONSE, OLD_ERROR), request=REQUEST),
    "http-stream-start": published(stream_old, Result(OWN, OLD_ERROR), request=REQUEST),
    **_stream_methods(OLD_ERROR, read_chunk_old),
}
FUNCTIONS = {
    "http-request": published(request_new, Result(RESPONSE, ERROR), request=REQUEST),
    "http-request-opts": published(
        request_with_options, Result(RESPONSE, ERROR), request=REQUEST, options=OPTIONS
    ),
    "http-stream-start": published(stream_new, Result(OWN, ERROR), request=REQUEST),
    "http-stream-start-opts": published(
        stream_with_options, Result(OWN, ERROR), request=REQUEST, options=OPTIONS
    ),
    "http-upload-start": published(upload_start, Result(OWN, ERROR), request=REQUEST, options=OPTIONS),
    **_stream_methods(ERROR, read_chunk),
    "[method]http-stream.trailers": method(stream_trailers, Result(Option(PAIRS), ERROR)),
    "[method]http-upload.body-sink": method(gives(UPLOAD, OUTPUT_STREAM, _lent), OWN),
    "[method]http-upload.subscribe-writable": method(gives_pollable(UPLOAD), OWN),
    "[method]http-upload.finish": method(upload_finish, Result(OWN, ERROR)),
}
