"""The client's side of the handshake, and what both sides share.

Source: daemon-kernel.md 2.2.  Sans-I/O: frames go in and come out, signing is passed in, deadlines belong to
the owner of the socket.  Standard library only, since every command that talks to the daemon pays for this
module; the server's side is `handshake`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from aos_runtime.errors import AosError, Denied, PeerFault
from aos_runtime.names import ANONYMOUS_PRINCIPAL

PROTOCOL_VERSION = 1
AUTHENTICATION_FAILED = "authentication failed"
HEX_DIGITS = frozenset("0123456789abcdef")


class ServerHello(NamedTuple):
    """What the client learnt: the handshake is done."""

    server_version: str
    protocol_version: int


def signed_text(principal: str, challenge: str) -> bytes:
    """The bytes that the principal's key signs."""
    return f"astrid-principal-auth:v1:{principal}:{challenge}".encode("ascii")


class ClientHandshake:
    """The client's side of one connection.

    With `principal` and `sign` (ed25519 over bytes, 64 bytes back) it authenticates; without, it is
    anonymous.  `workspace` is the absolute path of the folder that `cwd://` means for this connection, None
    where there is none.
    """

    __slots__ = ("_fields", "_principal", "_proved", "_sign")

    def __init__(
        self,
        token: str,
        client_version: str,
        principal: str | None = None,
        sign: Callable[[bytes], bytes] | None = None,
        workspace: str | None = None,
    ) -> None:
        self._principal = principal if sign is not None else None
        self._sign = sign
        self._proved = False
        self._fields: dict[str, object] = {
            "token": token,
            "protocol_version": PROTOCOL_VERSION,
            "client_version": client_version,
            "claimed_principal": self._principal,
            "workspace": workspace,
        }

    def start(self) -> bytes:
        """The first frame to send."""
        return self._render(None)

    def receive(self, frame: bytes) -> bytes | ServerHello:
        """One reply: the next frame to send, or the end.

        PeerFault `protocol-version` (versions of both sides, case DMN-17), `handshake-malformed`; Denied
        `authentication-failed`, `handshake-refused`.
        """
        reply = read_object(frame)
        version, server_version = reply.get("protocol_version"), reply.get("server_version")
        if not isinstance(version, int) or not isinstance(server_version, str):
            raise malformed()
        if version != PROTOCOL_VERSION:
            raise _versions_differ(str(self._fields["client_version"]), server_version, version)
        if reply.get("status") != "ok":
            raise _refused(reply.get("reason"), self._principal)
        challenge = reply.get("challenge")
        if challenge is not None:
            return self._prove(challenge)
        if self._principal is not None and not self._proved:
            raise malformed()  # it never asked for the proof, so it cannot have bound us to the principal
        return ServerHello(server_version, version)

    def _prove(self, challenge: object) -> bytes:
        """Sign only what has the shape of a challenge: the server must not choose what we sign."""
        shaped = isinstance(challenge, str) and len(challenge) == 64 and HEX_DIGITS.issuperset(challenge)
        if not shaped or self._principal is None or self._sign is None or self._proved:
            raise malformed()
        self._proved = True
        return self._render(self._sign(signed_text(self._principal, str(challenge))).hex())

    def _render(self, signature: str | None) -> bytes:
        return json.dumps({**self._fields, "signature": signature}).encode()


def read_object(frame: bytes) -> dict[str, object]:
    """A handshake frame as a JSON object.  PeerFault `handshake-malformed`."""
    try:
        value = json.loads(frame)
    except (ValueError, RecursionError):
        raise malformed() from None
    if not isinstance(value, dict):
        raise malformed()
    return value


def _versions_differ(client_version: str, server_version: str, protocol: int) -> PeerFault:
    return PeerFault(
        "protocol-version",
        f"this client is {client_version} with protocol {PROTOCOL_VERSION}, "
        f"the running daemon is {server_version[:64]} with protocol {protocol}",
        hint="run `aos restart`",
        client_version=client_version,
        server_version=server_version,
        client_protocol=PROTOCOL_VERSION,
        server_protocol=protocol,
    )


def _refused(reason: object, principal: str | None) -> AosError:
    if reason == AUTHENTICATION_FAILED:
        return Denied(
            "authentication-failed",
            f"the daemon did not accept this client as principal {principal or ANONYMOUS_PRINCIPAL}",
            hint="check that AOS_HOME is the daemon's; `aos restart` makes a new token",
        )
    text = reason[:512] if isinstance(reason, str) else "no reason given"
    return Denied("handshake-refused", f"the daemon refused the connection: {text}", hint="see `aos logs`")


def malformed() -> PeerFault:
    """The fault of a peer whose frame is no handshake."""
    return PeerFault(
        "handshake-malformed",
        "the other side does not speak the handshake of this protocol",
        hint="check that the socket is that of an aos daemon; `aos restart` replaces a foreign one",
    )
