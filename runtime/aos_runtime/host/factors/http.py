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

from aos_runtime.host import wit
from aos_runtime.host.codecs import Case, Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.door import AbiViolation
from aos_runtime.host.factors.factor import Published, published
from aos_runtime.host.readiness import Source
from aos_runtime.host.streams import INPUT_STREAM, OUTPUT_STREAM, POLLABLE, LentInput, LentOutput, Pollable
from aos_runtime.host.waiting import waiting_at
from aos_runtime.host.wit import BYTES, STRING, Enum, Handle, ListOf, Option, Primitive, Record, Result, Variant
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


def stream_with_options(
    context: GuestContext, request: dict[str, Any], options: dict[str, Any]
) -> int | Err:
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
        return _added(context, UPLOAD, HttpUpload(door, exchange, sent, asked, ends, release))

    return _attempt(context, begin)


def upload_finish(context: GuestContext, handle: int) -> int | Err:
    """`http-upload.finish`: the response, once its head is here."""
    upload: HttpUpload | None = context.resources.get(UPLOAD, handle)  # type: ignore[assignment]  # by its kind
    if upload is None:
        return Err("closed")
    return _attempt(context, lambda _door: _added(context, STREAM, upload.finish(context.is_over)))


def upload_sink(context: GuestContext, handle: int) -> int:
    """`http-upload.body-sink`: an output stream; letting go of it ends nothing."""
    upload: HttpUpload = _held(context, UPLOAD, handle)
    return _lend(context, OUTPUT_STREAM, LentOutput(upload, upload.source))


def upload_writable(context: GuestContext, handle: int) -> int:
    """`http-upload.subscribe-writable`."""
    return _pollable(context, _held(context, UPLOAD, handle).source())


def stream_status(context: GuestContext, handle: int) -> int:
    """`http-stream.status`."""
    return int(_held(context, STREAM, handle).status)


def stream_headers(context: GuestContext, handle: int) -> list[dict[str, str]]:
    """`http-stream.headers`."""
    return _pairs(_held(context, STREAM, handle).headers)


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


def stream_readable(context: GuestContext, handle: int) -> int:
    """`http-stream.subscribe-readable`."""
    return _pollable(context, _held(context, STREAM, handle).source())


def stream_body(context: GuestContext, handle: int) -> int:
    """`http-stream.body-stream`: an input stream; letting go of it ends nothing."""
    return _lend(context, INPUT_STREAM, LentInput(_held(context, STREAM, handle)))


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


def _stream(
    context: GuestContext, request: dict[str, Any], options: dict[str, Any] | None
) -> int | Err:
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
        return _added(context, STREAM, stream)

    return _attempt(context, begin)


def _attempt(context: GuestContext, run: Callable[[NetworkDoor], _T]) -> _T | Err:
    """What may wait: the leader goes on without us, and a fault is an error case."""
    door = context.network
    if door is None:
        return Err("capability-denied")
    with waiting_at(None if context.is_loop else context.gate) as is_admitted:
        if not is_admitted:
            return Err("quota")
        context.before_block()
        try:
            return run(door)
        except NetworkFault as fault:
            return _err(fault)
        except Refused as refused:
            context.log("warn", f"http: refused: {refused.why}")
            return Err(refused.case)
        finally:
            context.yielded()


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


def _held(context: GuestContext, kind: str, handle: int) -> Any:
    """What a handle stands for, in a function that cannot answer with an error."""
    resource = context.resources.get(kind, handle)
    if resource is None:
        raise AbiViolation(f"the guest passed a handle of a {kind} that it does not hold")
    return resource


def _added(context: GuestContext, kind: str, resource: Any) -> int:
    handle = context.resources.add(kind, resource)
    if handle is None:
        resource.close()
        raise NetworkFault(Fault.CROWDED)
    return handle


def _lend(context: GuestContext, kind: str, resource: Any) -> int:
    """A handle where the function has no error to answer with."""
    handle = context.resources.add(kind, resource)
    if handle is None:
        raise AbiViolation(f"the guest holds too many handles for one more {kind}")
    return handle


def _pollable(context: GuestContext, source: Source) -> int:
    return _lend(context, POLLABLE, Pollable(source))


def _arms(names: str) -> tuple[tuple[str, wit.Type | None], ...]:
    return tuple((name, None) for name in names.split())


_TEXTS: tuple[tuple[str, wit.Type | None], ...] = (("protocol", STRING), ("unknown", STRING))
_COMMON = (
    "capability-denied invalid-request dns-error airlock-rejected tls-error timeout connection-error"
    " body-too-large closed quota"
)
_ADDED = " redirect-blocked too-many-redirects integrity-mismatch scheme-denied decompression-bomb"
_OLD_ERROR = Variant((*_arms(_COMMON), *_TEXTS))
_ERROR = Variant((*_arms(_COMMON + _ADDED), *_TEXTS))
_METHOD = Variant(
    (*_arms("get head post put delete connect options trace patch"), ("other", STRING))
)
_U16, _U32, _U64, _BOOL = Primitive("u16"), Primitive("u32"), Primitive("u64"), Primitive("bool")
_PAIRS = ListOf(Record((("key", STRING), ("value", STRING))))
_REQUEST = Record((("url", STRING), ("method", _METHOD), ("headers", _PAIRS), ("body", Option(BYTES))))
_TIMEOUTS = Record(
    tuple((f"{name}-ms", Option(_U64)) for name in ("connect", "first-byte", "between-bytes", "total"))
)
_OPTIONS = Record(
    (
        ("timeouts", Option(_TIMEOUTS)),
        ("redirect", Option(Enum(("follow", "error", "manual")))),
        ("max-redirects", Option(_U32)),
        ("max-response-bytes", Option(_U64)),
        ("max-decompressed-bytes", Option(_U64)),
        ("auto-decompress", Option(_BOOL)),
        ("https-only", Option(_BOOL)),
        ("integrity", Option(STRING)),
    )
)
_META = Record((("final-url", STRING), ("redirect-count", _U32), ("elapsed-ms", _U64), ("wire-bytes", _U64)))
_OLD_RESPONSE = Record((("status", _U16), ("headers", _PAIRS), ("body", BYTES)))
_RESPONSE = Record((*_OLD_RESPONSE.fields, ("meta", _META)))
_OWN = Handle(owned=True)


def _method(run: Any, result: wit.Type) -> Published:
    return Published(run, wit.Signature((("self", Handle(owned=False)),), result))


def _stream_methods(error: Variant, read: Any) -> dict[str, Published]:
    return {
        "[method]http-stream.status": _method(stream_status, _U16),
        "[method]http-stream.headers": _method(stream_headers, _PAIRS),
        "[method]http-stream.read-chunk": _method(read, Result(BYTES, error)),
        "[method]http-stream.close": _method(close_stream, Result(None, error)),
        "[method]http-stream.subscribe-readable": _method(stream_readable, _OWN),
        "[method]http-stream.body-stream": _method(stream_body, _OWN),
    }


FUNCTIONS_1_0 = {
    "http-request": published(request_old, Result(_OLD_RESPONSE, _OLD_ERROR), request=_REQUEST),
    "http-stream-start": published(stream_old, Result(_OWN, _OLD_ERROR), request=_REQUEST),
    **_stream_methods(_OLD_ERROR, read_chunk_old),
}
FUNCTIONS = {
    "http-request": published(request_new, Result(_RESPONSE, _ERROR), request=_REQUEST),
    "http-request-opts": published(
        request_with_options, Result(_RESPONSE, _ERROR), request=_REQUEST, options=_OPTIONS
    ),
    "http-stream-start": published(stream_new, Result(_OWN, _ERROR), request=_REQUEST),
    "http-stream-start-opts": published(
        stream_with_options, Result(_OWN, _ERROR), request=_REQUEST, options=_OPTIONS
    ),
    "http-upload-start": published(upload_start, Result(_OWN, _ERROR), request=_REQUEST, options=_OPTIONS),
    **_stream_methods(_ERROR, read_chunk),
    "[method]http-stream.trailers": _method(stream_trailers, Result(Option(_PAIRS), _ERROR)),
    "[method]http-upload.body-sink": _method(upload_sink, _OWN),
    "[method]http-upload.subscribe-writable": _method(upload_writable, _OWN),
    "[method]http-upload.finish": _method(upload_finish, Result(_OWN, _ERROR)),
}
