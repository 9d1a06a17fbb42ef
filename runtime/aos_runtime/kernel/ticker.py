"""The ticker: a thread that relieves slow batches every 5 ms and does the kernel's timed chores.

It sleeps deeply while nothing runs, so an idle daemon costs four wake-ups a second.  It never runs a guest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from aos_runtime.kernel.leader import Leader

TICK_S = 0.005
DOZE_S = 0.25
QUIET_TICKS = 40


class Ticker:
    """Calls `leader.relieve` every `TICK_S` while batches run, and each chore about every `DOZE_S` always."""

    def __init__(self, leader: Leader, *, on_fault: Callable[[Exception], None] = lambda error: None) -> None:
        self._leader = leader
        self._on_fault = on_fault
        self._chores: tuple[Callable[[float], None], ...] = ()
        self._event = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="aos-ticker", daemon=True)
        leader.on_busy = self._event.set

    def every(self, chore: Callable[[float], None]) -> None:
        """Add a chore; it is given `time.monotonic()` and must not block."""
        self._chores = (*self._chores, chore)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, if it was started; returns when it has ended or after two seconds."""
        self._stopping = True
        self._event.set()
        if self._thread.ident is not None:
            self._thread.join(2.0)

    def _work(self) -> None:
        quiet, next_chores = 0, 0.0
        while not self._stopping:
            quiet = 0 if self._leader.relieve() else quiet + 1
            now = time.monotonic()
            if now >= next_chores:
                self._do_chores(now)
                next_chores = now + DOZE_S
            if quiet < QUIET_TICKS:
                time.sleep(TICK_S)
                continue
            if self._doze():
                quiet = 0

    def _doze(self) -> bool:
        """Sleep until a batch starts (True) or the chores are due.

        `dozing` is set before looking: a worker sets `started` before it asks, so neither can miss the other.
        """
        self._leader.dozing = True
        woken = self._leader.relieve() or self._event.wait(DOZE_S)
        self._leader.dozing = False
        self._event.clear()
        return woken

    def _do_chores(self, now: float) -> None:
        for chore in self._chores:
            try:
                chore(now)
            except Exception as error:  # noqa: BLE001 - top of a thread: the other chores must still be done
                self._on_fault(error)
