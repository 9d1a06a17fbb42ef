"""What the admin requests share: the store, who may give what, and how a change reaches the running bus.

Every change of profiles and groups is made under one lock, between threads and processes, and is in force
when its answer is sent.  Source: daemon-kernel.md 5.3, 9.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from aos_runtime.errors import Conflict, Denied, InvalidInput, NotFound
from aos_runtime.home import Home
from aos_runtime.kernel.lifecycle import Lifecycle
from aos_runtime.kernel.principals import Principals
from aos_runtime.kernel.principals import Profiles as StandingProfiles
from aos_runtime.kernel.requests import Caller
from aos_runtime.kernel.requests import Profiles as RequestProfiles
from aos_runtime.names import ANONYMOUS_PRINCIPAL, DEFAULT_PRINCIPAL, PrincipalName, parse_principal_name
from aos_runtime.policy.authority import BUILTIN_GROUPS, capability_problem, ungrantable
from aos_runtime.store.kv import KvStore
from aos_runtime.store.storage import Storage

UNIVERSAL = "*"


class Rights(StandingProfiles, RequestProfiles, Protocol):
    """Profiles, groups and device keys, read anew each time."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """Where principals are administered.

    `expel(principal)` ends those of its connections that could not be made now; each of `deleted` forgets a
    principal that is gone, so that a new one of its name begins with nothing.
    """

    home: Home
    state: KvStore
    storage: Storage
    rights: Rights
    principals: Principals
    lifecycle: Lifecycle
    apply_standings: Callable[[], None]
    expel: Callable[[PrincipalName], None]
    deleted: tuple[Callable[[PrincipalName], None], ...] = ()
    now: Callable[[], datetime] = field(default=_now)

    def applied(self, *changed: PrincipalName) -> None:
        """Put what was changed in force: for these principals, or for all that are known."""
        names = changed or self.principals.known()
        for principal in names:
            self.principals.refresh(principal)
        self.apply_standings()
        for principal in names:
            self.expel(principal)

    def check_groups(self, names: Iterable[str]) -> None:
        """NotFound `group-unknown` unless every name is a group."""
        known = self.rights.groups()
        for name in names:
            if name not in known:
                raise NotFound(
                    "group-unknown",
                    f"group '{name}' does not exist",
                    hint="`aos group list` shows them",
                    name=name,
                )

    def check_giving(self, caller: Caller, capabilities: Iterable[str], groups: Iterable[str] = ()) -> None:
        """Denied `escalation` where the caller would give what it does not hold itself."""
        known = self.rights.groups()
        wanted = [*capabilities, *(held for name in groups for held in known.get(name, ()))]
        profile = self.rights.profile(caller.principal)
        key_id = caller.device_key_id
        device = None if key_id is None else self.rights.device(caller.principal, key_id)
        missing = ungrantable(profile, wanted, groups=known, device=device)
        if missing is not None:
            raise Denied(
                "escalation",
                f"permission denied for principal {caller.principal}: "
                f"cannot give {missing}, which it does not hold",
                hint="ask a principal that holds it",
                capability=missing,
            )


def existing_name(text: object) -> PrincipalName:
    """A principal that may have a profile.  Conflict `principal-reserved` for `anonymous`."""
    principal = parse_principal_name(str(text))
    if principal == ANONYMOUS_PRINCIPAL:
        raise Conflict(
            "principal-reserved",
            "principal 'anonymous' has no profile and no capabilities",
            hint="it stands for clients without a key",
        )
    return principal


def not_default(principal: PrincipalName, what: str) -> None:
    """Conflict `principal-default`: the home would have nobody left who administers it."""
    if principal == DEFAULT_PRINCIPAL:
        raise Conflict(
            "principal-default", f"principal 'default' cannot {what}", hint="it administers this home"
        )


def check_capabilities(capabilities: Iterable[str], *, unsafe_admin: bool) -> None:
    """InvalidInput `capability` for what is none, `unsafe-admin` for `*` where it was not agreed to."""
    for text in capabilities:
        problem = capability_problem(text)
        if problem is not None:
            raise InvalidInput(
                "capability",
                f"{text[:160]!r} is no capability: {problem}",
                hint="for example capsule:install",
            )
        if text == UNIVERSAL and not unsafe_admin:
            raise InvalidInput(
                "unsafe-admin",
                "'*' is every capability there is and will be; it needs unsafe_admin",
                hint="grant what is needed by name, or pass --unsafe-admin",
            )


def is_builtin(group: str) -> bool:
    return group in BUILTIN_GROUPS
