"""What a guest may publish on and subscribe to, under the rows of its manifest.

Source: daemon-kernel.md 4.2 and 4.3, host-abi.md 1.3; case BUS-02.  The order of checks is part of the
contract.  Rates and the JSON check stand between and after these and belong to the caller (`rates`,
`wire.payloads.normalise`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from aos_runtime.capsule.topics import MAX_TOPIC_BYTES, covers, subscription_problem, topic_problem

MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_SUBSCRIPTIONS = 128
MAX_CACHED_TOPICS = 4096

DELIVERY_FAILURE = "astrid.v1.delivery.failure"
RESERVED_NAMESPACES = (
    DELIVERY_FAILURE,
    "astrid.v1.response.failure",
    "astrid.v1.approval",
    "astrid.v1.elicit",
    "astrid.v1.grant",
)
"""Only the kernel reports failures and asks people, only the front door brings their answers: a guest that
could would forge them.
"""

RECEIPTS = f"{DELIVERY_FAILURE}."
OTHERS_RECEIPTS = f"a capsule hears of its own deliveries only, on {RECEIPTS}<id or *>"

_RESERVED_PREFIXES = tuple(f"{name}." for name in RESERVED_NAMESPACES)


class IpcRefusal(StrEnum):
    """The cases of `astrid:ipc/host` error-code that a gate answers with; the value is the WIT name."""

    CAPABILITY_DENIED = "capability-denied"
    INVALID_INPUT = "invalid-input"
    RATE_LIMITED = "rate-limited"
    QUOTA = "quota"


class Refusal(NamedTuple):
    """A refused subscription: the error case, and the rule that was broken, for the log."""

    case: IpcRefusal
    rule: str


def is_reserved(topic: str) -> bool:
    """Whether `topic` lies in a namespace on which no guest ever publishes."""
    return f"{topic}.".startswith(_RESERVED_PREFIXES)


def topic_refusal(topic: str, patterns: Sequence[str]) -> IpcRefusal | None:
    """The static part: may a capsule with these `[publish]` patterns publish on `topic` at all?

    Reserved topics, then shape, length and depth, then the ACL.  No patterns: nothing may be published.
    """
    if is_reserved(topic):
        return IpcRefusal.CAPABILITY_DENIED
    if topic_problem(topic) is not None:
        return IpcRefusal.INVALID_INPUT
    if not any(covers(pattern, topic) for pattern in patterns):
        return IpcRefusal.CAPABILITY_DENIED
    return None


def is_refused_early(topic: str) -> bool:
    """Whether `topic` is refused before the rate is looked at: a reserved one, or one that is too long."""
    return (
        f"{topic}.".startswith(_RESERVED_PREFIXES) or len(topic.encode("utf-8", "replace")) > MAX_TOPIC_BYTES
    )


class PublishGate:
    """What one capsule may publish, rate and JSON aside; the static part is remembered in a bounded table."""

    __slots__ = ("_known", "_patterns")

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self._known: dict[str, IpcRefusal | None] = {}

    def check(self, topic: str, size_bytes: int) -> IpcRefusal | None:
        """Why this publish is refused, None where it is not.  0.1 us when cached."""
        try:
            refusal = self._known[topic]
        except KeyError:
            refusal = self._learn(topic)
        if refusal is None and size_bytes > MAX_PAYLOAD_BYTES:
            return IpcRefusal.INVALID_INPUT
        return refusal

    def _learn(self, topic: str) -> IpcRefusal | None:
        if len(self._known) >= MAX_CACHED_TOPICS:
            self._known.clear()
        refusal = self._known[topic] = topic_refusal(topic, self._patterns)
        return refusal


def subscribe_refusal(pattern: str, rows: Sequence[str], live: int) -> Refusal | None:
    """Why a guest may not subscribe to `pattern` at run time; None where it may.

    `rows` are the topics of its `[subscribe]` table, `live` how many subscriptions this instance holds.
    """
    problem = subscription_problem(pattern)
    if problem is not None:
        return Refusal(IpcRefusal.INVALID_INPUT, problem)
    if pattern.startswith(RECEIPTS) and pattern.count(".", len(RECEIPTS)):
        return Refusal(IpcRefusal.CAPABILITY_DENIED, OTHERS_RECEIPTS)
    if not any(covers(row, pattern) for row in rows):
        rule = f"no [subscribe] row of this capsule covers {pattern}"
        return Refusal(IpcRefusal.CAPABILITY_DENIED, rule)
    if live >= MAX_SUBSCRIPTIONS:
        return Refusal(IpcRefusal.QUOTA, f"a capsule holds at most {MAX_SUBSCRIPTIONS} subscriptions")
    return None
