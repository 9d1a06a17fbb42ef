"""store.log_lines: one record is one line, whatever a guest writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.store.log_lines import (
    MAX_LINE_BYTES,
    Record,
    escape,
    parse_line,
    render_line,
    unescape,
)

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200)


def test_the_line_has_the_published_form() -> None:
    assert render_line(1785578400.1234, "INFO", "demo", "hello") == b"1785578400.123 INFO [demo] hello\n"


def test_log_05_a_message_cannot_end_its_line() -> None:
    forged = "ok\n2026-01-01T00:00:00Z INFO daemon: capsule approved\n1.000 ERROR [_daemon] boo"
    line = render_line(1.0, "INFO", "demo", forged)
    assert line.count(b"\n") == 1
    record = parse_line(line[:-1])
    assert (record.origin, record.level, record.message) == ("demo", "INFO", forged)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a\tb\r\n", "a\\tb\\r\\n"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2028b", "a\\u2028b"),
        ("\\n", "\\\\n"),
        ("äöü 한국 😀", "äöü 한국 😀"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_steers_a_terminal_is_escaped(text: str, escaped: str) -> None:
    assert escape(text) == escaped
    assert unescape(escaped) == text


@given(st.text())
def test_escaping_is_reversible_and_leaves_no_control(text: str) -> None:
    escaped = escape(text)
    assert unescape(escaped) == text
    assert escaped.isprintable() or not any(char < " " or "\x7f" <= char < "\xa0" for char in escaped)
    assert len(escaped.splitlines()) <= 1


@given(TEXT, st.sampled_from(["TRACE", "DEBUG", "INFO", "WARN", "ERROR"]), st.integers(0, 10**9))
def test_a_record_comes_back(message: str, level: str, milliseconds: int) -> None:
    time_s = milliseconds / 1000
    record = parse_line(render_line(time_s, level, "alice/demo", message)[:-1])
    assert record == Record(time_s=time_s, level=level, origin="alice/demo", message=message)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_record(data: bytes) -> None:
    record = parse_line(data, after_s=5.0, log=Path("demo.log"))
    assert record.is_parsed or (record.time_s, record.level, record.origin) == (5.0, "INFO", "demo")


def test_log_03_only_the_bad_byte_is_replaced() -> None:
    line = "1.000 INFO [demo] 한국".encode() + b"\xd0" + "어".encode()
    assert parse_line(line).message == "한국\ufffd어"


@pytest.mark.parametrize("unit", ["x", "한", "\x1b", "\\", "\u202e", "x\n"])
@pytest.mark.parametrize("offset", range(7))
def test_log_08_a_long_message_is_cut_at_the_bound_and_says_so(unit: str, offset: int) -> None:
    message = "x" * offset + unit * (1024 * 1024 // len(unit.encode()))
    line = render_line(1.0, "INFO", "demo", message)
    assert MAX_LINE_BYTES - 12 <= len(line) <= MAX_LINE_BYTES
    record = parse_line(line[:-1])
    kept, _, mark = record.message.rpartition(" [truncated: ")
    assert message.startswith(kept)
    assert mark == f"{len(message.encode())} bytes]"


def test_a_message_of_just_the_bound_is_whole() -> None:
    head = len(b"1.000 INFO [demo] \n")
    message = "x" * (MAX_LINE_BYTES - head)
    assert parse_line(render_line(1.0, "INFO", "demo", message)[:-1]).message == message
    assert b"[truncated: " in render_line(1.0, "INFO", "demo", message + "x")
