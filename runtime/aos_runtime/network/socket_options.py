"""The options of one TCP connection, in the units of astrid:net.  Source: the WIT's `tcp-stream`."""

from __future__ import annotations

import math
import socket
import struct

from aos_runtime.network.faults import Fault, NetworkFault, fault_of

MAX_KEEPALIVE_S = 32_767
MAX_LINGER_S = 32_767
MAX_HOPS = 255
_LINGER = struct.Struct("ii")


class SocketOptions:
    """Reads and sets them on the socket itself, so that what is read is what holds."""

    __slots__ = ("_socket",)

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    @property
    def nodelay(self) -> bool:
        return bool(self._get(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    @nodelay.setter
    def nodelay(self, value: bool) -> None:
        self._set(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(value))

    @property
    def reuse_address(self) -> bool:
        return bool(self._get(socket.SOL_SOCKET, socket.SO_REUSEADDR))

    @reuse_address.setter
    def reuse_address(self, value: bool) -> None:
        self._set(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(value))

    @property
    def hop_limit(self) -> int:
        return self._get(*self._hops())

    @hop_limit.setter
    def hop_limit(self, value: int) -> None:
        if not 0 < value <= MAX_HOPS:
            raise NetworkFault(Fault.INVALID, f"a hop limit is a number from 1 to {MAX_HOPS}")
        self._set(*self._hops(), value)

    @property
    def keepalive_s(self) -> int | None:
        """Seconds between two probes; None where none are sent."""
        if not self._get(socket.SOL_SOCKET, socket.SO_KEEPALIVE):
            return None
        return self._get(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)

    @keepalive_s.setter
    def keepalive_s(self, value: int | None) -> None:
        self._set(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(value is not None))
        if value is not None:
            seconds = min(max(1, value), MAX_KEEPALIVE_S)
            self._set(socket.IPPROTO_TCP, _KEEPIDLE, seconds)
            self._set(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds)

    @property
    def linger_ms(self) -> int | None:
        """How long a close waits for what is unsent, in whole seconds; None: as the system does it."""
        try:
            data = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.size)
        except OSError as error:
            raise fault_of(error) from error
        is_on, seconds = _LINGER.unpack(data)
        return seconds * 1000 if is_on else None

    @linger_ms.setter
    def linger_ms(self, value: int | None) -> None:
        seconds = min(math.ceil((value or 0) / 1000), MAX_LINGER_S)
        self._set(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.pack(value is not None, seconds))

    def _hops(self) -> tuple[int, int]:
        if self._socket.family == socket.AF_INET6:
            return socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS
        return socket.IPPROTO_IP, socket.IP_TTL

    def _get(self, level: int, option: int) -> int:
        try:
            return self._socket.getsockopt(level, option)
        except OSError as error:
            raise fault_of(error) from error

    def _set(self, level: int, option: int, value: int | bytes) -> None:
        try:
            self._socket.setsockopt(level, option, value)
        except OSError as error:
            raise fault_of(error) from error


_KEEPIDLE = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", socket.TCP_KEEPINTVL))
"""Seconds before the first probe; macOS has another name for it."""
