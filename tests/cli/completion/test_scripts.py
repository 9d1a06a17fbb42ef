"""The completion scripts: what is checked in is what the tree gives, and it works in the shells themselves.

A `python` and an `aos` that fail stand first on PATH, so that a script which ran a program would be seen.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from aos_cli.completion.fish import render_fish
from aos_cli.completion.model import NOTHING, Node, Option, Value, read_tree
from aos_cli.completion.scripts import render_script
from aos_cli.data import SCRIPT_FILES, data_folder
from aos_cli.tree import ROOT, Entry
from aos_runtime.home import Home
from tests.cli.conftest import RunAos
from tests.support.terminal import type_into

INDEX = (
    "capsule\thello\n"
    "capsule\trouter\n"
    "template\ttool\n"
    "tool\thello\n"
    "tool\tns:other\n"
    "tool\tns:tool\n"
    "tool\t$(touch pwned)\n"
    "tool\t`touch pwned`\n"
    "broken line\n"
)
EXPECTED = [
    ("aos ", [entry.name for entry in ROOT.children]),
    ("aos caps", ["caps", "capsule"]),
    ("aos capsule ", ["new", "build", "install", "list", "show", "config", "remove"]),
    ("aos --json capsule sh", ["show"]),
    ("aos capsule show ", ["hello", "router"]),
    ("aos capsule remove h", ["hello"]),
    ("aos logs r", ["router"]),
    ("aos tool call h", ["hello"]),
    ("aos tool show --no-start h", ["hello"]),
    ("aos --format ", ["pretty", "json"]),
    ("aos --format json st", ["start", "stop", "status"]),
    ("aos logs --level w", ["warn"]),
    ("aos capsule new x --kind ", ["tool"]),
    ("aos completions ", ["bash", "zsh", "fish", "powershell"]),
    ("aos start --ephem", ["--ephemeral"]),
    ("aos capsule install --approve", ["--approve-untrusted"]),
]


@pytest.fixture
def stage(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to stand in, an index, and failing programs first on PATH; nothing may have run at the end."""
    home.var.mkdir(parents=True)
    home.names_index.write_text(INDEX, encoding="utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", "python3", "aos"):
        program = programs / name
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n", encoding="ascii")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    assert not (tmp_path / "ran").exists(), "completion ran a program"
    assert list(folder.iterdir()) == [], "completion executed a name"


def script(shell: str) -> str:
    return str(data_folder("completions") / SCRIPT_FILES[shell])


@pytest.mark.parametrize("shell", SCRIPT_FILES)
def test_what_is_checked_in_is_what_the_tree_gives(shell: str, run_aos: RunAos) -> None:
    printed = run_aos("completions", shell)
    assert (printed.status, printed.err) == (0, "")
    assert printed.out == render_script(shell), "run `python -m aos_cli.completion`"


def test_the_model_has_every_command_of_the_tree() -> None:
    def paths(entry: Entry, path: str) -> list[str]:
        return [path, *(one for child in entry.children for one in paths(child, f"{path} {child.name}"))]

    assert [node.path for node in read_tree()] == paths(ROOT, "aos")


def test_an_unknown_shell_is_a_usage_error(run_aos: RunAos) -> None:
    ended = run_aos("completions", "tcsh")
    assert (ended.status, ended.err.splitlines()[0]) == (
        2,
        "error: invalid value for SHELL: 'tcsh' is not one of bash, zsh, fish, powershell",
    )


# bash


def complete_in_bash(line: str, environ: dict[str, str] | None = None) -> list[str]:
    program = (
        f"source {script('bash')}; COMP_LINE=$1; COMP_POINT=${{#1}}; COMPREPLY=(); _aos; "
        'status=$?; printf "%s\\n" "${COMPREPLY[@]}"; exit $status'
    )
    ended = subprocess.run(
        ["bash", "--norc", "-c", program, "bash", line],
        env=dict(os.environ) if environ is None else environ,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert ended.stderr == ""
    return ended.stdout.split()


@pytest.mark.parametrize(("line", "words"), EXPECTED)
def test_bash(stage: Path, line: str, words: list[str]) -> None:
    assert sorted(set(complete_in_bash(line))) == sorted(words)


def test_cpl_04_bash_does_not_double_what_stands_before_a_colon(stage: Path) -> None:
    assert complete_in_bash("aos tool call ns:t") == ["tool"]
    assert complete_in_bash("aos capsule install x --var KEY=") == []
    assert complete_in_bash("aos --format=j") == ["json"]


def test_bash_completes_archives_and_folders(stage: Path, tmp_path: Path) -> None:
    (tmp_path / "files" / "dist").mkdir(parents=True)
    (tmp_path / "files" / "a.capsule").write_bytes(b"")
    (tmp_path / "files" / "a.txt").write_bytes(b"")
    here = f"{tmp_path}/files/"
    assert complete_in_bash(f"aos capsule install {here}") == [f"{here}a.capsule", f"{here}dist"]
    assert complete_in_bash(f"aos capsule build -o {here}") == [f"{here}dist"]


@pytest.mark.parametrize("case", ["no home", "relative home", "unreadable", "a folder", "no variable"])
def test_cpl_06_bash_is_silent_where_there_is_no_index(stage: Path, home: Home, case: str) -> None:
    environ = dict(os.environ)
    if case == "no home":
        environ["AOS_HOME"] = str(home.root / "missing")
    elif case == "relative home":
        environ["AOS_HOME"] = "relative"
    elif case == "no variable":
        del environ["AOS_HOME"], environ["HOME"]
    else:
        home.names_index.unlink()
        if case == "a folder":
            home.names_index.mkdir()
    assert complete_in_bash("aos capsule show ", environ) == []


def test_bash_on_a_real_terminal(stage: Path) -> None:
    """TAB in an interactive bash puts the one match on the line."""
    screen = type_into(
        ["bash", "--norc", "-i"],
        [f"source {script('bash')}\n", "aos capsule sh\thel\t", "\x15echo done\n"],
        until="done\r\n",
    )
    assert "aos capsule show hello" in screen


# zsh and fish


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("line", "words"), EXPECTED)
def test_fish(stage: Path, line: str, words: list[str]) -> None:
    program = f"source {script('fish')}; complete -C $argv[1]"
    ended = subprocess.run(
        ["fish", "-N", "-c", program, line], capture_output=True, text=True, timeout=20, check=True
    )
    assert ended.stderr == ""
    assert sorted({row.partition("\t")[0] for row in ended.stdout.splitlines()}) == sorted(words)


def test_cpl_02_fish_descriptions_are_one_line_and_nothing_is_expanded() -> None:
    hostile = "tab\\ 'quote' $(touch x) *bold* é : colon"
    node = Node(
        path="aos",
        summary="",
        children=(("odd", hostile),),
        options=(Option(names=("--odd",), help=hostile, value=Value(kind="words", words=("a",))),),
        argument=NOTHING,
    )
    quoted = "'tab\\\\ \\'quote\\' $(touch x) *bold* é : colon'"
    lines = render_fish([node]).splitlines()
    assert lines[-2:] == [
        f"complete -c aos -n '__aos_at \\'aos\\'' -a odd -d {quoted}",
        f"complete -c aos -n '__aos_at \\'aos\\'' -l odd -x -a 'a' -d {quoted}",
    ]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.slow
def test_zsh_on_a_real_terminal(stage: Path) -> None:
    screen = type_into(
        ["zsh", "-f", "-i"],
        [
            f"autoload -Uz compinit && compinit -u -D && source {script('zsh')}\n",
            "aos capsule sh\t",
            "hel\t",
            "\x15aos tool call ns:o\t",
            "\x15aos --format js\t",
            "\x15echo do''ne\n",
        ],
        until="done\r",
    )
    for line in ("aos capsule show hello", "aos tool call ns:other", "aos --format json"):
        assert line in re.sub(".\b", "", screen), screen
