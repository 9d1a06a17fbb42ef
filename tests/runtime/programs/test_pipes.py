"""How much of what a program prints is handed on, and what a line is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aos_runtime.programs.pipes import BREATH_BYTES, CHARS_PER_S, LINES_PER_S, Murmur, read_lines


class Handle:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """The part of an event loop that a Murmur needs; time passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handles: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        self.handles.append(Handle(when, callback))
        return self.handles[-1]


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Listener:
    """A Murmur on that clock, and what it logged."""

    def __init__(self, clock: Clock) -> None:
        self.lines: list[tuple[str, str]] = []
        log = lambda level, text: self.lines.append((level, text))  # noqa: E731
        self.murmur = Murmur(log, "MCP server `probe`", clock)  # type: ignore[arg-type]

    def say(self, *texts: str) -> None:
        async def work() -> None:
            for text in texts:
                await self.murmur.say("info", text)

        asyncio.run(work())


TOLD = "MCP server `probe` wrote too much: {} lines more were dropped"


def test_fifty_lines_a_second_then_one_that_counts_the_rest(clock: Clock) -> None:
    here = Listener(clock)
    here.say(*(str(number) for number in range(LINES_PER_S + 7)))
    assert here.lines == [("info", str(number)) for number in range(LINES_PER_S)]
    [telling] = clock.handles
    assert telling.when == clock.now + 1.0
    clock.now += 1.0
    telling.callback()
    assert here.lines[LINES_PER_S:] == [("warn", TOLD.format(7))]
    here.say("after")
    assert here.lines[LINES_PER_S + 1 :] == [("info", "after")]


def test_a_line_in_the_next_second_tells_the_count_before_it(clock: Clock) -> None:
    here = Listener(clock)
    here.say(*("x" for _ in range(LINES_PER_S + 1)))
    clock.now += 1.0
    here.say("next")
    assert here.lines[LINES_PER_S:] == [("warn", TOLD.format(1)), ("info", "next")]
    assert clock.handles[0].is_cancelled, "it is told once"


def test_few_long_lines_are_too_much_too(clock: Clock) -> None:
    here = Listener(clock)
    here.say("a" * CHARS_PER_S, "b")
    assert [level for level, _ in here.lines] == ["info"]
    here.murmur.tell()
    assert here.lines[-1] == ("warn", TOLD.format(1))


def test_beyond_the_breath_its_writer_waits_for_the_next_second(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", wait)
    here = Listener(clock)
    here.say("a" * CHARS_PER_S)
    clock.now += 0.25
    here.say("b" * BREATH_BYTES)
    assert waits == []
    here.say("c")
    assert waits == [0.75]


def lines_of(*chunks: bytes, max_bytes: int = 8) -> list[bytes]:
    async def work() -> list[bytes]:
        stream = asyncio.StreamReader()
        for chunk in chunks:
            stream.feed_data(chunk)
        stream.feed_eof()
        return [line async for line in read_lines(stream, max_bytes)]

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\n\n  \nb", [b"a", b"b"]),
        (b"12345678\n", [b"12345678"]),
        (b"123456789\nb\n", [b"b"]),
        (b"123456789", []),
        (b"", []),
    ],
)
def test_a_line_that_is_too_long_is_dropped_whole(written: bytes, lines: list[bytes]) -> None:
    assert lines_of(written) == lines
