"""Install one archive: stage, consent, values, activate, commit, reload.

One way for every source (architecture section 3).  A failure or Ctrl-C before the commit drops the stage
and leaves the old version serving.  A running daemon tries a version that replaces another before the commit
is final: where it does not serve, the old one is put back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aos_cli.build.scaffold import list_kinds
from aos_cli.console import Console, safe
from aos_cli.install.activation import Activated, activate, reload_capsule, try_version
from aos_cli.install.consent import Answers, is_trusted, obtain_consent
from aos_cli.install.env_values import Collected, collect_env, make_asker, variable_name
from aos_cli.install.hook_questions import HookQuestions
from aos_cli.render.capsules import permission_documents
from aos_runtime.errors import AosError
from aos_runtime.home import Home
from aos_runtime.names import PrincipalName
from aos_runtime.store.commit import Approval, commit
from aos_runtime.store.env import read_env
from aos_runtime.store.installed import Installed, list_installed
from aos_runtime.store.interfaces import export_conflicts, missing_imports
from aos_runtime.store.names_index import rebuild
from aos_runtime.store.origin import Phase, Provenances
from aos_runtime.store.profile_edits import allow_capsule
from aos_runtime.store.receipts import ApprovalSource
from aos_runtime.store.secrets import list_secrets
from aos_runtime.store.stage import Stage, stage_source


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to install for whom, and what the caller said beforehand."""

    home: Home
    principal: PrincipalName
    archive: Path
    source_text: str
    answers: Answers
    variables: Mapping[str, str]
    hook_answers: Mapping[str, str]
    """What to answer the install hook, by key."""
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one install did."""

    installed: Installed
    phase: Phase
    previous_version: str | None
    activated: Activated
    env: Collected
    origin: Provenances
    reload_problem: str | None
    env_path: Path
    missing_imports: list[dict[str, str]]
    export_conflicts: list[dict[str, str]]

    def document(self) -> dict[str, object]:
        """The published keys of build-install.md 5.6, and additive ones."""
        installed = self.installed
        return {
            "target_dir": str(installed.generation),
            "phase": "install" if self.phase is Phase.INSTALL else "upgrade",
            "installed_version": installed.version,
            "previous_version": self.previous_version,
            "wasm_hash": installed.meta.wasm_hash,
            "env_path": str(self.env_path),
            "env_needs_prompt": False,
            "missing_imports": self.missing_imports,
            "export_conflicts": self.export_conflicts,
            "name": installed.name,
            "principal": installed.principal,
            "operation": self.phase.value,
            "origin": self.origin.value,
            "source": installed.meta.source,
            "content_digest": installed.receipt.content_digest,
            "signer": installed.receipt.signer,
            "permissions": permission_documents(installed.manifest.capabilities),
            "hook": self.activated.hook,
            "hook_warnings": list(self.activated.warnings),
            "env_set": sorted([*self.env.changes.values, *self.env.changes.secrets]),
            "env_orphans": list(self.env.orphans),
            "loaded": self.activated.by_daemon and self.reload_problem is None,
        }


def install_archive(order: Order, console: Console) -> Report:
    """Install one archive; raises what stands in the way, with nothing changed."""
    with stage_source(order.home, order.principal, order.archive, now=datetime.now(UTC)) as stage:
        for warning in stage.manifest.warnings:
            console.detail(warning.render())
        approved = obtain_consent(stage, order.answers, console)
        collected = _collect(stage, order, console)
        if collected.changes:
            stage.offer_env(collected.changes)
        with console.progress(f"Activating {stage.name} {stage.manifest.version}"):
            questions = _questions(order, console)
            activated = activate(stage, order.environ, questions)
        for key in questions.unused:
            console.warn(f"--answer {safe(key)} was not needed: no hook of {stage.name} asked for it")
        phase, previous, origin = stage.phase, stage.previous, stage.provenance_class
        trial = _Trial(order, stage)
        with trial.put_back():
            installed = commit(
                stage,
                approval=Approval(source=_approval(origin, approved=approved)),
                env=stage.read_offered_env(),  # with what the hook asked for
                source_text=order.source_text,
                confirm=trial.run,
            )
    allow_capsule(order.home, order.principal, installed.name)
    for digest in stage.repaired:
        console.note(f"The stored binary {digest[:12]} was damaged; it has been replaced.")
    _index_names(order.home)
    entries = list_installed(order.home, order.principal)
    if not trial.was_run:
        trial.problem = reload_capsule(order.home, order.principal, installed.name)
    return Report(
        installed=installed,
        phase=phase,
        previous_version=None if previous is None else previous.version,
        activated=activated,
        env=collected,
        origin=origin,
        reload_problem=trial.problem,
        env_path=order.home.env_file(order.principal, installed.name),
        missing_imports=missing_imports(installed.manifest, entries),
        export_conflicts=export_conflicts(installed.manifest, entries),
    )


class _Trial:
    """The running daemon's try of a version that replaces another; `problem` is what it said."""

    def __init__(self, order: Order, stage: Stage) -> None:
        self._order = order
        self._stage = stage
        self.was_run = False
        self.problem: str | None = None

    def run(self) -> None:
        """Unavailable `capsule-not-ready` where the version must not stay."""
        self.was_run = True
        self.problem = try_version(self._order.home, self._order.principal, self._stage.manifest)

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Let the daemon serve the old version again where the block ends without the new one."""
        try:
            yield
        except BaseException:
            if self.was_run:
                reload_capsule(self._order.home, self._order.principal, self._stage.name)
            raise


def _questions(order: Order, console: Console) -> HookQuestions:
    return HookQuestions(
        console, given=order.hook_answers, environ=order.environ, interactive=order.answers.interactive
    )


def _index_names(home: Home) -> None:
    """Let shell completion know the templates; best effort, the install is done."""
    with suppress(AosError):
        rebuild(home, templates=list_kinds())


def _approval(origin: Provenances, *, approved: bool) -> ApprovalSource:
    if origin is Provenances.BUNDLED:
        return ApprovalSource.BUNDLED  # also where a person agreed: the wheel replaces it when it is newer
    return ApprovalSource.EXPLICIT if approved or not is_trusted(origin) else ApprovalSource.LOCAL_BUILD


def _collect(stage: Stage, order: Order, console: Console) -> Collected:
    for row in stage.manifest.env:
        if row.is_secret and row.key in order.variables:
            console.warn(
                f"{row.key} is a secret, and other users of this machine can read a command line; "
                f"set {variable_name(row.key)} instead, and change the secret if others may have seen it"
            )
    return collect_env(
        stage.manifest,
        variables=order.variables,
        environ=order.environ,
        stored=read_env(order.home, order.principal, stage.name),
        stored_secrets=frozenset(list_secrets(order.home, order.principal, stage.name)),
        ask=None if order.answers.yes else make_asker(console),
    )
