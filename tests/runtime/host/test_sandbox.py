"""The command line and the environment of a capsule's program."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from aos_runtime.errors import NotFound, Unavailable
from aos_runtime.host.sandbox import Sandbox, clear_environ, open_sandbox, wall_arguments

HOME, FOLDER = Path("/h/aos"), Path("/h/aos/capsules/x")


def fake_wall(folder: Path, status: int) -> dict[str, str]:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)
    return {"PATH": str(folder)}


def test_the_walls_mask_the_home_and_show_the_capsule() -> None:
    words = wall_arguments(HOME, FOLDER)
    assert " ".join(words) == (
        "--die-with-parent --unshare-pid --unshare-ipc --unshare-uts --ro-bind / / --dev /dev --proc /proc "
        "--tmpfs /tmp --tmpfs /h/aos --ro-bind /h/aos/capsules/x /h/aos/capsules/x --remount-ro /h/aos "
        "--chdir /h/aos/capsules/x"
    )


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


def test_a_program_is_the_capsules_own_or_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    own = tmp_path / "servers" / f"{platform.machine()}-unknown-linux-gnu"
    own.parent.mkdir()
    own.write_text("")
    open_air = Sandbox(home=HOME, wall=None)
    program = open_air.program("servers", ("-v",), tmp_path, {"KEY": "1"})
    assert (program.arguments, program.environ["KEY"]) == ((str(own), "-v"), "1")
    assert open_air.program("sh", (), tmp_path, {}).arguments[0].endswith("/sh")
    walled = Sandbox(home=HOME, wall="/usr/bin/bwrap").program("servers", ("-v",), tmp_path, {})
    expected = ("/usr/bin/bwrap", *wall_arguments(HOME, tmp_path), "--", str(own), "-v")
    assert walled.arguments == expected
    with pytest.raises(NotFound, match="there is no program `no-such-program`"):
        open_air.program("no-such-program", (), tmp_path, {})


def test_a_wall_that_works_is_used_whatever_the_operator_allows(tmp_path: Path) -> None:
    environ = fake_wall(tmp_path, 0)
    for allow in (False, True):
        sandbox = open_sandbox(HOME, allow_unsandboxed=allow, environ=environ)
        assert sandbox.wall == os.fspath(tmp_path / "bwrap")


def test_a_wall_that_does_not_is_refused_or_done_without(tmp_path: Path) -> None:
    environ = fake_wall(tmp_path, 1)
    assert open_sandbox(HOME, allow_unsandboxed=True, environ=environ).wall is None
    with pytest.raises(Unavailable, match="cannot run here"):
        open_sandbox(HOME, allow_unsandboxed=False, environ=environ)
    with pytest.raises(Unavailable, match="is not installed"):
        open_sandbox(HOME, allow_unsandboxed=False, environ={"PATH": "/nowhere"})
