"""One lifecycle hook of a staged capsule: run, listened to, and taken back where it fails.

The export returns nothing: the SDK's macro turns a method's `Err` into one error line in the log, so that
line is read (case INS-21).  Values that the hook asked for are kept with the stage; the commit of the install
stores them, or nothing does.  Source: host-abi.md 2.7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from aos_runtime.capsule.identity import source_id
from aos_runtime.errors import AosError, Conflict
from aos_runtime.host import Code, Err, GuestContext, GuestTrap, Instance
from aos_runtime.host.context import ElicitQuestion, KvSpace
from aos_runtime.kernel.denials import DenialLog
from aos_runtime.kernel.elicits import Elicit, ElicitAnswer, Reached
from aos_runtime.kernel.failures import failure_sentence
from aos_runtime.kernel.files import FileRoots, GuestFiles, Note, gates_of
from aos_runtime.kernel.hook_state import UndoSpace
from aos_runtime.kernel.kernel import Journal
from aos_runtime.names import Digest, EnvKey, parse_env_key
from aos_runtime.policy.approval import spell_out
from aos_runtime.policy.file_gate import FileDenial, FileGate, Place
from aos_runtime.store.env import EnvChanges, check_value, read_env, read_secrets, resolve_env
from aos_runtime.store.file_tree import At, FileCase, FileRefused
from aos_runtime.store.file_undo import FileUndo
from aos_runtime.store.secrets import check_secret
from aos_runtime.store.stage import Stage
from aos_runtime.store.storage import NAME_BYTES

Hook = Literal["astrid-install", "astrid-upgrade"]

PREVIOUS_VERSION_KEY = "prev_version"
"""Where the SDK's macro reads the version that is replaced."""
MAX_FILES_BYTES = 1 << 30
"""What one hook writes to files."""
KEPT_FOLDER = "files"
"""Of its stage: what the hook has changed, as it was."""
NAMES_CHANGE = ("fs.unlink", "fs.remove-dir-all", "fs.rename")
"""What takes a name away, a link itself or a folder with all below it."""
MAX_HEARD = 20
MAX_LINE_CHARACTERS = 500
_FAILURES = (
    "install hook failed: ",
    "upgrade hook failed: ",
    "install: failed to persist state: ",
    "upgrade: failed to load state: ",
    "upgrade: failed to persist state: ",
)
"""How the SDK's macro reports that a hook did not do its work."""


class HookFiles(GuestFiles):
    """The files of a hook: what stands at a place is kept before it may change."""

    def __init__(
        self,
        roots: FileRoots,
        gates: dict[str, FileGate],
        changed: FileUndo,
        *,
        note: Note,
        denied: Callable[[FileDenial], None],
    ) -> None:
        super().__init__(roots, gates, note=note, denied=denied)
        self._changed = changed

    def _at(self, call: str, place: Place, needs: tuple[str, ...]) -> At:
        at = super()._at(call, place, needs)
        if "fs_write" in needs:
            is_name = call in NAMES_CHANGE
            self._changed.remember(at, follow=not is_name, whole=is_name)
        return at


class HookRun:
    """One run over the capsule's state `space`.

    `publish(topic, payload)` is what the hook may say; `elicit` None: nobody can be asked; `note_call` hears
    what it did with files and what it asked.
    """

    def __init__(
        self,
        stage: Stage,
        hook: Hook,
        *,
        space: KvSpace,
        journal: Journal,
        publish: Callable[[str, bytes], str | None],
        elicit: Elicit | None,
        before_block: Callable[[], None] = lambda: None,
        note_call: Note = lambda _call, _place, _error: None,
    ) -> None:
        self._note_call = note_call
        self._left_bytes = MAX_FILES_BYTES
        self._stage = stage
        self._hook = hook
        self._journal = journal
        self._publish = publish
        self._elicit = elicit
        self._before_block = before_block
        self._space = UndoSpace(space)
        self._changed = FileUndo(stage.folder / KEPT_FOLDER)
        self._offered = stage.read_offered_env()
        self._secrets = self._known_secrets()
        self._values = self._known_values()
        self._elicited: dict[EnvKey, str] = {}
        self._heard: list[str] = []
        self._failure: str | None = None
        self._is_abandoned = False

    def run(self, code: Code, digest: Digest) -> tuple[str, ...]:
        """Run it; what it warned of.  Conflict `lifecycle-hook-failed` or `install-abandoned`, all undone."""
        try:
            self._call(code, digest)
        except BaseException:
            self._undo()
            raise
        if self._elicited:
            secrets = {**self._offered.secrets, **self._elicited}
            offered = self._offered
            self._stage.offer_env(EnvChanges(values=offered.values, secrets=secrets, removed=offered.removed))
        return tuple(self._heard)

    def _undo(self) -> None:
        """Put keys and files back as they were."""
        left = self._changed.undo()
        if left:
            what = ", ".join(map(spell_out, left[:MAX_HEARD]))
            self._journal.daemon("error", f"files of the failed hook of {self._stage.name} stay: {what}")
        self._space.undo()

    def _call(self, code: Code, digest: Digest) -> None:
        instance = Instance(code, self._context(digest))
        try:
            instance.lifecycle(self._hook)
        except GuestTrap as trap:
            raise self._failed(failure_sentence(trap)) from trap
        finally:
            instance.close()
        if self._is_abandoned:
            raise Conflict(
                "install-abandoned",
                f"the install of '{self._stage.name}' was given up at a question of its hook",
                hint="nothing was changed",
            )
        if self._failure is not None:
            raise self._failed(self._failure)

    def _failed(self, reason: str) -> Conflict:
        name = self._stage.name
        return Conflict(
            "lifecycle-hook-failed",
            f"the {self._hook} hook of '{name}' failed: {reason}",
            hint=f"`aos logs {name}` shows what it said; nothing was changed",
            hook=self._hook,
        )

    def _context(self, digest: Digest) -> GuestContext:
        stage = self._stage
        return GuestContext(
            files=self._files(),
            capsule=stage.name,
            principal=stage.principal,
            source_id=source_id(stage.name, digest),
            capabilities=stage.manifest.capabilities,
            kv=self._space,
            publish=self._publish,
            config=self._values.get,
            log=self._log,
            before_block=self._before_block,
            elicit=self._ask,
            has_secret=lambda key: bool(self._secrets.get(key)),
        )

    def _files(self) -> GuestFiles:
        """`cwd://` is what is about to be installed: to be read, and never changed."""
        stage = self._stage
        denials = DenialLog(lambda line: self._journal.capsule(stage.principal, stage.name, "warn", line))
        roots = FileRoots(
            home=stage.home.principal(stage.principal),
            scratch=stage.home.scratch(stage.principal),
            own=stage.tree,
            workspace=lambda: None,
            shows_own=True,
            grow=self._grow,
        )
        gates = gates_of(stage.manifest.capabilities)
        return HookFiles(roots, gates, self._changed, note=self._note_call, denied=denials.note)

    def _grow(self, added_bytes: int) -> None:
        self._left_bytes -= max(added_bytes, NAME_BYTES)
        if self._left_bytes < 0:
            raise FileRefused(FileCase.QUOTA)

    def _log(self, level: str, message: str) -> None:
        self._journal.capsule(self._stage.principal, self._stage.name, level, message)
        if level not in ("warn", "error"):
            return
        failed = next((start for start in _FAILURES if message.startswith(start)), None)
        if level == "error" and failed is not None:
            self._failure = spell_out(message.removeprefix(failed))[:MAX_LINE_CHARACTERS]
        elif len(self._heard) < MAX_HEARD:
            self._heard.append(spell_out(message)[:MAX_LINE_CHARACTERS])

    def _ask(self, question: ElicitQuestion) -> str | tuple[str, ...] | Err:
        """Ask, and put on record that it was, never what was answered."""
        answer = self._put(question)
        self._note_call("elicit", question.key, str(answer.case) if isinstance(answer, Err) else None)
        return answer

    def _put(self, question: ElicitQuestion) -> str | tuple[str, ...] | Err:
        if self._elicit is None or self._is_abandoned:
            return Err("cancelled")
        answer = self._elicit(self._stage.name, question)
        if answer.reached is Reached.TIMEOUT:
            return Err("timeout")
        if answer.reached is Reached.GONE:
            self._is_abandoned = True
            return Err("cancelled")
        if answer.value is None and answer.values is None:
            return Err("cancelled")
        try:
            return self._accept(question, answer)
        except AosError:
            return Err("invalid-input")

    def _accept(self, question: ElicitQuestion, answer: ElicitAnswer) -> str | tuple[str, ...] | Err:
        """Check an answer; a secret is kept and not returned.  AosError where it cannot be stored."""
        if question.kind == "array":
            values = answer.values if answer.values is not None else (answer.value or "",)
            check_value(EnvKey(question.key), list(values))
            return values
        value = answer.value or ""
        if answer.value is None or (question.kind == "select" and value not in question.options):
            return Err("invalid-input")
        if question.kind != "secret":
            check_value(EnvKey(question.key), value)
            return value
        key = parse_env_key(question.key)
        check_secret(key, value)
        self._elicited[key] = self._secrets[key] = self._values[key] = value
        return ""

    def _known_secrets(self) -> dict[str, str]:
        stage = self._stage
        secrets: dict[str, str] = {**read_secrets(stage.home, stage.principal, stage.name)}
        secrets.update({str(key): value for key, value in self._offered.secrets.items()})
        for key in self._offered.removed:
            secrets.pop(key, None)
        return secrets

    def _known_values(self) -> dict[str, str]:
        stage = self._stage
        stored: dict[str, object] = {**read_env(stage.home, stage.principal, stage.name)}
        stored.update({str(key): value for key, value in self._offered.values.items()})
        for key in self._offered.removed:
            stored.pop(key, None)
        values = dict(resolve_env(stage.manifest, stored, self._secrets).values)
        if self._hook == "astrid-upgrade" and stage.previous is not None:
            values[PREVIOUS_VERSION_KEY] = stage.previous.version
        return values
