"""Waiting for many sources."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest

from aos_runtime.host.patience import Patience
from aos_runtime.host.readiness import Always, wait_any
from aos_runtime.host.waiting import WaitGate, waiting_at
from tests.support.guests import Recorder, envelope_from


class Pipe:
    """A source that is ready once there is a byte."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def is_ready(self) -> bool:
        return bool(select.select([self.reader], [], [], 0)[0])

    def descriptor(self) -> tuple[int, int] | None:
        return self.reader, select.POLLIN

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)


@pytest.fixture
def pipes() -> Iterator[tuple[Pipe, Pipe]]:
    pair = Pipe(), Pipe()
    yield pair
    for one in pair:
        one.close()


class Countdown:
    """Without a descriptor: ready when it was asked so many times."""

    def __init__(self, left: int) -> None:
        self.left = left

    def is_ready(self) -> bool:
        self.left -= 1
        return self.left < 0

    def descriptor(self) -> tuple[int, int] | None:
        return None


def test_those_that_are_ready_are_named_in_order(pipes: tuple[Pipe, Pipe]) -> None:
    os.write(pipes[1].writer, b"x")
    assert wait_any([pipes[0], Always(), pipes[1]], is_over=lambda: False) == [1, 2]


def test_a_wait_ends_by_its_time(pipes: tuple[Pipe, Pipe]) -> None:
    assert wait_any(pipes, is_over=lambda: False, timeout_s=0.01) == []


def test_a_wait_ends_when_the_call_is_over(pipes: tuple[Pipe, Pipe]) -> None:
    answers = iter([False, True])
    assert wait_any(pipes, is_over=lambda: next(answers)) == []


def test_a_source_without_a_descriptor_is_asked_at_every_slice(pipes: tuple[Pipe, Pipe]) -> None:
    assert wait_any([pipes[0], Countdown(2)], is_over=lambda: False) == [1]


def test_a_gate_that_is_full_admits_nobody_and_is_not_left_by_them() -> None:
    gate = WaitGate(limit=1)
    with waiting_at(gate) as first, waiting_at(gate) as second:
        assert (first, second, gate.count) == (True, False, 1)
    assert gate.count == 0


def test_a_wait_that_does_not_count_is_always_admitted() -> None:
    with waiting_at(None) as is_admitted:
        assert is_admitted


class Clock:
    interruptions = 0

    def pause(self, duration_s: float, is_cut: object) -> bool:
        raise AssertionError("nobody sleeps here")


def test_a_wait_inside_a_call_is_over_at_its_deadline_cancellation_and_interruption(
    recorder: Recorder,
) -> None:
    clock, context = Clock(), recorder.context()
    patience = Patience(clock, context, 60.0)
    assert not context.is_over()
    patience.begin(0.0)
    assert context.is_over(), "the deadline of the call"
    patience.begin(60.0)
    clock.interruptions += 1
    assert context.is_over(), "everything is interrupted"
    patience.begin(60.0)
    context.current = context.cancelled = envelope_from("alice")
    assert context.is_over(), "nobody waits for it"


def test_a_wait_of_a_run_loop_is_over_when_it_is_stopped_and_not_by_its_window(recorder: Recorder) -> None:
    context = recorder.context(is_loop=True)
    patience = Patience(Clock(), context, 60.0)
    patience.begin(0.0)
    assert not context.is_over()
    patience.is_stopping = lambda: True
    assert context.is_over()
    assert patience.verdict() is not None and context.is_over(), "also after it was given its grace"
