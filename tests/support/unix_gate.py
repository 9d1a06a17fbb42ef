"""A capsule's own Unix socket and its clients, with a handshake over a token and keys of a test's own."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from aos_runtime.names import PrincipalName
from aos_runtime.network.listeners import UnixDoor
from aos_runtime.wire.handshake import KeyEntry, ServerHandshake
from aos_runtime.wire.handshake_client import signed_text

TOKEN = "t" * 64
WAIT_S = 20.0


class Gate:
    """`alice` has a key that may do everything, `scoped` one that may do one thing."""

    def __init__(self, folder: Path) -> None:
        self._key = SigningKey.generate()
        self.door = UnixDoor(folder / "c", self._handshake)
        self.threads: list[threading.Thread] = []

    def knock(self, principal: str | None = None, *, token: str = TOKEN) -> socket.socket:
        """A client on its way in: it answers for itself on a thread of its own."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(WAIT_S)
        client.connect(str(self.door.path))
        self.threads.append(
            threading.Thread(target=self._speak, args=(client, principal, token), daemon=True)
        )
        self.threads[-1].start()
        return client

    def _speak(self, client: socket.socket, principal: str | None, token: str) -> None:
        hello: dict[str, object] = {"token": token, "protocol_version": 1, "client_version": "test"}
        if principal is not None:
            hello["claimed_principal"] = principal
        try:
            answer = self._exchange(client, hello)
            if "challenge" in answer:
                signed = self._key.sign(signed_text(PrincipalName(principal or ""), answer["challenge"]))
                self._exchange(client, hello | {"signature": signed.signature.hex()})
        except OSError:
            return  # it was not let in

    @staticmethod
    def _exchange(client: socket.socket, value: object) -> Any:
        body = json.dumps(value).encode()
        client.sendall(len(body).to_bytes(4, "big") + body)
        header = client.recv(4, socket.MSG_WAITALL)
        return json.loads(client.recv(int.from_bytes(header, "big"), socket.MSG_WAITALL) or b"{}")

    def _handshake(self) -> ServerHandshake:
        return ServerHandshake(TOKEN, "1", self._find_keys, b"n" * 32)

    def _find_keys(self, principal: PrincipalName) -> tuple[KeyEntry, ...] | None:
        public = bytes(self._key.verify_key).hex()
        allow = {"alice": None, "scoped": ("topic:one",)}
        return (KeyEntry("k", public, allow[principal]),) if principal in allow else None
