"""astrid:io: polling many sources, and streams over ends that wait, end, fail and fill up."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from aos_runtime.host import Err, GuestContext
from aos_runtime.host.door import AbiViolation
from aos_runtime.host.factors.io import CROWDED, CUT, ERRORS, POLLING, STREAMS
from aos_runtime.host.factors.ipc import FUNCTIONS as IPC_FUNCTIONS
from aos_runtime.host.readiness import Always
from aos_runtime.host.streams import LentInput, LentOutput, Pollable, StreamFailed
from aos_runtime.host.waiting import WaitGate
from tests.support.guests import FakeInflow, Recorder, envelope_from

CAPACITY = 8


class Line:
    """Both ends of a pipe that holds eight bytes, with readiness of real descriptors."""

    def __init__(self) -> None:
        self.held = b""
        self.is_ended = False
        self.fault: str | None = None
        self.flushes = 0
        self.bell = os.eventfd(0, os.EFD_NONBLOCK)

    def put(self, data: bytes) -> None:
        self.held += data
        os.eventfd_write(self.bell, 1)

    # input end

    def read(self, size_bytes: int) -> bytes | None:
        self._check()
        data, self.held = self.held[:size_bytes], self.held[size_bytes:]
        return None if not data and self.is_ended else data

    # output end

    def permit(self) -> int | None:
        self._check()
        return None if self.is_ended else CAPACITY - len(self.held)

    def write(self, data: bytes) -> None:
        assert len(data) <= CAPACITY - len(self.held)
        self.put(data)

    def flush(self) -> bool:
        self.flushes += 1
        return not self.held

    def close(self) -> None:
        raise AssertionError("what is lent is not closed by who borrowed it")

    def _check(self) -> None:
        if self.fault is not None:
            raise StreamFailed(self.fault)


class Readable:
    def __init__(self, line: Line) -> None:
        self.line = line

    def is_ready(self) -> bool:
        return bool(self.line.held) or self.line.is_ended or self.line.fault is not None

    def descriptor(self) -> tuple[int, int] | None:
        return self.line.bell, select.POLLIN


class Writable(Readable):
    def is_ready(self) -> bool:
        return not self.line.held or self.line.is_ended or self.line.fault is not None

    def descriptor(self) -> tuple[int, int] | None:
        return None


class Input(Line):
    def source(self) -> Readable:
        return Readable(self)


class Output(Line):
    def source(self) -> Writable:
        return Writable(self)


class Never(Always):
    def is_ready(self) -> bool:
        return False


class Desk:
    """A guest that holds an input, an output and some pollables."""

    def __init__(self, recorder: Recorder, **ports: Any) -> None:
        self.context: GuestContext = recorder.context(gate=WaitGate(), **ports)
        self.input, self.output = Input(), Output()
        add = self.context.resources.add
        self.source = add("input-stream", LentInput(self.input))
        self.sink = add("output-stream", LentOutput(self.output, self.output.source))
        self.always = add("pollable", Pollable(Always()))
        self.never = add("pollable", Pollable(Never()))

    def call(self, name: str, *arguments: Any) -> Any:
        functions = {**ERRORS, **POLLING, **STREAMS}
        return functions[name if name == "poll" else f"[method]{name}"].run(self.context, *arguments)

    def failure(self, answer: Any) -> str:
        """What the error of a failed operation says."""
        assert isinstance(answer, Err)
        assert answer.case == "last-operation-failed"
        return str(ERRORS["[method]error.to-debug-string"].run(self.context, answer.payload))


@pytest.fixture
def desk(recorder: Recorder) -> Iterator[Desk]:
    desk = Desk(recorder)
    yield desk
    for line in (desk.input, desk.output):
        os.close(line.bell)


def test_poll_names_the_ready_ones_in_order(desk: Desk) -> None:
    assert desk.call("poll", [desk.never, desk.always, desk.never, desk.always]) == [1, 3]
    assert desk.call("pollable.ready", desk.always) is True
    assert desk.call("pollable.ready", desk.never) is False
    assert desk.call("pollable.block", desk.always) is None


def test_poll_refuses_nothing_too_much_and_what_is_gone(desk: Desk) -> None:
    assert desk.call("poll", []) == Err("invalid-input")
    assert desk.call("poll", [desk.always] * 256) == list(range(256))
    assert desk.call("poll", [desk.always] * 257) == Err("too-large")
    desk.context.resources.drop("pollable", desk.always)
    assert desk.call("poll", [desk.never, desk.always]) == Err("closed")
    with pytest.raises(AbiViolation, match="handle of a pollable that it does not hold"):
        desk.call("pollable.ready", desk.always)


def test_a_wait_ends_with_its_call_and_counts_at_the_gate(desk: Desk) -> None:
    desk.context.is_over = lambda: True
    assert desk.call("poll", [desk.never]) == Err("cancelled")
    assert desk.call("pollable.block", desk.never) == Err("cancelled")
    assert desk.failure(desk.call("input-stream.blocking-read", desk.source, 1)) == CUT
    desk.context.gate = WaitGate(0)
    assert desk.call("poll", [desk.never]) == Err("unknown", CROWDED)
    assert desk.failure(desk.call("input-stream.blocking-read", desk.source, 1)) == CROWDED
    desk.input.put(b"x")  # neither has closed it, and what is there needs no wait
    assert desk.call("input-stream.blocking-read", desk.source, 5) == b"x"


def test_a_wait_makes_way_for_others_first(recorder: Recorder) -> None:
    order: list[str] = []
    desk = Desk(recorder, before_block=lambda: order.append("way"), yielded=lambda: order.append("back"))
    ends = iter((False, True))
    desk.context.is_over = lambda: next(ends)
    assert desk.call("poll", [desk.always]) == [0]
    assert order == []
    assert desk.call("poll", [desk.never]) == Err("cancelled")
    assert order == ["way", "back"]


def test_poll_waits_for_a_message_and_for_a_descriptor(recorder: Recorder) -> None:
    desk = Desk(recorder)
    inflow = FakeInflow()
    subscription = desk.context.resources.add("subscription", inflow)
    subscribe = IPC_FUNCTIONS["[method]subscription.subscribe-readiness"].run
    message = subscribe(desk.context, subscription)
    line = desk.call("input-stream.subscribe", desk.source)
    assert desk.call("pollable.ready", message) is False
    for happens, place in (
        (lambda: desk.input.put(b"x"), 0),
        (lambda: inflow.left.append(envelope_from("alice")), 1),
    ):
        timer = threading.Timer(0.05, happens)
        timer.start()
        assert desk.call("poll", [line, message]) == [place]
        timer.join()
        assert desk.call("input-stream.read", desk.source, 9) == (b"x" if place == 0 else b"")
    inflow.left.clear()
    inflow.is_closed = True
    assert desk.call("pollable.ready", message) is True, "nothing will come any more"


def test_reading_and_skipping(desk: Desk) -> None:
    assert desk.call("input-stream.read", desk.source, 4) == b""
    desk.input.put(b"abcdef")
    assert desk.call("input-stream.read", desk.source, 0) == b""
    assert desk.call("input-stream.blocking-read", desk.source, 0) == b""
    assert desk.call("input-stream.read", desk.source, 2) == b"ab"
    assert desk.call("input-stream.skip", desk.source, 2) == 2
    assert desk.call("input-stream.blocking-skip", desk.source, 1) == 1
    assert desk.call("input-stream.blocking-read", desk.source, 1 << 40) == b"f"
    desk.input.is_ended = True
    for name in ("read", "blocking-read", "skip", "blocking-skip"):
        assert desk.call(f"input-stream.{name}", desk.source, 1) == Err("closed")


def test_one_read_gives_a_mebibyte_at_most(desk: Desk) -> None:
    desk.input.put(bytes(3 << 20))
    sizes = [len(desk.call("input-stream.read", desk.source, 1 << 63)) for _ in range(4)]
    assert sizes == [1 << 20, 1 << 20, 1 << 20, 0]


def test_a_failure_says_why_once_and_closes(desk: Desk) -> None:
    desk.input.fault = desk.output.fault = "the line broke"
    assert desk.failure(desk.call("input-stream.read", desk.source, 1)) == "the line broke"
    assert desk.failure(desk.call("output-stream.check-write", desk.sink)) == "the line broke"
    desk.input.fault = desk.output.fault = None
    assert desk.call("input-stream.read", desk.source, 1) == Err("closed")
    assert desk.call("output-stream.blocking-flush", desk.sink) == Err("closed")
    assert desk.call("output-stream.splice", desk.sink, desk.source, 1) == Err("closed")


def test_a_failure_without_room_for_its_error_is_closed(desk: Desk) -> None:
    desk.input.fault = "the line broke"
    desk.context.resources.limit = desk.context.resources.live
    assert desk.call("input-stream.read", desk.source, 1) == Err("closed")


def test_writing_takes_what_was_permitted_and_not_a_byte_more(desk: Desk) -> None:
    with pytest.raises(AbiViolation, match="than check-write had permitted"):
        desk.call("output-stream.write", desk.sink, b"x")
    assert desk.call("output-stream.check-write", desk.sink) == 8
    assert desk.call("output-stream.write", desk.sink, b"abc") is None
    assert desk.call("output-stream.write-zeroes", desk.sink, 5) is None
    assert desk.output.held == b"abc\0\0\0\0\0"
    for name, content in (("write", b"x"), ("write-zeroes", 1)):
        with pytest.raises(AbiViolation, match="than check-write had permitted"):
            desk.call(f"output-stream.{name}", desk.sink, content)
    assert desk.call("output-stream.check-write", desk.sink) == 0
    assert desk.call("output-stream.flush", desk.sink) is None
    assert desk.output.flushes == 1
    desk.output.is_ended = True
    assert desk.call("output-stream.check-write", desk.sink) == Err("closed")
    assert desk.call("output-stream.write", desk.sink, b"") == Err("closed")


@pytest.mark.parametrize(
    ("name", "content", "arrives"),
    [
        ("blocking-write-and-flush", b"0123456789" * 3, b"0123456789" * 3),
        ("blocking-write-zeroes-and-flush", 30, bytes(30)),
    ],
)
def test_a_blocking_write_waits_for_room_until_all_is_gone(
    desk: Desk, name: str, content: object, arrives: bytes
) -> None:
    got = bytearray()
    is_done = threading.Event()

    def drain() -> None:
        while not is_done.wait(0.005):
            taken, desk.output.held = desk.output.held, b""
            got.extend(taken)

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        assert desk.call(f"output-stream.{name}", desk.sink, content) is None
    finally:
        is_done.set()
        reader.join()
    assert bytes(got) == arrives
    desk.output.is_ended = True
    assert desk.call(f"output-stream.{name}", desk.sink, content) == Err("closed")


def test_splicing_moves_what_both_ends_take(desk: Desk) -> None:
    desk.input.put(b"0123456789")
    assert desk.call("output-stream.splice", desk.sink, desk.source, 3) == 3
    assert desk.call("output-stream.blocking-splice", desk.sink, desk.source, 100) == 5
    assert (desk.output.held, desk.input.held) == (b"01234567", b"89")
    assert desk.call("output-stream.splice", desk.sink, desk.source, 100) == 0, "there is no room"
    desk.output.held = b""
    assert desk.call("output-stream.blocking-splice", desk.sink, desk.source, 0) == 0
    assert desk.call("output-stream.splice", desk.sink, desk.source, 100) == 2
    desk.input.is_ended = True
    assert desk.call("output-stream.splice", desk.sink, desk.source, 1) == Err("closed")
    desk.context.resources.drop("input-stream", desk.source)
    assert desk.call("output-stream.splice", desk.sink, desk.source, 1) == Err("closed")
