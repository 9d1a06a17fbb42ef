"""One provider per user-invocable topic and principal.

Source: architecture section 2, "One provider"; case BUS-12.  Without it two file-system capsules would
both run one delete.  The rule looks at what is installed and described, never at the order in which
capsules were loaded:

1. a capsule that describes the tool beats one that only has a row for it ("whose schema won"); one that
   could not be asked counts as describing it;
2. a row that names the topic beats one with a `*`;
3. an installed capsule beats a bundled one;
4. the earliest installed beats later ones;
5. the name decides, alphabetically.

Two more rules keep one call one call on topics that are not user-invocable (`Surfaces.yielded`): there is one
router, and a bundled capsule that an installed one replaces whole yields on all of its topics.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from aos_runtime.capsule.topics import (
    TOOL_DESCRIBE,
    TOOL_EXECUTE,
    TOOL_REQUEST,
    matches_dispatch,
    user_invocable,
)
from aos_runtime.names import CapsuleName

ROUTER_ROWS = frozenset((TOOL_REQUEST, f"{TOOL_EXECUTE}.*.result"))
"""The rows that make a capsule a router (tools-as-an-ipc-convention, "Execution Flow")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A loaded capsule of one principal.

    `patterns` are its rows with a handler.  `installed_at` is the RFC 3339 UTC text of its receipt.
    `tools` are the names that it described, None where it could not be asked.
    """

    name: CapsuleName
    patterns: tuple[str, ...]
    is_bundled: bool
    installed_at: str
    tools: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadowed:
    """`loser` has a row for `topic` but is never called there."""

    topic: str
    winner: CapsuleName
    loser: CapsuleName


class Surfaces:
    """The providers of one principal: an immutable answer to who serves what."""

    __slots__ = ("_bound", "_stars", "shadowed", "yielded")

    def __init__(self, candidates: tuple[Candidate, ...]) -> None:
        self._stars = tuple((row, one) for one in candidates for row in one.patterns if "*" in row)
        named: dict[str, list[Candidate]] = {}
        for one in candidates:
            for row in set(one.patterns):
                if "*" not in row and user_invocable(row) is not None:
                    named.setdefault(row, []).append(one)
        self._bound: dict[str, CapsuleName] = {}
        shadowed: list[Shadowed] = []
        for topic in sorted(named):
            winner, *losers = self._rank(topic, named[topic])
            self._bound[topic] = winner
            shadowed += (Shadowed(topic=topic, winner=winner, loser=loser) for loser in losers)
        yielded = {**dict(_second_routers(candidates)), **dict(_replaced(candidates))}
        self.yielded: Mapping[tuple[CapsuleName, str], CapsuleName] = yielded
        """Rows, other than user-invocable ones, that get no message, each with who took the place."""
        shadowed += (
            Shadowed(topic=topic, winner=yielded[loser, topic], loser=loser)
            for loser, topic in sorted(yielded)
        )
        self.shadowed: tuple[Shadowed, ...] = tuple(shadowed)
        """Every capsule that lost a topic that somebody names, by topic, then rank; then the yielded rows."""

    def provider_of(self, topic: str) -> CapsuleName | None:
        """The capsule that serves a user-invocable topic; None where nobody does, or for any other topic."""
        bound = self._bound.get(topic)
        if bound is not None or user_invocable(topic) is None:
            return bound
        return next(iter(self._rank(topic, ())), None)

    def topics(self) -> tuple[str, ...]:
        """The user-invocable topics that some row names, sorted."""
        return tuple(self._bound)

    def _rank(self, topic: str, named: Iterable[Candidate]) -> list[CapsuleName]:
        """Who has a row for `topic`, best first; `named` are those whose row is the topic itself."""
        serving = {one.name: one for row, one in self._stars if matches_dispatch(row, topic)}
        serving.update((one.name, one) for one in named)
        return sorted(serving, key=lambda name: _standing(serving[name], topic))


def bind_providers(candidates: Iterable[Candidate]) -> Surfaces:
    """Bind the surfaces of one principal; the order of `candidates` does not matter."""
    return Surfaces(tuple(candidates))


def _own_topics(candidate: Candidate) -> frozenset[str]:
    """The rows on which every capsule that has one is called: neither bound one by one, nor asked of all."""
    return frozenset(
        row for row in candidate.patterns if user_invocable(row) is None and row != TOOL_DESCRIBE
    )


def _second_routers(candidates: Iterable[Candidate]) -> Iterator[tuple[tuple[CapsuleName, str], CapsuleName]]:
    """Whoever has both rows of a router is one; two of them would run every call twice."""
    routers = sorted(
        (one.is_bundled, one.installed_at, one.name)
        for one in candidates
        if frozenset(one.patterns) >= ROUTER_ROWS
    )
    for *_, loser in routers[1:]:
        for topic in ROUTER_ROWS:
            yield (loser, topic), routers[0][2]


def _replaced(candidates: Iterable[Candidate]) -> Iterator[tuple[tuple[CapsuleName, str], CapsuleName]]:
    """A bundled capsule yields to the first installed one that has all of its rows.

    One that has some of them (a guard before the router) replaces nothing.
    """
    installed = sorted((one.installed_at, one.name, one) for one in candidates if not one.is_bundled)
    for one in candidates:
        own = _own_topics(one)
        heirs = (name for _, name, other in installed if own <= frozenset(other.patterns))
        for heir in itertools.islice(heirs, 1 if one.is_bundled else 0):
            for topic in own:
                yield (one.name, topic), heir


def _standing(candidate: Candidate, topic: str) -> tuple[bool, bool, bool, str, str]:
    """Sorts by the rule of this module."""
    described, name = candidate.tools, topic.rpartition(".")[2]
    is_silent = user_invocable(topic) == "tool" and described is not None and name not in described
    is_star = topic not in candidate.patterns
    return (is_silent, is_star, candidate.is_bundled, candidate.installed_at, candidate.name)
