"""What shows that the waiting calls waited: none is answered before, each is answered right after."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest

from aos_runtime.wire.frames import encode_frame
from bench.blocked import _is_answered, _wait_for_answer
from bench.installation import BenchFailed


def frame(status: str, content: str = '"awake"') -> bytes:
    payload = {"status": status, "data": {"content": content}}
    return encode_frame(json.dumps({"topic": "t", "payload": payload}).encode())


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_working_is_no_answer(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    assert not _is_answered(ours)
    theirs.sendall(frame("Working"))
    assert not _is_answered(ours)
    theirs.sendall(frame("Success"))
    assert _is_answered(ours)
    _wait_for_answer(ours, time.monotonic() + 5)


@pytest.mark.parametrize("wrong", [frame("Error"), frame("Success", "asleep")])
def test_another_answer_fails(pair: tuple[socket.socket, socket.socket], wrong: bytes) -> None:
    ours, theirs = pair
    theirs.sendall(frame("Working") + wrong)
    with pytest.raises(BenchFailed):
        _wait_for_answer(ours, time.monotonic() + 5)


def test_an_answer_that_does_not_come_in_time_fails(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(BenchFailed):
        _wait_for_answer(pair[0], time.monotonic())
