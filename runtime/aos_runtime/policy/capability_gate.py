"""The gates of what needs one capability and names no place: identities and uplinks.

Decisions only; what a refusal means to the guest is its interface's business.  Source: host-abi.md 1.12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aos_runtime.capsule.capability import IDENTITY_LEVELS
from aos_runtime.policy.denial_line import quoted, render_denial

IDENTITY_NEEDS: Mapping[str, str] = {
    "identity-resolve": "resolve",
    "identity-link": "link",
    "identity-unlink": "link",
    "identity-list-links": "link",
    "identity-create-user": "admin",
}
"""The least level that each function of astrid:identity needs; a level implies those before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityDenial:
    """One refusal.  `allow` is the line of `Capsule.toml` that would allow it."""

    operation: str
    target: str
    rule: str
    allow: str

    @property
    def kind(self) -> tuple[str, str, str]:
        """What repeats are told by."""
        return self.operation, self.target, self.rule

    def render(self, *, repeated: int = 0) -> str:
        """One line for the capsule's log (`policy.denial_line`)."""
        named = ("target", self.target)
        return render_denial(
            self.operation, named, self.rule, case="capability-denied", allow=self.allow, repeated=repeated
        )


def check_identity(operation: str, held: Sequence[str], target: str) -> CapabilityDenial | None:
    """Whether the levels that a capsule holds cover a function of astrid:identity."""
    needed = IDENTITY_NEEDS[operation]
    if any(level in IDENTITY_LEVELS[IDENTITY_LEVELS.index(needed) :] for level in held):
        return None
    return CapabilityDenial(
        operation=operation,
        target=target,
        rule=f"it needs the identity level {needed}",
        allow=f"[capabilities] identity = [{quoted(needed)}]",
    )


def check_uplink(operation: str, is_uplink: bool, target: str) -> CapabilityDenial | None:
    """Whether a capsule may bring in what people on other platforms say."""
    if is_uplink:
        return None
    return CapabilityDenial(
        operation=operation,
        target=target,
        rule="only an uplink brings in messages of others",
        allow="[capabilities] uplink = true",
    )
