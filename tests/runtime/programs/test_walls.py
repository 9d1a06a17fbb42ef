"""What is shown behind bubblewrap: as options, and, where bubblewrap is, as a program sees it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from aos_runtime.errors import InvalidInput
from aos_runtime.programs import walls
from aos_runtime.programs.sandbox import Program, Sandbox, open_sandbox
from aos_runtime.programs.walls import (
    Masks,
    closing_options,
    find_masks,
    make_room,
    needed_files,
    wall_options,
)

HOME = Path("/h/aos")
HAS_WALL = shutil.which("bwrap") is not None


def nothing(name: str) -> Path | None:
    return None


def put(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def link(path: Path, target: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def test_the_walls_mask_the_home_and_show_the_capsule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, work = HOME / "capsules" / "x", Path("/work")
    masks = Masks(home=HOME, others=(Path("/h"),))
    monkeypatch.setattr(walls, "_NAMES", tmp_path)
    words = (*wall_options(masks, shown=(folder,), writable=(work,)), *closing_options(masks))
    assert " ".join(words) == (
        "--die-with-parent --unshare-user --unshare-pid --unshare-ipc --unshare-uts --cap-drop ALL "
        "--ro-bind / / --dev /dev --proc /proc "
        f"--tmpfs /h --tmpfs /tmp --tmpfs /h/aos --ro-bind {tmp_path} {tmp_path} "
        "--ro-bind /h/aos/capsules/x /h/aos/capsules/x "
        "--bind /work /work --remount-ro /h --remount-ro /h/aos"
    )


def test_what_is_masked_is_resolved_and_no_system_folder(tmp_path: Path) -> None:
    real, alias = tmp_path / "real", tmp_path / "alias"
    real.mkdir()
    alias.symlink_to(real)
    masks = find_masks(alias / "aos", {"HOME": str(alias)})
    assert masks.home == real / "aos"
    assert real in masks.others
    assert {Path("/run"), Path("/tmp")} <= set(masks.all)
    for user in ("/", "/usr", "/bin", "relative", "/nowhere/at/all"):
        found = find_masks(tmp_path / "aos", {"HOME": user}).all
        assert not {Path("/"), Path("/usr"), Path(user)} & set(found)


class TestNeededFiles:
    """Where a program lies in the masked home of a user."""

    @pytest.fixture
    def user(self, tmp_path: Path) -> Path:
        return tmp_path.resolve() / "user"

    def needs(self, user: Path, program: Path, find: object = nothing) -> set[str]:
        masks = Masks(home=user / ".aos", others=(user,))
        found = needed_files(program, masks, find)  # type: ignore[arg-type]
        return {str(path.relative_to(user)) for path in found}

    def test_a_program_of_the_machine_needs_nothing(
        self, user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = put(tmp_path.resolve() / "usr" / "bin" / "x")
        monkeypatch.setattr(walls, "SCRATCH", user / "tmp")
        assert needed_files(program, Masks(home=user / ".aos", others=(user,)), nothing) == ()

    def test_an_installation_is_shown_whole(self, user: Path) -> None:
        assert self.needs(user, put(user / ".pyenv/versions/3/bin/python3")) == {".pyenv/versions/3"}
        assert self.needs(user, put(user / ".pyenv/shims/python")) == {".pyenv"}

    def test_an_environment_leads_to_its_python(self, user: Path) -> None:
        python = put(user / ".pyenv/versions/3/bin/python3.11")
        middle = link(user / "project/.venv/bin/python3", python)
        program = link(user / "project/.venv/bin/python", Path("python3"))
        assert middle.exists()
        assert self.needs(user, program) == {"project/.venv", ".pyenv/versions/3"}

    def test_a_script_leads_to_its_interpreter(self, user: Path) -> None:
        python = link(user / "pipx/venvs/t/bin/python", put(user / "uv/python/3/bin/python3"))
        script = put(user / "pipx/venvs/t/bin/t", f"#!{python}\n")
        program = link(user / ".local/bin/t", script)
        assert self.needs(user, program) == {".local/bin/t", "pipx/venvs/t", "uv/python/3"}

    def test_env_finds_the_interpreter_on_the_path(self, user: Path) -> None:
        node = put(user / "nvm/v20/bin/node", "\x7fELF")
        program = put(user / ".local/bin/npx", "#!/usr/bin/env -S A=1 node --x\n")
        names: list[str] = []

        def find(name: str) -> Path:
            names.append(name)
            return node

        assert self.needs(user, program, find) == {".local/bin/npx", "nvm/v20"}
        assert names == ["node"]

    @pytest.mark.parametrize("place", ["bin/x", ".local/bin/x", ".ssh/x", "x"])
    def test_no_more_than_the_file_where_the_folder_is_no_installation(self, user: Path, place: str) -> None:
        assert self.needs(user, put(user / place, "")) == {place}

    def test_of_the_aos_home_nothing_is_shown(self, user: Path) -> None:
        secret = put(user / ".aos/runtime/keys/bin/x", "")
        assert self.needs(user, secret) == set()
        assert self.needs(user, link(user / "bin/x", secret)) == {"bin/x"}

    def test_a_circle_of_links_ends(self, user: Path) -> None:
        one = link(user / "t/bin/one", user / "t/bin/two")
        link(user / "t/bin/two", one)
        assert self.needs(user, one) == {"t"}


class TestRoom:
    """Where a file can be shown on a machine that is read-only."""

    masks = Masks(home=HOME, others=(Path("/run"),))

    def test_a_mask_has_room_and_a_file_is_covered(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(walls, "SCRATCH", Path("/scratch"))
        there = put(tmp_path / "there")
        for path in (HOME / "x", Path("/run/x/y"), there):
            assert make_room(self.masks, (), path) == ((), ())

    def test_else_its_folder_is_put_together_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(walls, "SCRATCH", Path("/scratch"))
        put(tmp_path / "a")
        link(tmp_path / "b", Path("a"))
        room = make_room(self.masks, (), tmp_path / "new" / "file")
        folder = str(tmp_path)
        assert room.options == (
            *("--tmpfs", folder),
            *("--ro-bind", f"{folder}/a", f"{folder}/a"),
            *("--symlink", "a", f"{folder}/b"),
        )
        assert room.last_options == ("--remount-ro", folder)

    def test_never_where_the_program_writes_nor_over_a_mask(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        work = tmp_path / "work"
        for path in (Path("/tmp/x"), work / "x", Path("/x"), Path("/x/y")):
            with pytest.raises(InvalidInput) as caught:
                make_room(self.masks, (work,), path)
            assert caught.value.code == "process-file-place"
        monkeypatch.setattr(walls, "SCRATCH", Path("/scratch"))
        link(tmp_path / "alias", work)
        masks = Masks(home=tmp_path / "a" / "home")
        (tmp_path / "a").mkdir()
        put(tmp_path / "file")
        for path in (tmp_path / "alias" / "x", tmp_path / "a" / "x", tmp_path / "file" / "x"):
            with pytest.raises(InvalidInput):
                make_room(masks, (work,), path)


class TestInside:
    """A real bubblewrap, where the machine has one: as root, and as anybody else."""

    __test__ = HAS_WALL
    pytestmark = pytest.mark.journey

    @pytest.fixture
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An aos home with a secret, in the home of a user with another, and a capsule in it."""
        user = tmp_path / "user"
        put(user / ".aos/runtime/keys/secret", "secret")
        put(user / ".ssh/secret", "secret")
        (user / ".aos/capsule").mkdir()
        monkeypatch.setenv("HOME", str(user))
        return user

    def run(self, place: Path, script: str, values: dict[str, str] | None = None, command: str = "sh") -> str:
        home = place / ".aos"
        sandbox = open_sandbox(home, allow_unsandboxed=False, mark="0" * 32)
        return run_in(sandbox, home / "capsule", (command, "-c", script), values or {})

    def test_what_is_masked_cannot_be_read(self, place: Path) -> None:
        script = f"cat {place}/.aos/runtime/keys/secret {place}/.ssh/secret; ls -A {place} /run /tmp"
        assert "secret\n" not in self.run(place, script).replace("keys/secret", "").replace("ssh/secret", "")

    @pytest.mark.parametrize(
        "attempt",
        [
            "umount -l {home}",
            "umount -l /tmp",
            "mount -o remount,bind,rw /",
            "unshare -Urm sh -c 'umount -l {home}; cat {home}/runtime/keys/secret'",
            "unshare -Urm sh -c 'mount -o remount,bind,rw / && touch /var/tmp/aos-probe'",
        ],
    )
    def test_the_walls_do_not_come_down(self, place: Path, attempt: str) -> None:
        home = f"{place}/.aos"
        said = self.run(place, f"({attempt.format(home=home)}) && echo DONE; cat {home}/runtime/keys/secret")
        assert "DONE" not in said
        assert "No such file" in said
        assert not Path("/var/tmp/aos-probe").exists()

    def test_it_has_no_rights_and_no_secret_words(self, place: Path) -> None:
        values = {"TOKEN": "sesame"}
        said = self.run(
            place, "grep CapEff /proc/self/status; echo $TOKEN $HOME; cat /proc/*/cmdline", values
        )
        first, second, rest = said.split("\n", 2)
        assert first.split() == ["CapEff:", "0" * 16]
        assert second == "sesame /tmp"
        assert "sesame" not in rest

    def test_what_it_sets_runs_nothing_outside(self, place: Path, tmp_path: Path) -> None:
        """The loader of bubblewrap itself must not see it: a library that is not there is complained of."""
        said = self.run(place, "true", {"LD_PRELOAD": "/nowhere/evil.so"}, command="true")
        assert said.count("/nowhere/evil.so") == 1  # by the program alone, inside

    def test_a_home_behind_a_link_is_masked(self, place: Path, tmp_path: Path) -> None:
        alias = link(tmp_path / "alias", place / ".aos")
        sandbox = open_sandbox(alias, allow_unsandboxed=False, mark="0" * 32)
        script = f"pwd; cat {place}/.aos/runtime/keys/secret {alias}/runtime/keys/secret"
        said = run_in(sandbox, alias / "capsule", ("sh", "-c", script), {})
        assert said.splitlines()[0] == f"{place}/.aos/capsule"
        assert said.count("No such file") == 2

    def test_a_program_installed_in_the_home_starts(self, place: Path) -> None:
        real = put(place / "opt/tool/bin/tool-1", '#!/bin/sh\ncat "$(dirname "$0")/../share/words"\n')
        put(place / "opt/tool/share/words", "shown\n")
        link(place / "opt/tool/bin/tool", real)
        sandbox = open_sandbox(place / ".aos", allow_unsandboxed=False, mark="0" * 32)
        said = run_in(sandbox, place / ".aos/capsule", (f"{place}/opt/tool/bin/tool",), {})
        assert said == "shown\n"

    def test_only_its_scratch_and_what_was_given_can_be_written(self, place: Path) -> None:
        work = place / "work"
        work.mkdir()
        sandbox = open_sandbox(place / ".aos", allow_unsandboxed=False, mark="0" * 32)
        script = f"for f in /tmp {work} {place} {place}/.aos /run /var/tmp .; do touch $f/x && echo $f; done"
        program = sandbox.machine_program("sh", ("-c", script), {}, start=Path("/"), writable=(work,))
        assert [line for line in output_of(program).splitlines() if ": " not in line] == ["/tmp", str(work)]
        assert (work / "x").exists()


def run_in(sandbox: Sandbox, folder: Path, words: tuple[str, ...], values: dict[str, str]) -> str:
    return output_of(sandbox.program(words[0], words[1:], folder, values))


def output_of(program: Program) -> str:
    """What it writes, both streams in one."""
    arguments, descriptors = program.open()
    try:
        return subprocess.run(
            arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(program.environ),
            cwd=program.folder,
            pass_fds=descriptors,
            timeout=60,
            check=False,
            text=True,
        ).stdout
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
