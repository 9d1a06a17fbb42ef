"""What the files of a principal may hold: counted, measured where it matters, one quota with its keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_runtime.home import Home
from aos_runtime.names import PrincipalName
from aos_runtime.store import storage as module
from aos_runtime.store.file_tree import FileCase, FileRefused
from aos_runtime.store.kv import MAX_STORAGE_BYTES
from aos_runtime.store.storage import MEASURE_PAUSE_S, NAME_BYTES, Storage

ALICE, BOB = PrincipalName("alice"), PrincipalName("bob")
KIB = 1024


class Ledger:
    """A home with quotas, stored keys and a clock of the test's."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root / "home")
        self.quotas = {ALICE: 100 * KIB}
        self.stored = 0
        self.now = 0.0
        self.storage = Storage(
            self.home,
            limit_of=lambda principal: self.quotas.get(principal, MAX_STORAGE_BYTES),
            stored_bytes=lambda _principal: self.stored,
            clock=lambda: self.now,
        )
        for folder in (self.home.principal(ALICE), self.home.scratch(ALICE)):
            folder.mkdir(parents=True)

    def put(self, name: str, size: int) -> Path:
        path = self.home.principal(ALICE) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
        return path

    def grow(self, size: int, principal: PrincipalName = ALICE) -> bool:
        try:
            self.storage.grow(principal, size)
        except FileRefused as refusal:
            assert refusal.case is FileCase.QUOTA
            return False
        return True


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def test_what_is_there_counts_and_what_the_runtime_keeps_does_not(ledger: Ledger) -> None:
    ledger.put("notes/a", 10 * KIB)
    ledger.put("empty", 0)
    ledger.put(".config/env/x.json", 50 * KIB)
    ledger.put(".config/own.toml", 20 * KIB)
    ledger.put(".local/generations/x", 50 * KIB)
    (ledger.home.scratch(ALICE) / "b").write_bytes(bytes(5 * KIB))
    (ledger.home.principal(ALICE) / "link").symlink_to("/etc")
    assert (
        ledger.storage.files_bytes(ALICE) == (10 + 20 + 5) * KIB + 3 * NAME_BYTES
    )  # folder, empty file, link
    assert ledger.storage.files_bytes(BOB) == 0


def test_a_write_past_the_quota_is_refused_and_room_comes_back(ledger: Ledger) -> None:
    path = ledger.put("a", 60 * KIB)
    assert ledger.grow(40 * KIB)
    assert not ledger.grow(50 * KIB)
    path.unlink()
    assert not ledger.grow(99 * KIB), "it was measured a moment ago"
    ledger.now += MEASURE_PAUSE_S
    assert ledger.grow(99 * KIB)
    assert not ledger.grow(1)


def test_an_empty_file_is_not_free(ledger: Ledger) -> None:
    assert [ledger.grow(0) for _ in range(26)] == [True] * 25 + [False]


def test_keys_and_files_share_one_quota(ledger: Ledger) -> None:
    ledger.stored = 70 * KIB
    assert not ledger.grow(40 * KIB)
    assert ledger.grow(30 * KIB)
    assert ledger.storage.keys_limit(ALICE) == 70 * KIB
    assert ledger.storage.keys_limit(BOB) == MAX_STORAGE_BYTES


def test_without_a_quota_there_is_still_a_bound(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES_BYTES", 20 * KIB)
    ledger.stored = 1 << 40
    assert ledger.grow(16 * KIB, BOB)
    assert not ledger.grow(16 * KIB, BOB)
    ledger.stored = 0
    assert ledger.grow(16 * KIB), "everybody's count is his own"
