"""Numbers for people: sizes in IEC units, durations, short digests.  Pure."""

from __future__ import annotations

UNKNOWN = "—"
"""Stands where a value is not known; never a made-up value (cli-ux 5.2)."""


def render_size(size_bytes: int) -> str:
    """`512 B`, `1.5 KiB`, `50.0 MiB`."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit always returns")


def render_duration(seconds: float) -> str:
    """`7s`, `50m10s`, `3h02m05s`, `2d04h00m`."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, second = divmod(rest, 60)
    if days:
        return f"{days}d{hours:02d}h{minutes:02d}m"
    if hours:
        return f"{hours}h{minutes:02d}m{second:02d}s"
    return f"{minutes}m{second:02d}s" if minutes else f"{second}s"


def short_digest(digest: str) -> str:
    """The first 12 digits of a digest; JSON output has all of them."""
    return digest[:12]


def plural(count: int, noun: str) -> str:
    """`1 capsule`, `2 capsules`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
