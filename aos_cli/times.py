"""Points in time as people type them: `10m`, `2h30m`, `2026-11-30`, `2026-11-30T21:00:00Z`.  Pure."""

from __future__ import annotations

import re
from datetime import datetime

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def parse_duration(text: str) -> float | None:
    """Seconds of `90s`, `2h30m`, `1d`; None where it is no duration."""
    if not text or _PART.sub("", text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def parse_moment(text: str, now_s: float) -> float:
    """Unix seconds of a duration before `now_s`, or of an ISO date or time (local without a zone).

    ValueError says what is accepted.
    """
    duration = parse_duration(text.strip().lower())
    if duration is not None:
        return now_s - duration
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text[:40]!r} is no time: write 10m, 2h30m, 1d, 2026-11-30 or 2026-11-30T21:00:00Z"
        ) from None
