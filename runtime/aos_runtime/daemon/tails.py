"""Live tails: from their bounded queues to the clients that watch, on one thread of their own.

The thread lives while somebody watches.  It sends only to a client that has taken what it was sent before,
and a bounded amount in a round, so that neither a client that does not read nor a flood costs the bus more
than the append of `kernel.tail`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from aos_runtime.bus.envelope import Envelope
from aos_runtime.kernel.tail import Tail
from aos_runtime.kernel.trace import Recorder
from aos_runtime.wire import requests as wire
from aos_runtime.wire.methods import WORKING_PERIOD_S

ROUND_S = 0.01
ROUND_EVENTS = 32
ROUND_BYTES = 256 * 1024
"""At most so much is rendered in a round, over all tails: it competes with the bus for the interpreter."""

PATIENCE_S = 3600.0
"""How long somebody who watches may read nothing (a pager, Ctrl-Z): what it costs is bounded anyway."""

MAX_TAILS = 16
MAX_TAILS_PER_CLIENT = 4


class Watcher(Protocol):
    """A client as a tail sees it."""

    @property
    def owner(self) -> str: ...

    @property
    def is_busy(self) -> bool:
        """Whether it has not yet taken what it was sent."""
        ...

    def be_patient(self, patience_s: float) -> None:
        """Let it take nothing for so long before its connection is closed."""
        ...

    def send(self, body: bytes) -> None: ...


class Bus(Protocol):
    """The part of the kernel that a tail needs."""

    @property
    def trace(self) -> Recorder: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Live:
    """One tail that runs.  `left` events are still to be sent, None for no end."""

    tail: Tail
    watcher: Watcher
    corr: str
    render: Callable[[Envelope, tuple[str, ...]], dict[str, object]]
    left: int | None
    working_at: float
    sent: int = 0
    lost: int = 0


class Tails:
    """`on_fault` hears of a bug of ours; the tails go on."""

    def __init__(
        self,
        bus: Bus,
        *,
        on_fault: Callable[[Exception], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trace = bus.trace
        self._on_fault = on_fault
        self._clock = clock
        self._lock = threading.Lock()
        self._live: tuple[Live, ...] = ()
        self._thread: threading.Thread | None = None
        self.wake = threading.Event()

    def start(self, live: Live) -> str | None:
        """Begin to watch; a sentence refuses it."""
        with self._lock:
            own = sum(1 for one in self._live if one.watcher.owner == live.watcher.owner)
            if len(self._live) >= MAX_TAILS or own >= MAX_TAILS_PER_CLIENT:
                return f"too many tails ({MAX_TAILS_PER_CLIENT} a client, {MAX_TAILS} in all)"
            self._live = (*self._live, live)
            live.watcher.be_patient(PATIENCE_S)
            live.watcher.send(wire.ok("Tailing", {"corr": live.corr}))
            self._trace.watch(live.tail.see)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="aos-tails", daemon=True)
                self._thread.start()
        return None

    def stop(self, owner: str, corr: str | None) -> bool:
        """End a tail of this client, all of them for None; False where there was none."""
        with self._lock:
            gone = [one for one in self._live if one.watcher.owner == owner and corr in (None, one.corr)]
            self._live = tuple(one for one in self._live if one not in gone)
            for one in gone:
                self._trace.unwatch(one.tail.see)
        for one in gone:
            if corr is not None:
                one.watcher.send(wire.ok("Success", _totals(one)))
        self.wake.set()
        return bool(gone)

    def close(self, timeout_s: float) -> bool:
        """End all; False where the thread is still there after `timeout_s`."""
        for one in self._live:
            self.stop(one.watcher.owner, None)
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    def _work(self) -> None:
        while True:
            self.wake.wait(WORKING_PERIOD_S / 2)
            self.wake.clear()
            with self._lock:
                if not self._live:
                    self._thread = None
                    return
            is_left = True
            while is_left:
                is_left = self.round()
                time.sleep(ROUND_S)

    def round(self) -> bool:
        """Send what there is, up to the bounds of a round; True while something is left."""
        events, size, is_left = ROUND_EVENTS, ROUND_BYTES, False
        for live in self._live:
            try:
                while events > 0 and size > 0 and not live.watcher.is_busy:
                    seen = live.tail.take()
                    if seen is None:
                        break
                    events, size = events - 1, size - len(seen[0].body)
                    self._send(live, *seen)
                self._tell(live)
            except Exception as error:  # noqa: BLE001 - top of a thread: the other watchers go on
                self._on_fault(error)
                self.stop(live.watcher.owner, live.corr)
            is_left = is_left or live.tail.has_events
        return is_left

    def _send(self, live: Live, envelope: Envelope, targets: tuple[str, ...]) -> None:
        if live.left == 0:
            return
        live.watcher.send(wire.ok("Event", live.render(envelope, targets)))
        live.sent += 1
        live.working_at = self._clock() + WORKING_PERIOD_S
        if live.left is not None:
            live.left -= 1
            if live.left == 0:
                self.stop(live.watcher.owner, live.corr)

    def _tell(self, live: Live) -> None:
        """Say how many events were lost, and that the daemon lives."""
        if live.watcher.is_busy:
            return
        lost = live.tail.take_lost()
        if lost:
            live.lost += lost
            live.watcher.send(wire.ok("Dropped", {"count": lost}))
        elif self._clock() >= live.working_at:
            live.working_at = self._clock() + WORKING_PERIOD_S
            live.watcher.send(wire.working())


def _totals(live: Live) -> dict[str, object]:
    return {"sent": live.sent, "dropped": live.lost}
