"""astrid:request-context/host@1.0.0 (host-abi.md 1.8): who a connection that was accepted belongs to.

What is answered was proved to the host in the connection's handshake; nothing that a guest or its client says
enters.  It names somebody and gives no right.
"""

from __future__ import annotations

from aos_runtime.host.factors.factor import published
from aos_runtime.host.factors.net_calls import at_once
from aos_runtime.host.factors.net_types import fallible
from aos_runtime.host.wit import BORROW, STRING, Option
from aos_runtime.network.tcp import TcpStream

_STREAM = "tcp-stream"


def owner(stream: TcpStream) -> str | None:
    """The opaque owner of a connection; None for one that was dialled, came over TCP, or proved nobody."""
    return stream.owner


def principal(stream: TcpStream) -> str | None:
    """Who proved to be at the other end; None as for `owner`."""
    return stream.principal


_OPTIONAL = fallible(Option(STRING))

FUNCTIONS = {
    "connection-owner": published(at_once(_STREAM, owner), _OPTIONAL, connection=BORROW),
    "connection-principal": published(at_once(_STREAM, principal), _OPTIONAL, connection=BORROW),
}
