"""From two readings of the daemon's counters to rates and quantiles.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One capsule of one principal between two readings.

    Rates are per second.  Latencies in microseconds, of the interval where anything was called in it, else
    since the capsule was loaded; None where nothing ever was.
    """

    principal: str
    capsule: str
    calls: int
    calls_per_s: float
    errors: int
    errors_per_s: float
    denied: int
    queue_depth: int
    drops: int
    memory_bytes: int | None
    p50_us: float | None
    p95_us: float | None
    is_of_interval: bool

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Row]:
    """The rows of `after`, busiest first; a capsule that is new counts from nothing."""
    seconds = max(1e-9, (_int(after, "monotonic_ns") - _int(before, "monotonic_ns")) / 1e9)
    earlier = {(row.get("principal"), row.get("capsule")): row for row in _rows(before)}
    bounds = [float(bound) for bound in after.get("latency_bounds_us") or ()]
    rows = [
        _row(row, earlier.get((row.get("principal"), row.get("capsule")), {}), bounds, seconds)
        for row in _rows(after)
    ]
    return sorted(rows, key=lambda row: (-row.calls_per_s, row.principal, row.capsule))


def quantile(counts: Sequence[int], bounds: Sequence[float], part: float) -> float | None:
    """The value below which `part` of the counted ones lie, spread evenly within their bucket.

    None for nothing counted; what is over the last bound counts as the last bound.
    """
    rank = sum(counts) * part
    if rank <= 0 or not bounds:
        return None
    lower = 0.0
    for count, upper in zip(counts, bounds, strict=False):
        if rank <= count:
            return lower + (upper - lower) * rank / count
        rank -= count
        lower = upper
    return bounds[-1]


def _row(now: Mapping[str, Any], before: Mapping[str, Any], bounds: list[float], seconds: float) -> Row:
    counts, earlier = _counts(now), _counts(before)
    fresh = [max(0, count - old) for count, old in zip(counts, earlier or [0] * len(counts), strict=False)]
    is_of_interval = any(fresh)
    shown = fresh if is_of_interval else counts
    return Row(
        principal=str(now.get("principal")),
        capsule=str(now.get("capsule")),
        calls=_int(now, "calls"),
        calls_per_s=round(_gain(now, before, "calls") / seconds, 1),
        errors=_int(now, "errors"),
        errors_per_s=round(_gain(now, before, "errors") / seconds, 1),
        denied=_int(now, "denied"),
        queue_depth=_int(now, "queue_depth"),
        drops=_int(now, "drops"),
        memory_bytes=now["memory_bytes"] if isinstance(now.get("memory_bytes"), int) else None,
        p50_us=_rounded(quantile(shown, bounds, 0.5)),
        p95_us=_rounded(quantile(shown, bounds, 0.95)),
        is_of_interval=is_of_interval,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _rows(reading: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for row in reading.get("capsules") or () if isinstance(row, dict)]


def _counts(row: Mapping[str, Any]) -> list[int]:
    return [count for count in row.get("latency") or () if isinstance(count, int)]


def _gain(now: Mapping[str, Any], before: Mapping[str, Any], key: str) -> int:
    return max(0, _int(now, key) - _int(before, key))


def _int(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key)
    return value if isinstance(value, int) else 0
