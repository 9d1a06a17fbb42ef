"""Telling one process from another that got its id later.

A process is its boot, its id and its start time together.  Before a signal is sent all of them must match,
and the executable too (an upgrade renames it, which Linux shows as ` (deleted)`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STATM = Path("/proc/self/statm")
_DELETED = " (deleted)"
_PS_TIMEOUT_S = 5.0


class Identity(StrEnum):
    """What became of a recorded process."""

    OURS = "ours"
    GONE = "gone"
    FOREIGN = "foreign"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """What a pid file says: id, executable (None: not known) and boot nonce (None: an old file)."""

    pid: int
    executable: str | None
    nonce: str | None


def own_record() -> ProcessRecord:
    """The record of this process."""
    pid = os.getpid()
    return ProcessRecord(pid=pid, executable=_executable(pid) or sys.executable, nonce=process_nonce(pid))


def process_nonce(pid: int) -> str | None:
    """32 hexadecimal digits that name this run of process `pid` and no other one, ever; None where it is
    gone.
    """
    started = _start_time(pid)
    if started is None:
        return None
    with contextlib.suppress(OSError):
        started = f"{_BOOT_ID.read_text().strip()} {started}"
    return hashlib.blake2s(f"{pid} {started}".encode(), digest_size=16).hexdigest()


def resident_bytes() -> int | None:
    """Memory of this process that is in RAM now; None where the system does not tell."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def identify(record: ProcessRecord) -> Identity:
    """Whether the process of `record` still runs, under that id and no other."""
    if record.pid <= 0 or _is_gone(record.pid):
        return Identity.GONE
    nonce = process_nonce(record.pid)
    if nonce is None:
        return Identity.GONE if _is_gone(record.pid) else Identity.UNVERIFIED
    if record.nonce is None:
        return Identity.UNVERIFIED
    if nonce != record.nonce:
        return Identity.FOREIGN
    return Identity.OURS if _same_executable(record) else Identity.FOREIGN


def send_signal(record: ProcessRecord, number: signal.Signals) -> Identity:
    """Send a signal to the process of `record` if it is that very one; what it was found to be.

    On Linux the process is held by a descriptor from before the check, so that its id cannot change hands
    between.
    """
    if not hasattr(os, "pidfd_open") or record.pid <= 0:
        return _send_plainly(record, number)
    try:
        handle = os.pidfd_open(record.pid)
    except (ProcessLookupError, OverflowError):
        return Identity.GONE
    except OSError:
        return _send_plainly(record, number)
    try:
        identity = identify(record)
        if identity is Identity.OURS:
            signal.pidfd_send_signal(handle, number)
        return identity
    except ProcessLookupError:
        return Identity.GONE
    finally:
        os.close(handle)


def _send_plainly(record: ProcessRecord, number: signal.Signals) -> Identity:
    identity = identify(record)
    if identity is Identity.OURS:
        try:
            os.kill(record.pid, number)
        except ProcessLookupError:
            return Identity.GONE
    return identity


def _is_gone(pid: int) -> bool:
    """Whether no process has this id; a zombie counts as gone."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    fields = _stat_fields(pid)
    return fields is not None and fields[0] in ("Z", "X")


def _stat_fields(pid: int) -> list[str] | None:
    """`/proc/<pid>/stat` from the state on; the name before it may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _start_time(pid: int) -> str | None:
    fields = _stat_fields(pid)
    if fields is not None:
        return fields[19] if len(fields) > 19 else None
    if sys.platform == "linux":
        return None
    return _ask_ps(pid)


def _ask_ps(pid: int) -> str | None:
    """The start time where there is no /proc; only there is the import paid for."""
    import subprocess

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["/bin/ps", "-o", "lstart=", "-p", str(pid)],
            capture_output=True,
            text=True,
            timeout=_PS_TIMEOUT_S,
            env={"LC_ALL": "C"},
            check=False,
        )
        return done.stdout.strip() or None
    return None


def _executable(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/exe").removesuffix(_DELETED)  # noqa: PTH115 - not a path to follow
    except OSError:
        return None


def _same_executable(record: ProcessRecord) -> bool:
    live = _executable(record.pid)
    if live is None or record.executable is None:
        return True
    return live == record.executable or os.path.realpath(live) == os.path.realpath(record.executable)
