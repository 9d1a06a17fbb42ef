"""aos_cli.render.units."""

from __future__ import annotations

import pytest

from aos_cli.render.units import plural, render_duration, render_size, short_digest


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (52_428_800, "50.0 MiB"), (2**40, "1024.0 GiB")],
)
def test_sizes(size: int, text: str) -> None:
    assert render_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (7.9, "7s"), (3010, "50m10s"), (10_925, "3h02m05s"), (187_200, "2d04h00m")],
)
def test_durations(seconds: float, text: str) -> None:
    assert render_duration(seconds) == text


def test_words() -> None:
    assert (plural(1, "capsule"), plural(0, "capsule")) == ("1 capsule", "0 capsules")
    assert short_digest("ab" * 32) == "abababababab"
