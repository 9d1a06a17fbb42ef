"""One engine for everything that holds in both lanes, and one relay for each interface and lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from aos_runtime.host import EngineSettings, HostEngine
from tests.support.relay import Relay

SETTINGS = EngineSettings(memory_bytes=16 << 20, fuel_per_call=100_000_000, epoch_tick_s=0.01)


@pytest.fixture(scope="session")
def engine() -> Iterator[HostEngine]:
    engine = HostEngine(SETTINGS)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def relay(engine: HostEngine) -> Iterator[Callable[..., Relay]]:
    """`relay(interface, lane, is_built=...)`."""
    made: dict[tuple[str, str, bool], Relay] = {}

    def build(interface: str, lane: str, *, is_built: bool = True) -> Relay:
        key = (interface, lane, is_built)
        if key not in made:
            made[key] = Relay(engine, interface, lane, is_built=is_built)
        return made[key]

    yield build
    for one in made.values():
        one.close()
