"""Which handler rows a topic reaches, for one principal.

Source: host-abi.md 2.4 and architecture section 2, "One provider".  A RouteTable is an immutable
snapshot: whoever changes what is loaded builds a new one and swaps it in.  Its only state is a bounded
cache, since topics are made by guests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from aos_runtime.capsule.topics import matches_dispatch, user_invocable
from aos_runtime.names import CapsuleName, PrincipalName

DEFAULT_PRIORITY = 100
MAX_CACHED_TOPICS = 4096

ProviderOf = Callable[[str], CapsuleName | None]
"""Which capsule of a principal serves a user-invocable topic (`policy.surfaces.Surfaces.provider_of`)."""


class Handler(Struct, frozen=True, gc=False):
    """A `[subscribe]` row with a handler, of a ready capsule in the view of one principal.

    `action` is the row's handler name, `pattern` its topic pattern; a lower `priority` runs first.
    """

    capsule: CapsuleName
    principal: PrincipalName
    action: str
    pattern: str
    priority: int = DEFAULT_PRIORITY


class RouteTable:
    """Finds the handlers of a topic.

    On a user-invocable topic only the principal's bound provider is reached, through one row: the most
    specific. A message without a principal reaches nobody: no capsule here belongs to no principal.
    """

    __slots__ = ("_cache", "_exact", "_patterns", "_providers")

    def __init__(self, handlers: Iterable[Handler], providers: Mapping[PrincipalName, ProviderOf]) -> None:
        self._providers = dict(providers)
        self._exact: dict[tuple[str, str], list[Handler]] = {}
        self._patterns: dict[str, list[Handler]] = {}
        for handler in handlers:
            if "*" in handler.pattern.split("."):
                self._patterns.setdefault(handler.principal, []).append(handler)
            else:
                self._exact.setdefault((handler.pattern, handler.principal), []).append(handler)
        self._cache: dict[tuple[str, str | None], tuple[Handler, ...]] = {}

    def targets(self, topic: str, principal: str | None) -> tuple[Handler, ...]:
        """The handlers of `topic` for `principal`, by priority, capsule, action.  0.1 us when cached."""
        key = (topic, principal)
        found = self._cache.get(key)
        if found is None:
            found = self._find(topic, principal)
            if len(self._cache) >= MAX_CACHED_TOPICS:
                self._cache.clear()
            self._cache[key] = found
        return found

    def provider(self, topic: str, principal: str | None) -> CapsuleName | None:
        """The capsule that is bound to a user-invocable topic for `principal`, whether it has a handler
        here or receives by itself.
        """
        provider_of = None if principal is None else self._providers.get(PrincipalName(principal))
        return None if provider_of is None else provider_of(topic)

    def _find(self, topic: str, principal: str | None) -> tuple[Handler, ...]:
        if principal is None:
            return ()
        found = list(self._exact.get((topic, principal), ()))
        found += (h for h in self._patterns.get(principal, ()) if matches_dispatch(h.pattern, topic))
        if user_invocable(topic) is not None:
            found = self._only_provider(found, topic, PrincipalName(principal))
        return tuple(sorted(found, key=_order))

    def _only_provider(self, found: list[Handler], topic: str, principal: PrincipalName) -> list[Handler]:
        provider_of = self._providers.get(principal)
        provider = None if provider_of is None else provider_of(topic)
        own = [handler for handler in found if handler.capsule == provider]
        return sorted(own, key=_specificity)[:1]


def _order(handler: Handler) -> tuple[int, str, str, str]:
    return (handler.priority, handler.capsule, handler.action, handler.pattern)


def _specificity(handler: Handler) -> tuple[int, int, str, str]:
    return (handler.pattern.count("*"), handler.priority, handler.action, handler.pattern)
