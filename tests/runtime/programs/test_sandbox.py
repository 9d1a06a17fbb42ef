"""The command line and the environment of a capsule's program."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from aos_runtime.errors import InvalidInput, NotFound, Unavailable
from aos_runtime.programs.sandbox import (
    Program,
    Sandbox,
    Shown,
    clear_environ,
    controls_loader,
    environ_options,
    find_program,
    open_sandbox,
)
from aos_runtime.programs.walls import Masks, closing_options, wall_options

HOME = Path("/h/aos")
MASKS = Masks(home=HOME)
MARK = "0" * 32


def fake_wall(folder: Path, status: int) -> dict[str, str]:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)
    return {"PATH": str(folder)}


def sandbox(wall: str | None = None, masks: Masks = MASKS) -> Sandbox:
    return Sandbox(masks=masks, wall=wall, mark=MARK)


def options_of(program: Program) -> list[str]:
    return [os.fsdecode(word) for word in (program.options + program.last_options).split(b"\0")[:-1]]


def tool(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_environment_is_cleared() -> None:
    given = {
        "PATH": "/p",
        "LANG": "C",
        "LC_TIME": "de",
        "TZ": "UTC",
        "HOME": "/h",
        "AOS_HOME": "/x",
        "KEY": "s",
    }
    assert clear_environ(given) == {"PATH": "/p", "LANG": "C", "LC_TIME": "de", "TZ": "UTC"}
    assert clear_environ({}) == {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def test_only_absolute_folders_of_path_count() -> None:
    assert clear_environ({"PATH": ".:/a::bin:/b"})["PATH"] == "/a:/b"
    assert clear_environ({"PATH": "bin:."})["PATH"] == "/usr/local/bin:/usr/bin:/bin"


def test_values_reach_neither_bubblewrap_nor_a_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": "/usr/bin:/bin"})
    values = {"LD_PRELOAD": "./evil.so", "TOKEN": "sesame", "PATH": "/evil"}
    program = sandbox("/usr/bin/bwrap").program("sh", ("-v",), tmp_path, values)
    assert program.environ == {"PATH": "/usr/bin:/bin", "AOS_CHILD": MARK}
    arguments, descriptors = program.open()
    try:
        [descriptor] = descriptors
        words = (os.fspath(Path("/usr/bin").resolve() / "sh"), "-v")
        assert arguments == ("/usr/bin/bwrap", "--args", str(descriptor), "--", *words)
        assert os.read(descriptor, 1 << 20) == program.options + program.last_options
    finally:
        os.close(descriptor)
    expected = {"PATH": "/evil", "HOME": "/tmp", "LD_PRELOAD": "./evil.so", "TOKEN": "sesame"}
    inside = environ_options(expected)
    assert options_of(program) == [
        *wall_options(MASKS, shown=(tmp_path,)),
        *closing_options(MASKS),
        *("--chdir", str(tmp_path)),
        *inside,
    ]
    assert program.warnings == ()


def test_without_walls_what_controls_the_loader_is_dropped_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": "/usr/bin:/bin"})
    values = {"LD_PRELOAD": "./evil.so", "TOKEN": "sesame", "AOS_CHILD": "forged"}
    program = sandbox().program("sh", (), tmp_path, values)
    assert program.environ == {"PATH": "/usr/bin:/bin", "TOKEN": "sesame", "AOS_CHILD": MARK}
    assert program.warnings == (
        "`LD_PRELOAD` is not passed on without bubblewrap: it makes a program run other code",
    )
    assert program.open() == (program.words, ())


@pytest.mark.parametrize("key", ["LD_AUDIT", "DYLD_INSERT_LIBRARIES", "GLIBC_TUNABLES", "BASH_ENV"])
def test_names_that_control_the_loader(key: str) -> None:
    assert controls_loader(key)
    assert not controls_loader("X" + key)


@pytest.mark.parametrize("value", ["x\0--bind\0/\0/\0", "\ud800"], ids=["nul", "surrogate"])
@pytest.mark.parametrize("wall", [None, "/usr/bin/bwrap"])
def test_a_value_cannot_become_an_option(tmp_path: Path, wall: str | None, value: str) -> None:
    with pytest.raises(InvalidInput, match="the value of `KEY` holds a character") as caught:
        sandbox(wall).program("sh", (), tmp_path, {"KEY": value})
    assert caught.value.code == "process-environment-value"


def test_a_program_is_the_capsules_own_or_one_on_the_path(tmp_path: Path) -> None:
    folder, path = tmp_path / "capsule", str(tmp_path / "bin")
    own = tool(folder / "servers" / f"{platform.machine()}-unknown-linux-gnu")
    script = tool(folder / "run" / "it")
    there = tool(tmp_path / "bin" / "there")
    assert find_program("servers", folder, path) == own
    assert find_program("./run/it", folder, path) == script
    assert find_program("there", folder, path) == there
    assert find_program(str(there), folder, path) == there
    for word in (
        "no-such-program",
        "",
        ".",
        "..",
        "../bin/there",
        "run/../../bin/there",
        "/nowhere",
        "bin/x",
    ):
        assert find_program(word, folder, path) is None, word


def test_a_path_with_a_slash_is_not_looked_for_where_the_daemon_happens_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path / "here" / "x")
    tool(tmp_path / "x")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", {"PATH": ".:here"})
    folder = tmp_path / "capsule"
    folder.mkdir()
    for word in ("here/x", "./x", "x"):
        with pytest.raises(NotFound, match="there is no program"):
            sandbox().program(word, (), folder, {"PATH": str(tmp_path)})


def test_nothing_of_the_home_is_a_program_but_the_capsules(tmp_path: Path) -> None:
    home = tmp_path / "home"
    own, other = tool(home / "capsule" / "x"), tool(home / "runtime" / "bin" / "x")
    held = sandbox(masks=Masks(home=home))
    assert held.program("x", (), home / "capsule", {}).words == (str(own),)
    with pytest.raises(NotFound):
        held.program(str(other), (), home / "capsule", {})


def test_a_program_of_the_machine_starts_where_it_is_told_and_writes_there(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    program = sandbox("/bwrap").machine_program("sh", (), {}, start=work, writable=(work,))
    words = options_of(program)
    walls = [*wall_options(MASKS, shown=(), writable=(work,)), *closing_options(MASKS)]
    assert words[: len(walls) + 2] == [*walls, "--chdir", str(work)]
    assert program.folder == work


def test_abi_25_a_program_is_never_one_that_could_have_been_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake `tool` first on PATH in the workspace, by a link, and in the aos home."""
    work, home, real = tmp_path / "work", tmp_path / "home", tool(tmp_path / "usr" / "tool")
    fake, inside = tool(work / "bin" / "tool"), tool(home / "bin" / "tool")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "tool").symlink_to(fake)
    (tmp_path / "alias").symlink_to(work / "bin")
    held = sandbox(masks=Masks(home=home))
    for first in (fake.parent, inside.parent, tmp_path / "alias"):
        monkeypatch.setattr(os, "environ", {"PATH": f"{first}:{real.parent}"})
        assert held.machine_program("tool", (), {}, start=work, writable=(work,)).words == (str(real),)
    monkeypatch.setattr(os, "environ", {"PATH": str(tmp_path / "links")})
    for word in ("tool", str(fake), str(inside), "./bin/tool", "bin/tool", "../work/bin/tool"):
        with pytest.raises(NotFound):
            held.machine_program(word, (), {}, start=work, writable=(work,))
    assert held.machine_program(str(real), (), {}, start=work, writable=(work,)).words == (str(real),)


def test_files_are_placed_before_the_masks_close(tmp_path: Path) -> None:
    place = HOME / "injected" / "0"
    files = (Shown(place, b"rules"),)
    program = sandbox("/bwrap").machine_program("sh", (), {}, start=tmp_path, writable=(), files=files)
    arguments, descriptors = program.open()
    try:
        words = [os.fsdecode(word) for word in os.read(descriptors[0], 1 << 20).split(b"\0")]
        at = words.index("--ro-bind-data")
        assert words[at + 1 : at + 3] == [str(descriptors[1]), str(place)]
        assert at < words.index("--remount-ro")
        assert os.read(descriptors[1], 100) == b"rules"
        assert arguments[:2] == ("/bwrap", "--args")
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def test_a_wall_that_works_is_used_whatever_the_operator_allows(tmp_path: Path) -> None:
    environ = fake_wall(tmp_path, 0)
    for allow in (False, True):
        made = open_sandbox(HOME, allow_unsandboxed=allow, mark=MARK, environ=environ)
        assert made.wall == os.fspath(tmp_path / "bwrap")


def test_a_wall_that_does_not_is_refused_or_done_without(tmp_path: Path) -> None:
    environ = fake_wall(tmp_path, 1)
    assert open_sandbox(HOME, allow_unsandboxed=True, mark=MARK, environ=environ).wall is None
    with pytest.raises(Unavailable, match="cannot run here"):
        open_sandbox(HOME, allow_unsandboxed=False, mark=MARK, environ=environ)
    with pytest.raises(Unavailable, match="is not installed"):
        open_sandbox(HOME, allow_unsandboxed=False, mark=MARK, environ={"PATH": "/nowhere"})


def test_it_is_tried_with_the_walls_that_programs_get(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    wall = tmp_path / "bwrap"
    wall.write_text(f"#!/bin/sh\n/bin/cat /proc/self/fd/$2 >{tried}\n")
    wall.chmod(0o755)
    open_sandbox(HOME, allow_unsandboxed=False, mark=MARK, environ={"PATH": str(tmp_path)})
    words = tried.read_bytes().decode().split("\0")
    assert {"--unshare-user", "--cap-drop", "--unshare-pid", "--clearenv"} <= set(words)
