"""The files of a guest over three folders of a test, with what was put on record and said in the log."""

from __future__ import annotations

from pathlib import Path

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.kernel.files import FileRoots, GuestFiles, gates_of
from aos_runtime.policy.file_gate import FileDenial
from aos_runtime.store.file_tree import Grow, has_room

EVERYTHING = Capabilities(fs_read=("cwd://", "home://", "/tmp"), fs_write=("cwd://", "home://", "/tmp"))


class FileRoom:
    """A home with what the runtime keeps in one, a workspace, and the files of an installed capsule."""

    def __init__(self, folder: Path) -> None:
        folder = folder.resolve()
        self.home = folder / "aos" / "home" / "alice"
        self.scratch = folder / "aos" / "scratch"
        self.workspace = folder / "project"
        generation = self.home / ".local/generations/demo/1"
        for made in (generation, self.home / ".local/tokens", self.home / ".config/env", self.workspace):
            made.mkdir(parents=True)
        (generation / "Capsule.toml").write_text("[package]\n")
        (self.home / ".local/capsules").mkdir()
        (self.home / ".local/capsules/demo").symlink_to("../generations/demo/1")
        (self.home / ".local/tokens/token").write_text("token")
        (self.home / ".config/env/demo.env.json").write_text("{}")
        self.own = generation
        self.notes: list[tuple[str, str, str | None]] = []
        self.denials: list[FileDenial] = []
        self.grow: Grow = has_room
        self.serves: str | None = str(self.workspace)
        """The workspace of the invocation."""

    def files(self, capabilities: Capabilities = EVERYTHING, *, shows_own: bool = False) -> GuestFiles:
        roots = FileRoots(
            home=self.home,
            scratch=self.scratch,
            own=self.own,
            workspace=lambda: self.serves,
            shows_own=shows_own,
            grow=self.grow,
        )
        return GuestFiles(
            roots,
            gates_of(capabilities),
            note=lambda *note: self.notes.append(note),
            denied=self.denials.append,
        )
