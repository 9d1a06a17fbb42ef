"""What a refused publish or subscribe says in the log: one line, with the manifest row that would allow it.

The guest gets a bare error case; its author reads here which rule it was.  Topics are guest text: they are
quoted as JSON, so a line stays one line and a field stays one field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aos_runtime.capsule.topics import topic_problem
from aos_runtime.policy.denial_line import render_denial
from aos_runtime.policy.publish import (
    MAX_PAYLOAD_BYTES,
    OTHERS_RECEIPTS,
    IpcRefusal,
    Refusal,
    is_reserved,
    topic_refusal,
)

Operation = Literal["publish", "publish-as", "subscribe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """One refusal.  `allow` is the row of `Capsule.toml` that would allow it, None where none would."""

    operation: Operation
    topic: str
    case: IpcRefusal
    rule: str
    allow: str | None = None

    @property
    def kind(self) -> tuple[str, str, str]:
        """What repeats are told by."""
        return self.operation, self.topic, self.rule

    def render(self, *, repeated: int = 0) -> str:
        """One line for the capsule's log (`policy.denial_line`)."""
        named = ("topic", self.topic)
        return render_denial(
            self.operation, named, self.rule, case=self.case.value, allow=self.allow, repeated=repeated
        )


def publish_denial(
    topic: str, patterns: Sequence[str], case: IpcRefusal, operation: Operation = "publish"
) -> Denial:
    """Why a publish on `topic` was refused with `case`."""
    if is_reserved(topic):
        return Denial(operation=operation, topic=topic, case=case, rule="the namespace is the kernel's own")
    problem = topic_problem(topic)
    if problem is not None:
        return Denial(operation=operation, topic=topic, case=case, rule=problem)
    if topic_refusal(topic, patterns) is None:
        rule = f"the payload is no JSON of at most {MAX_PAYLOAD_BYTES} bytes"
        return Denial(operation=operation, topic=topic, case=case, rule=rule)
    return Denial(
        operation=operation,
        topic=topic,
        case=case,
        rule="no [publish] row covers it",
        allow=f'[publish] "{topic}" = {{ wit = "opaque" }}',
    )


def uplink_denial(topic: str) -> Denial:
    """`publish-as` by a capsule that is no uplink."""
    return Denial(
        operation="publish-as",
        topic=topic,
        case=IpcRefusal.CAPABILITY_DENIED,
        rule="only an uplink speaks for others",
        allow="[capabilities] uplink = true",
    )


def subscribe_denial(pattern: str, refusal: Refusal) -> Denial:
    """Why a subscription to `pattern` was refused."""
    allow = None
    if refusal.case is IpcRefusal.CAPABILITY_DENIED and refusal.rule != OTHERS_RECEIPTS:
        allow = f'[subscribe] "{pattern}" = {{ wit = "opaque" }}'
    return Denial(operation="subscribe", topic=pattern, case=refusal.case, rule=refusal.rule, allow=allow)
