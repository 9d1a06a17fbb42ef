"""store.kv: bytes come back, comparisons are atomic, and one capsule's keys are nobody else's."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from aos_runtime.errors import Conflict, Corrupt
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName
from aos_runtime.store import kv as module
from aos_runtime.store.kv import KvCase, KvRefused, KvSpace, KvStore

DEMO = CapsuleName("demo")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture
def store(home: Home) -> Iterator[KvStore]:
    with KvStore(home.state_db) as opened:
        yield opened


@pytest.fixture
def space(store: KvStore) -> KvSpace:
    return store.space(DEFAULT_PRINCIPAL, DEMO)


@pytest.mark.parametrize("value", [b'{"a":1}', b'"x"', b"", b"\xff\xfe\0", bytes(100_000)])
def test_abi_09_bytes_come_back_unchanged(space: KvSpace, value: bytes) -> None:
    space.set("key", value)
    assert space.get("key") == value


def test_what_is_absent_is_none_and_deleting_it_is_fine(space: KvSpace) -> None:
    assert space.get("key") is None
    space.delete("key")
    space.set("key", b"x")
    space.delete("key")
    assert space.get("key") is None


def test_spaces_are_apart(store: KvStore) -> None:
    spaces = [
        store.space(PrincipalName(principal), CapsuleName(capsule))
        for principal, capsule in (("a", "b"), ("a", "b-c"), ("A", "b"), ("a-capsule", "b"))
    ]
    for number, one in enumerate(spaces):
        one.set("key", b"%d" % number)
    assert [one.get("key") for one in spaces] == [b"0", b"1", b"2", b"3"]
    assert spaces[0].clear_prefix("") == 1
    assert [one.list_keys("") for one in spaces] == [(), ("key",), ("key",), ("key",)]


def test_abi_08_one_of_many_comparing_writers_wins(store: KvStore) -> None:
    """32 writers from two capsules and two principals: one true for each pair, and its value is there."""
    pairs = [(PrincipalName(p), CapsuleName(c)) for p in ("alice", "bob") for c in ("one", "two")]
    wins: list[tuple[int, bytes]] = []
    barrier = threading.Barrier(32)

    def write(number: int) -> None:
        value = b"%d" % number
        one = store.space(*pairs[number % 4])
        barrier.wait(10)
        if one.cas("key", None, value):
            wins.append((number % 4, value))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(pair for pair, _ in wins) == [0, 1, 2, 3]
    assert all(store.space(*pairs[pair]).get("key") == value for pair, value in wins)


def test_cas_compares_bytes(space: KvSpace) -> None:
    assert not space.cas("key", b"", b"x")
    assert space.cas("key", None, b"")
    assert not space.cas("key", None, b"x")
    assert not space.cas("key", b"0", b"x")
    assert space.cas("key", b"", b"x")
    assert space.get("key") == b"x"


def test_keys_come_whole_and_in_the_order_of_their_bytes(space: KvSpace) -> None:
    for key in ("b", "a/2", "a/1", "a", "ä", "a/10", "😀"):
        space.set(key, b"")
    assert space.list_keys("") == ("a", "a/1", "a/10", "a/2", "b", "ä", "😀")
    assert space.list_keys("a/") == ("a/1", "a/10", "a/2")
    assert space.list_keys("nothing") == ()
    assert space.list_page("a", None, 2) == (("a", "a/1"), "a/1")
    assert space.list_page("a", "a/1", 2) == (("a/10", "a/2"), None)
    assert space.list_page("a", "zzz", 2) == ((), None)
    assert space.clear_prefix("a/") == 3
    assert space.list_keys("") == ("a", "b", "ä", "😀")


def test_a_list_over_1024_keys_is_refused_and_a_page_is_not(space: KvSpace) -> None:
    for number in range(1025):
        space.set(f"{number:04}", b"")
    with pytest.raises(KvRefused) as caught:
        space.list_keys("")
    assert caught.value.case is KvCase.TOO_LARGE
    for limit in (0, 5000):
        page, cursor = space.list_page("", None, limit)
        assert (len(page), cursor) == (1024, "1023")
    assert space.list_page("", "1023", 0) == (("1024",), None)
    space.delete("1024")
    assert space.list_page("", None, 0)[1] is None


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800"])
def test_a_bad_key_is_refused_by_every_operation(space: KvSpace, key: str) -> None:
    for operation in (
        lambda: space.get(key),
        lambda: space.set(key, b""),
        lambda: space.delete(key),
        lambda: space.cas(key, None, b""),
    ):
        with pytest.raises(KvRefused) as caught:
            operation()
        assert caught.value.case is KvCase.INVALID_KEY
    if key:
        for listing in (lambda: space.list_keys(key), lambda: space.clear_prefix(key)):
            with pytest.raises(KvRefused):
                listing()


def test_bounds_are_wide_and_firm(store: KvStore, space: KvSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    space.set("k" * 4096, b"")
    with pytest.raises(KvRefused) as caught:
        space.set("k" * 4097, b"")
    assert caught.value.case is KvCase.TOO_LARGE
    with pytest.raises(KvRefused) as caught:
        space.set("k", bytes(16 * 1024 * 1024 + 1))
    assert caught.value.case is KvCase.TOO_LARGE
    space.clear_prefix("")
    monkeypatch.setattr(module, "MAX_SPACE_BYTES", 1000)
    for _ in range(10):
        space.set("k", bytes(600))
    with pytest.raises(KvRefused) as caught:
        space.set("other", bytes(600))
    assert caught.value.case is KvCase.QUOTA
    store.space(DEFAULT_PRINCIPAL, CapsuleName("other")).set("other", bytes(600))
    space.delete("k")
    space.set("other", bytes(600))


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7, 9])
def test_clearing_lets_others_in_between_and_ends(
    store: KvStore, space: KvSpace, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A million keys at once held the store for more than a second."""
    monkeypatch.setattr(module, "CLEAR_KEYS", 3)
    other = store.space(DEFAULT_PRINCIPAL, CapsuleName("other"))
    pauses: list[float] = []

    def use_meanwhile(pause_s: float) -> None:
        pauses.append(pause_s)
        other.set(f"{len(pauses)}", b"")
        space.set("k/", b"came back")  # behind where the clearing is: it does not run after it

    monkeypatch.setattr(module.time, "sleep", use_meanwhile)
    for number in range(count):
        space.set(f"k/{number}", b"x")
    space.set("l", b"stays")
    assert space.clear_prefix("k/") == count
    assert len(pauses) == (max(count, 1) - 1) // 3
    assert space.list_keys("") == (("k/",) if pauses else ()) + ("l",)
    assert len(other.list_keys("")) == len(pauses)


def test_a_principal_is_forgotten_whole_and_nobody_else(
    store: KvStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLEAR_KEYS", 2)
    for principal in ("bob", "bob2"):
        for capsule in ("a", "b"):
            for number in range(5):
                store.space(PrincipalName(principal), CapsuleName(capsule)).set(f"{number}", b"1")
    assert store.forget(PrincipalName("bob")) == 10
    assert [store.stored_bytes(PrincipalName(name)) for name in ("bob", "bob2")] == [0, 20]


def test_usage_is_counted_by_the_file_whoever_writes(
    home: Home, store: KvStore, space: KvSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace is never counted through: with a million keys that took 100 ms a call, for everybody."""
    for key in ("a", "b", "c"):
        space.set(key, b"1234")
    space.set("a", b"1")
    space.cas("b", b"1234", b"")
    space.delete("c")
    with KvStore(home.state_db) as other:
        other.space(DEFAULT_PRINCIPAL, DEMO).set("dd", b"12")
    name = b"default:capsule:demo"
    assert store.rows("SELECT space, bytes FROM usage", ()) == [(name, 2 + 1 + 4)]
    assert store.rows(module._USED, (name, name, b"dd")) == [(3,)]
    plan = " ".join(str(row) for row in store.rows(f"EXPLAIN QUERY PLAN {module._USED}", (name, name, b"dd")))
    assert ("SCAN kv" in plan, plan.count("SEARCH")) == (False, 2)
    assert space.clear_prefix("") == 3
    assert store.rows("SELECT bytes FROM usage", ()) == [(0,)]


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_older_schema_is_taken_over_with_its_usage(home: Home, version: int) -> None:
    home.var.mkdir(parents=True)
    database = sqlite3.connect(home.state_db)
    database.execute(
        "CREATE TABLE kv (space BLOB, key BLOB, value BLOB, PRIMARY KEY (space, key)) WITHOUT ROWID"
    )
    database.execute("INSERT INTO kv VALUES (?, ?, ?)", (b"default:capsule:demo", b"key", b"value"))
    if version == 2:
        database.execute("CREATE TABLE usage (space BLOB PRIMARY KEY, bytes INTEGER) WITHOUT ROWID")
        database.execute("INSERT INTO usage VALUES (?, 8)", (b"default:capsule:demo",))
        database.execute(
            "CREATE TRIGGER count_deleted AFTER DELETE ON kv BEGIN UPDATE usage SET bytes = 0; END"
        )
    database.execute(f"PRAGMA user_version = {version}")
    database.commit()
    database.close()
    for _ in range(2):
        with KvStore(home.state_db) as store:
            assert store.space(DEFAULT_PRINCIPAL, DEMO).get("key") == b"value"
            assert store.rows("SELECT bytes FROM usage", ()) == [(8,)]
            assert store.rows("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'", ()) == [(3,)]


def test_a_page_starts_at_its_prefix(store: KvStore, space: KvSpace) -> None:
    for key in ("a", "b1", "b2", "b3", "c"):
        space.set(key, b"")
    assert space.list_page("b", None, 2) == (("b1", "b2"), "b2")
    assert space.list_page("b", "b2", 2) == (("b3",), None)
    assert space.list_page("b", "a", 2) == (("b1", "b2"), "b2")
    assert space.list_page("b", "c", 2) == ((), None)
    plan = " ".join(str(row) for row in store.rows(f"EXPLAIN QUERY PLAN {module._PAGE}", (b"", b"", b"", 1)))
    assert "key>? AND key<?" in plan  # SQLite's word for both bounds


def test_state_survives_closing_and_a_second_process(home: Home) -> None:
    with KvStore(home.state_db) as first, KvStore(home.state_db) as second:
        first.space(DEFAULT_PRINCIPAL, DEMO).set("key", b"value")
        assert second.space(DEFAULT_PRINCIPAL, DEMO).get("key") == b"value"
    with KvStore(home.state_db) as third:
        assert third.space(DEFAULT_PRINCIPAL, DEMO).get("key") == b"value"
    assert home.state_db.stat().st_mode & 0o777 == 0o600


def test_a_damaged_or_newer_file_is_refused_and_left(home: Home) -> None:
    home.var.mkdir(parents=True)
    home.state_db.write_bytes(b"this is not a database" * 100)
    with pytest.raises(Corrupt) as damaged:
        KvStore(home.state_db)
    assert damaged.value.code == "state-damaged"
    assert home.state_db.read_bytes().startswith(b"this is not")
    home.state_db.unlink()
    database = sqlite3.connect(home.state_db)
    database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(Conflict) as newer:
        KvStore(home.state_db)
    assert newer.value.code == "state-newer"


def test_a_failing_database_answers_the_guest(store: KvStore, space: KvSpace) -> None:
    store.close()
    with pytest.raises(KvRefused) as caught:
        space.get("key")
    assert caught.value.case is KvCase.UNKNOWN
    assert caught.value.detail


def test_a_full_disk_is_a_quota(store: KvStore, space: KvSpace) -> None:
    space.set("key", b"")
    store.rows("PRAGMA max_page_count = 8", ())
    with pytest.raises(KvRefused) as caught:
        space.set("large", bytes(1024 * 1024))
    assert caught.value.case is KvCase.QUOTA
    assert space.get("large") is None


KEYS = st.text(alphabet="ab/ä", min_size=1, max_size=3)
VALUES = st.binary(max_size=8)


class AgainstADict(RuleBasedStateMachine):
    """Whatever the order of operations, the store is a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile
        from pathlib import Path

        self.folder = tempfile.TemporaryDirectory()
        self.store = KvStore(Path(self.folder.name) / "state.db")
        self.space = self.store.space(DEFAULT_PRINCIPAL, DEMO)
        self.model: dict[str, bytes] = {}

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule(key=KEYS, value=VALUES)
    def set(self, key: str, value: bytes) -> None:
        self.space.set(key, value)
        self.model[key] = value

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        assert self.space.get(key) == self.model.get(key)

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        self.space.delete(key)
        self.model.pop(key, None)

    @rule(key=KEYS, expected=st.none() | VALUES, new=VALUES)
    def cas(self, key: str, expected: bytes | None, new: bytes) -> None:
        is_equal = self.model.get(key) == expected
        assert self.space.cas(key, expected, new) == is_equal
        if is_equal:
            self.model[key] = new

    @rule(prefix=st.text(alphabet="ab/ä", max_size=2))
    def list(self, prefix: str) -> None:
        wanted = sorted((key for key in self.model if key.startswith(prefix)), key=str.encode)
        assert list(self.space.list_keys(prefix)) == wanted

    @rule(prefix=st.text(alphabet="ab/ä", max_size=2), limit=st.integers(1, 3))
    def pages(self, prefix: str, limit: int) -> None:
        found: list[str] = []
        cursor: str | None = None
        while True:
            page, cursor = self.space.list_page(prefix, cursor, limit)
            assert len(page) <= limit
            found += page
            if cursor is None:
                break
        assert found == sorted((key for key in self.model if key.startswith(prefix)), key=str.encode)

    @rule(prefix=st.text(alphabet="ab/ä", max_size=2))
    def clear(self, prefix: str) -> None:
        gone = [key for key in self.model if key.startswith(prefix)]
        assert self.space.clear_prefix(prefix) == len(gone)
        for key in gone:
            del self.model[key]


TestAgainstADict = AgainstADict.TestCase
TestAgainstADict.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


@given(st.text(max_size=20))
def test_any_text_is_stored_or_refused(text: str) -> None:
    try:
        name = module._key(text)
    except KvRefused:
        assert text == "" or "\0" in text or any("\ud800" <= char <= "\udfff" for char in text)
    else:
        assert name.decode() == text


def test_what_was_acknowledged_survives_a_kill(home: Home) -> None:
    """A process that writes and says so is killed in the middle, several times; every word of it holds."""
    code = f"""
import sys
from pathlib import Path
from aos_runtime.store.kv import KvStore
from aos_runtime.names import CapsuleName, PrincipalName
space = KvStore(Path({str(home.state_db)!r})).space(PrincipalName("default"), CapsuleName("demo"))
number = int(sys.argv[1])
while True:
    number += 1
    space.set(f"set-{{number}}", b"x" * (number % 5000))
    assert space.cas("counter", str(number - 1).encode(), str(number).encode())
    print(number, flush=True)
"""
    with KvStore(home.state_db) as store:
        store.space(DEFAULT_PRINCIPAL, DEMO).set("counter", b"0")
    said = 0
    for _ in range(3):
        start, wanted = said, said + 40
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(said)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        assert process.stdout is not None
        for line in process.stdout:
            said = int(line)
            if said >= wanted:
                break
        process.kill()
        said = max([said, *(int(line) for line in process.stdout if line.endswith("\n"))])
        process.stdout.close()
        process.wait(10)
        with KvStore(home.state_db) as store:
            space = store.space(DEFAULT_PRINCIPAL, DEMO)
            assert all(space.get(f"set-{number}") is not None for number in range(start + 1, said + 1))
            counter = int(space.get("counter") or b"-1")
            assert counter in (said, said + 1), "a write that was not told may be there, and no half of one"
            said = counter
            assert store.rows("PRAGMA integrity_check", ()) == [("ok",)]
