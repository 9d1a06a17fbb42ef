"""The questions of a lifecycle hook, on their way to whoever installs.

`OwnerElicitor` asks the connection that requested the activation, over the bus; the one-shot activator has
its own (`daemon.activate`).  Source: host-abi.md 1.11, daemon-kernel.md 9.3; cases ABI-30, ABI-31.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.capsule.manifest import EnvRow
from aos_runtime.host.context import ElicitQuestion
from aos_runtime.kernel.questions import ELICIT_TOPIC, Answer, Asked, Ending, Kind
from aos_runtime.policy.approval import spell_out
from aos_runtime.wire.payloads import ElicitRequest, ElicitResponse

ELICIT_TIMEOUT_S = 120.0

_encode = msgspec.json.Encoder().encode


class Reached(Enum):
    """What became of a question."""

    ANSWERED = "answered"
    TIMEOUT = "timeout"
    GONE = "gone"
    """Whoever installs has left: nothing may be kept."""


class ElicitAnswer(NamedTuple):
    """An answer; neither `value` nor `values` means: cancelled."""

    reached: Reached
    value: str | None = None
    values: tuple[str, ...] | None = None


Elicit = Callable[[str, ElicitQuestion], ElicitAnswer]
"""`(capsule, question)`: asks, and waits two minutes at most."""


class Asks(Protocol):
    """The part of `Questions` that elicitation uses."""

    def wait(self, asked: Asked, topic: str, body: bytes, kind: str) -> tuple[Ending, Answer | None]: ...


def onboarding_field(question: ElicitQuestion) -> dict[str, object]:
    """The question as `OnboardingField` (daemon-kernel.md 3.2), its texts spelled out."""
    prompt = spell_out(question.description) or f"Please enter value for {spell_out(question.key)}"
    kinds: dict[str, object] = {"text": "Text", "secret": "Secret", "array": "Array"}
    field: dict[str, object] = {
        "key": spell_out(question.key),
        "prompt": prompt,
        "field_type": kinds.get(question.kind, {"Enum": list(question.options)}),
    }
    if question.default is not None:
        field["default"] = question.default
    return field


def env_field(row: EnvRow) -> dict[str, object]:
    """An `[env]` row without a value as `OnboardingField`, its texts spelled out."""
    kind = "secret" if row.is_secret else row.type.lower()
    question = ElicitQuestion(
        kind="select" if row.enum_values else kind if kind in ("secret", "array") else "text",
        key=row.key,
        description=row.request or "",
        options=row.enum_values,
        default=row.default if isinstance(row.default, str) and not row.is_secret else None,
    )
    extras = {"description": row.description, "placeholder": row.placeholder}
    told = {name: spell_out(text) for name, text in extras.items() if text is not None}
    return {**onboarding_field(question), **told}


class OwnerElicitor:
    """Asks the owner of `cause`; GONE at once where there is none."""

    def __init__(self, questions: Asks, cause: Envelope, clock: Callable[[], float] = time.monotonic) -> None:
        self._questions = questions
        self._cause = cause
        self._clock = clock

    def __call__(self, capsule: str, question: ElicitQuestion) -> ElicitAnswer:
        if self._cause.request_owner is None:
            return ElicitAnswer(Reached.GONE)
        request_id = uuid.uuid4()
        asked = Asked(
            id=str(request_id),
            kind=Kind.ELICIT,
            cause=self._cause,
            capsule=capsule,
            subject={"key": spell_out(question.key), "description": spell_out(question.description)},
            asked_at_ms=time.time_ns() // 1_000_000,
            deadline=self._clock() + ELICIT_TIMEOUT_S,
        )
        body = _encode(ElicitRequest(request_id, capsule, onboarding_field(question)))
        ending, answer = self._questions.wait(asked, ELICIT_TOPIC, body, "elicit_request")
        if ending is Ending.ANSWERED and isinstance(answer, ElicitResponse):
            values = None if answer.values is None else tuple(answer.values)
            return ElicitAnswer(Reached.ANSWERED, answer.value, values)
        return ElicitAnswer(Reached.TIMEOUT if ending is Ending.TIMEOUT else Reached.GONE)
