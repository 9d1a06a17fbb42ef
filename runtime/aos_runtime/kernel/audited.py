"""What the kernel puts into the audit trail, and in what words: host calls and requests.

Each function here turns something that happened into an entry; whether a class is waited for is decided by
which of `record` and `require` is called, and listed in docs/formats/home.md.  Payloads, values of keys,
environment and secrets never enter: a parameter that is not known to be harmless is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from aos_runtime.host.context import KvSpace
from aos_runtime.kernel.audit import HostCall
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.audit_entry import SUCCESS, Draft, failure
from aos_runtime.store.kv import KvRefused

DENIED: Mapping[str, object] = {"type": "denied"}
ADMITTED: Mapping[str, object] = {"status": "success", "details": "admitted"}
REDACTED = "<redacted>"

READING = frozenset(
    {
        "ListCapsules",
        "GetCommands",
        "GetCapsuleMetadata",
        "GetCapsuleMetadataForPrincipal",
        "GetAgentReadiness",
        "GetStatus",
        "GetInstalledCapsuleIdentity",
        "GetCapsuleInstallResumeReceipt",
        "AgentList",
        "GroupList",
        "QuotaGet",
        "UsageGet",
        "EnvList",
        "DistroLockGet",
        "CapsTokenList",
        "InviteList",
        "PairDeviceList",
        "ApprovalList",
        "AuditStats",
        "AuditHealth",
        "AuditHeads",
        "AuditExport",
        "events.stop",
        "events.top",
    }
)
"""Methods that change nothing: not recorded.  Every other one is put on record before it is carried out."""

HARMLESS = frozenset(
    {
        "id",
        "stage_id",
        "principal",
        "target_principal",
        "source",
        "workspace",
        "authority",
        "force",
        "purge",
        "reason",
        "name",
        "group",
        "groups",
        "grants",
        "revokes",
        "capabilities",
        "capsules",
        "add_groups",
        "remove_groups",
        "add_capsules",
        "remove_capsules",
        "inherit_from",
        "clone_from",
        "allow_admin_clone",
        "unsafe_admin",
        "description",
        "capsule",
        "kind",
        "key",
        "scope",
        "append",
        "quotas",
        "decision",
        "request_id",
        "batch_id",
        "topic",
        "pattern",
        "payloads",
        "call_id",
        "limit",
    }
)
"""Parameters whose value may be recorded; of every other one only its name is."""


NOT_AWAITED = frozenset(
    {
        "Shutdown",
        "UnloadCapsule",
        "CapsRevoke",
        "AgentDisable",
        "ApprovalRevoke",
        "events.tail",
        "events.trace",
    }
)
"""Methods that only take something away, or look: recorded, but a full disk must not stand in their way."""


class Trail(Protocol):
    """The part of `audit.AuditTrail` that is needed here."""

    def record(
        self,
        principal: str | None,
        action: Mapping[str, object],
        outcome: Mapping[str, object] = SUCCESS,
        authorization: Mapping[str, object] = ...,
    ) -> None: ...

    def require(
        self,
        principal: str | None,
        action: Mapping[str, object],
        outcome: Mapping[str, object] = SUCCESS,
        authorization: Mapping[str, object] = ...,
    ) -> None: ...

    def take(self, draft: Draft) -> None: ...

    def record_folded(
        self,
        key: tuple[str | None, ...],
        principal: str | None,
        action: Mapping[str, object],
        outcome: Mapping[str, object],
        authorization: Mapping[str, object] = ...,
    ) -> None: ...

    def host_call(self, call: HostCall) -> None: ...


class AuditedSpace:
    """A capsule's keys; every write that was done or refused is put on record, folded.  Reads are not."""

    __slots__ = ("_capsule", "_principal", "_space", "_trail")

    def __init__(self, space: KvSpace, trail: Trail, principal: PrincipalName, capsule: CapsuleName) -> None:
        self._space = space
        self._trail = trail
        self._principal = principal
        self._capsule = capsule

    def get(self, key: str) -> bytes | None:
        return self._space.get(key)

    def list_keys(self, prefix: str) -> tuple[str, ...]:
        return self._space.list_keys(prefix)

    def list_page(self, prefix: str, cursor: str | None, limit: int) -> tuple[tuple[str, ...], str | None]:
        return self._space.list_page(prefix, cursor, limit)

    def set(self, key: str, value: bytes) -> None:
        try:
            self._space.set(key, value)
        except KvRefused as refusal:
            self._note("kv.set", refusal)
            raise
        self._note("kv.set", None)

    def delete(self, key: str) -> None:
        try:
            self._space.delete(key)
        except KvRefused as refusal:
            self._note("kv.delete", refusal)
            raise
        self._note("kv.delete", None)

    def clear_prefix(self, prefix: str) -> int:
        try:
            count = self._space.clear_prefix(prefix)
        except KvRefused as refusal:
            self._note("kv.clear", refusal)
            raise
        self._note("kv.clear", None)
        return count

    def cas(self, key: str, expected: bytes | None, new: bytes) -> bool:
        try:
            swapped = self._space.cas(key, expected, new)
        except KvRefused as refusal:
            self._note("kv.cas", refusal)
            raise
        if swapped:
            self._note("kv.cas", None)
        return swapped

    def _note(self, call: str, refusal: KvRefused | None) -> None:
        error = None if refusal is None else refusal.case.value
        self._trail.host_call(HostCall(self._principal, self._capsule, call, None, error))


def note_calls(
    trail: Trail | None, principal: PrincipalName, capsule: CapsuleName
) -> Callable[[str, str, str | None], None]:
    """`(function, resource, error case)`: puts a call of this capsule on record, where there is a trail."""
    if trail is None:
        return lambda _call, _resource, _error: None
    return lambda call, resource, error: trail.host_call(HostCall(principal, capsule, call, resource, error))


class Requests:
    """Kernel and admin requests: what changes something is on record before it is done, then how it ended."""

    def __init__(self, trail: Trail) -> None:
        self._trail = trail

    def admit(
        self, principal: str, method: str, params: Mapping[str, object], capabilities: tuple[str, ...]
    ) -> None:
        """Put an allowed request on record.  Unavailable `audit-unavailable`: it must not be carried out."""
        if method in READING:
            return
        keep = self._trail.record if method in NOT_AWAITED else self._trail.require
        keep(principal, _request(method, params), ADMITTED, _granted(capabilities))

    def finish(self, principal: str, method: str, params: Mapping[str, object], error: str | None) -> None:
        """How a request that was admitted ended."""
        if method not in READING:
            outcome = SUCCESS if error is None else failure(error)
            self._trail.record(principal, _request(method, params), outcome)

    def deny(self, principal: str, method: str, params: Mapping[str, object], reason: str) -> None:
        """A request, of any kind, that policy refused.  Repeats are counted: anybody may ask without end."""
        key = (principal, "request", method, reason)
        self._trail.record_folded(key, principal, _request(method, params), failure(reason), DENIED)


def sanitised(params: Mapping[str, object]) -> dict[str, object]:
    """Parameters as they may be recorded: values only of those that are known to hold no secret."""
    return {
        name: value if name in HARMLESS else REDACTED for name, value in params.items() if value is not None
    }


def _request(method: str, params: Mapping[str, object]) -> dict[str, object]:
    return {"type": "admin_request", "method": method, "params": sanitised(params)}


def _granted(capabilities: tuple[str, ...]) -> dict[str, object]:
    return {"type": "capability", "capabilities": list(capabilities)}
