"""store.identity: users and links of one principal, on disk."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from aos_runtime.errors import AosError, Unavailable
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, PrincipalName
from aos_runtime.store import identity
from aos_runtime.store.identity import IdentityCase, IdentityRefused, IdentityStore, User
from aos_runtime.store.kv import KvStore
from aos_runtime.store.principal_life import check_no_leftovers, reclaim

ME, BOB = DEFAULT_PRINCIPAL, PrincipalName("bob")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "aos")


def refusal(act: object, *arguments: object) -> str:
    with pytest.raises(IdentityRefused) as caught:
        act(*arguments)  # type: ignore[operator]  # a bound method
    return str(caught.value)


def test_nobody_is_known_and_nothing_is_written(home: Home) -> None:
    store = IdentityStore(home)
    assert refusal(store.resolve, ME, "irc", "7") == "link-not-found"
    assert refusal(store.unlink, ME, "irc", "7") == "link-not-found"
    assert refusal(store.links, ME, "x") == "user-not-found"
    assert not home.root.exists()


def test_what_was_told_is_there_for_the_next_process(home: Home) -> None:
    user = IdentityStore(home).create_user(ME, "Ada")
    IdentityStore(home).link(ME, "irc", "7", user, "token")
    store = IdentityStore(home)
    assert store.resolve(ME, "irc", "7") == User(user, "Ada")
    assert [(one.platform, one.method) for one in store.links(ME, user)] == [("irc", "token")]
    assert home.identity_db(ME).stat().st_mode & 0o777 == 0o600
    store.unlink(ME, "irc", "7")
    assert store.links(ME, user) == (), "the user stays"


def test_principals_do_not_see_each_others_people(home: Home) -> None:
    store = IdentityStore(home)
    user = store.create_user(ME, "Ada")
    store.link(ME, "irc", "7", user, "token")
    assert refusal(store.resolve, BOB, "irc", "7") == "link-not-found"
    assert refusal(store.link, BOB, "irc", "7", user, "token") == "user-not-found"


def test_a_user_has_so_many_links_and_no_more(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "MAX_LINKS", 2)
    store = IdentityStore(home)
    user = store.create_user(ME, None)
    for number in range(2):
        store.link(ME, "irc", f"{number}", user, "token")
    assert refusal(store.link, ME, "irc", "3", user, "token") == "unknown: a user has at most 2 links"


def test_a_file_has_so_many_bytes_and_no_more(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "MAX_FILE_BYTES", 8 * 4096)
    store = IdentityStore(home)
    first = store.create_user(ME, "first")
    with pytest.raises(IdentityRefused) as caught:
        for _ in range(1000):
            store.create_user(ME, "n" * 256)
    assert caught.value.case is IdentityCase.UNKNOWN
    assert store.stored_bytes(ME) <= 8 * 4096 and store.stored_bytes(BOB) == 0
    assert store.links(ME, first) == ()


def test_a_damaged_a_newer_and_a_busy_file_are_told_and_left_alone(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "BUSY_TIMEOUT_S", 0.01)
    store, path = IdentityStore(home), home.identity_db(ME)
    store.create_user(ME, "Ada")

    def problem() -> str:
        with pytest.raises(AosError) as caught:
            store.create_user(ME, "Bob")
        return caught.value.code

    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert problem() == "identity-unavailable"
    holder.execute("ROLLBACK")
    holder.execute("PRAGMA user_version = 99")
    holder.close()
    assert problem() == "identity-newer"
    path.write_bytes(b"no database" * 1000)
    assert problem() == "identity-damaged"
    assert path.read_bytes() == b"no database" * 1000
    path.unlink()
    path.symlink_to("/dev/full/x")
    with pytest.raises(Unavailable):
        store.create_user(ME, "Bob")


def test_a_principal_that_is_deleted_leaves_nobody(home: Home) -> None:
    store = IdentityStore(home)
    store.create_user(BOB, "Ada")
    with KvStore(home.state_db) as state:
        with pytest.raises(AosError) as caught:
            check_no_leftovers(home, BOB, state)
        assert caught.value.code == "principal-leftovers"
        assert "var/identity/bob" in reclaim(home, BOB, state).what
        check_no_leftovers(home, BOB, state)
