"""What a principal may use: the seven published quotas, their bounds, and who is exempt from rates.

Source: daemon-kernel.md 7 and 9.1.  Numbers only: who measures and who waits is the kernel's business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

MIB = 1024 * 1024
MAX_BYTES = 2**63 - 1

EXEMPT_CAPABILITIES = ("system:resources:unbounded", "net_bind", "uplink")
"""A principal that holds one of these is measured, and held to no rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The limits of one principal, under their published names."""

    max_memory_bytes: int = 64 * MIB
    """Of one instance."""
    max_timeout_secs: int = 300
    """Wall time of one call, with the time that it waits for its instance."""
    max_ipc_throughput_bytes: int = 10 * MIB
    """Published by all of its capsules together in one second."""
    max_background_processes: int = 8
    max_storage_bytes: int = MAX_BYTES
    """Keys and values of all of its capsules together."""
    max_cpu_fuel_per_sec: int = 2_000_000_000
    """Used by all of its capsules together in one second."""
    max_in_flight_calls: int = 4
    """Not a semaphore: what one call may use is the rate divided by this."""

    def to_json(self) -> dict[str, int]:
        return dataclasses.asdict(self)


BOUNDS: Mapping[str, tuple[int, int]] = {
    "max_memory_bytes": (MIB, 4096 * MIB),
    "max_timeout_secs": (1, 86_400),
    "max_ipc_throughput_bytes": (1, MAX_BYTES),
    "max_background_processes": (0, 256),
    "max_storage_bytes": (0, MAX_BYTES),
    "max_cpu_fuel_per_sec": (1, MAX_BYTES),
    "max_in_flight_calls": (1, 64),
}
"""Lowest and highest value of each."""


def quota_problem(values: Mapping[str, object]) -> str | None:
    """What is wrong with values that somebody wants to set; None where nothing is."""
    for name, value in values.items():
        bounds = BOUNDS.get(name)
        if bounds is None:
            return f"{name[:64]!r} is no quota; the quotas are {', '.join(BOUNDS)}"
        if isinstance(value, bool) or not isinstance(value, int) or not bounds[0] <= value <= bounds[1]:
            return f"{name} must be a whole number from {bounds[0]} to {bounds[1]}"
    return None


def quotas_of(values: Mapping[str, int], base: Quotas) -> Quotas:
    """The quotas of a profile: its own numbers, forced into their bounds, over those of `base`."""
    fields = {
        name: min(max(values[name], low), high) for name, (low, high) in BOUNDS.items() if name in values
    }
    return dataclasses.replace(base, **fields)
