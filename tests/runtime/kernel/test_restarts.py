"""Back-off of a failing run loop."""

from __future__ import annotations

import pytest

from aos_runtime.kernel import restarts as module
from aos_runtime.kernel.restarts import RECOVERED_AFTER_S, Restarts


def test_cmp_13_five_restarts_with_doubling_delays_and_then_none() -> None:
    restarts = Restarts()
    assert [restarts.failed(0.1) for _ in range(7)] == [2.0, 4.0, 8.0, 16.0, 32.0, None, None]


def test_cmp_13_a_hiccup_once_an_hour_never_disables() -> None:
    restarts = Restarts()
    assert [restarts.failed(3600.0) for _ in range(50)] == [2.0] * 50


def test_no_delay_is_longer_than_two_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five restarts do not get that far; with more of them the bound holds."""
    monkeypatch.setattr(module, "MAX_RESTARTS", 9)
    restarts = Restarts()
    assert [restarts.failed(0.1) for _ in range(9)] == [2, 4, 8, 16, 32, 64, 120, 120, 120]


def test_only_an_observed_recovery_clears_the_count() -> None:
    restarts = Restarts()
    for _ in range(3):
        restarts.failed(RECOVERED_AFTER_S - 1)
    assert restarts.count == 3
    assert restarts.failed(RECOVERED_AFTER_S) == 2.0
    assert restarts.count == 1
