"""store.bundled: what the wheel brings, unless the operator said otherwise."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from aos_runtime.errors import Corrupt
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName
from aos_runtime.store.bundled import (
    BundledCapsule,
    due_bundled,
    read_catalogue,
    read_removed,
    record_removed,
)
from aos_runtime.store.commit import Approval, commit
from aos_runtime.store.receipts import ApprovalSource
from aos_runtime.store.stage import stage_source
from tests.runtime.store.conftest import Install
from tests.support.capsules import make_archive, write_capsule

ROUTER = CapsuleName("router")


def _catalogue(home: Home, folder: Path, now: datetime, version: str = "1.0.0") -> tuple[BundledCapsule, ...]:
    """A catalogue of one capsule, with the digest that staging finds."""
    path = write_capsule(folder / "router.capsule", make_archive("router", version))
    with stage_source(home, DEFAULT_PRINCIPAL, path, now=now, catalogue=()) as stage:
        row = {
            "name": "router",
            "version": version,
            "file": "router.capsule",
            "content_digest": stage.content_digest,
        }
    (folder / "bundled.json").write_text(json.dumps([row]))
    return read_catalogue(folder)


def _install(home: Home, rows: tuple[BundledCapsule, ...], now: datetime) -> None:
    with stage_source(home, DEFAULT_PRINCIPAL, rows[0].path, now=now, catalogue=rows) as stage:
        commit(stage, approval=Approval(source=ApprovalSource.BUNDLED), source_text="bundled")


def test_a_folder_without_a_catalogue_brings_nothing(tmp_path: Path) -> None:
    assert read_catalogue(tmp_path) == ()


def test_absent_capsules_are_due_and_installed_ones_are_not(
    home: Home, tmp_path: Path, now: datetime
) -> None:
    rows = _catalogue(home, tmp_path / "wheel", now)
    assert [row.name for row in due_bundled(home, DEFAULT_PRINCIPAL, rows)] == ["router"]
    _install(home, rows, now)
    assert due_bundled(home, DEFAULT_PRINCIPAL, rows) == ()


def test_a_newer_one_replaces_an_older_bundled_one_only(
    home: Home, tmp_path: Path, now: datetime, install: Install
) -> None:
    _install(home, _catalogue(home, tmp_path / "old", now), now)
    newer = _catalogue(home, tmp_path / "new", now, "1.1.0")
    assert due_bundled(home, DEFAULT_PRINCIPAL, newer) == newer
    older = _catalogue(home, tmp_path / "older", now, "0.9.0")
    assert due_bundled(home, DEFAULT_PRINCIPAL, older) == ()
    install("router", "0.0.1")
    assert due_bundled(home, DEFAULT_PRINCIPAL, newer) == ()


def test_a_removed_one_stays_removed_for_that_principal(home: Home, tmp_path: Path, now: datetime) -> None:
    rows = _catalogue(home, tmp_path / "wheel", now)
    record_removed(home, DEFAULT_PRINCIPAL, ROUTER, removed=True)
    assert due_bundled(home, DEFAULT_PRINCIPAL, rows) == ()
    assert due_bundled(home, PrincipalName("other"), rows) == rows
    record_removed(home, DEFAULT_PRINCIPAL, ROUTER, removed=False)
    assert read_removed(home, DEFAULT_PRINCIPAL) == frozenset()


def test_a_damaged_installed_capsule_is_not_replaced_silently(
    home: Home, tmp_path: Path, now: datetime
) -> None:
    rows = _catalogue(home, tmp_path / "wheel", now)
    _install(home, rows, now)
    (home.capsule(DEFAULT_PRINCIPAL, ROUTER) / "meta.json").write_bytes(b"")
    assert due_bundled(home, DEFAULT_PRINCIPAL, rows) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}x",
        "[1]",
        '[{"name": "a"}]',
        '[{"name": "A", "version": "1.0.0", "file": "a", "content_digest": "' + "0" * 64 + '"}]',
        '[{"name": "a", "version": "1.0", "file": "a", "content_digest": "' + "0" * 64 + '"}]',
        '[{"name": "a", "version": "1.0.0", "file": "../a", "content_digest": "' + "0" * 64 + '"}]',
    ],
)
def test_a_damaged_catalogue_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bundled.json").write_text(text)
    with pytest.raises(Corrupt) as caught:
        read_catalogue(tmp_path)
    assert caught.value.code == "catalogue-damaged"


def test_a_damaged_record_is_refused_not_taken_for_empty(home: Home) -> None:
    home.etc.mkdir(parents=True)
    home.bundled_file.write_text("[]")
    with pytest.raises(Corrupt):
        read_removed(home, DEFAULT_PRINCIPAL)
