"""Opening the audit trail for a process that records: the daemon, or the one-shot activator."""

from __future__ import annotations

from collections.abc import Callable

from nacl.signing import SigningKey

from aos_runtime.config import Settings
from aos_runtime.errors import AosError
from aos_runtime.home import Home
from aos_runtime.kernel.audit import AuditTrail
from aos_runtime.store.audit import AuditStore, Retention
from aos_runtime.store.audit_reader import read_audit
from aos_runtime.store.audit_verify import verify_tail


def retention_of(settings: Settings) -> Retention:
    """What the operator lets the trail keep."""
    return Retention(entries=settings.audit_entries, size_bytes=settings.audit_bytes)


def open_trail(home: Home, seed: bytes, settings: Settings, report: Callable[[str, str], None]) -> AuditTrail:
    """Open, check the newest segment, and begin to record.

    A finding is told and stays in the status; recording goes on, or one flipped bit would stop every agent.
    Errors as `AuditStore`.
    """
    store = AuditStore(home.audit_db, seed, retention_of(settings))
    trail = AuditTrail(store, report=report)
    damage = check_tail(home, seed)
    if damage is not None:
        trail.note_damage(damage)
        report("error", damage)
    trail.start()
    return trail


def check_tail(home: Home, seed: bytes) -> str | None:
    """What is wrong with the newest segment, in one sentence; None where nothing is."""
    try:
        with read_audit(home.audit_db) as reader:
            if reader is None:
                return None
            findings = verify_tail(reader, bytes(SigningKey(seed).verify_key)).findings
    except AosError as error:
        return error.message
    if not findings:
        return None
    return f"the audit trail is not as it was recorded: {findings[0].sentence}; run `aos audit verify`"
