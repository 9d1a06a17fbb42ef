"""Which live subscriptions a topic reaches.

A runtime subscription is an exact topic or ends in one `*` (`capsule.topics.subscription_problem`), so a
topic is looked up as itself and by each of its heads: no pattern is ever matched against it.  The answer is
that of `capsule.topics.covers`.  No lock here: every call is made under the kernel's order lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from aos_runtime.bus.inbox import Scope
from aos_runtime.capsule.topics import MAX_MATCH_SEGMENTS, has_valid_segments

_ONE_SEGMENT = "*"
_ONE_SEGMENT_KEY = ""


class Subscriber(Protocol):
    """What the table needs to know of a subscription."""

    @property
    def pattern(self) -> str: ...

    @property
    def scope(self) -> Scope: ...


Live = TypeVar("Live", bound=Subscriber)


class SubscriptionTable(Generic[Live]):
    """All live subscriptions by pattern, oldest first within one."""

    __slots__ = ("_exact", "_heads", "count")

    def __init__(self) -> None:
        self._exact: dict[str, list[Live]] = {}
        self._heads: dict[str, list[Live]] = {}
        """By what stands before the trailing `.*`, which is nothing for a lone `*`."""
        self.count = 0

    def add(self, subscriber: Live) -> None:
        """Let it receive from now on."""
        table, key = self._place(subscriber.pattern)
        table.setdefault(key, []).append(subscriber)
        self.count += 1

    def remove(self, subscriber: Live) -> bool:
        """Let it receive no more; False where it did not."""
        table, key = self._place(subscriber.pattern)
        found = table.get(key, [])
        left = [one for one in found if one is not subscriber]
        if len(left) == len(found):
            return False
        self.count -= 1
        if left:
            table[key] = left
        else:
            del table[key]
        return True

    def matching(self, topic: str, principal: str | None) -> list[Live]:
        """The subscriptions that receive a message of `principal` on `topic`."""
        return [one for one in self._covering(topic) if one.scope.admits(principal)]

    def _covering(self, topic: str) -> Iterator[Live]:
        if topic.count(".") >= MAX_MATCH_SEGMENTS or not has_valid_segments(topic):
            return
        yield from self._exact.get(topic, ())
        if not self._heads:
            return
        head, dot, _ = topic.rpartition(".")
        if not dot:
            yield from self._heads.get(_ONE_SEGMENT_KEY, ())
        while dot:
            yield from self._heads.get(head, ())
            head, dot, _ = head.rpartition(".")

    def _place(self, pattern: str) -> tuple[dict[str, list[Live]], str]:
        if pattern == _ONE_SEGMENT:
            return self._heads, _ONE_SEGMENT_KEY
        if pattern.endswith(".*"):
            return self._heads, pattern[:-2]
        return self._exact, pattern
