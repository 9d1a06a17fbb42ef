"""The ports through which a guest works with people of other platforms: plain values, as the WIT has them.

Behind them are gates, limits and the record of what was done (`kernel.identities`, `kernel.uplinks`); here is
only their shape.
"""

from __future__ import annotations

from typing import Protocol

from aos_runtime.store.identity import Link, User


class Identities(Protocol):
    """Who somebody is; every operation may raise `store.identity.IdentityRefused`."""

    def resolve(self, platform: str, platform_user: str) -> User: ...

    def link(self, platform: str, platform_user: str, user: str, method: str) -> None: ...

    def unlink(self, platform: str, platform_user: str) -> None: ...

    def create_user(self, name: str | None) -> str:
        """The id of a new user."""
        ...

    def links(self, user: str) -> tuple[Link, ...]: ...


class UplinkRefused(Exception):
    """A registration or a message that was not taken; `case` is the arm of the interface's error."""

    def __init__(self, case: str) -> None:
        super().__init__(case)
        self.case = case


class Uplinks(Protocol):
    """What people say on other platforms, brought in; every operation may raise `UplinkRefused`."""

    def register(self, name: str, platform: str, profile: str) -> str:
        """The id of a new uplink."""
        ...

    def send(self, uplink: str, platform_user: str, content: str) -> bool:
        """Whether somebody takes it."""
        ...
