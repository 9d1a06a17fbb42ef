"""aos_cli.app: options, failures and exit statuses of whole command lines, inside this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aos_cli import app
from aos_cli.invocation import get_invocation
from aos_cli.signals import Terminated
from tests.cli.conftest import RunAos

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "cli"


def test_bare_aos_is_its_help(run_aos: RunAos) -> None:
    bare, asked = run_aos(), run_aos("--help")
    assert (bare.status, bare.err) == (0, "")
    assert bare.out == asked.out == (GOLDEN / "help" / "aos.txt").read_text(encoding="utf-8")


def test_help_is_a_word_too(run_aos: RunAos) -> None:
    assert run_aos("help").out == run_aos("--help").out
    assert run_aos("help", "tool", "call").out == run_aos("tool", "call", "--help").out


def test_a_group_without_a_command_is_its_help_and_usage(run_aos: RunAos) -> None:
    ended = run_aos("capsule")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (GOLDEN / "help" / "aos-capsule.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words", [["--version"], ["-V"], ["version"], ["-q", "--version"], ["--principal", "bob", "version"]]
)
def test_the_version_in_every_form(run_aos: RunAos, words: list[str]) -> None:
    ended = run_aos(*words)
    assert (ended.status, ended.out, ended.err) == (0, "aos 0.1.0\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ["--json", "status"],
        ["status", "--json"],
        ["--format", "json", "status"],
        ["status", "--format", "JSON"],
        ["status", "--format=json"],
    ],
)
def test_global_options_stand_anywhere(run_aos: RunAos, words: list[str]) -> None:
    ended = run_aos(*words)
    assert (ended.status, ended.out, ended.err) == (0, '{\n  "state": "stopped"\n}\n', "")


@pytest.mark.parametrize("word", ["jsn", "yaml", ""])
@pytest.mark.parametrize("place", [0, 1])
def test_lst_17_an_unknown_format_is_a_usage_error_that_names_the_choices(
    run_aos: RunAos, word: str, place: int
) -> None:
    words = ["capsule", "list"]
    words[place:place] = ["--format", word]
    ended = run_aos(*words)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.splitlines()[0] == (
        f"error: invalid value for '--format': {word!r} is not one of pretty, json"
    )


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["capsul", "list"], "`aos` has no command 'capsul'", "did you mean `aos capsule` or `aos caps`?"),
        (
            ["capsule", "instal", "x"],
            "`aos capsule` has no command 'instal'",
            "did you mean `aos capsule install`?",
        ),
        (["install", "x"], "`aos` has no command 'install'", "did you mean `aos capsule install`?"),
        (["frobnicate"], "`aos` has no command 'frobnicate'", "run `aos --help` for the list"),
        (["\x1b[2Jfrob"], "`aos` has no command '\\x1b[2Jfrob'", "run `aos --help` for the list"),
    ],
)
def test_cpl_08_a_misspelt_command_is_answered_without_a_daemon(
    run_aos: RunAos, words: list[str], message: str, hint: str
) -> None:
    ended = run_aos(*words)
    assert (ended.status, ended.out, ended.err) == (2, "", f"error: {message}\nhint: {hint}\n")


def test_errors_are_documents_in_json_mode_even_before_the_options_are_read(run_aos: RunAos) -> None:
    ended = run_aos("status", "--bogus", "--json")
    assert (ended.status, ended.out) == (2, "")
    assert ended.error["code"] == "usage"
    assert run_aos("--json", "capsul").error["code"] == "unknown-command"


def test_json_behind_a_double_dash_is_no_option(run_aos: RunAos) -> None:
    ended = run_aos("capsule", "show", "--", "--json")
    assert (ended.status, ended.err.splitlines()[0]) == (
        1,
        "error: capsule `--json` is not installed for principal `default`",
    )


def test_an_invalid_principal_is_a_usage_error(run_aos: RunAos) -> None:
    ended = run_aos("--principal", "../root", "capsule", "list")
    assert ended.status == 2
    assert ended.err.splitlines()[0] == (
        "error: invalid value for '--principal': invalid principal name '../root'; use ASCII letters, "
        "digits, hyphens and underscores, at most 64 characters"
    )


@pytest.mark.parametrize(
    ("option", "environ", "principal"),
    [
        (None, {}, "default"),
        (None, {"ASTRID_PRINCIPAL": "carol"}, "carol"),
        (None, {"ASTRID_PRINCIPAL": "carol", "AOS_PRINCIPAL": "bob"}, "bob"),
        ("alice", {"AOS_PRINCIPAL": "bob"}, "alice"),
    ],
)
def test_lst_09_whose_capsules_are_meant(
    run_aos: RunAos,
    monkeypatch: pytest.MonkeyPatch,
    option: str | None,
    environ: dict[str, str],
    principal: str,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    words = ["capsule", "list"] + ([] if option is None else ["--principal", option])
    ended = run_aos(*words)
    assert ended.err.splitlines()[0] == f"No capsules are installed for principal `{principal}`."
    assert get_invocation().principal == principal


def raising(error: BaseException) -> Callable[..., int]:
    def dispatch(*_arguments: object) -> int:
        raise error

    return dispatch


@pytest.mark.parametrize(
    ("error", "status", "err"),
    [
        (KeyboardInterrupt(), 130, ""),
        (Terminated(), 143, ""),
        (
            ValueError("boom"),
            1,
            "error: unexpected failure: ValueError: boom\n"
            "hint: this is a bug in aos: run it again with AOS_BACKTRACE=1 and report what it prints\n",
        ),
    ],
)
def test_every_failure_has_a_status_and_no_traceback(
    run_aos: RunAos, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, err: str
) -> None:
    monkeypatch.setattr(app, "_dispatch", raising(error))
    ended = run_aos("status")
    assert (ended.status, ended.out, ended.err) == (status, "", err)


def test_the_traceback_is_there_for_who_asks(run_aos: RunAos, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_dispatch", raising(ValueError("boom")))
    monkeypatch.setenv("AOS_BACKTRACE", "1")
    assert run_aos("status").err.startswith("Traceback (most recent call last):\n")


def test_two_quiets_leave_only_the_status(run_aos: RunAos) -> None:
    ended = run_aos("-qq", "capsule", "show", "nope")
    assert (ended.status, ended.out, ended.err) == (1, "", "")


def test_lst_08_a_reader_that_goes_away_ends_it_quietly() -> None:
    code = "import sys, os; from aos_cli.app import run; sys.exit(run(['completions', 'bash'], os.environ))"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=python_environment(),
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait(timeout=30)) == (b"", 0)
    process.stderr.close()


@pytest.mark.parametrize("home", ["", "relative/home"])
def test_dmn_09_without_a_usable_home_the_message_names_the_variable(home: str, tmp_path: Path) -> None:
    environ = {"PYTHONPATH": python_environment()["PYTHONPATH"], "HOME": home}
    ended = subprocess.run(
        [sys.executable, "-m", "aos_cli", "status"],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.out if hasattr(ended, "out") else ended.stdout) == (1, "")
    assert "hint: set AOS_HOME to an absolute path" in ended.stderr
    assert list(tmp_path.iterdir()) == []
    for words in (["--help"], ["--version"], ["completions", "bash"]):
        works = subprocess.run(
            [sys.executable, "-m", "aos_cli", *words],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert (works.returncode, works.stderr) == (0, b"")
    assert list(tmp_path.iterdir()) == []


def python_environment() -> dict[str, str]:
    """An environment in which a child finds this checkout."""
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "runtime")])}
