"""astrid:identity/host@1.0.0 (host-abi.md 1.12): the people of this principal, and who they are elsewhere.

Gate, limits and record are behind the context's port; everything here may wait for a disk.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from aos_runtime.host.codecs import Err
from aos_runtime.host.context import DENIED, GuestContext
from aos_runtime.host.factors.factor import published
from aos_runtime.host.people import Identities
from aos_runtime.host.wit import STRING, ListOf, Option, Record, Result, Type, Variant
from aos_runtime.store.identity import IdentityCase, IdentityRefused

_T = TypeVar("_T")


def resolve(context: GuestContext, request: dict[str, str]) -> dict[str, object] | Err:
    """Who somebody on a platform is."""
    found = _attempt(context, lambda people: people.resolve(request["platform"], request["platform-user-id"]))
    return found if isinstance(found, Err) else {"user-id": found.id, "display-name": found.name}


def link(context: GuestContext, request: dict[str, str]) -> Err | None:
    """Note who a user is on a platform."""
    return _attempt(
        context,
        lambda people: people.link(
            request["platform"], request["platform-user-id"], request["astrid-user-id"], request["method"]
        ),
    )


def unlink(context: GuestContext, request: dict[str, str]) -> Err | None:
    """Forget who somebody on a platform is."""
    return _attempt(context, lambda people: people.unlink(request["platform"], request["platform-user-id"]))


def create_user(context: GuestContext, request: dict[str, Any]) -> dict[str, str] | Err:
    """A new user."""
    made = _attempt(context, lambda people: people.create_user(request["display-name"]))
    return made if isinstance(made, Err) else {"user-id": made}


def list_links(context: GuestContext, user: str) -> list[dict[str, str]] | Err:
    """Who a user is elsewhere."""
    found = _attempt(context, lambda people: people.links(user))
    if isinstance(found, Err):
        return found
    return [
        {
            "platform": one.platform,
            "platform-user-id": one.platform_user,
            "linked-at": datetime.fromtimestamp(one.linked_ms / 1000, UTC).isoformat(timespec="milliseconds"),
            "method": one.method,
        }
        for one in found
    ]


def _attempt(context: GuestContext, operation: Callable[[Identities], _T]) -> _T | Err:
    """What the port answers; its refusal as an err arm."""
    people = context.identities
    if people is None:
        return Err(DENIED)
    context.before_block()
    try:
        return operation(people)
    except IdentityRefused as refusal:
        return Err(refusal.case, refusal.detail if refusal.case is IdentityCase.UNKNOWN else None)


_ERROR = Variant(
    (
        ("capability-denied", None),
        ("invalid-input", None),
        ("user-not-found", None),
        ("link-not-found", None),
        ("already-linked", None),
        ("store-unavailable", None),
        ("unknown", STRING),
    )
)
_PERSON = (("platform", STRING), ("platform-user-id", STRING))
_RESOLVED = Record((("user-id", STRING), ("display-name", Option(STRING))))
_LINK = Record((*_PERSON, ("astrid-user-id", STRING), ("method", STRING)))
_LISTED = Record((*_PERSON, ("linked-at", STRING), ("method", STRING)))


def _fallible(ok: Type | None) -> Result:
    return Result(ok, _ERROR)


FUNCTIONS = {
    "identity-resolve": published(resolve, _fallible(_RESOLVED), request=Record(_PERSON)),
    "identity-link": published(link, _fallible(None), request=_LINK),
    "identity-unlink": published(unlink, _fallible(None), request=Record(_PERSON)),
    "identity-create-user": published(
        create_user,
        _fallible(Record((("user-id", STRING),))),
        request=Record((("display-name", Option(STRING)),)),
    ),
    "identity-list-links": published(list_links, _fallible(ListOf(_LISTED)), astrid_user_id=STRING),
}
