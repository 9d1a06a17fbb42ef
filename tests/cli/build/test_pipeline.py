"""What is said during a build, and what is decided between the rooms."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_cli.build.cargo import Crate, Project
from aos_cli.build.pipeline import Talk, _sdk_warnings, _terminal
from aos_cli.console import Console
from aos_runtime.errors import InvalidInput, Issue

DOUBT = Issue(message="looks wrong", file="Capsule.toml", line=2, hint="mend it")


def talk(*, strict: bool) -> Talk:
    return Talk(console=Console(environ={}), strict=strict)


def project(sdk: str) -> Project:
    def crate(name: str, version: str, source: str | None) -> Crate:
        return Crate(id=name, name=name, version=version, source=source, folder=Path("/p"))

    package = crate("demo", "0.1.0", None)
    crates = (package, crate("astrid-sdk", sdk, "registry"))
    return Project(
        package=package, stem="demo", crates=crates, workspace=Path("/p"), target_folder=Path("/p/target")
    )


def test_a_doubt_is_said_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    here = talk(strict=False)
    here.doubt(DOUBT)
    assert here.warnings == [DOUBT]
    assert capsys.readouterr().err == "warning: Capsule.toml:2: looks wrong\nhint: mend it\n"


def test_strict_fails_on_a_doubt_and_not_on_a_plain_warning() -> None:
    here = talk(strict=True)
    here.warn(DOUBT)
    with pytest.raises(InvalidInput) as caught:
        here.doubt(DOUBT)
    assert caught.value.issues == (DOUBT,)
    here.doubt()


def test_what_is_said_cannot_paint_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    talk(strict=False).warn(Issue(message="a\x1b[2Jb", hint="c\rd"))
    assert capsys.readouterr().err == "warning: a\\x1b[2Jb\nhint: c\\rd\n"


def test_new_04_the_sdk_whose_tools_are_never_found_is_named_with_the_command() -> None:
    (issue,) = _sdk_warnings(project("0.7.0"))
    assert "astrid-sdk is locked to 0.7.0" in issue.message
    assert issue.hint == "run `cargo update -p astrid-sdk`"
    assert _sdk_warnings(project("0.7.1")) == ()


def test_cargo_is_told_about_the_terminal_behind_the_pipe() -> None:
    assert _terminal(Console(environ={}, color="always")) == {"CARGO_TERM_COLOR": "always"}
    assert _terminal(Console(environ={}, color="never")) == {"CARGO_TERM_COLOR": "never"}
