"""What a principal may do: the capability grammar and the order in which a profile answers.

Source: daemon-kernel.md 9.1.  Order: enabled, revokes, grants, groups, then the scope of the device that
authenticated.  A global capability (`capsule:list`) never implies its own-principal form
(`self:capsule:list`).  This module reads no profile; one that could not be read is passed as None and may
do nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

MAX_CAPABILITY_BYTES = 256

BUILTIN_GROUPS: Mapping[str, tuple[str, ...]] = {
    "admin": ("*",),
    "agent": ("self:*", "self:quota:get", "self:agent:list", "delegate:self:*"),
    "restricted": (),
}
GROUP_DESCRIPTIONS: Mapping[str, str] = {
    "admin": "Everything",
    "agent": "What an agent may do to its own principal",
    "restricted": "Nothing that is not granted by name",
}

_SEGMENT = re.compile(r"[A-Za-z0-9_-]+|\*")


class Profile(Protocol):
    """The parts of a principal's profile that decide."""

    @property
    def enabled(self) -> bool: ...
    @property
    def groups(self) -> Sequence[str]: ...
    @property
    def grants(self) -> Sequence[str]: ...
    @property
    def revokes(self) -> Sequence[str]: ...


class Device(Protocol):
    """The scope of a device key; `allow` None means unscoped (`wire.handshake.KeyEntry` has both)."""

    @property
    def allow(self) -> Sequence[str] | None: ...
    @property
    def deny(self) -> Sequence[str]: ...


def capability_problem(text: str) -> str | None:
    """What is wrong with a capability or capability pattern; None where nothing is."""
    if not text:
        return "a capability is not empty"
    if len(text.encode("utf-8", "surrogatepass")) > MAX_CAPABILITY_BYTES:
        return f"a capability has at most {MAX_CAPABILITY_BYTES} bytes"
    if not all(_SEGMENT.fullmatch(segment) for segment in text.split(":")):
        return "segments between colons are letters, digits, hyphens and underscores, or a single `*`"
    return None


def covers_capability(pattern: str, capability: str) -> bool:
    """Whether a held `pattern` includes `capability`.

    A trailing `*` takes one or more segments, a lone `*` everything, a `*` in the middle exactly one.
    What breaks the grammar covers nothing and is covered by nothing.
    """
    if capability_problem(capability) is not None:  # what is then equal to a segment is one, or a `*`
        return False
    held, asked = pattern.split(":"), capability.split(":")
    if held[-1] == "*":
        return len(asked) >= len(held) and _match(held[:-1], asked)
    return len(held) == len(asked) and _match(held, asked)


def is_allowed(
    profile: Profile | None,
    capability: str,
    *,
    groups: Mapping[str, Sequence[str]] = BUILTIN_GROUPS,
    device: Device | None = None,
) -> bool:
    """Whether a principal with this profile may do what needs `capability`."""
    return _objection(profile, capability, groups, device) is None


def denial(
    principal: str,
    profile: Profile | None,
    capability: str,
    *,
    groups: Mapping[str, Sequence[str]] = BUILTIN_GROUPS,
    device: Device | None = None,
) -> str | None:
    """Why `principal` may not do what needs `capability`, in the published words; None where it may.

    `groups` are the built-in ones plus the operator's; `device` is the key that the connection
    authenticated with.
    """
    objection = _objection(profile, capability, groups, device)
    return None if objection is None else f"permission denied for principal {principal}: {objection}"


class Source(NamedTuple):
    """A pattern that gives or takes a capability, and where it stands: `grant`, `revoke` or `group NAME`."""

    pattern: str
    origin: str


class Explanation(NamedTuple):
    """Why a principal may or may not do something.  `denial` is None where it may."""

    denial: str | None
    gives: tuple[Source, ...]
    """Every pattern that gives the capability, also where a revoke takes it away again."""
    takes: tuple[Source, ...]
    """Every pattern that revokes it."""


def explain(
    principal: str,
    profile: Profile | None,
    capability: str,
    *,
    groups: Mapping[str, Sequence[str]] = BUILTIN_GROUPS,
) -> Explanation:
    """Why `principal` may or may not do what needs `capability`: every source, not only the first."""
    problem = denial(principal, profile, capability, groups=groups)
    if profile is None:
        return Explanation(problem, (), ())
    given = [Source(pattern, "grant") for pattern in profile.grants]
    given += [
        Source(pattern, f"group {group}") for group in profile.groups for pattern in groups.get(group, ())
    ]
    gives = tuple(source for source in given if covers_capability(source.pattern, capability))
    takes = tuple(
        Source(pattern, "revoke") for pattern in profile.revokes if covers_capability(pattern, capability)
    )
    return Explanation(problem, gives, takes)


def ungrantable(
    profile: Profile | None,
    patterns: Iterable[str],
    *,
    groups: Mapping[str, Sequence[str]] = BUILTIN_GROUPS,
    device: Device | None = None,
) -> str | None:
    """The first of `patterns` that whoever has `profile` does not hold whole, and so may not give to others.

    A pattern is held where a held one covers all that it covers, and nothing that is revoked, or denied to
    the device, is among that.
    """
    taken = (*(profile.revokes if profile else ()), *(device.deny if device else ()))
    return next(
        (
            pattern
            for pattern in patterns
            if _objection(profile, pattern, groups, device) is not None
            or any(_overlap(pattern, one) for one in taken)
        ),
        None,
    )


def _objection(
    profile: Profile | None, capability: str, groups: Mapping[str, Sequence[str]], device: Device | None
) -> str | None:
    if profile is None:
        return f"missing capability {capability}"
    if not profile.enabled:
        return "agent is disabled"
    revoked = _first_covering(profile.revokes, capability)
    if revoked is not None:
        return f"capability {capability} is revoked via {revoked}"
    granted = (*profile.grants, *(held for group in profile.groups for held in groups.get(group, ())))
    if _first_covering(granted, capability) is None:
        return f"missing capability {capability}"
    if device is not None and not _is_in_scope(device, capability):
        return f"capability {capability} is outside the authenticating device's scope"
    return None


def _is_in_scope(device: Device, capability: str) -> bool:
    if device.allow is None:
        return True
    allowed = _first_covering(device.allow, capability) is not None
    return allowed and _first_covering(device.deny, capability) is None


def _first_covering(patterns: Sequence[str], capability: str) -> str | None:
    return next((pattern for pattern in patterns if covers_capability(pattern, capability)), None)


def _overlap(one: str, other: str) -> bool:
    """Whether there is a capability that both patterns cover."""
    short, long = sorted((one.split(":"), other.split(":")), key=len)
    if len(short) < len(long) and short[-1] != "*":
        return False
    return all(mine == its or "*" in (mine, its) for mine, its in zip(short, long, strict=False))


def _match(held: list[str], asked: list[str]) -> bool:
    return all(want in ("*", have) for want, have in zip(held, asked, strict=False))
