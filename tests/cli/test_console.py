"""aos_cli.console: what reaches a terminal, in which colour, and who can be asked."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_cli.console import Console, plain, safe, wants_color
from aos_runtime.errors import Unavailable

HOSTILE = "\x1b]0;title\x07\x1b[2K\r\x00\x7f\x9b31m\u202eevil\u2066\u200f\ud800"


def test_safe_escapes_everything_that_a_terminal_obeys() -> None:
    assert safe(HOSTILE) == (
        "\\x1b]0;title\\x07\\x1b[2K\\r\\x00\\x7f\\x9b31m\\u202eevil\\u2066\\u200f\\ud800"
    )


def test_safe_leaves_ordinary_text_of_any_script() -> None:
    assert safe("日本語 🦀 café — ok") == "日本語 🦀 café — ok"


def test_safe_keeps_lines_only_where_asked() -> None:
    assert safe("a\tb\nc\r") == "a\\tb\\nc\\r"
    assert safe("a\tb\nc\r", keep_lines=True) == "a\tb\nc\\r"


@given(st.text())
def test_safe_is_printable_on_one_line(text: str) -> None:
    shown = safe(text)
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) <= 0x9F for character in shown)
    assert len(shown.splitlines()) <= 1
    assert safe(shown) == shown


@pytest.mark.parametrize(
    ("choice", "environ", "is_terminal", "painted"),
    [
        (None, {}, True, True),
        (None, {}, False, False),
        (None, {"TERM": "dumb"}, True, False),
        (None, {"NO_COLOR": "1"}, True, False),
        (None, {"NO_COLOR": ""}, True, True),
        (None, {"FORCE_COLOR": "1"}, False, True),
        (None, {"FORCE_COLOR": "0"}, False, False),
        (None, {"CLICOLOR_FORCE": "1"}, False, True),
        (None, {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, True, False),
        (None, {"AOS_COLOR": "always", "NO_COLOR": "1"}, False, True),
        (None, {"AOS_COLOR": "never", "FORCE_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1", "AOS_COLOR": "never"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
        ("auto", {"AOS_COLOR": "always"}, False, False),
    ],
)
def test_colour_precedence(
    choice: str | None, environ: Mapping[str, str], is_terminal: bool, painted: bool
) -> None:
    assert wants_color(choice, environ, is_terminal=is_terminal) is painted  # type: ignore[arg-type]


def talk(console: Console) -> None:
    console.data("result")
    console.note("note")
    console.success("done")
    console.warn("careful")
    console.hint("do this")
    console.detail("detail")
    console.error("bad")


@pytest.mark.parametrize(
    ("quiet", "verbosity", "out", "err"),
    [
        (0, 0, "result\n", "note\n✓ done\nwarning: careful\nhint: do this\nerror: bad\n"),
        (0, 1, "result\n", "note\n✓ done\nwarning: careful\nhint: do this\ndetail\nerror: bad\n"),
        (1, 0, "result\n", "error: bad\n"),
        (2, 0, "", ""),
    ],
)
def test_quiet_keeps_results_and_errors_then_nothing(
    capsys: pytest.CaptureFixture[str], quiet: int, verbosity: int, out: str, err: str
) -> None:
    talk(Console(environ={}, quiet=quiet, verbosity=verbosity))
    assert capsys.readouterr() == (out, err)


def test_in_json_mode_stderr_holds_only_documents(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(environ={}, format="json", verbosity=1)
    console.note("note")
    console.success("done")
    console.hint("do this")
    console.detail("detail")
    console.warn("careful")
    with console.progress("working"):
        pass
    assert capsys.readouterr() == ("", '{"warning": {"message": "careful"}}\n')


def test_colour_is_decided_for_each_stream(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(environ={}, color="always")
    console.data(console.paint("green", "green", "bold"))
    console.warn("careful")
    assert capsys.readouterr() == ("\x1b[32;1mgreen\x1b[0m\n", "\x1b[33;1mwarning:\x1b[0m careful\n")


def test_json_is_one_document_of_any_script(capsys: pytest.CaptureFixture[str]) -> None:
    Console(environ={}).json({"name": "日本"})
    Console(environ={}).json({"a": [1]}, compact=True)
    assert capsys.readouterr().out == '{\n  "name": "日本"\n}\n{"a":[1]}\n'


def test_nobody_is_asked_without_a_terminal() -> None:
    console = Console(environ={})
    assert not console.interactive
    with pytest.raises(Unavailable) as refused:
        console.confirm("Install it?", default=False)
    assert (refused.value.code, refused.value.message) == (
        "no-terminal",
        "nobody is there to answer: Install it?",
    )


def test_progress_without_a_terminal_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Console(environ={}).progress("Starting the daemon"):
        pass
    with Console(environ={}, quiet=1).progress("Starting the daemon"):
        pass
    assert capsys.readouterr() == ("", "Starting the daemon ...\n")


@pytest.mark.parametrize(("columns", "width"), [("120", 120), ("", None), ("x", None), ("0", None)])
def test_width_is_columns_or_none_where_stdout_is_no_terminal(columns: str, width: int | None) -> None:
    assert Console(environ={"COLUMNS": columns}).width == width


def test_plain_text_looks_like_nothing_but_itself() -> None:
    wrapped = "api.example.com" + " " * 3 + "Signed by:  this home"
    assert plain(wrapped) == "api.example.com \\x20\\x20Signed by: \\x20this home"
    assert plain("\u0430pi.org") == "\\u0430pi.org"
    assert plain("a\u3000b\u2800c\u3164d\x1b[2J\ne") == "a\\u3000b\\u2800c\\u3164d\\x1b[2J\\ne"
    assert plain("npx -y files") == "npx -y files"


@given(st.text())
def test_plain_text_is_short_of_everything_that_moves_a_cursor(text: str) -> None:
    shown = plain(text)
    assert shown.isascii()
    assert shown.isprintable() or not shown
    assert "  " not in shown
