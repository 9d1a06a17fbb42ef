"""The yardstick for one call: a server that reads a frame and sends it back, doing nothing else.

Run as `python -m bench.echo SOCKET`: one epoll loop over a Unix socket with the framing of the daemon, so
that a call is compared with the cost of the socket and the wake-ups alone.
"""

from __future__ import annotations

import select
import socket
import sys


def serve(path: str) -> None:
    """Echo frames on `path` until killed."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    connections: dict[int, tuple[socket.socket, bytearray]] = {}
    while True:
        for fd, _ in poller.poll():
            if fd == listener.fileno():
                accepted, _ = listener.accept()
                connections[accepted.fileno()] = (accepted, bytearray())
                poller.register(accepted, select.POLLIN)
            elif not _echo(*connections[fd]):
                poller.unregister(fd)
                connections.pop(fd)[0].close()


def _echo(connection: socket.socket, buffer: bytearray) -> bool:
    data = connection.recv(1 << 18)
    if not data:
        return False
    buffer += data
    while len(buffer) >= 4 and len(buffer) >= (end := 4 + int.from_bytes(buffer[:4], "big")):
        connection.sendall(buffer[:end])
        del buffer[:end]
    return True


if __name__ == "__main__":
    serve(sys.argv[1])
