"""The audit trail of a running process: taken in by any thread, put on record by one.

`record` only queues, so it costs a caller nothing that waits; a thread signs and syncs what has gathered, at
most 50 ms later.  `require` is for an effect that must not pass unaudited: it returns when its entry is on
disk, and raises where it cannot get there, which stops the effect.  Repeats of one host call are folded.
Source: daemon-kernel.md 9.5; what is recorded of what is in docs/formats/home.md.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from aos_runtime.errors import AosError, Unavailable
from aos_runtime.store.audit_entry import NOT_REQUIRED, SUCCESS, SYSTEM, Draft, bounded, capped, failure

BATCH_PERIOD_S = 0.05
MAX_BATCH = 4096
MAX_QUEUED = 32_768
"""Entries that wait while the disk takes none; what comes on top is counted and lost."""

REQUIRE_TIMEOUT_S = 10.0
RETRY_S = 1.0
FOLD_S = 5.0
MAX_FOLDS = 1024
CLOSE_TIMEOUT_S = 3.0


class Store(Protocol):
    """The part of `store.audit.AuditStore` that is needed here."""

    def append(self, drafts: Sequence[Draft]) -> None: ...

    def prune(self) -> int: ...

    def close(self) -> None: ...


class HostCall(NamedTuple):
    """What repeats are told apart by.  `error` None: it succeeded."""

    principal: str | None
    capsule: str
    call: str
    resource: str | None
    error: str | None


class _Fold:
    """What repeats, since when, and how often after the first."""

    __slots__ = ("action", "authorization", "count", "outcome", "principal", "since")

    def __init__(
        self,
        since: float,
        principal: str | None,
        action: Mapping[str, object],
        outcome: Mapping[str, object],
        authorization: Mapping[str, object],
    ) -> None:
        self.count = 0
        self.since = since
        self.principal = principal
        self.action = bounded(action)
        self.outcome = bounded(outcome)
        self.authorization = authorization


class _Awaited:
    """An entry that somebody waits for."""

    __slots__ = ("done", "draft", "error")

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.done = threading.Event()
        self.error: AosError | None = None


_Queued = Draft | _Awaited


class AuditTrail:
    """One per process.  `report(level, sentence)` hears when recording fails and when it works again."""

    def __init__(
        self,
        store: Store,
        *,
        report: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store
        self._report = report
        self._clock = clock
        self._now_ns = now_ns
        self._queue: deque[_Queued] = deque()
        self._pending: list[_Queued] = []
        self._folds: dict[tuple[str | None, ...], _Fold] = {}
        self._folding = threading.Lock()
        self._wake = threading.Event()
        self._urgent = threading.Event()
        self._is_stopping = self._is_ended = False
        self._accepted = self._persisted = self._failed = self._lost = self._lost_unsaid = 0
        self._trouble: str | None = None
        self._damage: str | None = None
        self._thread = threading.Thread(target=self._work, name="aos-audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> bool:
        """Put on record what is queued and end; False where the thread would not end in three seconds."""
        self._flush_folds(everything=True)
        self._is_stopping = True
        self._urgent.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            return False
        self._store.close()
        return True

    # taking in

    def record(
        self,
        principal: str | None,
        action: Mapping[str, object],
        outcome: Mapping[str, object] = SUCCESS,
        authorization: Mapping[str, object] = NOT_REQUIRED,
    ) -> None:
        """Queue one entry.  Every string in it is cut at 1024 bytes; never waits and never raises."""
        self.take(self._draft(principal, action, outcome, authorization))

    def take(self, draft: Draft) -> None:
        """As `record`, for an entry whose strings are known to be short: what every tool call pays."""
        if len(self._queue) < MAX_QUEUED:
            self._enqueue(draft)
        else:
            self._accepted += 1
            self._lost += 1
            self._lost_unsaid += 1

    def require(
        self,
        principal: str | None,
        action: Mapping[str, object],
        outcome: Mapping[str, object] = SUCCESS,
        authorization: Mapping[str, object] = NOT_REQUIRED,
    ) -> None:
        """Put one entry on record before an effect.  Blocks for a write and a sync.

        Unavailable `audit-unavailable`: it is not on record, and the effect must not happen.
        """
        awaited = _Awaited(self._draft(principal, action, outcome, authorization))
        self._enqueue(awaited)
        self._urgent.set()
        self._wake.set()
        if not awaited.done.wait(REQUIRE_TIMEOUT_S):
            raise _refused(f"it was not on record within {REQUIRE_TIMEOUT_S:g} s")
        if awaited.error is not None:
            raise _refused(awaited.error.message)

    def host_call(self, call: HostCall) -> None:
        """A guest's call with an effect, done or refused: the first at once, repeats counted in one entry."""
        resource = None if call.resource is None else capped(call.resource)
        if len(self._folds) >= MAX_FOLDS:  # resources are named by guests: the table must stay bounded
            resource = None
        action: dict[str, object] = {"type": "host_call_run", "capsule_id": call.capsule, "call": call.call}
        if resource is not None:
            action["resource"] = resource
        outcome = SUCCESS if call.error is None else failure(call.error)
        self.record_folded(call._replace(resource=resource), call.principal, action, outcome)

    def record_folded(
        self,
        key: tuple[str | None, ...],
        principal: str | None,
        action: Mapping[str, object],
        outcome: Mapping[str, object],
        authorization: Mapping[str, object] = NOT_REQUIRED,
    ) -> None:
        """As `record` for the first with this key; those of the next five seconds become one more entry,
        with their `count`.
        """
        with self._folding:
            fold = self._folds.get(key)
            if fold is not None:
                fold.count += 1
                return
            self._folds[key] = _Fold(self._clock(), principal, action, outcome, authorization)
        self.record(principal, {**action, "count": 1}, outcome, authorization)

    # telling

    @property
    def trouble(self) -> str | None:
        """Why the trail is not as it should be, None where it is."""
        return self._trouble or self._damage

    def note_damage(self, sentence: str) -> None:
        """What the check at the start found; it stays until the next start."""
        self._damage = sentence

    def health(self) -> dict[str, object]:
        """The published keys of `AuditHealth` (daemon-kernel.md 5.3)."""
        told = {"last_error": self.trouble} if self.trouble else {}
        return {
            "accepted": self._accepted,
            "persisted": self._persisted,
            "failed": self._failed,
            "queue_full": self._lost,
            "queue_depth": len(self._queue) + len(self._pending),
            "worker_alive": self._thread.is_alive(),
            "degraded": self.trouble is not None,
            **told,
        }

    # the thread

    def _work(self) -> None:
        while not self._is_ended:
            try:
                self._round()
            except Exception as error:  # noqa: BLE001 - the top of a thread: recording must go on, and say so
                self._give_up(error)

    def _round(self) -> None:
        """Wait for entries, let them gather, and put them on record."""
        self._wake.wait(FOLD_S / 5 if self._folds else None)
        if not self._is_stopping:
            self._urgent.wait(RETRY_S if self._trouble else BATCH_PERIOD_S)
        self._wake.clear()
        self._urgent.clear()
        self._flush_folds(everything=False)
        while (self._queue or self._pending) and self._write():
            if len(self._queue) < MAX_BATCH and not self._is_stopping:
                break  # what came meanwhile gathers: a batch costs a signature and a sync
        if self._is_stopping:
            closed = Unavailable("audit-closed", "the daemon is stopping", hint="try again")
            _tell((*self._pending, *self._queue), closed)
            self._is_ended = True
        elif self._pending or self._queue:
            self._wake.set()  # once more, after the pause above

    def _give_up(self, error: Exception) -> None:
        """A bug of ours: this batch is lost, which is said; the next one is tried."""
        sentence = f"audit entries could not be written: {type(error).__name__}: {error}"
        self._lost += len(self._pending)
        self._lost_unsaid += len(self._pending)
        _tell(self._pending, Unavailable("audit-fault", sentence, hint="this is a bug in aos; restart it"))
        self._pending, self._damage = [], sentence
        self._wake.set()
        self._report("error", sentence)

    def _write(self) -> bool:
        """One batch; False where the disk did not take it, or nothing is left."""
        batch = self._pending
        while self._queue and len(batch) < MAX_BATCH:
            batch.append(self._queue.popleft())
        lost = self._lost_unsaid
        if lost:
            action: Mapping[str, object] = {"type": "host_call_loss", "count": lost}
            batch.append(self._draft(None, action, SUCCESS, SYSTEM))
        try:
            self._store.append([one if isinstance(one, Draft) else one.draft for one in batch])
        except AosError as error:
            self._refuse(batch[:-1] if lost else batch, error)
            return False
        self._pending = []
        self._persisted += len(batch)
        self._lost_unsaid -= lost
        self._recover()
        _tell(batch, None)
        self._prune()
        return True

    def _refuse(self, batch: list[_Queued], error: AosError) -> None:
        """The disk took nothing: tell who waits, whose effects do not happen, and keep the rest."""
        self._failed += 1
        self._pending = [one for one in batch if type(one) is not _Awaited]
        _tell(batch, error)
        if self._trouble is None:
            self._report("error", f"{error.message}; what must be audited is refused until it works again")
        self._trouble = error.message

    def _recover(self) -> None:
        if self._trouble is not None:
            self._trouble = None
            self._report("warn", "the audit trail can be written again")

    def _prune(self) -> None:
        try:
            dropped = self._store.prune()
        except AosError as error:
            self._report("warn", f"old audit entries were not dropped: {error.message}")
            return
        if dropped:
            self._report("info", f"dropped the {dropped} oldest audit entries; a signed receipt says so")

    # entries

    def _draft(
        self,
        principal: str | None,
        action: Mapping[str, object],
        outcome: Mapping[str, object],
        authorization: Mapping[str, object],
    ) -> Draft:
        return Draft(self._now_ns(), principal, bounded(action), authorization, bounded(outcome))

    def _enqueue(self, queued: _Queued) -> None:
        self._accepted += 1
        self._queue.append(queued)
        if not self._wake.is_set():
            self._wake.set()

    def _flush_folds(self, *, everything: bool) -> None:
        with self._folding:
            now = self._clock()
            due = [key for key, fold in self._folds.items() if everything or now - fold.since >= FOLD_S]
            ended = [self._folds.pop(key) for key in due]
        for fold in ended:
            if fold.count:
                counted = {**fold.action, "count": fold.count}
                self.record(fold.principal, counted, fold.outcome, fold.authorization)


def _tell(entries: Iterable[_Queued], error: AosError | None) -> None:
    """Wake whoever waits for one of these; with the error that kept them off the record, if any."""
    for one in entries:
        if type(one) is _Awaited:
            one.error = error
            one.done.set()


def _refused(reason: str) -> Unavailable:
    return Unavailable(
        "audit-unavailable",
        f"nothing was done, because it could not be put on record first: {reason}",
        hint="see `aos audit stats` and `aos status`; a full disk is the usual cause",
    )
