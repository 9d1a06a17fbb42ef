"""Who may connect and what they may do, read from the profiles on disk each time it is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aos_runtime.errors import AosError
from aos_runtime.home import Home
from aos_runtime.kernel.answers import AgentProfile
from aos_runtime.names import PrincipalName
from aos_runtime.policy.authority import BUILTIN_GROUPS, is_allowed
from aos_runtime.store.groups import read_groups
from aos_runtime.store.principals import DeviceKey, Profile, list_profiles, read_profile
from aos_runtime.wire.handshake import KeyEntry

KEY_METHOD = "keypair"


class Rights:
    """Implements `requests.Profiles`, and finds keys for the handshake."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def profile(self, principal: PrincipalName) -> Profile | None:
        """Errors as `store.principals.read_profile`."""
        return read_profile(self._home, principal)

    def full_profile(self, principal: PrincipalName) -> Profile | None:
        """Implements `principals.Profiles`."""
        return self.profile(principal)

    def groups(self) -> Mapping[str, Sequence[str]]:
        """The capabilities of every group: the built-in ones, which no file can change, and the operator's.

        Errors as `store.groups.read_groups`.
        """
        made = {name: group.capabilities for name, group in read_groups(self._home).items()}
        return {**made, **BUILTIN_GROUPS}

    def device(self, principal: PrincipalName, key_id: str) -> KeyEntry | None:
        profile = self.profile(principal)
        keys = () if profile is None else profile.public_keys
        return next((_entry(key) for key in keys if key.key_id == key_id), None)

    def find_keys(self, principal: PrincipalName) -> tuple[KeyEntry, ...] | None:
        """The keys of a principal that may authenticate with one; an unreadable profile may not."""
        try:
            profile = self.profile(principal)
        except AosError:
            return None
        if profile is None or not profile.enabled or KEY_METHOD not in profile.auth_methods:
            return None
        return tuple(_entry(key) for key in profile.public_keys)

    def may(self, principal: PrincipalName, capability: str) -> bool:
        """Whether a principal holds a capability; errors as `profile` and `groups`."""
        return is_allowed(self.profile(principal), capability, groups=self.groups())

    def may_list_agents(self, principal: PrincipalName) -> bool:
        return self.may(principal, "agent:list")

    def agents(self, only: PrincipalName | None) -> Iterator[AgentProfile]:
        """Every profile, or the one named.  One that cannot be read is left out."""
        for principal in list_profiles(self._home):
            if only is not None and principal != only:
                continue
            try:
                profile = self.profile(principal)
            except AosError:
                continue
            if profile is not None:
                yield AgentProfile(
                    principal=principal,
                    enabled=profile.enabled,
                    groups=profile.groups,
                    grants=profile.grants,
                    revokes=profile.revokes,
                    capsules=profile.capsules,
                )


def _entry(key: DeviceKey) -> KeyEntry:
    return KeyEntry(key.key_id, key.public_key, None if key.is_full else key.allow, key.deny)
