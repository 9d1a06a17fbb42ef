"""The people that one capsule may ask about and change: gate, names, room, store, record, in this order.

Source: host-abi.md 1.12, architecture section 4 (gate, act, audit, result).  All capsules of a principal
share its people, as far as each one's `identity` level goes; nobody sees another principal's (ADR 0019).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aos_runtime.errors import AosError
from aos_runtime.kernel.outside import Note
from aos_runtime.names import PrincipalName
from aos_runtime.policy.capability_gate import CapabilityDenial, check_identity
from aos_runtime.policy.platforms import (
    MAX_ID_CHARACTERS,
    MAX_METHOD_CHARACTERS,
    MAX_NAME_CHARACTERS,
    read_platform,
    read_text,
    read_user_id,
)
from aos_runtime.store.file_tree import FileRefused, Grow
from aos_runtime.store.identity import IdentityCase, IdentityRefused, IdentityStore, Link, User

_T = TypeVar("_T")
NEW_ENTRY_BYTES = 1024
"""What a user or a link is counted as against the principal's storage."""


class GuestIdentities:
    """`host.people.Identities` of one instance.

    `held` are its levels, `grow` asks for room, `denied` and `note` hear of refusals and of every call,
    `report` of a store that fails.
    """

    def __init__(
        self,
        store: IdentityStore,
        principal: PrincipalName,
        held: tuple[str, ...],
        grow: Grow,
        note: Note,
        denied: Callable[[CapabilityDenial], None],
        report: Callable[[str], None],
    ) -> None:
        self._store = store
        self._principal = principal
        self._held = held
        self._grow = grow
        self._note = note
        self._denied = denied
        self._report = report

    def resolve(self, platform: str, platform_user: str) -> User:
        return self._run(
            "identity-resolve",
            f"{platform}:{platform_user}",
            lambda: self._store.resolve(self._principal, *_person(platform, platform_user)),
        )

    def link(self, platform: str, platform_user: str, user: str, method: str) -> None:
        def act() -> None:
            person, known = _person(platform, platform_user), _valid(read_user_id(user))
            how = _valid(read_text(method, MAX_METHOD_CHARACTERS))
            self._make_room()
            self._store.link(self._principal, *person, known, how)

        self._run("identity-link", f"{platform}:{platform_user}", act)

    def unlink(self, platform: str, platform_user: str) -> None:
        self._run(
            "identity-unlink",
            f"{platform}:{platform_user}",
            lambda: self._store.unlink(self._principal, *_person(platform, platform_user)),
        )

    def create_user(self, name: str | None) -> str:
        def act() -> str:
            shown = None if name is None else _valid(read_text(name, MAX_NAME_CHARACTERS))
            self._make_room()
            return self._store.create_user(self._principal, shown)

        return self._run("identity-create-user", "", act)

    def links(self, user: str) -> tuple[Link, ...]:
        return self._run(
            "identity-list-links",
            user,
            lambda: self._store.links(self._principal, _valid(read_user_id(user))),
        )

    def _run(self, operation: str, target: str, act: Callable[[], _T]) -> _T:
        """Ask the gate, act, and put on record how it ended, before the guest hears of it."""
        call = operation.replace("-", ".", 1)
        denial = check_identity(operation, self._held, target)
        try:
            if denial is not None:
                self._denied(denial)
                raise IdentityRefused(IdentityCase.DENIED)
            answer = act()
        except IdentityRefused as refusal:
            self._note(call, target, refusal.case.value)
            raise
        except AosError as error:
            self._report(error.message)
            self._note(call, target, IdentityCase.UNAVAILABLE.value)
            raise IdentityRefused(IdentityCase.UNAVAILABLE) from error
        self._note(call, target, None)
        return answer

    def _make_room(self) -> None:
        try:
            self._grow(NEW_ENTRY_BYTES)
        except FileRefused as refusal:
            raise IdentityRefused(
                IdentityCase.UNKNOWN, "the principal's storage quota is used up"
            ) from refusal


def _person(platform: str, platform_user: str) -> tuple[str, str]:
    return _valid(read_platform(platform)), _valid(read_text(platform_user, MAX_ID_CHARACTERS))


def _valid(text: str | None) -> str:
    if text is None:
        raise IdentityRefused(IdentityCase.INVALID)
    return text
