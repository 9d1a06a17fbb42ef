"""The files of a running daemon: lock, socket path, token, pid and ready file (daemon-kernel.md 1.2 to 1.4).

The daemon claims and writes them through RunFiles; everybody else only reads.  Whether a daemon lives is told
by the lock, which the system frees with the process, never by the mere presence of a file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from blake3 import blake3

from aos_runtime.errors import Conflict, Corrupt, Unavailable
from aos_runtime.home import SOCKET_PATH_MAX_BYTES, WORKSPACE_STATE_DIR, Home
from aos_runtime.store.files import (
    FileLock,
    explained,
    is_locked,
    make_private_folder,
    read_optional,
    remove_file,
    remove_tree,
    sweep_temporaries,
    write_atomic,
)
from aos_runtime.store.layout import open_home
from aos_runtime.store.processes import Identity, ProcessRecord, identify, own_record

READY_VERSION = "v1"
TOKEN_BYTES = 32
MAX_RUN_FILE_BYTES = 64 * 1024
LOCK_WAIT_S = 2.0
"""A reader that asks whether the lock is free holds it for an instant; a starting daemon waits that out."""

PROBE_TIMEOUT_S = 1.0
_NONCE = re.compile(r"[0-9a-f]{32}")


class Liveness(StrEnum):
    """What can be told about the daemon without talking to it."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A look at the run files.  `reason` is a clause that explains `unknown`, or a stale rest."""

    liveness: Liveness
    process: ProcessRecord | None
    reason: str | None


class RunFiles:
    """The run files of the one daemon of a home, from taking the lock to removing the rest."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._lock = FileLock(home.lock_file)
        self._owns_socket = False

    def acquire(self, *, wait_s: float = LOCK_WAIT_S) -> None:
        """Become the daemon of this home.  Conflict `daemon-running` with the pid where another one is."""
        open_home(self.home, create=True)
        make_private_folder(self.home.run)
        try:
            self._lock.acquire(wait_s)
        except Conflict as error:
            raise Conflict(
                "daemon-running",
                f"a daemon already runs on this home, with process id {error.context.get('pid')}",
                hint="use it, or stop it first: aos stop",
                pid=error.context.get("pid"),
            ) from error
        sweep_temporaries(self.home.run)
        remove_file(self.home.ready_file)
        remove_tree(self.home.all_scratch)

    def claim_socket_path(self, *, probe: Callable[[Path], int | None] | None = None) -> Path:
        """The path to bind, after a socket that nobody serves was removed from it.  The lock must be held.

        Conflict `socket-path-taken` where something else stands there: it is left alone and named (DMN-04).
        `probe` connects and returns None where somebody answered, else the errno.
        """
        path = self.home.socket
        _make_socket_folder(self.home, path)
        _clear_path(path, probe or probe_socket)
        self._owns_socket = True
        return path

    def write_pid(self) -> ProcessRecord:
        """Record this process: id, executable, boot nonce."""
        record = own_record()
        lines = (str(record.pid), record.executable, record.nonce)
        text = "".join(f"{line}\n" for line in lines if line is not None)
        write_atomic(self.home.pid_file, text.encode("utf-8", "surrogateescape"))
        return record

    def write_token(self) -> str:
        """Make and record the token of this boot: 64 lowercase hexadecimal digits."""
        token = secrets.token_hex(TOKEN_BYTES)
        write_atomic(self.home.token_file, token.encode("ascii"))
        return token

    def write_ready(self, workspace: Path) -> None:
        """Say that clients are served; the last step of a start."""
        text = f"{READY_VERSION}:{fingerprint(workspace)}\n"
        write_atomic(self.home.ready_file, text.encode("ascii"))

    def clear(self) -> None:
        """Remove token, ready and pid file, and the socket if its path was claimed, then free the lock.

        The lock's file stays.
        """
        if not self._lock.is_held:
            return
        try:
            _remove_markers(self.home, with_socket=self._owns_socket)
        finally:
            self._lock.release()


def sweep_stale(home: Home) -> tuple[str, ...]:
    """Remove what a daemon that died left; the names removed.  Conflict `busy` while one holds the lock."""
    if not home.run.is_dir():
        return ()
    lock = FileLock(home.lock_file)
    lock.acquire(0)
    with lock:
        return _remove_markers(home)


def liveness(home: Home) -> Liveness:
    """`observe(home).liveness`."""
    return observe(home).liveness


def observe(home: Home) -> Observation:
    """Look whether a daemon lives, by reading alone; nothing is created, repaired or removed (LST-15)."""
    process, problem, is_partial = _read_pid(home)
    if is_locked(home.lock_file):
        # The ready file of one that was killed stands for a moment after the next has taken the lock.
        is_left = process is not None and identify(process) in (Identity.GONE, Identity.FOREIGN)
        if home.ready_file.is_file() and not is_left:
            return Observation(liveness=Liveness.RUNNING, process=process, reason=problem)
        return Observation(liveness=Liveness.STARTING, process=process, reason=problem)
    if is_partial:
        return Observation(liveness=Liveness.STARTING, process=None, reason="its pid file is half written")
    if problem is not None:
        return Observation(liveness=Liveness.UNKNOWN, process=None, reason=problem)
    if process is None:
        return Observation(liveness=Liveness.STOPPED, process=None, reason=None)
    if identify(process) is Identity.OURS:
        reason = f"process {process.pid} runs but does not hold the lock"
        return Observation(liveness=Liveness.UNKNOWN, process=process, reason=reason)
    reason = f"process {process.pid} ended without tidying up"
    return Observation(liveness=Liveness.STOPPED, process=process, reason=reason)


def read_process(home: Home) -> ProcessRecord | None:
    """The recorded daemon process, None where there is none or the file is no pid file."""
    return _read_pid(home)[0]


def fingerprint(workspace: Path) -> str:
    """The workspace fingerprint that published clients compare (daemon-kernel.md 1.2, MEASURED)."""
    path = os.fsencode(workspace.resolve())
    name = WORKSPACE_STATE_DIR.encode()
    parts = (b"astrid-workspace-selection-v2", path, path + b"/" + name, name)
    return blake3(b"\0".join(parts)).hexdigest()


def probe_socket(path: Path) -> int | None:
    """Connect to a socket and leave at once: None where somebody answered, else the errno."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PROBE_TIMEOUT_S)
        try:
            connection.connect(str(path))
        except TimeoutError:
            return None
        except OSError as error:
            return error.errno
    return None


def _make_socket_folder(home: Home, path: Path) -> None:
    """The folder of the socket: `run`, or the short one for a deep home, which must be this user's alone."""
    if len(os.fsencode(path)) > SOCKET_PATH_MAX_BYTES:
        raise Unavailable(
            "socket-path-too-long",
            f"the socket path {path} is longer than the {SOCKET_PATH_MAX_BYTES} bytes that the system takes",
            hint="set AOS_HOME to a shorter path",
            path=str(path),
        )
    if path.parent == home.run:
        make_private_folder(path.parent)
        return
    with explained(path.parent):
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(0o700)
        facts = path.parent.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise Conflict(
            "socket-folder-foreign",
            f"{path.parent} is not a private folder of this user",
            hint="remove it, or set AOS_HOME to a shorter path",
            path=str(path.parent),
        )


def _clear_path(path: Path, probe: Callable[[Path], int | None]) -> None:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(facts.st_mode):
        remove_file(path)
        return
    if not stat.S_ISSOCK(facts.st_mode):
        what = "a folder" if stat.S_ISDIR(facts.st_mode) else "a file that is no socket"
        raise _path_taken(path, what)
    if facts.st_uid != os.getuid():
        raise _path_taken(path, f"a socket of another user (uid {facts.st_uid})")
    answer = probe(path)
    if answer is None:
        raise _path_taken(path, "a socket that another program serves")
    if answer not in (errno.ECONNREFUSED, errno.ENOENT):
        raise _path_taken(path, f"a socket that could not be tried ({os.strerror(answer)})")
    remove_file(path)


def _path_taken(path: Path, what: str) -> Conflict:
    return Conflict(
        "socket-path-taken",
        f"the socket cannot be made: at {path} stands {what}",
        hint="look at what it is and move it away; aos leaves it alone",
        path=str(path),
    )


def _remove_markers(home: Home, *, with_socket: bool = True) -> tuple[str, ...]:
    removed = []
    sockets = (home.socket,) if with_socket else ()
    for path in (home.ready_file, *sockets, home.token_file, home.pid_file):
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(path.lstat().st_mode) or (path == home.socket and not _is_socket(path)):
                continue
            if remove_file(path):
                removed.append(path.name)
    if home.socket.parent != home.run:
        with contextlib.suppress(OSError):
            home.socket.parent.rmdir()
    return tuple(removed)


def _is_socket(path: Path) -> bool:
    return stat.S_ISSOCK(path.lstat().st_mode)


def _read_pid(home: Home) -> tuple[ProcessRecord | None, str | None, bool]:
    """The record; what is wrong with the file; whether it looks half written."""
    try:
        data = read_optional(home.pid_file, MAX_RUN_FILE_BYTES)
    except (Corrupt, Unavailable) as error:
        return None, error.message, False
    if data is None:
        return None, None, False
    text = data.decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    if (not text or lines[0].isdigit()) and not text.endswith("\n"):
        return None, None, True
    if not lines[0].isascii() or not lines[0].isdigit() or len(lines[0]) > 10 or int(lines[0]) == 0:
        return None, f"{home.pid_file} does not hold a process id", False
    rest = [line for line in lines[1:] if line]
    nonce = rest.pop() if rest and _NONCE.fullmatch(rest[-1]) else None
    return ProcessRecord(pid=int(lines[0]), executable=rest[0] if rest else None, nonce=nonce), None, False
