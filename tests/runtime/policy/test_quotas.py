"""Quotas: names, bounds, and what a profile makes of the operator's defaults."""

from __future__ import annotations

import pytest

from aos_runtime.policy.quotas import BOUNDS, MAX_BYTES, Quotas, quota_problem, quotas_of


def test_the_published_defaults() -> None:
    assert Quotas().to_json() == {
        "max_memory_bytes": 67108864,
        "max_timeout_secs": 300,
        "max_ipc_throughput_bytes": 10485760,
        "max_background_processes": 8,
        "max_storage_bytes": 9223372036854775807,
        "max_cpu_fuel_per_sec": 2000000000,
        "max_in_flight_calls": 4,
    }
    assert set(BOUNDS) == set(Quotas().to_json())


def test_the_published_bounds() -> None:
    """daemon-kernel.md 7: the lowest and highest value of each."""
    highest = 9_223_372_036_854_775_807
    assert {
        "max_memory_bytes": (1_048_576, 4_294_967_296),
        "max_timeout_secs": (1, 86_400),
        "max_ipc_throughput_bytes": (1, highest),
        "max_background_processes": (0, 256),
        "max_storage_bytes": (0, highest),
        "max_cpu_fuel_per_sec": (1, highest),
        "max_in_flight_calls": (1, 64),
    } == BOUNDS


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"max_timeout_secs": 86_400}, None),
        ({"max_timeout_secs": 86_401}, "max_timeout_secs must be a whole number from 1 to 86400"),
        ({"max_in_flight_calls": 0}, "max_in_flight_calls must be a whole number from 1 to 64"),
        ({"max_background_processes": True}, "max_background_processes must be a whole number from 0 to 256"),
        (
            {"max_storage_bytes": MAX_BYTES + 1},
            f"max_storage_bytes must be a whole number from 0 to {MAX_BYTES}",
        ),
        ({"max_timeout_secs": 1, "max_memory_bytes": 4_294_967_296, "max_background_processes": 0}, None),
        ({"max_in_flight_calls": 1.0}, "max_in_flight_calls must be a whole number from 1 to 64"),
        (
            {"x" * 65: 1},
            f"'{'x' * 64}' is no quota; the quotas are {', '.join(BOUNDS)}",
        ),
        ({"max_fun": 1}, f"'max_fun' is no quota; the quotas are {', '.join(BOUNDS)}"),
    ],
)
def test_what_may_be_set(values: dict[str, object], problem: str | None) -> None:
    assert quota_problem(values) == problem


def test_a_profile_overrides_the_base_within_the_bounds() -> None:
    base = Quotas(max_timeout_secs=60)
    made = quotas_of({"max_memory_bytes": 1, "max_in_flight_calls": 100, "max_fun": 3}, base)
    assert made == Quotas(max_timeout_secs=60, max_memory_bytes=1024 * 1024, max_in_flight_calls=64)
