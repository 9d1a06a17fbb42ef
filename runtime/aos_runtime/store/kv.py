"""The key-value state of capsules: one SQLite file, one namespace per (principal, capsule).

WAL with `synchronous=NORMAL`: what a call returned ok for survives a killed process; a power cut may take the
last moments but never leaves a torn store.  Every operation but clearing is one statement or one transaction,
so several processes may use the file.  Semantics are those of `astrid:kv/host@1.0.0` (host-abi.md 1.4); its
limits of 256 bytes a key and 1 MiB a value are not enforced by the published host, so ours are wider and
stated here.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from aos_runtime.errors import AosError, Conflict, Corrupt, Unavailable
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.files import explained, make_private_folder

MAX_KEY_BYTES = 4096
MAX_VALUE_BYTES = 16 * 1024 * 1024
MAX_SPACE_BYTES = 1024 * 1024 * 1024
"""What all keys and values of one (principal, capsule) may hold together."""

MAX_STORAGE_BYTES = 2**63 - 1
"""The storage quota of a principal that has none."""

MAX_PAGE_KEYS = 1024
CLEAR_KEYS = 4096
"""Deleted at a time: a few milliseconds, after which others have their turn."""
CLEAR_PAUSE_S = 0.0002
SCHEMA_VERSION = 3
BUSY_TIMEOUT_S = 10.0

_SCHEMA = (
    """CREATE TABLE kv (
      space BLOB NOT NULL, key BLOB NOT NULL, size INTEGER NOT NULL, value BLOB NOT NULL,
      PRIMARY KEY (space, key)
    )""",
    "CREATE TABLE usage (space BLOB PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TRIGGER count_added AFTER INSERT ON kv BEGIN
      INSERT INTO usage VALUES (new.space, new.size)
      ON CONFLICT (space) DO UPDATE SET bytes = bytes + excluded.bytes;
    END""",
    """CREATE TRIGGER count_replaced AFTER UPDATE ON kv WHEN new.size <> old.size BEGIN
      UPDATE usage SET bytes = bytes + new.size - old.size WHERE space = new.space;
    END""",
    """CREATE TRIGGER count_deleted AFTER DELETE ON kv BEGIN
      UPDATE usage SET bytes = bytes - old.size WHERE space = old.space;
    END""",
)
"""`usage` follows `kv` whoever writes: a namespace with millions of keys is never counted through.

`size` is of key and value together, and stands before the value: counting never reads one.  A row id, because
a large value in a table without one is copied twice more on its way to the disk.
"""
_TAKE_OVER = (
    "INSERT INTO kv SELECT space, key, length(key) + length(value), value FROM former_kv",
    "DROP TABLE former_kv",
)

_GET = "SELECT value FROM kv WHERE space = ? AND key = ?"
_ADD_ANY = "INSERT INTO kv VALUES (?, ?, ?, ?) ON CONFLICT (space, key) DO "
_SET = f"{_ADD_ANY} UPDATE SET size = excluded.size, value = excluded.value"
_ADD = f"{_ADD_ANY} NOTHING"
_SWAP = "UPDATE kv SET size = ?, value = ? WHERE space = ? AND key = ? AND value = ?"
_DELETE = "DELETE FROM kv WHERE space = ? AND key = ?"
_PAGE = "SELECT key FROM kv WHERE space = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"
_CLEAR = "DELETE FROM kv WHERE space = ? AND key >= ? AND key < ?"
_NTH = "SELECT key FROM kv WHERE space = ? AND key >= ? AND key < ? ORDER BY key LIMIT 1 OFFSET ?"
_SPACES = "SELECT space FROM usage WHERE space >= ? AND space < ?"
_STORED = "SELECT coalesce(sum(bytes), 0) FROM usage WHERE space >= ? AND space < ?"
_USED = """SELECT coalesce((SELECT bytes FROM usage WHERE space = ?), 0)
  - coalesce((SELECT size FROM kv WHERE space = ? AND key = ?), 0)"""


class KvCase(StrEnum):
    """The arms of the interface's error; `cas-mismatch` is the answer False of `cas`."""

    INVALID_KEY = "invalid-key"
    TOO_LARGE = "too-large"
    QUOTA = "quota"
    UNKNOWN = "unknown"


class KvRefused(Exception):
    """An operation that was not done.  `detail` is for `unknown(text)`."""

    def __init__(self, case: KvCase, detail: str = "") -> None:
        super().__init__(f"{case}: {detail}" if detail else case.value)
        self.case = case
        self.detail = detail


class KvSpace(Protocol):
    """The storage of one capsule for one principal.  Every operation may raise KvRefused."""

    def get(self, key: str) -> bytes | None: ...

    def set(self, key: str, value: bytes) -> None: ...

    def delete(self, key: str) -> None: ...

    def list_keys(self, prefix: str) -> tuple[str, ...]:
        """All keys in the order of their bytes; `too-large` over 1024."""
        ...

    def list_page(self, prefix: str, cursor: str | None, limit: int) -> tuple[tuple[str, ...], str | None]:
        """Keys after `cursor` and, where more remain, the last one of them as the next cursor."""
        ...

    def clear_prefix(self, prefix: str) -> int:
        """Delete the keys under `prefix` (all for empty text); how many there were.

        Some thousand at a time, and others use the file between: what is interrupted has deleted a part.
        """
        ...

    def cas(self, key: str, expected: bytes | None, new: bytes) -> bool:
        """Set `new` if the value is `expected` (None: absent), atomically; whether it was."""
        ...


class KvStore:
    """The open state file.  Used from any thread; one statement runs at a time."""

    def __init__(self, path: Path) -> None:
        """Open or create the file.  Corrupt `state-damaged`, Conflict `state-newer`, Unavailable."""
        self.path = path
        self._lock = threading.Lock()
        self._used: dict[bytes, int] = {}
        self._stored: dict[PrincipalName, int] = {}
        self.limit_of: Callable[[PrincipalName], int] = lambda principal: MAX_STORAGE_BYTES
        """What all capsules of a principal may store together."""
        make_private_folder(path.parent)
        with explained(path):
            path.touch(0o600, exist_ok=True)
        with _opening(path):
            self._database = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise

    def space(self, principal: PrincipalName, capsule: CapsuleName) -> KvSpace:
        """The storage of `capsule` for `principal`; nobody else's keys are in it."""
        return _Space(self, f"{principal}:capsule:{capsule}".encode(), principal)

    def forget(self, principal: PrincipalName) -> int:
        """Delete all that the capsules of `principal` stored; how many entries there were."""
        self._used, self._stored = {}, {}
        spaces = [_bytes(row[0]) for row in self.rows(_SPACES, _range(principal))]
        return sum(self.clear(space, b"") for space in spaces)

    def clear(self, space: bytes, prefix: bytes) -> int:
        """Delete the keys of a space that start with `prefix`; how many there were."""
        start, end, gone = prefix, _after(prefix), 0
        while True:
            following = self.rows(_NTH, (space, start, end, CLEAR_KEYS))
            bound = _bytes(following[0][0]) if following else end
            gone += self.change(_CLEAR, (space, start, bound))
            if not following:
                return gone
            start = bound
            time.sleep(CLEAR_PAUSE_S)  # a lock that is taken again at once is nobody else's

    def stored_bytes(self, principal: PrincipalName) -> int:
        """What keys and values of all capsules of `principal` hold now."""
        return int(str(self.rows(_STORED, _range(principal))[0][0]))

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with self._lock:
            self._database.close()

    def __enter__(self) -> KvStore:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def rows(self, statement: str, values: tuple[object, ...]) -> list[tuple[object, ...]]:
        """Run one reading statement."""
        with self._lock, _refusing():
            return self._database.execute(statement, values).fetchall()

    def change(self, statement: str, values: tuple[object, ...]) -> int:
        """Run one writing statement; how many rows it changed.  Committed on return."""
        with self._lock, _refusing():
            return self._database.execute(statement, values).rowcount

    def grow(self, space: bytes, key: bytes, value: bytes, principal: PrincipalName) -> None:
        """Count what a write adds to a namespace.  KvRefused `quota` where that is too much.

        The count kept here only grows, whatever is overwritten or deleted; where it meets the limit the true
        one is read, without the value that is about to be replaced.
        """
        size_bytes = len(key) + len(value)
        used = self._used.get(space)
        if used is None or used + size_bytes > MAX_SPACE_BYTES:
            measured = self.rows(_USED, (space, space, key))[0][0]
            used = measured if isinstance(measured, int) else 0
        if used + size_bytes > MAX_SPACE_BYTES:
            raise KvRefused(KvCase.QUOTA, f"more than {MAX_SPACE_BYTES} bytes")
        self._used[space] = used + size_bytes
        limit_bytes = self.limit_of(principal)
        if limit_bytes < MAX_STORAGE_BYTES:
            self._grow_principal(principal, size_bytes, limit_bytes)

    def _grow_principal(self, principal: PrincipalName, size_bytes: int, limit_bytes: int) -> None:
        """The same count for all spaces of a principal that has a storage quota."""
        used = self._stored.get(principal)
        if used is None or used + size_bytes > limit_bytes:
            used = self.stored_bytes(principal)
        if used + size_bytes > limit_bytes:
            raise KvRefused(KvCase.QUOTA, f"principal '{principal}' may store {limit_bytes} bytes")
        self._stored[principal] = used + size_bytes

    def _prepare(self) -> None:
        run = self._database.execute
        version = run("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise Conflict(
                "state-newer",
                f"{self.path} was written by a newer aos (schema {version})",
                hint="install the newer aos again, or use another AOS_HOME",
                path=str(self.path),
            )
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        if version < SCHEMA_VERSION:
            run("BEGIN IMMEDIATE")
            found = run("PRAGMA user_version").fetchone()[0]
            if found < SCHEMA_VERSION:  # nobody was faster
                self._raise_schema(found)
            run("COMMIT")

    def _raise_schema(self, found: int) -> None:
        """Make the tables, with what a file of an older schema holds."""
        former = ("ALTER TABLE kv RENAME TO former_kv", "DROP TABLE IF EXISTS usage") if found else ()
        triggers = ("count_added", "count_replaced", "count_deleted") if found else ()
        dropped = tuple(f"DROP TRIGGER IF EXISTS {name}" for name in triggers)
        for statement in (*dropped, *former, *_SCHEMA, *(_TAKE_OVER if found else ())):
            self._database.execute(statement)
        self._database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


class _Space:
    __slots__ = ("_principal", "_space", "_store")

    def __init__(self, store: KvStore, space: bytes, principal: PrincipalName) -> None:
        self._principal = principal
        self._store = store
        self._space = space

    def get(self, key: str) -> bytes | None:
        rows = self._store.rows(_GET, (self._space, _key(key)))
        return _bytes(rows[0][0]) if rows else None

    def set(self, key: str, value: bytes) -> None:
        name = _key(key)
        _check_value(value)
        self._store.grow(self._space, name, value, self._principal)
        self._store.change(_SET, (self._space, name, len(name) + len(value), value))

    def delete(self, key: str) -> None:
        self._store.change(_DELETE, (self._space, _key(key)))

    def list_keys(self, prefix: str) -> tuple[str, ...]:
        keys = self._keys(_prefix(prefix), None, MAX_PAGE_KEYS + 1)
        if len(keys) > MAX_PAGE_KEYS:
            raise KvRefused(KvCase.TOO_LARGE, f"more than {MAX_PAGE_KEYS} keys")
        return keys

    def list_page(self, prefix: str, cursor: str | None, limit: int) -> tuple[tuple[str, ...], str | None]:
        count = limit if 0 < limit <= MAX_PAGE_KEYS else MAX_PAGE_KEYS
        keys = self._keys(_prefix(prefix), cursor, count + 1)
        page = keys[:count]
        return page, page[-1] if len(keys) > count else None

    def clear_prefix(self, prefix: str) -> int:
        return self._store.clear(self._space, _prefix(prefix))

    def cas(self, key: str, expected: bytes | None, new: bytes) -> bool:
        name = _key(key)
        _check_value(new)
        self._store.grow(self._space, name, new, self._principal)
        size_bytes = len(name) + len(new)
        if expected is None:
            return self._store.change(_ADD, (self._space, name, size_bytes, new)) == 1
        return self._store.change(_SWAP, (size_bytes, new, self._space, name, expected)) == 1

    def _keys(self, prefix: bytes, cursor: str | None, limit: int) -> tuple[str, ...]:
        past = b"" if cursor is None else cursor.encode("utf-8", "replace") + b"\0"
        # One lower bound: with two, SQLite seeks by one and walks to the other.
        rows = self._store.rows(_PAGE, (self._space, max(past, prefix), _after(prefix), limit))
        return tuple(_bytes(row[0]).decode("utf-8") for row in rows)


def _range(principal: PrincipalName) -> tuple[bytes, bytes]:
    """The first name of the principal's spaces, and the first past them: no name of one holds a colon."""
    return f"{principal}:".encode(), f"{principal};".encode()


def _key(key: str) -> bytes:
    name = _text(key)
    if not name or len(name) > MAX_KEY_BYTES:
        raise KvRefused(KvCase.INVALID_KEY if not name else KvCase.TOO_LARGE, "a key has 1 to 4096 bytes")
    return name


def _prefix(prefix: str) -> bytes:
    return _text(prefix)


def _text(text: str) -> bytes:
    if "\0" in text:
        raise KvRefused(KvCase.INVALID_KEY, "a key holds no NUL")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise KvRefused(KvCase.INVALID_KEY, "a key is valid Unicode") from error


def _after(prefix: bytes) -> bytes:
    """The first key past all that start with `prefix`; a byte of UTF-8 is never 0xFF."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else b"\xff"


def _check_value(value: bytes) -> None:
    if len(value) > MAX_VALUE_BYTES:
        raise KvRefused(KvCase.TOO_LARGE, f"a value has at most {MAX_VALUE_BYTES} bytes")


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


@contextmanager
def _refusing() -> Iterator[None]:
    """A failing database answers the guest, it never raises into it."""
    try:
        yield
    except sqlite3.Error as error:
        case = KvCase.QUOTA if "full" in str(error) else KvCase.UNKNOWN
        raise KvRefused(case, str(error)) from error


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _explain(path, error) from error


def _explain(path: Path, error: sqlite3.DatabaseError) -> AosError:
    if not isinstance(error, sqlite3.OperationalError):
        return Corrupt(
            "state-damaged",
            f"{path} is damaged: {error}",
            hint="move the file away to start with empty capsule state, or restore it from a backup",
            path=str(path),
        )
    if "full" in str(error):
        return Unavailable(
            "no-space",
            f"no space left on the device that holds {path}",
            hint="free some space and run the command again",
            path=str(path),
        )
    return Unavailable(
        "state-unavailable",
        f"cannot open {path}: {error}",
        hint="check that this user may write the folder, that the disk has space and that no other program "
        "holds the file",
        path=str(path),
    )
