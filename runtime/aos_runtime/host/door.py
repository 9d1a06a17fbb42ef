"""The one door to a guest's memory.

Everything that Python reads from or writes to a guest goes through `GuestMemory`: a slice of a memoryview
that covers the memory and nothing else, so that no pointer a guest can name reaches past it.  What a guest
may make the host build from one call is bounded too, since lists may name the same bytes again and again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol

LIFT_BUDGET_BYTES = 64 << 20
"""Most that one host call may lift out of a guest: all of its memory, once."""
ELEMENT_COST_BYTES = 64
"""What a list element costs the host at least, whatever its size in the guest."""


class AbiViolation(Exception):
    """The guest broke the canonical ABI.  Its instance dies; the message is one sentence, ours."""


class Door(Protocol):
    """What codecs need of a guest's memory."""

    def view(self, at: int, size: int) -> memoryview: ...
    def take(self, at: int, size: int) -> memoryview: ...
    def unpack(self, layout: struct.Struct, at: int) -> tuple[Any, ...]: ...
    def pack(self, layout: struct.Struct, at: int, *values: Any) -> None: ...
    def allocate(self, align: int, size: int) -> int: ...
    def spend(self, size: int) -> None: ...


class LiftBudget:
    """How much one host call may still lift out of its guest."""

    __slots__ = ("_budget",)

    def __init__(self) -> None:
        self._budget = LIFT_BUDGET_BYTES

    def renew(self) -> None:
        """A call begins."""
        self._budget = LIFT_BUDGET_BYTES

    def spend(self, size: int) -> None:
        """Charge `size` bytes to this call."""
        self._budget -= size
        if self._budget < 0:
            raise AbiViolation(f"one call passed more than {LIFT_BUDGET_BYTES >> 20} MiB")


class GuestMemory(LiftBudget):
    """Checked access to one linear memory.

    `current` gives the memory's bytes as they are now (memory only grows and never moves); `realloc` calls
    the guest's `cabi_realloc(0, 0, align, size)` and may grow it; `held` is one byte that is not 0 while the
    guest may not call the host.
    """

    __slots__ = ("_bytes", "_current", "_held", "_realloc", "allocating")

    def __init__(
        self,
        current: Callable[[], memoryview],
        realloc: Callable[[int, int], int],
        held: memoryview | bytes = b"\0",
    ) -> None:
        super().__init__()
        self._held = held
        self._current = current
        self._realloc = realloc
        self._bytes = current()
        self.allocating = False

    def begin(self) -> None:
        """Start of one host call: renews the budget.  AbiViolation where the guest calls from its realloc."""
        self.check_may_leave()
        self._budget = LIFT_BUDGET_BYTES

    def check_may_leave(self) -> None:
        """AbiViolation where the guest calls the host from its realloc or post-return."""
        if self.allocating or self._held[0]:
            raise AbiViolation("the guest called the host while the host was allocating")

    def take(self, at: int, size: int) -> memoryview:
        """`view`, charged to this call: what the host is about to copy."""
        self._budget -= size
        if self._budget < 0:
            raise AbiViolation(f"one call passed more than {LIFT_BUDGET_BYTES >> 20} MiB")
        found = self._bytes[at : at + size]
        return found if len(found) == size and size else self.view(at, size)

    def view(self, at: int, size: int) -> memoryview:
        """The `size` bytes at `at`; both come from the guest and are not negative."""
        found = self._bytes[at : at + size]
        if len(found) != size:
            self._refresh()
            found = self._bytes[at : at + size]
            if len(found) != size:
                raise AbiViolation("the guest gave a pointer outside its memory")
        elif not size and at > len(self._bytes):
            self._refresh()
            if at > len(self._bytes):
                raise AbiViolation("the guest gave a pointer outside its memory")
        return found

    def unpack(self, layout: struct.Struct, at: int) -> tuple[Any, ...]:
        """Read a fixed layout."""
        return layout.unpack(self.view(at, layout.size))

    def pack(self, layout: struct.Struct, at: int, *values: Any) -> None:
        """Write a fixed layout."""
        layout.pack_into(self.view(at, layout.size), 0, *values)

    def allocate(self, align: int, size: int) -> int:
        """Have the guest allocate; a pointer that is aligned and inside its memory, or AbiViolation."""
        if not size:
            return align
        self.allocating = True
        try:
            at = self._realloc(align, size)
        finally:
            self.allocating = False
        if at % align:
            raise AbiViolation("the guest's realloc gave a misaligned pointer")
        self.view(at, size)
        return at

    def size_bytes(self) -> int:
        """The memory's size now."""
        self._refresh()
        return len(self._bytes)

    def close(self) -> None:
        """Let go of the memory, before its store goes."""
        self._bytes = memoryview(b"")
        self._held = b"\0"
        self._current = _closed

    def _refresh(self) -> None:
        self._bytes = self._current()


def check_aligned(at: int, align: int) -> None:
    """AbiViolation unless `at` is a multiple of `align`."""
    if at % align:
        raise AbiViolation("the guest gave a misaligned pointer")


def _closed() -> memoryview:
    raise AbiViolation("the instance is closed")
