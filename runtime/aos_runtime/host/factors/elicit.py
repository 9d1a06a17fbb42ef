"""astrid:elicit/host@1.0.0 (host-abi.md 1.11): a lifecycle hook asks the person who installs.

Only hooks may ask: elsewhere it is `not-in-lifecycle` at once, where the published runtime asks.  A secret
never comes back to the guest, only that it is kept.
"""

from __future__ import annotations

from typing import Any

from aos_runtime.errors import AosError
from aos_runtime.host.codecs import Case, Err
from aos_runtime.host.context import ElicitQuestion, GuestContext
from aos_runtime.host.factors.factor import published
from aos_runtime.host.wit import BOOL, STRING, Enum, ListOf, Option, Record, Result, Variant

MAX_KEY_CHARACTERS = 128
MAX_DESCRIPTION_CHARACTERS = 4096
MAX_OPTIONS = 256
MAX_OPTION_CHARACTERS = 1024


def elicit(context: GuestContext, request: dict[str, Any]) -> Case | Err:
    """The answer to one question; it may take two minutes."""
    if context.elicit is None:
        return Err("not-in-lifecycle")
    question = ElicitQuestion(
        kind=request["kind"],
        key=request["key"].strip(),
        description=request["description"],
        options=tuple(request["options"] or ()),
        default=request["default-value"],
    )
    if not is_valid(question):
        return Err("invalid-input")
    context.before_block()
    answer = context.elicit(question)
    if isinstance(answer, Err):
        return answer
    if question.kind == "secret":
        return Case("secret-stored")
    return Case("values", list(answer)) if isinstance(answer, tuple) else Case("value", answer)


def has_secret(context: GuestContext, key: str) -> bool | Err:
    """Whether a secret is kept under `key`; an empty one is none."""
    if context.has_secret is None:
        return False
    context.before_block()
    try:
        return context.has_secret(key)
    except AosError:
        return Err("store-unavailable")


def is_valid(question: ElicitQuestion) -> bool:
    """Whether the question can be asked: sizes, options where there is a choice, a default that is one."""
    if not question.key or len(question.key) > MAX_KEY_CHARACTERS:
        return False
    if len(question.description) > MAX_DESCRIPTION_CHARACTERS or len(question.options) > MAX_OPTIONS:
        return False
    if any(not one or len(one) > MAX_OPTION_CHARACTERS for one in question.options):
        return False
    if question.default is not None and question.kind in ("secret", "array"):
        return False
    if question.kind != "select":
        return True
    return bool(question.options) and (question.default is None or question.default in question.options)


_ERROR = Variant(
    (
        ("not-in-lifecycle", None),
        ("timeout", None),
        ("cancelled", None),
        ("invalid-input", None),
        ("store-unavailable", None),
        ("unknown", STRING),
    )
)
_KIND = Enum(("text", "secret", "select", "array"))
_REQUEST = Record(
    (
        ("kind", _KIND),
        ("key", STRING),
        ("description", STRING),
        ("options", Option(ListOf(STRING))),
        ("default-value", Option(STRING)),
    )
)
_RESPONSE = Variant((("value", STRING), ("values", ListOf(STRING)), ("secret-stored", None)))

FUNCTIONS = {
    "elicit": published(elicit, Result(_RESPONSE, _ERROR), request=_REQUEST),
    "has-secret": published(has_secret, Result(BOOL, _ERROR), key=STRING),
}
