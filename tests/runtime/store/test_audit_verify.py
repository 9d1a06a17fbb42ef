"""store.audit_verify: whatever is done to a trail is found, and named where it can be."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aos_runtime.home import Home
from aos_runtime.store import audit
from aos_runtime.store.audit import AuditStore, Retention
from aos_runtime.store.audit_reader import read_audit
from aos_runtime.store.audit_verify import MAX_FINDINGS
from tests.support.audit_trails import (
    SEED,
    check,
    check_tail,
    draft,
    lines_of,
    put_lines,
    sentences,
    tampering,
    write_trail,
)


@pytest.fixture
def path(home: Home) -> Path:
    write_trail(home.audit_db, 6, 6, 6)
    return home.audit_db


def identity(path: Path, number: int) -> str:
    with read_audit(path) as reader:
        assert reader is not None
        return next(record.entry.id for record in reader.records() if record.number == number)


def test_an_untouched_trail_is_intact(path: Path) -> None:
    result = check(path)
    assert (result.is_intact, result.entries, result.batches, result.chains) == (True, 18, 3, 3)
    with read_audit(path) as reader:
        assert reader is not None
        tail = reader.tail()
    assert tail is not None and result.head == tail[1].hex()


@pytest.mark.parametrize("number", [1, 5, 7, 9, 12, 13, 18])
def test_sec_15_an_edited_entry_is_named(path: Path, number: int) -> None:
    batch, index = divmod(number - 1, 6)
    expected = identity(path, number)
    with tampering(path) as database:
        lines = lines_of(database, batch + 1)
        lines[index] = lines[index].replace(b'"success"', b'"SUCCESS"')
        put_lines(database, batch + 1, lines)
    [finding] = check(path).findings
    assert finding.sentence == f"entry {number} was changed, or one after it is missing"
    assert (finding.batch, finding.entry, finding.id) == (batch + 1, number, expected)


def test_a_removed_entry_is_noticed(path: Path) -> None:
    with tampering(path) as database:
        lines = lines_of(database, 2)
        del lines[1]
        put_lines(database, 2, lines)
    found = sentences(path)
    assert found[0] == "batch 2 holds 5 entries where 6 were signed"
    assert "an entry is missing before entry 10" in found


def test_swapped_entries_are_out_of_order(path: Path) -> None:
    with tampering(path) as database:
        lines = lines_of(database, 1)
        lines[0], lines[3] = lines[3], lines[0]
        put_lines(database, 1, lines)
    assert "entry 1 is out of order" in sentences(path)


def test_a_missing_batch_is_named(path: Path) -> None:
    with tampering(path) as database:
        database.execute("DELETE FROM batches WHERE number = 2")
    assert sentences(path)[0] == "missing: batch 2, with entries 7 to 12"


def test_swapped_batches_are_found(path: Path) -> None:
    with tampering(path) as database:
        for old, new in ((1, 99), (2, 1), (99, 2)):
            database.execute("UPDATE batches SET number = ? WHERE number = ?", (new, old))
    assert "batch 1 does not follow batch 0: reordered or replaced" in sentences(path)


def test_sec_15_a_cut_tail_is_noticed(path: Path) -> None:
    with tampering(path) as database:
        database.execute("DELETE FROM batches WHERE number = 3")
    assert sentences(path) == ["missing: batches 3 to 3 at the end were cut off"]
    assert [one.sentence for one in check_tail(path).findings] == sentences(path)


def test_a_tail_that_was_cut_with_its_mark_is_noticed_by_the_chains(path: Path) -> None:
    with tampering(path) as database:
        database.execute("DELETE FROM batches WHERE number = 3")
        database.execute("UPDATE tail SET number = 2, digest = (SELECT digest FROM batches WHERE number = 2)")
    assert len(sentences(path)) == 3
    assert all("does not end where it was noted" in one for one in sentences(path))


def test_an_old_copy_is_noticed_by_a_head_that_was_kept_elsewhere(path: Path) -> None:
    head = check(path).head
    assert head is not None
    old = path.read_bytes()
    write_trail(path, 1)
    newer = check(path).head
    assert check(path, head).is_intact and check(path, newer).is_intact
    path.write_bytes(old)
    assert check(path).is_intact
    [finding] = check(path, newer).findings
    assert finding.sentence == f"no batch has the expected head {newer}: the trail was replaced or cut"


def test_a_batch_signed_by_another_key_is_found(path: Path) -> None:
    other = AuditStore(path, bytes(32))
    other.append([draft(99)])
    other.close()
    assert sentences(path) == ["batch 4 is not signed by this home's runtime key"]


def test_a_forged_receipt_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "SEGMENT_ENTRIES", 6)
    write_trail(path, 6, 6)
    store = AuditStore(path, SEED, Retention(entries=20))
    assert store.prune() > 0
    store.close()
    assert check(path).is_intact
    with tampering(path) as database:
        database.execute("UPDATE receipt SET signature = zeroblob(64)")
    assert sentences(path) == ["the prune receipt is not signed by this home's runtime key"]
    with tampering(path) as database:
        database.execute("DELETE FROM receipt")
    assert sentences(path)[0].startswith("missing: batch 1")


def test_findings_are_bounded(path: Path) -> None:
    write_trail(path, *[1] * 150)
    with tampering(path) as database:
        database.execute("UPDATE batches SET signature = zeroblob(64)")
    assert len(check(path).findings) == MAX_FINDINGS


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_byte_is_found(path: Path, data: st.DataObject) -> None:
    column = data.draw(st.sampled_from(["lines", "digest", "signature", "previous"]))
    number = data.draw(st.integers(1, 3))
    before = path.read_bytes()
    with tampering(path) as database:
        value = bytearray(_column(database, column, number))
        at = data.draw(st.integers(0, len(value) - 1))
        value[at] ^= data.draw(st.integers(1, 255))
        database.execute(f"UPDATE batches SET {column} = ? WHERE number = ?", (bytes(value), number))
    try:
        assert not check(path).is_intact
    finally:
        path.write_bytes(before)


def _column(database: sqlite3.Connection, column: str, number: int) -> bytes:
    row = database.execute(f"SELECT {column} FROM batches WHERE number = ?", (number,)).fetchone()
    return bytes(row[0])
