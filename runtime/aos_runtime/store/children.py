"""Which programs a daemon has started, on disk, so that the next one can end those of a daemon that died.

Two things tell a child of ours from any other process.  Its mark: a word that is on disk before anything is
started, stands in the environment of each child, and is inherited by what a child starts, also where that
leaves its group; it holds from the first moment on.  Its record: process id and nonce (boot, id and start
time), which end its whole group, whatever that did to its environment.

The lock of the daemon must be held: what carries the mark of a home then is an orphan, or our own.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from aos_runtime.home import Home
from aos_runtime.store.files import make_private_folder, read_optional, remove_tree, write_atomic
from aos_runtime.store.processes import process_nonce

CHILD_VARIABLE = "AOS_CHILD"
END_S = 5.0
_PAUSE_S = 0.01
_PROC = Path("/proc")
_MARK = re.compile(rb"[0-9a-f]{32}")
_RECORD = re.compile(r"([1-9][0-9]{0,9})-([0-9a-f]{32})")

Tell = Callable[[str, str], None]


class ChildRecords:
    """The children of one home, recorded by its daemon alone; safe from any thread."""

    def __init__(self, home: Home) -> None:
        self._folder = home.children
        self._mark_file = home.children / "mark"

    def mark(self) -> str:
        """The value of AOS_CHILD for every child; on disk when this returns."""
        mark = self._read_mark()
        if mark is None:
            mark = secrets.token_hex(16).encode()
            make_private_folder(self._folder)
            write_atomic(self._mark_file, mark, sync=False)
        return mark.decode()

    def add(self, pid: int) -> None:
        """Remember a child that was just started and leads a group of its own."""
        nonce = process_nonce(pid)
        if nonce is not None:
            make_private_folder(self._folder)
            (self._folder / f"{pid}-{nonce}").touch(mode=0o600)

    def remove(self, pid: int) -> None:
        """Forget one whose group has ended."""
        with contextlib.suppress(FileNotFoundError):
            for path in self._folder.glob(f"{pid}-*"):
                path.unlink(missing_ok=True)

    def end_all(self, tell: Tell) -> int:
        """End every recorded child with its group, and whatever carries the mark; how many processes.

        At a start these are what a dead daemon left; at a stop what got away from its group.  Where one does
        not end within a few seconds, the records stay for the next start.
        """
        if not self._folder.is_dir():
            return 0
        ended = {pid for pid in self._recorded() if self._end_group(pid)}
        mark = self._read_mark()
        left = _end_marked(mark, ended) if mark is not None else 0
        for pid in sorted(ended):
            tell("warn", f"ended process {pid}, which a capsule's program had left running")
        if left:
            tell("error", f"{left} processes that a capsule's program had left running do not end")
        else:
            remove_tree(self._folder)
        return len(ended)

    def _read_mark(self) -> bytes | None:
        mark = read_optional(self._mark_file, 64)
        return mark if mark is not None and _MARK.fullmatch(mark) else None

    def _recorded(self) -> Iterator[int]:
        """Those that still are who they were; never one that got the id later."""
        for path in self._folder.iterdir():
            found = _RECORD.fullmatch(path.name)
            if found and process_nonce(int(found[1])) == found[2]:
                yield int(found[1])

    def _end_group(self, pid: int) -> bool:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == pid:  # else it is not one that was started in a group of its own
                os.killpg(pid, signal.SIGKILL)
                return True
        return False


def signal_group(leader: int, number: int, *, is_walled: bool) -> None:
    """Send a signal to the group of a child that was not reaped yet.

    Behind bubblewrap, which leads the group, the leader is spared but for SIGKILL: it would end at once and
    take everything with it.
    """
    if is_walled and number != signal.SIGKILL:
        inside = [pid for pid in group_members(leader) if pid != leader]
        for pid in inside:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if inside:
            return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def has_begun(leader: int) -> bool:
    """Whether the program behind bubblewrap runs: until then there is nobody that a signal could reach."""
    inside = [pid for pid in group_members(leader) if pid != leader]
    return len(inside) > 1 or any(_has_children(pid) for pid in inside)


def group_members(group: int) -> list[int]:
    """The process ids in a group, zombies among them."""
    return [pid for pid in _processes() if _group_of(pid) == group]


def _end_marked(mark: bytes, ended: set[int]) -> int:
    """Kill what carries the mark until nothing does: it may fork meanwhile.  How many are left at the end."""
    line = f"{CHILD_VARIABLE}=".encode() + mark
    deadline = time.monotonic() + END_S
    while True:
        found = [pid for pid in _processes() if pid != os.getpid() and _carries(pid, line)]
        for pid in found:
            if _end(pid, line):
                ended.add(pid)
        if not found or time.monotonic() > deadline:
            return len(found)
        time.sleep(_PAUSE_S)


def _end(pid: int, line: bytes) -> bool:
    """Kill one, held by a descriptor from before the last look: its id cannot change hands between."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if _carries(pid, line):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(handle)
    return False


def _carries(pid: int, line: bytes) -> bool:
    try:
        return line in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _has_children(pid: int) -> bool:
    try:
        return bool((_PROC / f"{pid}/task/{pid}/children").read_bytes())
    except OSError:
        return True


def _group_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.getpgid(pid)
    return 0


def _processes() -> Iterator[int]:
    """Every process id; none where the system has no /proc."""
    with contextlib.suppress(OSError):
        yield from (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 - names are all that is wanted
