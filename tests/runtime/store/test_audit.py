"""store.audit: what is appended is there, chained and signed; retention; several writers."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import msgspec
import pytest

from aos_runtime.errors import Conflict, Corrupt, Unavailable
from aos_runtime.home import Home
from aos_runtime.store import audit as module
from aos_runtime.store.audit import AuditStore, Retention
from aos_runtime.store.audit_entry import GENESIS, line_hash
from aos_runtime.store.audit_reader import read_audit
from tests.support.audit_trails import SEED, check, check_tail, draft, tampering, write_trail


@pytest.fixture
def path(home: Home) -> Path:
    return home.audit_db


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_ENTRIES", 10)


def test_entries_are_chained_by_session_and_principal(path: Path) -> None:
    write_trail(path, 3, 4)
    with read_audit(path) as reader:
        assert reader is not None
        records = list(reader.records())
        heads = {one.principal: (one.count, one.head) for one in reader.heads()}
    assert [record.number for record in records] == list(range(1, 8))
    assert [record.batch for record in records] == [1, 1, 1, 2, 2, 2, 2]
    assert len({record.entry.session_id for record in records}) == 1
    for principal, count in (("alice", 3), ("bob", 2), (None, 2)):
        own = [record.entry for record in records if record.entry.principal == principal]
        hashes = [line_hash(module.encode_entry(entry)) for entry in own]
        assert [entry.previous_hash for entry in own] == [GENESIS, *hashes[:-1]]
        assert heads[principal] == (count, hashes[-1])


def test_the_file_is_private_and_nothing_is_left_beside_it(path: Path) -> None:
    write_trail(path, 1)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["audit.db"]


def test_an_empty_batch_is_none(path: Path) -> None:
    write_trail(path, 0)
    with read_audit(path) as reader:
        assert reader is not None
        assert (list(reader.batches()), reader.tail(), reader.stats().entries) == ([], None, 0)


def test_where_there_is_no_trail_nothing_is_made(path: Path) -> None:
    with read_audit(path) as reader:
        assert reader is None
    assert not path.parent.exists()


def test_a_trail_goes_on_after_a_restart(path: Path) -> None:
    write_trail(path, 3, 2)
    write_trail(path, 4)
    result = check(path)
    assert (result.entries, result.batches, result.chains, result.findings) == (9, 3, 6, [])


def test_two_processes_write_one_trail_each_in_its_own_session(path: Path) -> None:
    stores = [AuditStore(path, SEED) for _ in range(2)]
    for number in range(6):
        stores[number % 2].append([draft(number)])
    for store in stores:
        store.close()
    result = check(path)
    assert (result.entries, result.batches, result.chains, result.findings) == (6, 6, 2, [])


def test_sec_15_64_threads_leave_one_valid_chain(path: Path) -> None:
    store, lock = AuditStore(path, SEED), threading.Lock()

    def write(number: int) -> None:
        with lock:
            store.append([draft(number)])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    store.close()
    result = check(path)
    assert (result.entries, result.chains, result.findings) == (64, 1, [])


def test_a_batch_that_was_not_taken_leaves_nothing_and_the_next_goes_on(path: Path) -> None:
    store = AuditStore(path, SEED)
    store.append([draft(1)])
    store._database.execute("PRAGMA max_page_count = 1")
    huge = msgspec.structs.replace(draft(2), action={"type": "test", "text": "x" * 1_000_000})
    with pytest.raises(Unavailable) as caught:
        store.append([huge])
    assert caught.value.code == "audit-unwritable" and "full" in caught.value.message
    store._database.execute("PRAGMA max_page_count = 1000000")
    store.append([draft(3)])
    store.close()
    result = check(path)
    assert (result.entries, result.batches, result.findings) == (2, 2, [])


@pytest.mark.usefixtures("small_segments")
def test_the_oldest_segments_go_and_a_receipt_says_so(path: Path) -> None:
    write_trail(path, *[5] * 8)
    store = AuditStore(path, SEED, Retention(entries=25))
    assert store.prune() == 20
    assert store.prune() == 0
    store.append([draft(40)])
    store.close()
    result = check(path)
    assert (result.entries, result.batches, result.pruned_entries, result.findings) == (21, 5, 20, [])
    with read_audit(path) as reader:
        assert reader is not None
        stats = reader.stats(Retention(entries=25))
    assert (stats.entries, stats.omitted_entries, stats.segments, stats.sealed_segments) == (21, 20, 3, 2)


@pytest.mark.usefixtures("small_segments")
def test_pruning_again_and_again_stays_verifiable(path: Path) -> None:
    store = AuditStore(path, SEED, Retention(entries=20))
    dropped = 0
    for number in range(60):
        store.append([draft(number, ("alice", "bob")[number % 7 == 0]) for _ in range(3)])
        dropped += store.prune()
    store.close()
    result = check(path)
    assert result.findings == []
    assert result.entries + dropped == 180
    assert result.pruned_entries == dropped
    assert result.entries <= 32


@pytest.mark.usefixtures("small_segments")
def test_the_newest_segment_always_stays(path: Path) -> None:
    store = AuditStore(path, SEED, Retention(entries=1))
    store.append([draft(number) for number in range(100)])
    assert store.prune() == 0
    store.append([draft(100)])
    assert store.prune() == 100
    store.close()
    assert (check(path).entries, check(path).findings) == (1, [])


@pytest.mark.usefixtures("small_segments")
def test_a_chain_that_slept_through_a_prune_goes_on(path: Path) -> None:
    store = AuditStore(path, SEED, Retention(entries=15))
    store.append([draft(0, "sleeper")])
    for number in range(1, 60):
        store.append([draft(number)])
        store.prune()
    store.append([draft(60, "sleeper")])
    store.close()
    assert check(path).findings == []
    with read_audit(path) as reader:
        assert reader is not None
        assert {one.principal: one.count for one in reader.heads()} == {"default": 59, "sleeper": 2}


def test_bytes_are_bounded_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES", 10_000)
    store = AuditStore(path, SEED, Retention(size_bytes=25_000))
    for number in range(200):
        store.append([draft(number)])
        store.prune()
    store.close()
    with read_audit(path) as reader:
        assert reader is not None
        assert reader.stats().size_bytes < 36_000
    assert check(path).findings == []


@pytest.mark.usefixtures("small_segments")
def test_what_a_start_checks_does_not_grow_with_the_trail(path: Path) -> None:
    write_trail(path, *[5] * 20)
    assert (check_tail(path).entries, check(path).entries) == (10, 100)
    assert check_tail(path).findings == []


def test_a_trail_of_a_newer_aos_is_left_alone(path: Path) -> None:
    write_trail(path, 1)
    with tampering(path) as database:
        database.execute("PRAGMA user_version = 2")
    with pytest.raises(Conflict) as caught:
        AuditStore(path, SEED)
    assert caught.value.code == "audit-newer"
    with pytest.raises(Conflict), read_audit(path):
        pass


def test_a_file_that_is_no_database_is_said_to_be_damaged(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"garbage" * 1000)
    with pytest.raises(Corrupt) as caught:
        AuditStore(path, SEED)
    assert caught.value.code == "audit-damaged"
    with pytest.raises(Corrupt), read_audit(path):
        pass


def test_every_batch_is_synced(path: Path) -> None:
    store = AuditStore(path, SEED)
    database: sqlite3.Connection = store._database
    assert database.execute("PRAGMA synchronous").fetchone() == (2,)
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()
