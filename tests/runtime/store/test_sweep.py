"""store.sweep: leftovers go, everything that a link names stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from aos_runtime.store.content import put_blob, put_wit
from aos_runtime.store.installed import load_installed
from aos_runtime.store.layout import open_home
from aos_runtime.store.staging import capsule_lock
from aos_runtime.store.sweep import list_principal_folders, sweep
from tests.runtime.store.conftest import Install, names

DEMO = CapsuleName("demo")


def test_sweeping_takes_orphans_and_keeps_the_live_version(home: Home, install: Install) -> None:
    found = install()
    generations = home.generations(DEFAULT_PRINCIPAL, DEMO)
    (generations / ("0" * 64 + ".0000000000000000")).mkdir()
    (home.receipts(DEFAULT_PRINCIPAL, DEMO) / ("0" * 64 + ".json")).write_text("{}")
    gone = home.generations(DEFAULT_PRINCIPAL, CapsuleName("gone"))
    (gone / "x").mkdir(parents=True)
    shown = home.shown_wit(DEFAULT_PRINCIPAL)
    shown.mkdir(exist_ok=True)
    dead = [folder / ".a.999999999.0-abcd.tmp" for folder in (home.blobs, shown)]
    for path in dead:
        path.write_bytes(b"")
    sweep(home)
    assert list(generations.iterdir()) == [found.generation]
    assert names(home.receipts(DEFAULT_PRINCIPAL, DEMO)) == [f"{found.receipt.content_digest}.json"]
    assert not gone.exists()
    assert not any(path.exists() for path in dead)
    load_installed(home, DEFAULT_PRINCIPAL, DEMO)


def test_a_capsule_that_somebody_changes_is_not_touched(home: Home, install: Install) -> None:
    install()
    orphan = home.generations(DEFAULT_PRINCIPAL, DEMO) / "orphan"
    orphan.mkdir()
    lock = capsule_lock(home, DEFAULT_PRINCIPAL, DEMO)
    lock.acquire(0)
    sweep(home)
    assert orphan.exists()
    lock.release()
    sweep(home)
    assert not orphan.exists()


def test_a_link_that_is_not_ours_keeps_everything(home: Home, install: Install) -> None:
    generation = install().generation
    home.capsule(DEFAULT_PRINCIPAL, DEMO).unlink()
    home.capsule(DEFAULT_PRINCIPAL, DEMO).symlink_to("/etc")
    sweep(home)
    assert generation.exists()


def test_only_names_of_principals_are_principals(home: Home) -> None:
    open_home(home, create=True)
    for name in ("default", "a b", ".hidden"):
        (home.principals / name).mkdir(parents=True)
    assert list_principal_folders(home) == ("default",)


def age(*paths: Path) -> None:
    """As if nobody had stored them for more than an hour."""
    for path in paths:
        os.utime(path, (0, 0))


def test_content_that_no_capsule_names_goes_after_an_hour(home: Home, install: Install) -> None:
    install()
    used = {*home.blobs.iterdir(), *home.wit_store.iterdir()}
    old, new = (home.blob(put_blob(home, data).digest) for data in (b"old", b"new"))
    wit = home.wit_store / f"{put_wit(home, b'package a:b;')}.wit"
    age(*used, old, wit)
    sweep(home)
    assert {*home.blobs.iterdir(), *home.wit_store.iterdir()} == {*used, new}
    age(new)
    put_blob(home, b"new")  # as an install would that has not named it yet
    sweep(home)
    assert new.exists()


@pytest.mark.parametrize("state", ["broken", "changing"])
def test_content_stays_while_a_capsule_is_changed_or_cannot_be_read(
    home: Home, install: Install, state: str
) -> None:
    found = install()
    blob = home.blob(put_blob(home, b"old").digest)
    age(blob)
    lock = capsule_lock(home, DEFAULT_PRINCIPAL, DEMO)
    if state == "broken":
        (found.generation / "meta.json").write_text("{")
    else:
        lock.acquire(0)
    sweep(home)
    if state == "changing":
        lock.release()
    assert blob.exists()
