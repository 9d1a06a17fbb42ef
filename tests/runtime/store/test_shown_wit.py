"""store.shown_wit: what a guest finds at `home://wit`, after installs, removals and a kill between them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from aos_runtime.errors import Conflict
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName
from aos_runtime.store import shown_wit
from aos_runtime.store.commit import remove_installed
from aos_runtime.store.principal_life import copy_capsules
from aos_runtime.store.principals import ensure_default
from aos_runtime.store.shown_wit import Brought, choose_names, show_wit
from tests.runtime.store.conftest import Install

ME = DEFAULT_PRINCIPAL
STUB = b"package astrid:capsule-stub@1.0.0;\n\ninterface stub {\n}\n"


def shown(home: Home, principal: PrincipalName = ME) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(home.shown_wit(principal).iterdir())}


def put(install: Install, name: str, **files: bytes) -> None:
    install(name=name, files={f"wit/{path.replace('__', '/')}.wit": data for path, data in files.items()})


def test_an_install_shows_its_interfaces_and_a_removal_takes_them_away(home: Home, install: Install) -> None:
    put(install, "one", demo=b"package a:one;\n", deps__x__tool=b"package a:tool;\n")
    assert shown(home) == {"demo.wit": b"package a:one;\n", "tool.wit": b"package a:tool;\n"}
    put(install, "one", demo=b"package a:two;\n")
    assert shown(home) == {"demo.wit": b"package a:two;\n"}
    remove_installed(home, ME, CapsuleName("one"), purge=False)
    assert shown(home) == {}


def test_one_content_is_shown_once_and_two_of_one_name_both(home: Home, install: Install) -> None:
    put(install, "b", demo=b"package b:b;\n", same=b"package s:s;\n")
    put(install, "a", demo=b"package a:a;\n", other=b"package s:s;\n")
    put(install, "c", demo=b"package c:c;\n", x__demo=b"package c:x;\n")
    assert shown(home) == {
        "demo.wit": b"package a:a;\n",
        "other.wit": b"package s:s;\n",
        "demo@b.wit": b"package b:b;\n",
        "demo@c.wit": b"package c:c;\n",
        "demo@c.x.wit": b"package c:x;\n",
    }


def test_a_bundled_capsule_keeps_the_name() -> None:
    brought = [
        Brought("a", False, {"deps/contracts.wit": "old"}),
        Brought("b", False, {"contracts.wit": "old"}),
        Brought("z", True, {"contracts.wit": "new"}),
    ]
    chosen = dict(choose_names(brought, {"old", "new"}))
    assert chosen == {"contracts.wit": "new", "contracts@a.wit": "old"}
    assert min(chosen) == "contracts.wit", "and is read first"


def test_stubs_and_odd_names_are_not_shown(home: Home, install: Install) -> None:
    put(install, "one", capsule=STUB, demo=b"package a:a;\n", **{".hidden": b"package h:h;\n", "a b": b"x"})
    put(install, "two", capsule=b"package two:own;\n", demo=STUB)
    assert shown(home) == {"capsule.wit": b"package two:own;\n", "demo.wit": b"package a:a;\n"}


def test_what_is_damaged_or_was_never_shown_is_there_at_the_next_start(home: Home, install: Install) -> None:
    put(install, "one", demo=b"package a:a;\n", tool=b"package t:t;\n")
    folder = home.shown_wit(ME)
    (folder / "demo.wit").write_bytes(b"garbage")
    (folder / "tool.wit").unlink()
    (folder / "mine.wit").write_bytes(b"package my:own;\n")
    (folder / "left.wit").write_bytes(b"package t:t;\n")
    (folder / "folder.wit").mkdir()
    show_wit(home, ME)
    (folder / "folder.wit").rmdir()
    assert shown(home) == {
        "demo.wit": b"package a:a;\n",
        "tool.wit": b"package t:t;\n",
        "mine.wit": b"package my:own;\n",
    }


def test_a_store_that_lost_a_file_shows_what_it_has(home: Home, install: Install) -> None:
    put(install, "one", demo=b"package a:a;\n", tool=b"package t:t;\n")
    for path in home.wit_store.iterdir():
        if path.read_bytes() == b"package a:a;\n":
            path.write_bytes(b"garbage")
    (home.shown_wit(ME) / "demo.wit").unlink()
    show_wit(home, ME)
    assert shown(home) == {"tool.wit": b"package t:t;\n"}


def test_each_principal_sees_its_own(home: Home, install: Install) -> None:
    ensure_default(home, now=datetime(2026, 1, 1, tzinfo=UTC))
    bob = PrincipalName("bob")
    put(install, "one", demo=b"package a:a;\n")
    show_wit(home, bob)
    assert not home.shown_wit(bob).exists()
    copy_capsules(home, ME, bob)
    assert shown(home, bob) == {"demo.wit": b"package a:a;\n"}


def test_writers_take_turns(home: Home, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_wit, "LOCK_WAIT_S", 0.0)
    put(install, "one", demo=b"package a:a;\n")
    with shown_wit.FileLock(home.shown_wit_lock(ME)), pytest.raises(Conflict, match="busy"):
        show_wit(home, ME)


def test_so_many_files_and_no_more(home: Home, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_wit, "MAX_FILES", 3)
    put(install, "one", **{f"f{n}": f"package f:f{n};\n".encode() for n in range(5)})
    assert len(shown(home)) == 3
