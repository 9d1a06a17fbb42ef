"""A web server of a process of its own, which the payload benchmark fetches from and sends to.

`GET /SIZE` answers with so many bytes, any request with a body is read whole and answered with none.  One
connection serves one request.  `python -m bench.payload_web` prints its port and lives until its input ends.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

MAX_BYTES = 10 * 1000 * 1000
PART_BYTES = 1 << 20


@contextmanager
def web_server() -> Iterator[int]:
    """The port of a server of its own."""
    command = [sys.executable, "-m", "bench.payload_web"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield int(process.stdout.readline())
        process.stdin.close()
        process.wait(timeout=10)


def fetch(port: int, size: int, memory: bytearray) -> None:
    """The shortest Python for the bytes of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", f"/{size}", headers={"Connection": "close"})
    memory[:] = connection.getresponse().read()
    connection.close()


def send(port: int, data: bytes) -> None:
    """The shortest Python for the bytes of a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("PUT", "/", body=bytes(memoryview(data)), headers={"Connection": "close"})
    connection.getresponse().read()
    connection.close()


def _serve(listener: socket.socket, content: memoryview) -> None:
    while True:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _answer(connection, content)


def _answer(connection: socket.socket, content: memoryview) -> None:
    received = bytearray()
    while b"\r\n\r\n" not in received:
        part = connection.recv(PART_BYTES)
        if not part:
            return
        received += part
    head, _, rest = received.partition(b"\r\n\r\n")
    lower = bytes(head).lower()
    left = int(lower.partition(b"content-length:")[2].split(b"\r\n")[0] or 0) - len(rest)
    while left > 0:
        left -= len(connection.recv(PART_BYTES))
    size = int(head.split(b" ")[1][1:] or 0)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
    connection.sendall(content[:size])


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    content = memoryview(bytes(MAX_BYTES))
    for _ in range(2):
        threading.Thread(target=_serve, args=(listener, content), daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
