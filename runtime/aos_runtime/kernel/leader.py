"""The sticky leader: one thread polls the source and runs everything it made ready to completion.

Why and how much it gains: a thread hand-off costs more than a whole guest call, so the thread that read a
frame runs the chain that follows and writes the reply.  It gives the poller and its ready work to another
thread only before a call may block, before a large payload, and when a batch has run for `slow_s`.

This room knows nothing of mailboxes, sockets or guests: it runs `Runnable`s and polls one `Source`.  The six
rules that make it correct each have a test in tests/runtime/kernel/test_leader.py:

1. whoever makes a runnable ready (idle -> busy) hands it to `ready` exactly once;
2. a publish only queues: what the current thread makes ready runs after the current piece has returned;
3. `before_block` gives the poller and the ready work away, and is called before anything that can wait;
4. `relieve` does the same for a batch older than `slow_s`; the clock starts with the batch, not with the
call;
5. the source guards each connection itself: around a hand-over two threads can hold an event of one socket;
6. the number of threads is capped: beyond it work waits, and `saturations` counts how often it did.  Polling
   never waits: while every thread is taken, one more that runs nothing looks out.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Protocol

MAX_THREADS = 64
SLOW_S = 0.005
SPARE_THREADS = 4
SPARE_WAIT_S = 10.0


class Runnable(Protocol):
    """A piece of work that is ready: a mailbox with messages, or a job."""

    def run_one(self) -> bool:
        """Do one piece.  True while there is more to do."""
        ...

    def recover(self, error: Exception) -> bool:
        """`run_one` raised (a bug): put things right.  True while there is more to do."""
        ...


class Job:
    """One function as a runnable."""

    __slots__ = ("_run",)

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run

    def run_one(self) -> bool:
        self._run()
        return False

    def recover(self, error: Exception) -> bool:
        return False


class Source(Protocol):
    """Where work comes from: the sockets."""

    def poll(self) -> Sequence[tuple[int, int]]:
        """Wait for events, at most one at a time per caller;

        returns after its own bound even if nothing came.
        """
        ...

    def handle(self, fd: int, events: int) -> None:
        """Take what one event brings and queue what follows.  Never blocks, never runs a guest."""
        ...

    def wake(self) -> None:
        """Make a `poll` in progress return soon; safe from any thread."""
        ...


class _Worker:
    """A thread that runs work and may hold the right to poll.

    `started` is the start of its batch, 0.0 = none.
    """

    __slots__ = ("leading", "ready", "started")

    def __init__(self) -> None:
        self.ready: deque[Runnable] = deque()
        self.started = 0.0
        self.leading = False


class _Token:
    """What is put on the queue of idle threads beside runnables."""


_LEAD = _Token()
_STOP = _Token()


class Leader:
    """Schedules runnables over threads; see the module's rules.

    `on_fault` is told of every exception that a runnable let out.  `threads` never exceeds `max_threads`.
    """

    def __init__(
        self,
        source: Source,
        *,
        max_threads: int = MAX_THREADS,
        slow_s: float = SLOW_S,
        clock: Callable[[], float] = time.monotonic,
        on_fault: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._source = source
        self._max_threads = max_threads
        self._slow_s = slow_s
        self._clock = clock
        self._on_fault = on_fault
        self._local = threading.local()
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Runnable | _Token] = SimpleQueue()
        self._idle = 0
        self._backlog = 0
        self._spawned = 0
        self._workers: dict[threading.Thread, _Worker] = {}
        self._lookout: threading.Thread | None = None
        self._stopping = False
        self.saturations = 0
        self.dozing = False
        self.on_busy: Callable[[], None] = lambda: None
        """Called when a batch starts while `dozing` is set (the ticker sleeps and wants to know)."""

    # what the rest of the kernel calls

    def start(self) -> None:
        """Let a first thread lead."""
        self._give(_LEAD)

    def ready(self, item: Runnable) -> None:
        """Take a runnable that has just become ready; the caller saw it go from idle to busy."""
        worker: _Worker | None = getattr(self._local, "worker", None)
        if worker is None:
            self._give(item)
        else:
            worker.ready.append(item)

    def before_block(self) -> None:
        """The current call may wait: let other threads have the poller and the ready work."""
        worker: _Worker | None = getattr(self._local, "worker", None)
        if worker is not None:
            self._release(worker)

    def relieve(self) -> bool:
        """Take poller and ready work from every batch older than `slow_s`.  True while any batch runs."""
        now, busy = self._clock(), False
        for worker in tuple(self._workers.values()):
            started = worker.started
            busy = busy or started > 0.0
            if started > 0.0 and now - started > self._slow_s:
                self._release(worker)
        return busy

    def stop(self, timeout_s: float) -> bool:
        """Let every thread end after its current piece.  False when one still runs after `timeout_s`."""
        with self._lock:
            self._stopping = True
            threads = tuple(self._workers)
            for _ in threads:
                self._queue.put(_STOP)
            if self._lookout is not None:
                threads += (self._lookout,)
        self._source.wake()
        deadline = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    @property
    def threads(self) -> int:
        return len(self._workers)

    # handing over

    def _give(self, item: Runnable | _Token) -> None:
        """Queue `item` with exactly one claim on a thread.

        That is an idle one, a new one, or the next to come free; the lead does not wait for that.
        """
        with self._lock:
            if self._idle or self._stopping:
                self._queue.put(item)
                self._idle -= 1 if self._idle else 0
                return
            is_full = len(self._workers) >= self._max_threads
            self.saturations += is_full
            if is_full and item is not _LEAD:
                self._queue.put(item)
                self._backlog += 1
                return
            thread = self._make_lookout() if is_full else self._make_worker(item)
            thread.start()  # under the lock: `stop` joins what it finds, and cannot join what has not started

    def _make_worker(self, item: Runnable | _Token) -> threading.Thread:
        """(lock) One more thread, with a claim on `item`."""
        self._queue.put(item)
        worker = _Worker()
        self._spawned += 1
        name = f"aos-worker-{self._spawned}"
        thread = threading.Thread(target=self._work, args=(worker,), name=name, daemon=True)
        self._workers[thread] = worker
        return thread

    def _make_lookout(self) -> threading.Thread:
        """(lock) The thread that polls while all others are taken; one lead, so one of it."""
        self._lookout = threading.Thread(target=self._look_out, name="aos-lookout", daemon=True)
        return self._lookout

    def _release(self, worker: _Worker) -> None:
        """Give away what `worker` holds; safe from any thread, at most one caller passes the lead on."""
        while True:
            try:
                self._give(worker.ready.popleft())
            except IndexError:
                break
        with self._lock:
            leading, worker.leading = worker.leading, False
        if leading:
            self._give(_LEAD)

    # the threads

    def _work(self, worker: _Worker) -> None:
        self._local.worker = worker
        item: Runnable | _Token | None = self._queue.get()  # claimed by `_give`
        while item is not None and item is not _STOP and not self._stopping:
            if isinstance(item, _Token):
                self._lead(worker)
            else:
                worker.ready.append(item)
                self._run(worker)
            item = self._next()
        self._workers.pop(threading.current_thread(), None)

    def _next(self) -> Runnable | _Token | None:
        """The next item, or None when this thread is spare and should end."""
        with self._lock:
            if self._backlog:
                self._backlog -= 1
            else:
                self._idle += 1
        while True:
            try:
                return self._queue.get(timeout=SPARE_WAIT_S)
            except Empty:
                with self._lock:
                    if self._idle > SPARE_THREADS:
                        self._idle -= 1
                        return None

    def _look_out(self) -> None:
        """Poll and only queue what comes in, until some thread could lead again."""
        while not self._stopping:
            with self._lock:
                if self._idle or len(self._workers) < self._max_threads:
                    break
            try:
                for fd, events in self._source.poll():
                    self._source.handle(fd, events)
            except Exception as error:  # noqa: BLE001 - top of a thread, as in `_lead`
                self._on_fault(error)
        self._give(_LEAD)

    def _lead(self, worker: _Worker) -> None:
        worker.leading = True
        while worker.leading and not self._stopping:
            try:
                self._lead_once(worker)
            except Exception as error:  # noqa: BLE001 - top of a thread: a broken connection must not take the lead
                self._on_fault(error)
        worker.leading = False

    def _lead_once(self, worker: _Worker) -> None:
        handle, ready = self._source.handle, worker.ready
        for fd, events in self._source.poll():
            handle(fd, events)
            if ready:
                self._run(worker)
                if not worker.leading:
                    return  # level triggered: the next leader sees what was not handled

    def _run(self, worker: _Worker) -> None:
        """Run the ready work of this thread to completion, taking turns between runnables."""
        ready = worker.ready
        worker.started = self._clock()
        if self.dozing:
            self.on_busy()
        while ready and not self._stopping:
            try:
                item = ready.popleft()
            except IndexError:  # the ticker took it
                break
            while self._run_one(item):
                if ready or self._stopping:
                    ready.append(item)
                    break
        worker.started = 0.0

    def _run_one(self, item: Runnable) -> bool:
        try:
            return item.run_one()
        except Exception as error:  # noqa: BLE001 - the top of an instance thread: one bug must not end the daemon
            self._on_fault(error)
            return item.recover(error)
