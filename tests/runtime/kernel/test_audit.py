"""kernel.audit: taking in, group commit, folding, and a disk that takes nothing for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from aos_runtime.errors import Unavailable
from aos_runtime.kernel import audit as module
from aos_runtime.kernel.audit import AuditTrail, HostCall
from aos_runtime.store.audit import AuditStore
from aos_runtime.store.audit_entry import Draft
from tests.support.audit_trails import SEED, check

WAIT_S = 5.0


class FakeStore:
    """Keeps batches; `is_full` makes it take none."""

    def __init__(self) -> None:
        self.batches: list[list[Draft]] = []
        self.is_full = False
        self.is_closed = False
        self.tried = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def append(self, drafts: Sequence[Draft]) -> None:
        assert self.gate.wait(WAIT_S)
        try:
            if self.is_full:
                raise Unavailable("audit-unwritable", "the disk is full", hint="free some space")
            self.batches.append(list(drafts))
        finally:
            self.tried.release()

    def prune(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True

    @property
    def actions(self) -> list[dict[str, object]]:
        return [dict(draft.action) for batch in self.batches for draft in batch]


class Desk:
    """A trail with a fake store and clock."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.said: list[tuple[str, str]] = []
        self.now = 100.0
        self.trail = AuditTrail(
            self.store,
            report=lambda level, sentence: self.said.append((level, sentence)),
            clock=lambda: self.now,
        )
        self.trail.start()

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while len(self.store.actions) < count:
            assert time.monotonic() < deadline, self.store.actions
            assert self.store.tried.acquire(timeout=WAIT_S)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(module, "BATCH_PERIOD_S", 0.002)
    monkeypatch.setattr(module, "RETRY_S", 0.002)
    made = Desk()
    yield made
    made.store.gate.set()
    made.store.is_full = False
    assert made.trail.close()


def test_what_gathers_goes_in_one_batch(desk: Desk) -> None:
    desk.store.gate.clear()
    for number in range(10):
        desk.trail.record("alice", {"type": "test", "n": number})
    desk.store.gate.set()
    desk.wait_for(10)
    assert [action["n"] for action in desk.store.actions] == list(range(10))
    assert len(desk.store.batches) <= 2


def test_a_required_entry_is_on_record_when_the_call_returns(desk: Desk) -> None:
    desk.trail.record("alice", {"type": "before"})
    desk.trail.require("alice", {"type": "effect"})
    assert [action["type"] for action in desk.store.actions] == ["before", "effect"]


def test_a_required_entry_does_not_wait_for_the_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_PERIOD_S", 60.0)
    desk = Desk()
    desk.trail.require("alice", {"type": "effect"})
    assert len(desk.store.batches) == 1
    assert desk.trail.close()


def test_many_who_wait_share_batches(desk: Desk) -> None:
    desk.store.gate.clear()
    threads = [
        threading.Thread(target=desk.trail.require, args=("alice", {"type": "effect", "n": n}))
        for n in range(32)
    ]
    for thread in threads:
        thread.start()
    while desk.trail.health()["accepted"] != 32:
        time.sleep(0.001)
    desk.store.gate.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(desk.store.actions) == 32
    assert len(desk.store.batches) <= 33 // 2


def test_a_full_disk_stops_what_must_be_audited_and_says_so_once(desk: Desk) -> None:
    desk.store.is_full = True
    for _ in range(3):
        with pytest.raises(Unavailable) as caught:
            desk.trail.require("alice", {"type": "effect"})
        assert caught.value.code == "audit-unavailable"
        assert caught.value.message == (
            "nothing was done, because it could not be put on record first: the disk is full"
        )
    assert desk.said == [
        ("error", "the disk is full; what must be audited is refused until it works again"),
    ]
    health = desk.trail.health()
    assert (health["degraded"], health["last_error"]) == (True, "the disk is full")
    assert desk.trail.trouble == "the disk is full"


def test_recording_recovers_and_keeps_what_came_meanwhile(desk: Desk) -> None:
    desk.store.is_full = True
    with pytest.raises(Unavailable):
        desk.trail.require("alice", {"type": "refused"})
    desk.trail.record("alice", {"type": "meanwhile"})
    desk.store.is_full = False
    desk.wait_for(1)
    desk.trail.require("alice", {"type": "after"})
    assert [action["type"] for action in desk.store.actions] == ["meanwhile", "after"]
    assert desk.said[-1] == ("warn", "the audit trail can be written again")
    assert desk.trail.trouble is None
    assert desk.trail.health()["degraded"] is False


def test_what_is_lost_is_counted_and_said_on_record(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUEUED", 5)
    desk.store.gate.clear()
    desk.trail.record("alice", {"type": "first"})
    while len(desk.trail._queue):
        time.sleep(0.001)
    for number in range(8):
        desk.trail.record("alice", {"type": "test", "n": number})
    assert desk.trail.health()["queue_full"] == 3
    desk.store.gate.set()
    desk.wait_for(7)
    assert desk.store.actions[-1] == {"type": "host_call_loss", "count": 3}
    assert [action.get("n") for action in desk.store.actions[1:6]] == [0, 1, 2, 3, 4]


def call(error: str | None = None, resource: str | None = "a.v1.b") -> HostCall:
    return HostCall("alice", "demo", "ipc.publish", resource, error)


def test_repeats_of_a_host_call_are_folded(desk: Desk) -> None:
    for _ in range(1000):
        desk.trail.host_call(call("capability-denied"))
    desk.trail.host_call(call())
    desk.now += module.FOLD_S
    desk.trail.record(None, {"type": "other"})
    desk.wait_for(4)
    run = {"type": "host_call_run", "capsule_id": "demo", "call": "ipc.publish", "resource": "a.v1.b"}
    actions = [action for action in desk.store.actions if action["type"] == "host_call_run"]
    assert actions == [{**run, "count": 1}, {**run, "count": 1}, {**run, "count": 999}]
    outcomes = [draft.outcome for batch in desk.store.batches for draft in batch]
    assert outcomes.count({"status": "failure", "error": "capability-denied"}) == 2


def test_repeats_of_a_denial_are_folded(desk: Desk) -> None:
    for _ in range(500):
        key = ("eve", "request", "GetStatus", "no")
        desk.trail.record_folded(key, "eve", {"type": "admin_request"}, {"status": "failure", "error": "no"})
    desk.now += module.FOLD_S
    desk.trail.record(None, {"type": "other"})
    desk.wait_for(3)
    counts = [action["count"] for action in desk.store.actions if action["type"] == "admin_request"]
    assert counts == [1, 499]


def test_folds_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FOLDS", 4)
    for number in range(100):
        desk.trail.host_call(call("capability-denied", f"a.v1.x{number}"))
    assert len(desk.trail._folds) == 5
    assert desk.trail.close()
    total = sum(int(str(action["count"])) for action in desk.store.actions)
    assert total >= 4 + 96


def test_sec_14_a_huge_string_is_cut_before_it_waits_anywhere(desk: Desk) -> None:
    desk.store.gate.clear()
    desk.trail.host_call(call("capability-denied", "ä" * 10_000_000))
    desk.trail.record("alice", {"type": "test", "path": "x" * 20_000_000})
    queued = [one.action for one in (*desk.trail._pending, *desk.trail._queue)]
    assert all(len(str(action)) < 3000 for action in queued)
    desk.store.gate.set()
    desk.wait_for(2)


def test_a_fault_of_ours_loses_one_batch_says_so_and_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_once(drafts: Sequence[Draft]) -> None:
        monkeypatch.undo()
        raise ValueError("odd")

    monkeypatch.setattr(desk.store, "append", break_once)
    with pytest.raises(Unavailable) as caught:
        desk.trail.require("alice", {"type": "lost"})
    assert "ValueError: odd" in caught.value.message
    desk.trail.require("alice", {"type": "kept"})
    assert [action["type"] for action in desk.store.actions] == ["kept", "host_call_loss"]
    assert desk.said == [("error", "audit entries could not be written: ValueError: odd")]
    assert desk.trail.health()["degraded"] is True


def test_closing_writes_what_is_queued(desk: Desk) -> None:
    for number in range(5):
        desk.trail.record("alice", {"type": "test", "n": number})
    desk.trail.host_call(call())
    desk.trail.host_call(call())
    assert desk.trail.close()
    assert len(desk.store.actions) == 7
    assert desk.store.is_closed
    assert desk.trail.health()["worker_alive"] is False


def test_sec_15_64_concurrent_denied_calls_leave_one_valid_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    trail = AuditTrail(AuditStore(path, SEED), report=lambda level, sentence: None)
    trail.start()
    barrier = threading.Barrier(64)

    def deny(number: int) -> None:
        barrier.wait(WAIT_S)
        trail.host_call(call("capability-denied", f"a.v1.x{number}"))
        trail.require("alice", {"type": "test", "n": number}, {"status": "failure", "error": "denied"})

    threads = [threading.Thread(target=deny, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert trail.close()
    result = check(path)
    assert (result.entries, result.chains, result.findings) == (128, 1, [])
