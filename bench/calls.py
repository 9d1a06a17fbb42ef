"""A tool call over the real socket: one client's latency beside an echo server, and many clients' rate."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from aos_runtime.wire.client import encode_message, tools_exchange
from aos_runtime.wire.frames import encode_frame
from bench.capsules import Original
from bench.clients import Load, WrongReply, run_load
from bench.installation import BenchFailed

MARK = "b" * 31
"""Stands in the prepared frame for the number of the call: one topic segment of this many characters."""


class ToolCalls:
    """Frames for calls of one tool, and the check of their answers."""

    def __init__(self, original: Original, arguments: dict[str, object], expected: str) -> None:
        exchange = tools_exchange("call", {"name": original.tool, "arguments": arguments}, MARK)
        self._frame = encode_frame(exchange.request)
        self._topic = exchange.topic
        self._expected = expected

    def make(self, number: int) -> bytes:
        return self._frame.replace(MARK.encode(), f"{number:031d}".encode())

    def check(self, number: int, body: bytes) -> bool:
        """Whether `body` answers call `number`; WrongReply where it does so wrongly."""
        reply = json.loads(body)
        if reply.get("topic") != self._topic.replace(MARK, f"{number:031d}"):
            raise WrongReply(f"a frame on {reply.get('topic')!r} came for call {number}")
        payload = reply["payload"]
        if payload["status"] == "Working":
            return False
        data = payload["data"]
        if payload["status"] != "Success" or data["is_error"] or self._expected not in data["content"]:
            raise WrongReply(f"call {number} was answered {payload!r}")
        return True


class BridgedCalls:
    """The same calls as the published runtime takes them: through its own `mcp` capsule, on the bus."""

    def __init__(self, original: Original, arguments: dict[str, object], expected: str) -> None:
        payload = {"type": "raw_json", "req_id": MARK, "name": original.tool, "arguments": arguments}
        self._frame = encode_frame(encode_message("astrid.v1.request.mcp.tool.call", payload))
        self._expected = expected

    def make(self, number: int) -> bytes:
        return self._frame.replace(MARK.encode(), f"{number:031d}".encode())

    def check(self, number: int, body: bytes) -> bool:
        """Whether `body` answers call `number`; WrongReply where it does so wrongly."""
        reply = json.loads(body)
        if reply.get("topic") != f"astrid.v1.response.{number:031d}":
            raise WrongReply(f"a frame on {reply.get('topic')!r} came for call {number}")
        payload = reply["payload"]
        if payload.get("isError") is not False or self._expected not in payload["content"][0]["text"]:
            raise WrongReply(f"call {number} was answered {payload!r}")
        return True


def measure_calls(
    connect: Callable[[], socket.socket], calls: ToolCalls | BridgedCalls, *, clients: int, for_s: float
) -> Load:
    connections = [connect() for _ in range(clients)]
    try:
        return run_load(connections, calls.make, calls.check, warm_s=min(0.5, for_s / 2), for_s=for_s)
    finally:
        for connection in connections:
            connection.close()


def measure_echo(folder: Path, make: Callable[[int], bytes], *, for_s: float) -> Load:
    """The same frames, one client, against a server that only sends them back."""
    path = folder / "echo.sock"
    path.unlink(missing_ok=True)
    server = subprocess.Popen([sys.executable, "-P", "-m", "bench.echo", str(path)])
    try:
        connection = _connect_when_up(path)
        with connection:
            return run_load(
                [connection],
                make,
                lambda number, body: body == make(number)[4:],
                warm_s=min(0.5, for_s / 2),
                for_s=for_s,
            )
    finally:
        server.kill()
        server.wait()


def _connect_when_up(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    for _ in range(1000):
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.005)
        else:
            return connection
    raise BenchFailed("the echo server did not come up")
