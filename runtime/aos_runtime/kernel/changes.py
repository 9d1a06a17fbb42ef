"""The requests that change what is installed or loaded.  Each runs on a thread of its own and may take long.

An install through the daemon is the same journey as the toolchain's, with the same functions of `store`:
stage, consent by what the caller is authorised to say, activate, commit, reload.  Source: daemon-kernel.md
5.1, 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aos_runtime.errors import AosError, Denied, InvalidInput, NotFound, Unavailable
from aos_runtime.home import Home
from aos_runtime.kernel.activation import Activator
from aos_runtime.kernel.answers import capsules_loaded
from aos_runtime.kernel.elicits import Elicit
from aos_runtime.kernel.events import LOADED_TOPIC
from aos_runtime.kernel.lifecycle import Lifecycle
from aos_runtime.kernel.requests import Answer, Caller
from aos_runtime.kernel.views import View
from aos_runtime.names import (
    CapsuleName,
    EnvKey,
    PrincipalName,
    parse_capsule_name,
    parse_env_key,
    parse_principal_name,
)
from aos_runtime.store.commit import Approval, commit, remove_installed
from aos_runtime.store.env import EnvChanges
from aos_runtime.store.installed import Installed, list_installed
from aos_runtime.store.interfaces import export_conflicts, missing_imports
from aos_runtime.store.origin import Provenances
from aos_runtime.store.profile_edits import allow_capsule, disallow_capsule, expect_profile
from aos_runtime.store.receipts import ApprovalSource
from aos_runtime.store.stage import Stage, open_stage, stage_source

REMOTE_PREFIXES = ("http://", "https://", "github.com/", "@", "gh:")
GRANTING = "agent:modify"
"""Who holds it grants a principal what it installs for it (docs/adr/0011)."""


class Changes:
    """Installs, activates, reloads and removes.

    `announce(principal, topic, body)` publishes an event; `elicit_from(caller)` asks the connection that
    requested a change, for the hook of what it installs; `may(principal,
    capability)` tells rights.
    """

    def __init__(
        self,
        *,
        home: Home,
        lifecycle: Lifecycle,
        activator: Activator,
        announce: Callable[[PrincipalName, str, bytes], None],
        elicit_from: Callable[[Caller], Elicit | None] = lambda caller: None,
        may: Callable[[PrincipalName, str], bool] = lambda principal, capability: False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._home = home
        self._lifecycle = lifecycle
        self._activator = activator
        self._announce = announce
        self._elicit_from = elicit_from
        self._may = may
        self._now = now

    def activate(self, caller: Caller, params: Mapping[str, object]) -> Answer:
        """Compile a stage that the caller's process holds and run its hook; the caller commits."""
        principal = parse_principal_name(str(params["principal"]))
        with open_stage(self._home, principal, str(params["stage_id"])) as stage:
            activation = self._activator.activate(stage, self._elicit_from(caller))
            return Answer(status="Success", data=activation.to_json())

    def reload(self, caller: Caller, params: Mapping[str, object]) -> Answer:
        """Serve what is installed now."""
        text = str(params["id"])
        try:
            view = self._lifecycle.reload(caller.principal, parse_capsule_name(text))
        except AosError as error:
            raise _reload_failed(text, error) from error
        self._announce_view(view)
        return Answer(status="Success", data={"status": "reloaded", "capsule": text})

    def unload(self, caller: Caller, params: Mapping[str, object]) -> Answer:
        """Serve it no longer; it stays installed."""
        was_loaded = self._unload(caller.principal, parse_capsule_name(str(params["id"])))
        return Answer(status="Success", data={"status": "unloaded" if was_loaded else "not_loaded"})

    def remove(self, caller: Caller, params: Mapping[str, object]) -> Answer:
        """Take it away from disk, then from the bus."""
        name = parse_capsule_name(str(params["id"]))
        remove_installed(
            self._home, caller.principal, name, purge=params["purge"] is True, force=params["force"] is True
        )
        self._unload(caller.principal, name)
        disallow_capsule(self._home, caller.principal, name)
        return Answer(status="Success", data={"status": "removed"})

    def install(self, caller: Caller, params: Mapping[str, Any]) -> Answer:
        """Install a local archive."""
        principal = caller.principal
        if params["target_principal"] is not None:
            principal = parse_principal_name(params["target_principal"])
            expect_profile(self._home, principal)
        if params["workspace"]:
            raise InvalidInput(
                "install-workspace",
                "workspace installs are done by the command line",
                hint="run `aos capsule install`",
            )
        if params["expected_generation"] is not None or params["batch"] is not None:
            raise InvalidInput(
                "install-condition",
                "installs in batches, or over one known generation only, are not supported by this runtime",
                hint="leave out `batch` and `expected_generation`",
            )
        source = find_source(params["source"])
        env = _env_changes(params["env"])
        with stage_source(self._home, principal, source, now=self._now()) as stage:
            previous = stage.previous
            approval = decide_approval(stage, params["authority"])
            if env:
                stage.offer_env(env)
            self._activator.activate(stage, self._elicit_from(caller))
            phase = stage.phase.value
            try:
                installed = commit(
                    stage,
                    approval=approval,
                    env=stage.read_offered_env(),
                    source_text=str(source),
                    confirm=lambda: self._try(principal, stage.name),
                )
            except Unavailable:
                self._reload_if_loaded(principal, stage.name)  # what is installed: the old version
                raise
        try:
            if self._may(caller.principal, GRANTING):
                allow_capsule(self._home, principal, installed.name)
        finally:  # it is installed, whatever becomes of the grant
            view = self._reload_if_loaded(principal, installed.name)
        return Answer(status="Success", data=self._install_data(installed, previous, phase, view))

    def _try(self, principal: PrincipalName, name: CapsuleName) -> None:
        """Serve a version that replaces another.  Unavailable where it does not, though it lacks no value."""
        try:
            self._lifecycle.reload(principal, name)
        except Unavailable:
            unready = self._lifecycle.view(principal).unready.get(name)
            if unready is None or not unready.missing:
                raise

    def _reload_if_loaded(self, principal: PrincipalName, name: CapsuleName) -> View:
        """Serve a new install.

        One that does not load is installed all the same, and shows so in the status.
        """
        try:
            view = self._lifecycle.reload(principal, name)
        except AosError:
            view = self._lifecycle.view(principal)
        self._announce_view(view)
        return view

    def _install_data(
        self, installed: Installed, previous: Installed | None, phase: str, view: View
    ) -> dict[str, object]:
        unready = view.unready.get(installed.name)
        entries = list_installed(self._home, installed.principal)
        return {
            "target_dir": str(installed.generation),
            "phase": "install" if phase == "install" else "upgrade",
            "installed_version": installed.version,
            "previous_version": previous.version if previous is not None else None,
            "wasm_hash": installed.meta.wasm_hash,
            "env_path": str(self._home.env_file(installed.principal, installed.name)),
            "env_needs_prompt": unready is not None and bool(unready.missing),
            "missing_imports": missing_imports(installed.manifest, entries),
            "export_conflicts": export_conflicts(installed.manifest, entries),
        }

    def _unload(self, principal: PrincipalName, name: CapsuleName) -> bool:
        was_loaded = self._lifecycle.unload(principal, name)
        if was_loaded:
            self._announce_view(self._lifecycle.view(principal))
        return was_loaded

    def _announce_view(self, view: View) -> None:
        self._announce(view.principal, LOADED_TOPIC, capsules_loaded(view))


def find_source(text: str) -> Path:
    """The archive that a client named.

    The daemon's folder is not the client's: only absolute paths count (INS-24).
    """
    if text.startswith(REMOTE_PREFIXES):
        raise InvalidInput(
            "install-remote",
            "only a local archive can be installed",
            hint="download it first, then name the file",
        )
    path = Path(text.removeprefix("file://"))
    if not path.is_absolute():
        raise InvalidInput(
            "install-relative", "source path is not absolute", hint="send the absolute path of the archive"
        )
    if not path.exists():
        raise NotFound(
            "source-missing", f"source path does not exist: {path}", hint="check the path", source=text
        )
    return path


def decide_approval(stage: Stage, authority: str) -> Approval:
    """What the caller's authority amounts to for this stage.  Denied where a person has to be asked first."""
    if authority != "automatic":
        return Approval(source=ApprovalSource.EXPLICIT)
    if stage.needs_consent:
        raise Denied(
            "install-needs-approval",
            f"capsule '{stage.name}' ({stage.provenance_class.value}) needs an explicit approval",
            hint="run `aos capsule install`, which shows what it asks",
            name=stage.name,
        )
    if stage.provenance_class is Provenances.BUNDLED:
        return Approval(source=ApprovalSource.BUNDLED)
    return Approval(source=ApprovalSource.LOCAL_BUILD)


def _env_changes(rows: list[dict[str, str]]) -> EnvChanges:
    values: dict[EnvKey, object] = {}
    secrets: dict[EnvKey, str] = {}
    for row in rows:
        key = parse_env_key(row["key"])
        if row["kind"] == "Secret":
            secrets[key] = row["value"]
        else:
            values[key] = row["value"]
    return EnvChanges(values=values, secrets=secrets)


def _reload_failed(text: str, error: AosError) -> AosError:
    """In the words of the published runtime."""
    reason = error.message
    if error.code == "capsule-name":
        reason = f"capsule '{text[:128]}' was not found in the install directories or failed to load"
    return NotFound(
        "reload-failed",
        f"reload of capsule '{text[:128]}' failed: {reason}",
        hint=error.hint,
        name=text[:128],
    )
