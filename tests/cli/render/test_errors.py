"""aos_cli.render.errors: a failure as words, document and status."""

from __future__ import annotations

from pathlib import Path

from aos_cli.render.errors import Described, describe, signal_name
from aos_cli.signals import Terminated
from aos_runtime.errors import InvalidInput, Issue, NotFound


def test_an_expected_failure_with_all_its_issues() -> None:
    error = InvalidInput(
        "manifest-invalid",
        "Capsule.toml is no manifest",
        hint="correct it",
        issues=[
            Issue(message="`name` is missing", file="Capsule.toml", line=1, column=2),
            Issue(message="bad \x1b[31mtext", hint="write it plainly"),
        ],
        path=Path("/x"),
        wanted=("a", 1),
    )
    assert describe(error) == Described(
        status=1,
        code="manifest-invalid",
        message="Capsule.toml is no manifest",
        hint="correct it",
        details=("Capsule.toml:1:2: `name` is missing", "bad \\x1b[31mtext (write it plainly)"),
        context={"path": "/x", "wanted": ["a", 1]},
    )


def test_the_document_has_code_message_and_hint() -> None:
    assert describe(NotFound("x-missing", "no x", hint="make one", name="x")).document() == {
        "error": {"code": "x-missing", "message": "no x", "hint": "make one", "context": {"name": "x"}}
    }


def test_guest_text_in_a_message_cannot_paint() -> None:
    assert describe(NotFound("a", "no \x1b[2J", hint="b\x07")).message == "no \\x1b[2J"


def test_signals_say_nothing_and_end_with_their_status() -> None:
    assert describe(KeyboardInterrupt()) == Described(status=130, code="interrupted")
    assert describe(Terminated()) == Described(status=143, code="terminated")


def test_the_system_s_errors_name_the_path() -> None:
    described = describe(PermissionError(13, "Permission denied", "/somewhere/x"))
    assert (described.status, described.code, described.message) == (
        1,
        "os-error",
        "Permission denied: /somewhere/x",
    )


def test_a_bug_says_that_it_is_one() -> None:
    described = describe(ZeroDivisionError("division by zero"))
    assert (described.code, described.message) == (
        "internal-error",
        "unexpected failure: ZeroDivisionError: division by zero",
    )


def test_signal_names() -> None:
    assert (signal_name(9), signal_name(999)) == ("SIGKILL", "signal 999")
