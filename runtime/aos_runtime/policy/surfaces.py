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
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aos_runtime.capsule.topics import matches_dispatch, user_invocable
from aos_runtime.names import CapsuleName


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

    __slots__ = ("_bound", "_candidates", "shadowed")

    def __init__(self, candidates: tuple[Candidate, ...]) -> None:
        self._candidates = candidates
        self._bound: dict[str, CapsuleName] = {}
        shadowed: list[Shadowed] = []
        for topic in sorted({pattern for one in candidates for pattern in one.patterns}):
            if "*" in topic or user_invocable(topic) is None:
                continue
            winner, *losers = _ranked(candidates, topic)
            self._bound[topic] = winner
            shadowed += (Shadowed(topic=topic, winner=winner, loser=loser) for loser in losers)
        self.shadowed: tuple[Shadowed, ...] = tuple(shadowed)
        """Every capsule that lost a topic that somebody names, sorted by topic, then rank."""

    def provider_of(self, topic: str) -> CapsuleName | None:
        """The capsule that serves a user-invocable topic; None where nobody does, or for any other topic."""
        bound = self._bound.get(topic)
        if bound is not None or user_invocable(topic) is None:
            return bound
        return next(iter(_ranked(self._candidates, topic)), None)

    def topics(self) -> tuple[str, ...]:
        """The user-invocable topics that some row names, sorted."""
        return tuple(self._bound)


def bind_providers(candidates: Iterable[Candidate]) -> Surfaces:
    """Bind the surfaces of one principal by the rule of this module; the order of `candidates` does not
    matter.
    """
    return Surfaces(tuple(sorted(candidates, key=lambda one: one.name)))


def _ranked(candidates: Iterable[Candidate], topic: str) -> list[CapsuleName]:
    serving = [one for one in candidates if any(matches_dispatch(row, topic) for row in one.patterns)]
    return [one.name for one in sorted(serving, key=lambda one: _rank(one, topic))]


def _rank(candidate: Candidate, topic: str) -> tuple[bool, bool, bool, str, str]:
    name = topic.rpartition(".")[2]
    is_silent = (
        user_invocable(topic) == "tool" and candidate.tools is not None and name not in candidate.tools
    )
    return (
        is_silent,
        topic not in candidate.patterns,
        candidate.is_bundled,
        candidate.installed_at,
        candidate.name,
    )
