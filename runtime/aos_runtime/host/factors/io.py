"""astrid:io@1.0.0 (host-abi.md 1.1): errors that tell, pollables, byte streams.

A stream is one end of something that another interface gave; it never blocks by itself.  Whoever must wait
waits for its source, at the gate of waiting guests, and no longer than the call may take.  After a failure a
stream is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from aos_runtime.host import wit
from aos_runtime.host.codecs import Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.door import AbiViolation
from aos_runtime.host.factors.factor import published
from aos_runtime.host.factors.outside import added, held, method
from aos_runtime.host.readiness import Source, wait_any
from aos_runtime.host.streams import (
    INPUT_STREAM,
    OUTPUT_STREAM,
    POLLABLE,
    Failure,
    LentInput,
    LentOutput,
    Pollable,
    StreamFailed,
)
from aos_runtime.host.waiting import waiting_at
from aos_runtime.host.wit import (
    BOOL,
    BORROW,
    BYTES,
    OWN,
    STRING,
    U32,
    U64,
    ListOf,
    Result,
    Variant,
)
from aos_runtime.network import NetworkFault

ERROR = "error"
MAX_POLLABLES = 256
MAX_TRANSFER_BYTES = 1024 * 1024
"""Of one read or skip; whoever wants more asks again."""
CROWDED = "too many guests wait at once"
CUT = "the wait was cut short"
_ZEROES = bytes(64 * 1024)

_T = TypeVar("_T")


def describe(context: GuestContext, handle: int) -> str:
    """`error.to-debug-string`."""
    text: str = held(context, ERROR, handle).text
    return text


def is_ready(context: GuestContext, handle: int) -> bool:
    """`pollable.ready`; never waits."""
    source: Source = held(context, POLLABLE, handle).source
    return source.is_ready()


def block(context: GuestContext, handle: int) -> Err | None:
    """`pollable.block`."""
    answer = poll(context, [handle])
    return answer if isinstance(answer, Err) else None


def poll(context: GuestContext, handles: Sequence[int]) -> list[int] | Err:
    """The places of the pollables that are ready, at least one of them."""
    if not handles:
        return Err("invalid-input")
    if len(handles) > MAX_POLLABLES:
        return Err("too-large")
    found: list[Any] = [context.resources.get(POLLABLE, handle) for handle in handles]
    if None in found:
        return Err("closed")
    try:
        return wait_for(context, [pollable.source for pollable in found])
    except _Unwaited as why:
        return Err("cancelled") if why.text == CUT else Err("unknown", why.text)


def read(context: GuestContext, handle: int, size: int) -> bytes | Err:
    """`input-stream.read`: what is there now, which may be nothing."""
    return _with_input(context, handle, lambda end: _taken(end, size))


def blocking_read(context: GuestContext, handle: int, size: int) -> bytes | Err:
    """`input-stream.blocking-read`: at least one byte."""
    return _with_input(context, handle, lambda end: _awaited(context, end, size))


def skip(context: GuestContext, handle: int, size: int) -> int | Err:
    """`input-stream.skip`."""
    return _with_input(context, handle, lambda end: len(_taken(end, size)))


def blocking_skip(context: GuestContext, handle: int, size: int) -> int | Err:
    """`input-stream.blocking-skip`."""
    return _with_input(context, handle, lambda end: len(_awaited(context, end, size)))


def subscribe(kind: str) -> Callable[[GuestContext, int], int]:
    """`subscribe` of a stream: a pollable of its source."""

    def call(context: GuestContext, handle: int) -> int:
        given = context.resources.add(POLLABLE, Pollable(held(context, kind, handle).source()))
        if given is None:
            raise AbiViolation("the guest holds too many handles for one more pollable")
        return given

    return call


def check_write(context: GuestContext, handle: int) -> int | Err:
    """`output-stream.check-write`: how many bytes the next write takes."""
    return _with_output(context, handle, _permitted)


def write(context: GuestContext, handle: int, data: bytes) -> Err | None:
    """`output-stream.write`.  AbiViolation where it is more than was permitted, as the WIT says."""
    return _with_output(context, handle, lambda end: _put(end, data))


def write_zeroes(context: GuestContext, handle: int, size: int) -> Err | None:
    """`output-stream.write-zeroes`."""
    return _with_output(context, handle, lambda end: _put(end, size))


def flush(context: GuestContext, handle: int) -> Err | None:
    """`output-stream.flush`: begin to, without waiting for it."""
    return _with_output(context, handle, lambda end: _ignore(end.flush()))


def blocking_flush(context: GuestContext, handle: int) -> Err | None:
    """`output-stream.blocking-flush`: everything that was taken is on its way."""
    return _with_output(context, handle, lambda end: _flushed(context, end))


def blocking_write(context: GuestContext, handle: int, data: bytes) -> Err | None:
    """`output-stream.blocking-write-and-flush`."""

    def run(end: LentOutput) -> None:
        at = 0
        while at < len(data):
            given = min(_awaited_permit(context, end), len(data) - at)
            end.write(data[at : at + given])
            at += given
        _flushed(context, end)

    return _with_output(context, handle, run)


def blocking_zeroes(context: GuestContext, handle: int, size: int) -> Err | None:
    """`output-stream.blocking-write-zeroes-and-flush`."""

    def run(end: LentOutput) -> None:
        left = size
        while left:
            given = min(_awaited_permit(context, end), left, len(_ZEROES))
            end.write(_ZEROES[:given])
            left -= given
        _flushed(context, end)

    return _with_output(context, handle, run)


def splice(context: GuestContext, handle: int, source: int, size: int) -> int | Err:
    """`output-stream.splice`: bytes from an input stream, as many as both ends take now."""
    return _spliced(context, handle, source, lambda end, start: _moved(end, start, size))


def blocking_splice(context: GuestContext, handle: int, source: int, size: int) -> int | Err:
    """`output-stream.blocking-splice`: waits until there are bytes, and room for them."""

    def run(end: LentOutput, start: LentInput) -> int:
        if not size:
            return 0
        _awaited_permit(context, end)
        wait_for(context, [start.source()])
        return _moved(end, start, size)

    return _spliced(context, handle, source, run)


class _Unwaited(Exception):
    """A wait was not begun, or cut short; whose text says which."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class _Closed(Exception):
    """The stream has ended."""


def wait_for(context: GuestContext, sources: Sequence[Source]) -> list[int]:
    """The places of the sources that are ready, at least one.  `_Unwaited` where the call must come back."""
    ready = wait_any(sources, is_over=lambda: True)
    if ready:
        return ready
    with waiting_at(None if context.is_loop else context.gate) as is_admitted:
        if not is_admitted:
            raise _Unwaited(CROWDED)
        context.before_block()
        ready = wait_any(sources, is_over=context.is_over)
    context.yielded()
    if not ready:
        raise _Unwaited(CUT)
    return ready


def _taken(end: LentInput, size: int) -> bytes:
    data = end.read(min(size, MAX_TRANSFER_BYTES)) if size else b""
    if data is None:
        raise _Closed
    return data


def _awaited(context: GuestContext, end: LentInput, size: int) -> bytes:
    while size:
        wait_for(context, [end.source()])
        data = _taken(end, size)
        if data:
            return data
    return b""


def _permitted(end: LentOutput) -> int:
    permit = end.permit()
    if permit is None:
        raise _Closed
    end.permitted = permit
    return permit


def _awaited_permit(context: GuestContext, end: LentOutput) -> int:
    while True:
        permit = _permitted(end)
        if permit:
            end.permitted = 0  # what is written with it needs no second one
            return permit
        wait_for(context, [end.source()])


def _put(end: LentOutput, content: bytes | int) -> None:
    """Write bytes, or so many zeros."""
    size = content if isinstance(content, int) else len(content)
    if size > end.permitted:
        raise AbiViolation("the guest wrote more to a stream than check-write had permitted")
    if end.permit() is None:
        raise _Closed
    end.permitted -= size
    end.write(bytes(size) if isinstance(content, int) else content)


def _flushed(context: GuestContext, end: LentOutput) -> None:
    while not end.flush():
        if end.permit() is None:
            raise _Closed
        wait_for(context, [end.source()])


def _moved(end: LentOutput, start: LentInput, size: int) -> int:
    permit = min(_permitted(end), size)
    data = _taken(start, permit)
    end.permitted = 0
    end.write(data)
    return len(data)


def _ignore(_is_flushed: bool) -> None:
    return None


def _with_input(context: GuestContext, handle: int, run: Callable[[LentInput], _T]) -> _T | Err:
    end: Any = context.resources.get(INPUT_STREAM, handle)
    return _attempt(context, end, lambda: run(end))


def _with_output(context: GuestContext, handle: int, run: Callable[[LentOutput], _T]) -> _T | Err:
    end: Any = context.resources.get(OUTPUT_STREAM, handle)
    return _attempt(context, end, lambda: run(end))


def _spliced(
    context: GuestContext, handle: int, source: int, run: Callable[[LentOutput, LentInput], int]
) -> int | Err:
    start: Any = context.resources.get(INPUT_STREAM, source)
    if start is None or start.is_failed:
        return Err("closed")
    return _with_output(context, handle, lambda end: run(end, start))


def _attempt(context: GuestContext, end: LentInput | LentOutput | None, run: Callable[[], _T]) -> _T | Err:
    """Run one operation of a stream; what fails closes it, what was only not waited for does not."""
    if end is None or end.is_failed:
        return Err("closed")
    try:
        return run()
    except _Closed:
        return Err("closed")
    except _Unwaited as why:
        return _failed(context, why.text)
    except (StreamFailed, NetworkFault) as fault:
        end.is_failed = True
        return _failed(context, str(fault))


def _failed(context: GuestContext, text: str) -> Err:
    """The error case with an error that the guest may ask; plainly closed where it holds too much already."""
    try:
        return Err("last-operation-failed", added(context, ERROR, Failure(text)))
    except NetworkFault:
        return Err("closed")


_POLL_ERROR = Variant(
    (
        ("invalid-input", None),
        ("closed", None),
        ("too-large", None),
        ("cancelled", None),
        ("unknown", STRING),
    )
)
_STREAM_ERROR = Variant((("last-operation-failed", OWN), ("closed", None)))


def _fallible(ok: wit.Type | None) -> Result:
    return Result(ok, _STREAM_ERROR)


ERRORS = {"[method]error.to-debug-string": method(describe, STRING)}
POLLING = {
    "[method]pollable.ready": method(is_ready, BOOL),
    "[method]pollable.block": method(block, Result(None, _POLL_ERROR)),
    "poll": published(poll, Result(ListOf(U32), _POLL_ERROR), pollables=ListOf(BORROW)),
}
STREAMS = {
    "[method]input-stream.read": method(read, _fallible(BYTES), len=U64),
    "[method]input-stream.blocking-read": method(blocking_read, _fallible(BYTES), len=U64),
    "[method]input-stream.skip": method(skip, _fallible(U64), len=U64),
    "[method]input-stream.blocking-skip": method(blocking_skip, _fallible(U64), len=U64),
    "[method]input-stream.subscribe": method(subscribe(INPUT_STREAM), OWN),
    "[method]output-stream.check-write": method(check_write, _fallible(U64)),
    "[method]output-stream.write": method(write, _fallible(None), contents=BYTES),
    "[method]output-stream.blocking-write-and-flush": method(blocking_write, _fallible(None), contents=BYTES),
    "[method]output-stream.flush": method(flush, _fallible(None)),
    "[method]output-stream.blocking-flush": method(blocking_flush, _fallible(None)),
    "[method]output-stream.subscribe": method(subscribe(OUTPUT_STREAM), OWN),
    "[method]output-stream.write-zeroes": method(write_zeroes, _fallible(None), len=U64),
    "[method]output-stream.blocking-write-zeroes-and-flush": method(
        blocking_zeroes, _fallible(None), len=U64
    ),
    "[method]output-stream.splice": method(splice, _fallible(U64), src=BORROW, len=U64),
    "[method]output-stream.blocking-splice": method(blocking_splice, _fallible(U64), src=BORROW, len=U64),
}
