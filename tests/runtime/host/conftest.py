"""One engine for all tests of this room: small limits and a fast clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aos_runtime.host import Code, EngineSettings, HostEngine, Instance
from tests.support.guests import Recorder, code_of, guest_text

SETTINGS = EngineSettings(
    memory_bytes=4 << 20, fuel_per_call=20_000_000, call_timeout_s=30.0, epoch_tick_s=0.01
)


@pytest.fixture(scope="session")
def engine() -> Iterator[HostEngine]:
    engine = HostEngine(SETTINGS)
    yield engine
    engine.close()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def instantiate(engine: HostEngine, recorder: Recorder) -> Iterator[Callable[..., Instance]]:
    """`instantiate(hook text or Code, ...)`: an instance that is closed after the test."""
    made: list[Instance] = []

    def build(guest: str | Code, **changes: Any) -> Instance:
        code = code_of(engine, guest) if isinstance(guest, str) else guest
        instance = Instance(code, recorder.context(**changes))
        made.append(instance)
        return instance

    yield build
    for instance in made:
        instance.close()


@pytest.fixture
def hook_of(instantiate: Callable[..., Instance]) -> Callable[..., Instance]:
    """`hook_of(body of the hook, realloc=..., ...)`: an instance of a guest with that hook."""

    def build(hook: str, **parts: str) -> Instance:
        return instantiate(guest_text(hook, **parts))

    return build
