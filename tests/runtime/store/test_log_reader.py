"""store.log_reader: nothing that happens to a file while it is read ends the reading."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, PrincipalName
from aos_runtime.store import log_reader
from aos_runtime.store.log_lines import Record
from aos_runtime.store.log_reader import find_logs, follow, read_records
from tests.runtime.store.conftest import names


def line(time_s: float, message: str, level: str = "INFO", origin: str = "demo") -> str:
    return f"{time_s:.3f} {level} [{origin}] {message}\n"


def _messages(records: object) -> list[str]:
    return [record.message for record in records]  # type: ignore[attr-defined]  # any iterable of records


class Waits:
    """A wait that runs one step each time it is called and ends the following after the last."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.steps = list(steps)

    def __call__(self) -> bool:
        if not self.steps:
            return False
        self.steps.pop(0)()
        return True


def _append(path: Path, text: str | bytes) -> Callable[[], object]:
    data = text.encode() if isinstance(text, str) else text

    def run() -> None:
        with path.open("ab") as file:
            file.write(data)

    return run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "demo.log"


def test_files_and_rotations_are_merged_by_time(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    log.write_text(line(5, "e") + line(7, "g"))
    log.with_name("demo.log.20260102T000000.000000Z").write_text(line(3, "c"))
    packed = zstandard.ZstdCompressor().compress((line(1, "a") + line(2, "b")).encode())
    log.with_name("demo.log.20260101T000000.000000Z.zst").write_bytes(packed)
    other.write_text(line(4, "d") + line(6, "f"))
    assert _messages(read_records([log, other])) == list("abcdefg")
    for limit in range(9):
        assert (
            _messages(read_records([log, other, log], limit=limit)) == list("abcdefg")[-limit:][: limit or 0]
        )


@pytest.mark.parametrize("limit", [None, 100])
def test_filters(log: Path, limit: int | None) -> None:
    levels = ("DEBUG", "INFO", "WARN", "ERROR")
    log.write_text("".join(line(number, f"m{number}", level) for number, level in enumerate(levels)))
    assert _messages(read_records([log], level="WARN", limit=limit)) == ["m2", "m3"]
    assert _messages(read_records([log], since=1.0, until=2.0, limit=limit)) == ["m1", "m2"]
    assert _messages(read_records([log], grep=re.compile("[03]"), limit=limit)) == ["m0", "m3"]


def test_the_last_few_are_found_over_block_borders(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"한국어 {number} " + "ü" * number for number in range(60)]
    log.write_text("".join(line(number, text) for number, text in enumerate(texts)))
    for block_bytes in (1, 2, 3, 7, 64):
        monkeypatch.setattr(log_reader, "BLOCK_BYTES", block_bytes)
        assert _messages(read_records([log], limit=3)) == texts[-3:]
        assert _messages(read_records([log])) == texts


def test_log_03_a_stray_byte_costs_one_character(log: Path) -> None:
    log.write_bytes(line(1, "one").encode() + b"2.000 INFO [demo] t\xd0wo\n" + line(3, "three").encode())
    assert _messages(read_records([log], limit=3)) == ["one", "t\ufffdwo", "three"]


def test_foreign_lines_keep_their_place(log: Path) -> None:
    log.write_text(line(1, "a") + "  at frame 1\n  at frame 2\n" + line(2, "b"))
    for limit in (None, 10):
        records = list(read_records([log], limit=limit))
        assert _messages(records) == ["a", "  at frame 1", "  at frame 2", "b"]
        assert [record.time_s for record in records] == [1.0, 1.0, 1.0, 2.0]
        assert [record.is_parsed for record in records] == [True, False, False, True]
    expected = Record(
        time_s=1.0, level="INFO", origin="demo", message="  at frame 1", is_parsed=False, log=log
    )
    assert expected in list(read_records([log]))


def test_what_is_not_there_or_damaged_has_no_records(log: Path) -> None:
    assert _messages(read_records([log])) == []
    assert _messages(read_records([log], limit=5)) == []
    log.write_text(line(1, "a"))
    log.with_name("demo.log.20260101T000000.000000Z.zst").write_bytes(b"garbage")
    assert _messages(read_records([log])) == ["a"]


def test_a_line_without_an_end_is_bounded(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "MAX_PENDING_BYTES", 1000)
    monkeypatch.setattr(log_reader, "BLOCK_BYTES", 100)
    log.write_bytes(b"x" * 50_000)
    assert max(len(record.message) for record in read_records([log])) <= 1100
    assert max(len(record.message) for record in read_records([log], limit=1000)) <= 1100


def test_following_starts_at_the_end(log: Path) -> None:
    log.write_text(line(1, "old"))
    waits = Waits(_append(log, line(2, "new")), _append(log, line(3, "newer")))
    assert _messages(follow([log], wait=waits)) == ["new", "newer"]
    assert _messages(follow([log], wait=Waits(), from_start=True)) == ["old", "new", "newer"]


def test_log_10_a_file_to_come_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "later" / "demo.log"

    def create() -> None:
        path.parent.mkdir()
        path.write_text(line(1, "first"))

    assert _messages(follow([path], wait=Waits(lambda: None, create))) == ["first"]


def test_log_02_a_truncated_file_is_read_from_its_start(log: Path) -> None:
    log.write_text(line(1, "a long line that was there before"))
    waits = Waits(
        _append(log, line(2, "b")), lambda: log.write_text(line(3, "c")), _append(log, line(4, "d"))
    )
    assert _messages(follow([log], wait=waits)) == ["b", "c", "d"]


def test_a_rotated_file_is_read_to_its_end_before_the_new_one(log: Path) -> None:
    log.write_text(line(1, "a"))

    def rotate() -> None:
        _append(log, line(2, "b"))()
        log.rename(log.with_name("demo.log.20260101T000000.000000Z"))
        log.write_text(line(3, "c"))

    assert _messages(follow([log], wait=Waits(rotate, _append(log, line(4, "d"))))) == ["b", "c", "d"]


def test_log_03_half_a_character_is_joined_with_its_rest(log: Path) -> None:
    log.write_text("")
    data = line(1, "한국").encode()
    waits = Waits(_append(log, data[:-6]), _append(log, data[-6:-3]), _append(log, data[-3:]))
    assert _messages(follow([log], wait=waits)) == ["한국"]


def test_a_line_that_was_half_written_at_the_start_is_shown_whole(log: Path) -> None:
    log.write_text(line(1, "a") + "2.000 INFO [demo] ha")
    assert _messages(follow([log], wait=Waits(_append(log, "lf\n")))) == ["half"]


def test_new_files_join_while_following(log: Path, tmp_path: Path) -> None:
    log.write_text(line(1, "old"))
    other = tmp_path / "other.log"
    waits = Waits(lambda: other.write_text(line(2, "other", origin="other")), _append(log, line(3, "demo")))
    found = follow(lambda: sorted(tmp_path.glob("*.log")), wait=waits, level="INFO")
    assert [(record.origin, record.message) for record in found] == [("other", "other"), ("demo", "demo")]


def test_following_filters(log: Path) -> None:
    log.write_text("")
    text = line(1, "a", "DEBUG") + line(2, "b", "ERROR") + line(3, "c", "ERROR")
    found = follow([log], wait=Waits(_append(log, text)), level="ERROR", grep=re.compile("c"))
    assert _messages(found) == ["c"]


def test_logs_are_found_by_principal(home: Home, tmp_path: Path) -> None:
    assert find_logs(home, principal=None) == ()
    assert names(tmp_path) == []
    for name in (
        "demo.log",
        "_daemon.log",
        "NotACapsule.log",
        "demo.log.20260101T000000.000000Z",
        "alice/x.log",
    ):
        path = home.log / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    own = find_logs(home, principal=DEFAULT_PRINCIPAL)
    assert [(log.principal, log.capsule, log.path.name) for log in own] == [("default", "demo", "demo.log")]
    everybody = find_logs(home, principal=None)
    assert [(log.principal, log.capsule) for log in everybody] == [("alice", "x"), ("default", "demo")]
    assert find_logs(home, principal=PrincipalName("bob")) == ()
