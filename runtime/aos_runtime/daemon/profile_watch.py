"""Notices profiles and groups that were changed on disk by others: an editor, `aos capsule install`.

Once a second it looks at the files of the principals that something is loaded for.  It reads no profile
itself; it tells who does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aos_runtime.config import Settings
from aos_runtime.daemon.rights import Rights
from aos_runtime.home import Home
from aos_runtime.kernel.principals import Principals
from aos_runtime.names import PrincipalName
from aos_runtime.policy.quotas import Quotas
from aos_runtime.store.files import Stamp, file_stamp

PERIOD_S = 1.0
_UNSEEN: Stamp = (-1, -1, -1)


class ProfileWatch:
    """A chore.  `known()` are the principals to look after; `changed(*principals)` hears of changes, all for
    none named.
    """

    def __init__(
        self,
        home: Home,
        known: Callable[[], Iterable[PrincipalName]],
        changed: Callable[..., None],
    ) -> None:
        self._home = home
        self._known = known
        self._changed = changed
        self._due = 0.0
        self._groups: Stamp | None = file_stamp(home.groups_file)
        self._profiles: dict[PrincipalName, Stamp | None] = {}

    def sweep(self, now: float) -> None:
        """Look, at most once a second."""
        if now < self._due:
            return
        self._due = now + PERIOD_S
        found = {name: file_stamp(self._home.profile(name)) for name in self._known()}
        # One that is new here counts as changed: it may have been edited since it was read.
        moved = [name for name, stamp in found.items() if self._profiles.get(name, _UNSEEN) != stamp]
        groups = file_stamp(self._home.groups_file)
        is_all, self._groups, self._profiles = groups != self._groups, groups, found
        if is_all:
            self._changed()
        elif moved:
            self._changed(*moved)


def make_principals(rights: Rights, settings: Settings, note: Callable[[str, str], None]) -> Principals:
    """The principals as the bus knows them, over the operator's settings."""
    base = Quotas(max_memory_bytes=settings.memory_bytes, max_timeout_secs=int(settings.call_timeout_s))
    return Principals(rights, base=base, fuel_ceiling=settings.fuel_per_call, note=note)
