"""The load generator counts only answers that it has checked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bench.clients import WrongReply, run_load


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@contextmanager
def server(answer: Callable[[bytes], list[bytes]], clients: int) -> Iterator[list[socket.socket]]:
    """Connections whose other ends answer each frame with what `answer` gives, byte by byte where short."""
    pairs = [socket.socketpair() for _ in range(clients)]

    def serve(end: socket.socket) -> None:
        with end:
            while head := end.recv(4):
                body = end.recv(int.from_bytes(head, "big"))
                for reply in answer(body):
                    end.sendall(reply[:3])
                    end.sendall(reply[3:])

    threads = [threading.Thread(target=serve, args=(there,)) for _, there in pairs]
    for thread in threads:
        thread.start()
    try:
        yield [here for here, _ in pairs]
    finally:
        for here, _ in pairs:
            here.close()
        for thread in threads:
            thread.join(5)


def make(number: int) -> bytes:
    return frame(b"call %d" % number)


def check(number: int, body: bytes) -> bool:
    if body == b"working":
        return False
    if body != b"call %d" % number:
        raise WrongReply(repr(body))
    return True


def test_every_client_is_driven_and_a_working_frame_is_no_answer() -> None:
    with server(lambda body: [frame(b"working"), frame(body)], 3) as connections:
        load = run_load(connections, make, check, warm_s=0.0, for_s=0.02)
    assert len(load.latencies_s) >= 3
    assert load.latencies_s == tuple(sorted(load.latencies_s))
    assert load.rate == len(load.latencies_s) / load.elapsed_s


def test_a_wrong_answer_ends_the_run() -> None:
    with server(lambda body: [frame(b"call 0")], 1) as connections, pytest.raises(WrongReply):
        run_load(connections, make, check, warm_s=0.0, for_s=0.02)
