"""Who is at the other end of a Unix connection."""

from __future__ import annotations

import socket
import struct
import sys

SOL_LOCAL, LOCAL_PEERCRED = 0, 1


def peer_uid(sock: socket.socket) -> int | None:
    """The user at the other end, None where the system does not tell."""
    try:
        if sys.platform == "linux":
            data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return int(struct.unpack("3i", data)[1])
        data = sock.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, struct.calcsize("2I"))
        return int(struct.unpack("2I", data)[1])
    except (OSError, struct.error):
        return None
