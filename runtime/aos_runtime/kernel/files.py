"""The files of one running instance: where its paths lead, what its capsule may do there, and the record.

Order of every operation: the path is read, the gate is asked for the place that was named, the walk goes
there, the gate is asked for the place without links, then the effect, then one entry in the audit trail.
What a guest can reach: architecture section 2, docs/adr/0015.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.errors import AosError
from aos_runtime.home import Home
from aos_runtime.host import GuestContext
from aos_runtime.policy.file_gate import (
    FileDenial,
    FileGate,
    Parts,
    Place,
    Root,
    home_named,
    home_shows,
    home_takes,
    parse_place,
)
from aos_runtime.store import guest_files
from aos_runtime.store.file_handles import MAX_FILE_BYTES, FileStat, Made, OpenFile
from aos_runtime.store.file_tree import PRIVATE_UMASK, At, FileCase, FileRefused, FileTree, Grow, has_room
from aos_runtime.store.files import make_private_folder
from aos_runtime.store.installed import Installed

READ, WRITE, BOTH = ("fs_read",), ("fs_write",), ("fs_read", "fs_write")
MODES = {"read": READ, "write": WRITE, "append": WRITE, "read-write": BOTH}
_SCRATCH_BASE = ("tmp",)
"""How literal entries see the scratch folder."""

Note = Callable[[str, str, str | None], None]
"""`(function, place, error case)`: one operation is over."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRoots:
    """The folders behind the roots.

    `own` are the capsule's files, which `cwd://` is while `workspace` gives none; with `shows_own` they need
    no entry to be read.
    """

    home: Path
    scratch: Path
    own: Path
    workspace: Callable[[], str | None]
    shows_own: bool = False
    umask: int = PRIVATE_UMASK
    """Of files in a workspace; those of the home and the scratch folder are private."""
    grow: Grow = has_room
    """Asked for room in the home and the scratch folder."""


class AuditedFile:
    """An open file whose writes are put on record; folded, as every repeated call of a guest."""

    __slots__ = ("_file", "_note", "_place", "close", "read_at", "stat", "sync")

    def __init__(self, file: OpenFile, place: str, note: Note) -> None:
        self._file = file
        self._note = note
        self._place = place
        self.read_at, self.stat, self.sync, self.close = file.read_at, file.stat, file.sync, file.close

    def write_at(self, offset: int, data: bytes) -> int:
        return _noted(self._note, "fs.write-at", self._place, lambda: self._file.write_at(offset, data))

    def set_len(self, size: int) -> None:
        _noted(self._note, "fs.set-len", self._place, lambda: self._file.set_len(size))


class GuestFiles:
    """`host.files.Files` over three roots; `gates` by the name of the capability.

    Used by the instance's thread alone.
    """

    def __init__(
        self,
        roots: FileRoots,
        gates: dict[str, FileGate],
        *,
        note: Note,
        denied: Callable[[FileDenial], None],
    ) -> None:
        self._roots = roots
        self._gates = gates
        self._note = note
        self._denied = denied
        self._made: Made = {}
        self._home = FileTree(roots.home, is_canonical=False, grow=roots.grow)
        self._own = FileTree(roots.own, is_canonical=False)
        self._scratch = FileTree(roots.scratch, is_canonical=False, grow=roots.grow)
        self._workspace: FileTree | None = None
        self._found: set[FileTree] = set()

    def open(self, path: str, mode: str) -> AuditedFile:
        place, opened = self._do(
            "fs.open", path, MODES[mode], lambda at: guest_files.open_file(at, mode, self._made)
        )
        return AuditedFile(opened, place.render(), self._note)

    def exists(self, path: str) -> bool:
        return self._do("fs.exists", path, READ, guest_files.exists)[1]

    def stat(self, path: str, *, follow: bool) -> FileStat:
        return self._do("fs.stat", path, READ, lambda at: guest_files.status(at, follow=follow))[1]

    def list_names(self, path: str) -> list[str]:
        place, (folder, names) = self._do("fs.readdir", path, READ, guest_files.list_names)
        if place.root is not Root.HOME:
            return names
        return [name for name in names if home_shows((*folder, name), (*place.parts, name))]

    def read(self, path: str) -> bytes:
        return self._do("fs.read", path, READ, guest_files.read)[1]

    def write(self, path: str, data: bytes, *, append: bool) -> None:
        call = "fs.append" if append else "fs.write"
        if len(data) > MAX_FILE_BYTES:
            self._note(call, path, FileCase.TOO_LARGE.value)
            raise FileRefused(FileCase.TOO_LARGE)
        self._do(call, path, WRITE, lambda at: guest_files.write(at, data, self._made, append=append))

    def make_folder(self, path: str, *, with_parents: bool) -> None:
        make = guest_files.make_folders if with_parents else guest_files.make_folder
        self._do("fs.mkdir", path, WRITE, make)

    def remove(self, path: str) -> None:
        self._do("fs.unlink", path, WRITE, guest_files.remove)

    def remove_all(self, path: str) -> int:
        return self._do("fs.remove-dir-all", path, WRITE, guest_files.remove_all)[1]

    def copy(self, source: str, target: str) -> None:
        def run(old: Place, new: Place) -> None:
            reading, writing = self._at("fs.copy", old, READ), self._at("fs.copy", new, WRITE)
            guest_files.copy(reading, writing, self._made)

        self._do_both("fs.copy", source, target, run)

    def rename(self, source: str, target: str) -> None:
        self._move("fs.rename", source, target, guest_files.rename)

    def hard_link(self, source: str, target: str) -> None:
        self._move(
            "fs.hard-link", source, target, lambda old, new: guest_files.hard_link(old, new, self._made)
        )

    def canonicalize(self, path: str) -> str:
        place, parts = self._do("fs.canonicalize", path, READ, guest_files.resolve)
        return Place(place.root, parts).render()

    def read_link(self, path: str) -> str:
        place, parts = self._do("fs.read-link", path, READ, guest_files.read_link)
        return Place(place.root, parts).render()

    def _do(
        self, call: str, path: str, needs: tuple[str, ...], operation: Callable[[At], _T]
    ) -> tuple[Place, _T]:
        place = self._place(call, path)
        return place, _noted(
            self._note, call, place.render(), lambda: operation(self._at(call, place, needs))
        )

    def _do_both(
        self, call: str, source: str, target: str, operation: Callable[[Place, Place], None]
    ) -> None:
        old, new = self._place(call, source), self._place(call, target)
        _noted(self._note, call, f"{old.render()} -> {new.render()}", lambda: operation(old, new))

    def _move(self, call: str, source: str, target: str, move: Callable[[At, At], None]) -> None:
        """Give a file another name, under which nothing can be read that could not be before."""

        def run(old: Place, new: Place) -> None:
            if old.root is not new.root:
                raise FileRefused(FileCase.CROSS_VFS)
            leaving, coming = self._at(call, old, WRITE), self._at(call, new, WRITE)
            came: list[Parts] = []

            def admit_old(parts: Parts) -> None:
                leaving.admit(parts)
                came.append(parts)

            def admit_new(parts: Parts) -> None:
                coming.admit(parts)
                if self._reaches(new.root, parts) and not self._covers("fs_read", old.root, came[-1]):
                    raise self._refused(call, old, "fs_read")

            move(leaving._replace(admit=admit_old), coming._replace(admit=admit_new))

        self._do_both(call, source, target, run)

    def _place(self, call: str, path: str) -> Place:
        place = parse_place(path)
        if place is None:
            self._note(call, path, FileCase.INVALID_PATH.value)
            raise FileRefused(FileCase.INVALID_PATH)
        return place

    def _at(self, call: str, place: Place, needs: tuple[str, ...]) -> At:
        """The place, if the gates let the guest name it; they are asked again where the walk ends."""

        def admit(parts: Parts) -> None:
            if parts != place.parts:  # without a link on the way it is the place that was named
                self._check(call, place, parts, needs)

        tree = self._tree(place.root)
        self._check(call, place, place.parts, needs)
        return At(tree, place.parts, admit)

    def _check(self, call: str, place: Place, parts: Parts, needs: tuple[str, ...]) -> None:
        named = home_named(parts) if place.root is Root.HOME else parts
        for capability in needs:
            if not self._covers(capability, place.root, named):
                raise self._refused(call, place, capability)
        if place.root is Root.HOME:
            if not home_shows(parts, place.parts) or ("fs_write" in needs and not home_takes(parts)):
                raise self._refused(call, place, None, "the runtime keeps that part of the home")
        elif self._is_own(place.root) and "fs_write" in needs:
            raise self._refused(call, place, None, "without a workspace it is the capsule's own folder")

    def _covers(self, capability: str, root: Root, parts: Parts) -> bool:
        if self._roots.shows_own and capability == "fs_read" and self._is_own(root):
            return True
        return self._gates[capability].covers(root, parts, self._base(root))

    def _reaches(self, root: Root, parts: Parts) -> bool:
        """Whether something at this place, or below it, can be read."""
        return self._gates["fs_read"].touches(root, parts, self._base(root))

    def _base(self, root: Root) -> Parts | None:
        """The names down to a root, as literal entries see them: never into the aos home."""
        if root is Root.SCRATCH:
            return _SCRATCH_BASE
        if root is Root.HOME or self._workspace is None:
            return None
        return self._workspace.names

    def _is_own(self, root: Root) -> bool:
        return root is Root.WORKSPACE and self._workspace is None

    def _tree(self, root: Root) -> FileTree:
        if root is not Root.WORKSPACE:
            return self._kept(self._home if root is Root.HOME else self._scratch)
        text, tree = self._roots.workspace(), self._workspace
        if text is None:
            self._workspace = None
            return self._own
        if tree is None or str(tree.path) != text:
            self._workspace = tree = FileTree(Path(text), is_canonical=True, umask=self._roots.umask)
        return tree

    def _kept(self, tree: FileTree) -> FileTree:
        """A folder of the runtime's, which is made before it is first used, with `.config` in a home."""
        if tree not in self._found:
            try:
                make_private_folder(tree.path / ".config" if tree is self._home else tree.path)
            except AosError as error:
                raise FileRefused(FileCase.UNKNOWN, "its folder cannot be made") from error
            self._found.add(tree)
        return tree

    def _refused(
        self, call: str, place: Place, capability: str | None, rule: str | None = None
    ) -> FileRefused:
        """The refusal, with a line in the capsule's log that says which entry would allow it."""
        path = place.render()
        self._denied(
            FileDenial(
                operation=call,
                path=path,
                rule=rule or f"no {capability} entry covers it",
                allow=None if capability is None else f'[capabilities] {capability} = ["{path}"]',
            )
        )
        return FileRefused(FileCase.CAPABILITY_DENIED)


def make_files(
    home: Home,
    installed: Installed,
    context: GuestContext,
    note: Note,
    denied: Callable[[FileDenial], None],
    umask: int,
    grow: Grow,
) -> GuestFiles:
    """The files of one instance of an installed capsule.

    A run loop serves one caller after the other from one instance, so it is in none of their workspaces.
    """

    def workspace() -> str | None:
        current = context.current
        return None if current is None or context.is_loop else current.workspace

    roots = FileRoots(
        home=home.principal(installed.principal),
        scratch=home.scratch(installed.principal),
        own=installed.generation,
        workspace=workspace,
        umask=umask,
        grow=grow,
    )
    return GuestFiles(roots, gates_of(installed.receipt.capabilities), note=note, denied=denied)


def gates_of(capabilities: Capabilities) -> dict[str, FileGate]:
    """The gates by the name of their capability."""
    return {name: FileGate(capabilities.entries(name)) for name in BOTH}


def _noted(note: Note, call: str, place: str, operation: Callable[[], _T]) -> _T:
    """Run an operation and put on record how it ended, before the guest hears of it."""
    try:
        result = operation()
    except FileRefused as refusal:
        note(call, place, refusal.case.value)
        raise
    note(call, place, None)
    return result
