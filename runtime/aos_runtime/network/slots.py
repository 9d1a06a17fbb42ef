"""How many connections one guest may hold at once, by kind."""

from __future__ import annotations

from collections.abc import Callable

from aos_runtime.network.faults import Fault, NetworkFault


class Slots:
    """A bounded count, used by one guest's thread."""

    __slots__ = ("_what", "limit", "taken")

    def __init__(self, limit: int, what: str) -> None:
        self.limit = limit
        self.taken = 0
        self._what = what

    def take(self) -> Callable[[], None]:
        """One of them; what is returned gives it back, however often it is called.

        NetworkFault CROWDED where there is none left.
        """
        if self.taken >= self.limit:
            raise NetworkFault(Fault.CROWDED, f"{self.limit} {self._what} are open already")
        self.taken += 1
        return _Give(self)


class _Give:
    __slots__ = ("_slots",)

    def __init__(self, slots: Slots) -> None:
        self._slots: Slots | None = slots

    def __call__(self) -> None:
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.taken -= 1
