"""Activating a staged capsule: compile it once, run its lifecycle hook, report.

The work of a host process, never of the toolchain: the running daemon does it when asked, else the one-shot
child `python -m aos_runtime.daemon activate`.  It commits nothing: a failure here leaves the version that
serves as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from aos_runtime.capsule.identity import source_id
from aos_runtime.errors import AosError
from aos_runtime.host import Code
from aos_runtime.host.context import KvSpace
from aos_runtime.kernel.audited import ADMITTED, AuditedSpace, Trail, note_calls
from aos_runtime.kernel.elicits import Elicit
from aos_runtime.kernel.hooks import Hook, HookRun
from aos_runtime.kernel.kernel import Journal
from aos_runtime.kernel.ports import State
from aos_runtime.names import CapsuleName, Digest, PrincipalName
from aos_runtime.store.audit_entry import SUCCESS, SYSTEM, failure
from aos_runtime.store.origin import Phase
from aos_runtime.store.stage import Stage

HOOKS: dict[Phase, Hook] = {
    Phase.INSTALL: "astrid-install",
    Phase.UPGRADE: "astrid-upgrade",
    Phase.DOWNGRADE: "astrid-upgrade",
}
"""A reinstall of the same version runs none (INS-25)."""


class Codes(Protocol):
    """The part of `host.CodeCache` that activation needs."""

    def precompile(self, digest: Digest, wasm: bytes) -> Code: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """What was done: `hook` is `ran` or `skipped`."""

    wasm_hash: str | None
    phase: str
    hook: str
    warnings: tuple[str, ...] = ()
    """What the hook logged as a warning or an error."""

    def to_json(self) -> dict[str, object]:
        return {
            "wasm_hash": self.wasm_hash,
            "phase": self.phase,
            "hook": self.hook,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Activator:
    """Activates stages.

    `publish` is what the hook may say: the bus of a daemon, or nothing in a one-shot.
    """

    codes: Codes
    state: State
    journal: Journal
    publish: Callable[[Stage, str, str, bytes], str | None]
    trail: Trail | None = None

    def activate(self, stage: Stage, elicit: Elicit | None = None) -> Activation:
        """Compile and run the hook, between two entries of the audit trail.

        `elicit` asks whoever installs, None: nobody can be asked.  Errors as `HookRun.run`; Unavailable
        `audit-unavailable` where it could not be put on record first.
        """
        if self.trail is None:
            return self._activate(stage, elicit)
        action = {
            "type": "capsule_activated",
            "capsule_id": stage.name,
            "version": stage.manifest.version,
            "phase": stage.phase.value,
            "provenance": stage.provenance_class.value,
            "content_digest": stage.content_digest,
            "wasm_hash": stage.wasm_digest,
        }
        self.trail.require(stage.principal, action, ADMITTED, SYSTEM)
        ended: str | None = "internal-fault"
        try:
            activation = self._activate(stage, elicit)
            ended = None
        except AosError as error:
            ended = error.code
            raise
        finally:
            self.trail.record(stage.principal, action, SUCCESS if ended is None else failure(ended), SYSTEM)
        return activation

    def _activate(self, stage: Stage, elicit: Elicit | None) -> Activation:
        wasm, digest = stage.read_wasm(), stage.wasm_digest
        if wasm is None or digest is None:
            return Activation(wasm_hash=None, phase=stage.phase.value, hook="skipped")
        code = self.codes.precompile(digest, wasm)
        hook = HOOKS.get(stage.phase)
        if hook is None or hook not in code.implemented:
            return Activation(wasm_hash=digest, phase=stage.phase.value, hook="skipped")
        source = source_id(stage.name, digest)
        run = HookRun(
            stage,
            hook,
            space=self._space(stage.principal, stage.name),
            journal=self.journal,
            publish=lambda topic, payload: self.publish(stage, source, topic, payload),
            elicit=elicit,
            note_call=note_calls(self.trail, stage.principal, stage.name),
        )
        warnings = run.run(code, digest)
        return Activation(wasm_hash=digest, phase=stage.phase.value, hook="ran", warnings=warnings)

    def _space(self, principal: PrincipalName, name: CapsuleName) -> KvSpace:
        space = self.state.space(principal, name)
        return space if self.trail is None else AuditedSpace(space, self.trail, principal, name)
