"""Log records as lines for a person or for a program.  Pure."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime

from aos_cli.console import Style, safe
from aos_runtime.names import PrincipalName
from aos_runtime.store.log_lines import Record

_ORIGIN_STYLES: tuple[Style, ...] = ("cyan", "magenta", "blue", "green", "yellow")
_LEVEL_STYLES: dict[str, Style] = {"ERROR": "red", "WARN": "yellow", "DEBUG": "dim", "TRACE": "dim"}


def local_time(time_s: float) -> str:
    """`2026-11-30 21:02:03.123`, in the time zone of the machine."""
    moment = datetime.fromtimestamp(time_s).astimezone()
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"


def utc_time(time_s: float) -> str:
    """`2026-11-30T20:02:03.123Z`."""
    moment = datetime.fromtimestamp(time_s, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def origin_style(origin: str) -> Style:
    """The colour of one origin: the same in every run."""
    return _ORIGIN_STYLES[zlib.crc32(origin.encode()) % len(_ORIGIN_STYLES)]


def level_style(level: str) -> Style | None:
    """The colour of a level, None for the ordinary one."""
    return _LEVEL_STYLES.get(level)


def render_record(record: Record, stranger: PrincipalName | None) -> tuple[str, str, str, str]:
    """Time, level, origin and message of one line, safe for a terminal; a record stays one line.

    `stranger` is whose capsule it is where that is not the caller.
    """
    origin = record.origin if stranger is None else f"{stranger}/{record.origin}"
    return local_time(record.time_s), f"{record.level:<5}", f"[{safe(origin)}]", safe(record.message)


def record_document(record: Record, principal: PrincipalName | None) -> dict[str, object]:
    """One record of the NDJSON stream; the message is as it was logged.  `principal`: None = the daemon."""
    return {
        "time": utc_time(record.time_s),
        "level": record.level,
        "principal": principal,
        "origin": record.origin,
        "message": record.message,
    }
