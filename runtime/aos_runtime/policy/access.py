"""Which of a principal's capsules it may call, and whether rates bind it: what a profile comes to.

Source: daemon-kernel.md 4.5, 7; the relation of view and grant is docs/adr/0011.  A capsule in a principal's
view may be called on a user-invocable surface if it came with aos, if the profile names it, or if the
principal holds `capsule:access:any`.  A `Standing` is computed when a profile is read, so that the hot path
asks a set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aos_runtime.capsule.topics import TOOL_DESCRIBE
from aos_runtime.policy.authority import BUILTIN_GROUPS, Profile, is_allowed
from aos_runtime.policy.quotas import EXEMPT_CAPABILITIES

ACCESS_ANY = "capsule:access:any"
_LISTING = ("self:capsule:list", "capsule:list")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a principal's profile means to the bus.  The default is that of nobody: nothing at all."""

    enabled: bool = False
    capsules: frozenset[str] = frozenset()
    """Granted by name."""
    uses_any: bool = False
    lists: bool = False
    """It may see what its capsules offer, also those that it may not call."""
    is_exempt: bool = False
    """Measured, and held to no rate."""

    def may_call(self, capsule: str, *, is_bundled: bool) -> bool:
        """Whether the capsule, which is in the principal's view, may be called on its surfaces."""
        return self.enabled and (self.uses_any or is_bundled or capsule in self.capsules)

    def may_see(self, capsule: str, *, is_bundled: bool) -> bool:
        """Whether the capsule may be asked what it offers."""
        return self.enabled and (self.lists or self.may_call(capsule, is_bundled=is_bundled))


NOBODY = Standing()
UNRESTRICTED = Standing(enabled=True, uses_any=True, lists=True, is_exempt=True)

DESCRIBE_SURFACES = frozenset((TOOL_DESCRIBE, "llm.v1.request.describe"))
"""Where capsules are asked what they offer: seen by whoever may call them or list capsules."""


def standing_of(
    profile: Profile | None,
    capsules: Sequence[str] = (),
    *,
    groups: Mapping[str, Sequence[str]] = BUILTIN_GROUPS,
) -> Standing:
    """The standing of a principal with this profile; that of nobody where there is none."""
    if profile is None or not profile.enabled:
        return NOBODY

    def holds(capability: str) -> bool:
        return is_allowed(profile, capability, groups=groups)

    return Standing(
        enabled=True,
        capsules=frozenset(capsules),
        uses_any=holds(ACCESS_ANY),
        lists=any(map(holds, _LISTING)),
        is_exempt=any(map(holds, EXEMPT_CAPABILITIES)),
    )
