"""A daemon that answers as a test says: real socket, framing and handshake, no runtime behind them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from aos_runtime import HOST_VERSION
from aos_runtime.home import Home
from aos_runtime.wire.frames import FrameDecoder, encode_frame
from aos_runtime.wire.methods import reply_topic

TOKEN = "ab" * 32
Answer = Callable[[str, Mapping[str, Any]], Mapping[str, Any] | None]
"""Topic and payload of a request to the payload of the reply; None: say nothing."""


class FakeDaemon:
    """Serves one home until the block ends.  `requests` are (topic, payload) as they came."""

    def __init__(self, home: Home, answer: Answer, *, hello: Mapping[str, Any] | None = None) -> None:
        self._home = home
        self._answer = answer
        self._hello = {"status": "ok", "protocol_version": 1, "server_version": HOST_VERSION, **(hello or {})}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.requests: list[tuple[str, Mapping[str, Any]]] = []
        self.handshakes: list[Mapping[str, Any]] = []

    def __enter__(self) -> FakeDaemon:
        self._home.socket.parent.mkdir(parents=True, exist_ok=True)
        self._home.token_file.parent.mkdir(parents=True, exist_ok=True)
        self._home.token_file.write_text(TOKEN, encoding="ascii")
        self._listener.bind(str(self._home.socket))
        self._listener.listen()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=5)
        self._home.socket.unlink(missing_ok=True)
        if self._home.socket.parent != self._home.run:
            self._home.socket.parent.rmdir()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        decoder = FrameDecoder()
        greeted = False
        with suppress(OSError):
            while data := connection.recv(65536):
                for body in decoder.feed(data):
                    message = json.loads(body)
                    if not greeted:
                        self.handshakes.append(message)
                        greeted = True
                        connection.sendall(encode_frame(json.dumps(self._hello).encode()))
                    else:
                        self._reply(connection, message)

    def _reply(self, connection: socket.socket, message: Mapping[str, Any]) -> None:
        topic, payload = message["topic"], message["payload"]
        self.requests.append((topic, payload))
        answer = self._answer(topic, payload)
        if answer is not None:
            if "request_id" in payload:
                answer = {"request_id": payload["request_id"], **answer}
            event = {
                "topic": reply_topic(topic),
                "payload": answer,
                "source_id": "00000000-0000-0000-0000-000000000000",
                "principal": "default",
            }
            connection.sendall(encode_frame(json.dumps(event).encode()))
