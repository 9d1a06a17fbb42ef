"""aos_cli.times: points in time as people type them."""

from __future__ import annotations

import pytest

from aos_cli.times import parse_duration, parse_moment

NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("10m", 600.0), ("2h30m", 9000.0), ("1.5h", 5400.0), ("1w", 604_800.0), ("250ms", 0.25)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert parse_moment(text, NOW_S) == NOW_S - seconds


@pytest.mark.parametrize("text", ["", "10", "m", "10x", "10m!", "-5m", "1h 5m"])
def test_what_is_no_duration(text: str) -> None:
    assert parse_duration(text) is None


def test_iso_times_with_a_zone() -> None:
    assert parse_moment("2026-11-30T21:00:00Z", NOW_S) == 1_796_072_400.0
    assert parse_moment("2026-11-30T21:00:00+01:00", NOW_S) == 1_796_068_800.0


def test_what_is_no_time_says_what_is() -> None:
    with pytest.raises(ValueError, match="write 10m, 2h30m, 1d, 2026-11-30 or"):
        parse_moment("yesterday", NOW_S)
