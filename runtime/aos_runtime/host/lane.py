"""What the two lanes have in common, as an instance sees them.

A lane is the guest's code linked in a store of its own, and the way that arguments and results take to it and
back.  Deadlines, fuel, faults and locks are the instance's.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
from wasmtime import Store, Trap, WasmtimeError

from aos_runtime.errors import LimitExceeded
from aos_runtime.host import raw
from aos_runtime.host.door import AbiViolation
from aos_runtime.host.engine import HostEngine

Stop = (Trap, WasmtimeError, AbiViolation)
"""How a lane says that its guest was stopped."""


class HookResult(msgspec.Struct, frozen=True, gc=False):
    """What a hook returned.  `action` is the guest's word (`continue`, `deny`), `data` valid UTF-8."""

    action: str
    data: bytes | None


class Lane(Protocol):
    """One guest in one store.  Used by one thread at a time; unusable after a stop."""

    store: Store

    def hook(self, action: bytes, payload: bytes) -> HookResult:
        """Call `astrid-hook-trigger`.  Raises one of `Stop`, and before the call LimitExceeded
        `hook-payload`.
        """
        ...

    def has_lifecycle(self, name: str) -> bool:
        """Whether there is a lifecycle export of the author's own."""
        ...

    def lifecycle(self, name: str) -> None:
        """Call a lifecycle export that there is.  Raises one of `Stop`."""
        ...

    def memory_bytes(self) -> int:
        """Size of the guest's memory now, as far as it can be known."""
        ...

    def why_stopped(self) -> str | None:
        """In one sentence, where the lane itself stopped the guest."""
        ...

    def close(self) -> None:
        """Free the store and all that lives in it."""
        ...


def open_store(
    engine: HostEngine,
    check: raw.EpochCheck,
    callbacks: list[object],
    *,
    memory_bytes: int,
    instances: int,
    tables: int,
    memories: int,
) -> Store:
    """A store with every limit set, ready for a start function; `check` stops its guest.

    `memory_bytes` is for each memory, `callbacks` collects what must live as long as the store.
    """
    settings = engine.settings
    store = Store(engine.engine)
    raw.set_limits(
        store,
        memory_bytes=memory_bytes,
        table_elements=settings.table_elements,
        instances=instances,
        tables=tables,
        memories=memories,
    )
    callbacks.append(raw.check_at_epochs(store, check))
    store.set_epoch_deadline(1)
    store.set_fuel(settings.fuel_per_call)
    return store


def payload_too_large(limit_bytes: int, size_bytes: int) -> LimitExceeded:
    """A hook's arguments that cannot be handed over."""
    return LimitExceeded(
        "hook-payload",
        f"a hook takes at most {limit_bytes} bytes, and was given {size_bytes}",
        hint="send less",
    )
