"""The people that a principal's capsules know: users, and who they are on other platforms.

One SQLite file for each principal, `var/identity/<principal>/identity.db`, made by the first user: it moves
and goes with its principal, and nobody else's people are in it.  Every operation opens the file, is one
transaction, and is on disk when it returns; calls are rare and a link that was told is never lost.
Semantics are those of `astrid:identity/host@1.0.0` (host-abi.md 1.12).
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from aos_runtime.errors import Conflict, Corrupt, Unavailable
from aos_runtime.home import Home
from aos_runtime.names import PrincipalName
from aos_runtime.store.files import explained, make_private_folder

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Of one principal: some 100,000 users with a link each."""
MAX_LINKS = 256
"""Of one user: they are listed in one answer."""
SCHEMA_VERSION = 1
BUSY_TIMEOUT_S = 10.0
_PAGE_BYTES = 4096

_SCHEMA = (
    "CREATE TABLE users (id TEXT PRIMARY KEY, name TEXT, created_ms INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE links (
      platform TEXT NOT NULL, platform_user TEXT NOT NULL, user TEXT NOT NULL REFERENCES users (id),
      linked_ms INTEGER NOT NULL, method TEXT NOT NULL, PRIMARY KEY (platform, platform_user)
    ) WITHOUT ROWID""",
    "CREATE INDEX links_of_user ON links (user)",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_FIND = """SELECT users.id, users.name FROM links JOIN users ON users.id = links.user
  WHERE platform = ? AND platform_user = ?"""
_LINKS = """SELECT platform, platform_user, linked_ms, method FROM links WHERE user = ?
  ORDER BY platform, platform_user"""


class IdentityCase(StrEnum):
    """The arms of the interface's error."""

    DENIED = "capability-denied"
    INVALID = "invalid-input"
    NO_USER = "user-not-found"
    NO_LINK = "link-not-found"
    LINKED = "already-linked"
    UNAVAILABLE = "store-unavailable"
    UNKNOWN = "unknown"


class IdentityRefused(Exception):
    """An operation that was not done.  `detail` is for `unknown(text)`."""

    def __init__(self, case: IdentityCase, detail: str = "") -> None:
        super().__init__(f"{case}: {detail}" if detail else case.value)
        self.case = case
        self.detail = detail


class User(NamedTuple):
    """Somebody who is known here."""

    id: str
    name: str | None


class Link(NamedTuple):
    """Who a user is on one platform."""

    platform: str
    platform_user: str
    linked_ms: int
    method: str


class IdentityStore:
    """The people of every principal of one home.  Used from any thread and by several processes.

    Every operation may raise Unavailable `identity-unavailable`, Corrupt `identity-damaged` and Conflict
    `identity-newer`.
    """

    def __init__(self, home: Home) -> None:
        self._home = home

    def resolve(self, principal: PrincipalName, platform: str, platform_user: str) -> User:
        """Who that is.  IdentityRefused NO_LINK."""
        with self._open(principal) as database:
            row = None if database is None else database.execute(_FIND, (platform, platform_user)).fetchone()
        if row is None:
            raise IdentityRefused(IdentityCase.NO_LINK)
        return User(*row)

    def create_user(self, principal: PrincipalName, name: str | None) -> str:
        """A new user; its id.  IdentityRefused UNKNOWN where the principal has no room for one."""
        user = str(uuid.uuid4())
        with self._change(principal) as database:
            database.execute("INSERT INTO users VALUES (?, ?, ?)", (user, name, _now_ms()))
        return user

    def link(
        self, principal: PrincipalName, platform: str, platform_user: str, user: str, method: str
    ) -> None:
        """Note who a user is on a platform.  IdentityRefused NO_USER, LINKED (to anybody), UNKNOWN."""
        with self._change(principal) as database:
            _check_user(database, user)
            if len(database.execute(_LINKS, (user,)).fetchall()) >= MAX_LINKS:
                raise IdentityRefused(IdentityCase.UNKNOWN, f"a user has at most {MAX_LINKS} links")
            values = (platform, platform_user, user, _now_ms(), method)
            added = database.execute(
                "INSERT INTO links VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", values
            )
            if not added.rowcount:
                raise IdentityRefused(IdentityCase.LINKED)

    def unlink(self, principal: PrincipalName, platform: str, platform_user: str) -> None:
        """Forget a link; its user stays.  IdentityRefused NO_LINK."""
        with self._open(principal) as database:
            gone = (
                database is not None
                and database.execute(
                    "DELETE FROM links WHERE platform = ? AND platform_user = ?", (platform, platform_user)
                ).rowcount
            )
        if not gone:
            raise IdentityRefused(IdentityCase.NO_LINK)

    def links(self, principal: PrincipalName, user: str) -> tuple[Link, ...]:
        """Who a user is elsewhere, by platform.  IdentityRefused NO_USER."""
        with self._open(principal) as database:
            if database is None:
                raise IdentityRefused(IdentityCase.NO_USER)
            _check_user(database, user)
            return tuple(Link(*row) for row in database.execute(_LINKS, (user,)))

    def stored_bytes(self, principal: PrincipalName) -> int:
        """What a principal's people take on disk."""
        try:
            return self._home.identity_db(principal).stat().st_size
        except OSError:
            return 0

    @contextmanager
    def _open(self, principal: PrincipalName) -> Iterator[sqlite3.Connection | None]:
        """The file in one transaction; None where nobody is known yet."""
        path = self._home.identity_db(principal)
        if not path.exists():
            yield None
            return
        with _explaining(path), closing(_connect(path)) as database, database:
            yield database

    @contextmanager
    def _change(self, principal: PrincipalName) -> Iterator[sqlite3.Connection]:
        """The file in one transaction, made where it is not there."""
        path = self._home.identity_db(principal)
        if not path.exists():
            make_private_folder(path.parent)
            with explained(path):
                path.touch(0o600, exist_ok=True)
        with self._open(principal) as database:
            assert database is not None
            yield database


def _connect(path: Path) -> sqlite3.Connection:
    """In a write transaction, with the tables there."""
    database = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        database.execute(f"PRAGMA max_page_count = {MAX_FILE_BYTES // _PAGE_BYTES}")
        database.execute("BEGIN IMMEDIATE")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise Conflict(
                "identity-newer",
                f"{path} was written by a newer aos (schema {version})",
                hint="install the newer aos again, or use another AOS_HOME",
                path=str(path),
            )
        for statement in () if version else _SCHEMA:
            database.execute(statement)
    except BaseException:
        database.close()
        raise
    return database


def _check_user(database: sqlite3.Connection, user: str) -> None:
    if database.execute("SELECT 1 FROM users WHERE id = ?", (user,)).fetchone() is None:
        raise IdentityRefused(IdentityCase.NO_USER)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    """What SQLite says, in our words."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "full" in str(error):
            raise IdentityRefused(IdentityCase.UNKNOWN, "there is no room for more") from error
        raise Unavailable(
            "identity-unavailable",
            f"cannot use {path}: {error}",
            hint="check who owns the file and whether another program holds it",
            path=str(path),
        ) from error
    except sqlite3.DatabaseError as error:
        raise Corrupt(
            "identity-damaged",
            f"{path} is damaged: {error}",
            hint="move its folder away to start with no known people, or restore it from a backup",
            path=str(path),
        ) from error
