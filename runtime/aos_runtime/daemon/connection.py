"""One client connection: bytes in, frames out, both bounded.

Reading is guarded by its own lock, because around a hand-over of the lead two threads can hold an event of
the same socket.  Writing never blocks: what the socket does not take waits in a bounded queue, and a client
that lets it overflow, or takes nothing for five seconds, is closed as lagged; one that begins a frame and
does not finish it is closed too.  What a frame means is the server's business.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum

from aos_runtime.daemon.poller import READABLE, WRITABLE, Poller
from aos_runtime.errors import PeerFault
from aos_runtime.wire.egress import (
    EVENT_OVERHEAD_BYTES,
    MAX_QUEUED_BYTES,
    MAX_QUEUED_EVENTS,
    WRITE_TIMEOUT_S,
)
from aos_runtime.wire.frames import FRAME_TIMEOUT_S, MAX_HANDSHAKE_BYTES, FrameDecoder, encode_frame

RECEIVE_BYTES = 64 * 1024


class Closed(Enum):
    """Why a connection ended; the value goes to the log."""

    PEER = "socket closed"
    LAGGED = "client lagged: its queue overflowed"
    WRITE_TIMEOUT = "client took nothing for 5 s"
    FRAME_TIMEOUT = "client did not finish a frame within 10 s"
    HANDSHAKE_TIMEOUT = "handshake timed out"
    LANE_TIMEOUT = "reserved lane timed out"
    FULL = "no connection is free"
    REFUSED = "refused"
    FAULT = "protocol fault"
    SHUTDOWN = "daemon stops"


class Connection:
    """A socket with its decoder and egress queue.

    `on_frame(connection, body)` is called for each frame, from one thread at a time; `on_closed(connection,
    reason)` exactly once.  Neither may block.
    """

    def __init__(
        self,
        sock: socket.socket,
        poller: Poller,
        *,
        on_frame: Callable[[Connection, bytes], None],
        on_closed: Callable[[Connection, Closed, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.fd = sock.fileno()
        self.closed = False
        self.patience_s = WRITE_TIMEOUT_S
        """How long the client may take nothing of what was sent to it."""
        self.decoder = FrameDecoder(MAX_HANDSHAKE_BYTES)
        self._sock = sock
        self._poller = poller
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._clock = clock
        self._reading = threading.Lock()
        self._lock = threading.RLock()
        self._out: deque[bytes | memoryview] = deque()
        self._out_bytes = 0
        self._stalled_at = 0.0
        self._began_at = 0.0
        """When the frame that is not whole yet began; 0 where there is none."""
        self._closing: Closed | None = None

    def on_event(self, events: int) -> None:
        """The poller says that the socket is ready for something."""
        if events & WRITABLE and self._out:
            self._flush()
        if events & ~WRITABLE and not self.closed and self._reading.acquire(blocking=False):
            try:
                self._read()
            finally:
                self._reading.release()

    def send(self, body: bytes) -> None:
        """Send one frame, now or as soon as the socket takes it.

        A dead or lagging client is closed, no error.
        """
        frame: bytes | memoryview = encode_frame(body)
        with self._lock:
            if self.closed:
                return
            if not self._out:
                sent = self._try_send(frame)
                if sent == len(frame) or self.closed:
                    return
                frame = memoryview(frame)[sent:]
                self._stalled_at = self._clock()
                self._poller.modify(self.fd, READABLE | WRITABLE)
            self._out.append(frame)
            self._out_bytes += len(frame) + EVENT_OVERHEAD_BYTES
            if len(self._out) > MAX_QUEUED_EVENTS or self._out_bytes > MAX_QUEUED_BYTES:
                self.close(Closed.LAGGED)

    def close_after_flush(self, reason: Closed) -> None:
        """Close once what was sent has left; at the latest when the write timeout passes."""
        with self._lock:
            if self._out:
                self._closing = reason
            else:
                self.close(reason)

    def close(self, reason: Closed, detail: str = "") -> None:
        """Close now.  Later calls do nothing.

        The descriptor is freed last: before that, no other connection can have its number.
        """
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._poller.unregister(self.fd)
            self._out.clear()
        try:
            self._on_closed(self, reason, detail)
        finally:
            self._sock.close()

    def sweep(self, now: float) -> None:
        """Close a connection whose client takes nothing, or does not end what it began to say."""
        with self._lock:
            stalled = bool(self._out) and now - self._stalled_at > self.patience_s
        if stalled:
            self.close(Closed.WRITE_TIMEOUT)
        elif self._began_at and now - self._began_at > FRAME_TIMEOUT_S:
            self.close(Closed.FRAME_TIMEOUT)

    @property
    def has_backlog(self) -> bool:
        return bool(self._out)

    def _read(self) -> None:
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close(Closed.PEER)
            return
        try:
            bodies = self.decoder.feed(data)
            if not self.decoder.is_inside:
                self._began_at = 0.0
            elif bodies or not self._began_at:
                self._began_at = self._clock()
            for body in bodies:
                if self.closed or self._closing is not None:
                    return
                self._on_frame(self, body)
            if self.decoder.fault is not None:
                raise self.decoder.fault
        except PeerFault as fault:
            self.close_after_flush(Closed.FAULT) if self._out else self.close(Closed.FAULT, fault.message)

    def _try_send(self, frame: bytes | memoryview) -> int:
        """(lock) Bytes that the socket took; closes on a broken socket."""
        try:
            return self._sock.send(frame)
        except BlockingIOError:
            return 0
        except OSError:
            self.close(Closed.PEER)
            return 0

    def _flush(self) -> None:
        with self._lock:
            while self._out and not self.closed:
                frame = self._out[0]
                sent = self._try_send(frame)
                if sent:
                    self._stalled_at = self._clock()
                if sent < len(frame):
                    if not self.closed:
                        self._out[0] = memoryview(frame)[sent:]
                        self._out_bytes -= sent
                    return
                self._out.popleft()
                self._out_bytes -= sent + EVENT_OVERHEAD_BYTES
            if self.closed:
                return
            self._poller.modify(self.fd, READABLE)
            if self._closing is not None:
                self.close(self._closing)
