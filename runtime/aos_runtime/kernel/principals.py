"""Who the principals are, as the bus knows them: standing and budget of each, read when a profile changes.

The hot path asks this room and never a disk.  A profile that cannot be read gives nothing.  What a profile
allows is decided in `policy`; here it is only kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from aos_runtime.errors import AosError
from aos_runtime.kernel.budget import MAX_FUEL_PER_CALL, Budget
from aos_runtime.names import PrincipalName
from aos_runtime.policy.access import NOBODY, Standing, standing_of
from aos_runtime.policy.authority import Profile
from aos_runtime.policy.bounds import EGRESS, Bounds
from aos_runtime.policy.quotas import Quotas, quotas_of


class FullProfile(Profile, Protocol):
    """The parts of a profile that count here."""

    @property
    def capsules(self) -> Sequence[str]: ...
    @property
    def quotas(self) -> Mapping[str, int]: ...
    @property
    def egress(self) -> Sequence[str] | None: ...
    @property
    def programs(self) -> Sequence[str] | None: ...
    @property
    def warnings(self) -> Sequence[str]: ...


class Profiles(Protocol):
    """Where profiles and groups are read, anew each time."""

    def full_profile(self, principal: PrincipalName) -> FullProfile | None: ...

    def groups(self) -> Mapping[str, Sequence[str]]: ...


class Principals:
    """Standings and budgets of the principals that something was loaded for.

    `base` are the quotas of a profile that says nothing; `note(level, sentence)` tells the log.
    """

    def __init__(
        self,
        profiles: Profiles,
        *,
        base: Quotas,
        fuel_ceiling: int = MAX_FUEL_PER_CALL,
        note: Callable[[str, str], None] = lambda level, text: None,
    ) -> None:
        self._profiles = profiles
        self._base = base
        self._fuel_ceiling = fuel_ceiling
        self._note = note
        self._lock = threading.Lock()
        self._standings: dict[PrincipalName, Standing] = {}
        self._budgets: dict[PrincipalName, Budget] = {}
        self._bounds: dict[PrincipalName, Bounds] = {}
        self._warned: dict[PrincipalName, tuple[str, ...]] = {}
        """What the log was told of a profile: each of its warnings once."""

    def standing(self, principal: PrincipalName) -> Standing:
        """What it may call, as of the last refresh; that of nobody for one that was never refreshed."""
        return self._standings.get(principal, NOBODY)

    def bounds(self, principal: PrincipalName) -> Bounds:
        """The most that its capsules may reach and start, as of the last refresh; nothing before one."""
        found = self._bounds.get(principal)
        return found if found is not None else Bounds(principal, (), ())

    def budget(self, principal: PrincipalName) -> Budget:
        """The budget of a principal, the same object for the life of the daemon."""
        found = self._budgets.get(principal)
        return found if found is not None else self._refreshed(principal)

    def storage_limit(self, principal: PrincipalName) -> int:
        """Bytes that all capsules of a principal may store together."""
        return self.budget(principal).quotas.max_storage_bytes

    def known(self) -> tuple[PrincipalName, ...]:
        """Every principal that was refreshed and not forgotten."""
        return tuple(self._budgets)

    def refresh(self, principal: PrincipalName) -> None:
        """Read a principal's profile and groups anew; blocks."""
        self._refreshed(principal)

    def forget(self, principal: PrincipalName) -> None:
        """It was deleted: nothing is allowed any more, and what it used is forgotten."""
        with self._lock:
            for kept in (self._standings, self._budgets, self._bounds, self._warned):
                kept.pop(principal, None)

    def quotas(self, principal: PrincipalName) -> Quotas:
        """The quotas that hold for a principal, read now."""
        profile = self._profiles.full_profile(principal)
        return self._base if profile is None else quotas_of(profile.quotas, self._base)

    def _refreshed(self, principal: PrincipalName) -> Budget:
        try:
            profile = self._profiles.full_profile(principal)
            groups = self._profiles.groups()
        except AosError as error:
            self._note("error", f"profile of principal {principal}: {error.message}")
            profile, groups = None, {}
        capsules = () if profile is None else profile.capsules
        standing = standing_of(profile, capsules, groups=groups)
        quotas = self._base if profile is None else quotas_of(profile.quotas, self._base)
        egress, programs = ((), ()) if profile is None else (profile.egress, profile.programs)
        bounds = Bounds(principal, egress, programs)
        self._warn(principal, bounds, () if profile is None else profile.warnings)
        with self._lock:
            self._standings[principal] = standing
            self._bounds[principal] = bounds
            budget = self._budgets.get(principal)
            if budget is None:
                budget = Budget(
                    principal, quotas, is_exempt=standing.is_exempt, fuel_ceiling=self._fuel_ceiling
                )
                self._budgets[principal] = budget
                return budget
        budget.limit(quotas, is_exempt=standing.is_exempt)
        return budget

    def _warn(self, principal: PrincipalName, bounds: Bounds, warnings: Sequence[str]) -> None:
        """Tell the log what of a profile has no effect, when that is news."""
        found = (
            *warnings,
            *(f"{EGRESS}: {one!r} is no host and allows nothing" for one in bounds.unreadable),
        )
        for sentence in found:
            if sentence not in self._warned.get(principal, ()):
                self._note("warn", f"profile of principal {principal}: {sentence}")
        self._warned[principal] = found
