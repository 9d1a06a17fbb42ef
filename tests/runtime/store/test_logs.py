"""store.logs: nothing that a guest logs can fail, fill the disk or leave its own file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName
from aos_runtime.store import logs as module
from aos_runtime.store.log_reader import read_records
from aos_runtime.store.logs import RECHECK_S, LogSink, old_files, pack_old, read_packed
from tests.runtime.store.conftest import names

DEMO = CapsuleName("demo")
DAY_S = 86_400.0


class Clock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now_s = 1_785_578_400.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sink(home: Home, clock: Clock) -> Iterator[LogSink]:
    opened = LogSink(home, clock=clock, run_aside=lambda work: work())
    yield opened
    opened.close()


@pytest.fixture
def live(home: Home) -> Path:
    return home.capsule_log(DEFAULT_PRINCIPAL, DEMO)


def _messages(path: Path) -> list[str]:
    return [record.message for record in read_records([path])]


def test_records_go_to_the_file_of_their_capsule_and_principal(home: Home, sink: LogSink, live: Path) -> None:
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "one")
    sink.append(PrincipalName("alice"), DEMO, "warn", "two")
    sink.daemon("info", "three")
    assert live == home.log / "demo.log"
    assert live.read_text() == "1785578400.000 INFO [demo] one\n"
    assert (home.log / "alice" / "demo.log").read_text() == "1785578400.000 WARN [demo] two\n"
    assert home.daemon_log.read_text() == "1785578400.000 INFO [_daemon] three\n"
    assert live.stat().st_mode & 0o777 == 0o600


def test_a_flood_of_errors_does_not_push_out_the_daemons_history(
    home: Home, sink: LogSink, live: Path, clock: Clock
) -> None:
    sink.daemon("info", "started")
    for _ in range(200):
        sink.append(DEFAULT_PRINCIPAL, DEMO, "error", "x" * 50_000)
    sink.append(DEFAULT_PRINCIPAL, CapsuleName("other"), "error", "mine")
    clock.now_s += 60
    sink.append(DEFAULT_PRINCIPAL, DEMO, "error", "a minute later")
    copied = _messages(home.daemon_log)
    assert (copied[0], copied[-2:]) == ("started", ["mine", "a minute later"])
    assert copied[1:60] == ["x" * module.MAX_COPY_CHARACTERS] * 59
    assert copied[60:-2] == ["more than 59 errors a minute; the rest is in its own log"]
    assert len(_messages(live)) == 201


def test_log_07_an_error_of_a_guest_reaches_the_daemons_log(home: Home, sink: LogSink, live: Path) -> None:
    sink.append(DEFAULT_PRINCIPAL, DEMO, "error", "capsule panic at src/lib.rs:7")
    sink.append(PrincipalName("alice"), DEMO, "error", "boom")
    assert _messages(live) == ["capsule panic at src/lib.rs:7"]
    assert [(record.origin, record.message) for record in read_records([home.daemon_log])] == [
        ("demo", "capsule panic at src/lib.rs:7"),
        ("alice/demo", "boom"),
    ]


def test_an_unknown_level_is_info(sink: LogSink, live: Path) -> None:
    sink.append(DEFAULT_PRINCIPAL, DEMO, "shout", "x")
    assert " INFO " in live.read_text()


def test_a_file_is_rotated_at_its_size_and_packed(
    sink: LogSink, live: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 100)
    for number in range(6):
        clock.now_s += 1
        sink.append(DEFAULT_PRINCIPAL, DEMO, "info", f"line {number}")
    old = old_files(live)
    assert [path.suffix for path in old] == [".zst", ".zst"]
    assert [read_packed(path).count(b"\n") for path in old] == [2, 2]
    assert live.stat().st_size <= 100
    assert _messages(live) == [f"line {number}" for number in range(6)]
    assert old[0].stat().st_mode & 0o777 == 0o600


def test_a_file_is_rotated_with_the_day(sink: LogSink, live: Path, clock: Clock) -> None:
    for number in range(10):
        sink.append(DEFAULT_PRINCIPAL, DEMO, "info", f"day {number}")
        clock.now_s += DAY_S
    assert len(old_files(live)) == 7
    assert _messages(live) == [f"day {number}" for number in range(2, 10)]


def test_a_file_of_yesterday_is_rotated_by_the_next_daemon(home: Home, live: Path, clock: Clock) -> None:
    for number in range(2):
        sink = LogSink(home, clock=clock, run_aside=lambda work: work())
        sink.append(DEFAULT_PRINCIPAL, DEMO, "info", f"boot {number}")
        sink.close()
        clock.now_s += DAY_S
    assert len(old_files(live)) == 1


def test_log_08_a_capsules_logs_together_stay_under_the_bound(
    sink: LogSink, live: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 2000)
    monkeypatch.setattr(module, "MAX_TOTAL_BYTES", 5000)
    for _ in range(40):
        clock.now_s += 1
        sink.append(DEFAULT_PRINCIPAL, DEMO, "info", os.urandom(400).hex())
    assert sum(path.stat().st_size for path in (live, *old_files(live))) <= 5000
    assert len(old_files(live)) >= 1


def test_packing_goes_on_where_a_kill_left_it(sink: LogSink, live: Path) -> None:
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "new")
    for number, stamp in enumerate(("20260101T000000.000000Z", "20260102T000000.000000Z")):
        live.with_name(f"demo.log.{stamp}").write_text(f"{number}.000 INFO [demo] old {number}\n")
    live.with_name("demo.log.20260101T000000.000000Z.zst").write_bytes(b"half")
    assert _messages(live) == ["old 0", "old 1", "new"]
    pack_old(live)
    assert [path.suffix for path in old_files(live)] == [".zst", ".zst"]
    assert _messages(live) == ["old 0", "old 1", "new"]


def test_the_default_packing_thread_is_waited_for(home: Home, live: Path, clock: Clock) -> None:
    sink = LogSink(home, clock=clock)
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "one")
    clock.now_s += DAY_S
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "two")
    sink.close()
    assert [path.suffix for path in old_files(live)] == [".zst"]
    assert _messages(live) == ["one", "two"]


def _full(*_arguments: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", ["write", "open"])
def test_a_full_disk_drops_counts_and_says_so_once_it_ends(
    sink: LogSink, live: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(module.os, call, _full)
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "lost")
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "lost")
    monkeypatch.undo()
    assert sink.dropped == 2
    said = f"log records are dropped: no space left on the device that holds {live.parent}"
    assert (sink.trouble or "").startswith(said)
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "kept")
    assert sink.trouble is None
    assert _messages(live) == ["kept"]


def test_after_a_torn_write_the_next_record_has_its_own_line(
    sink: LogSink, live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "first")
    real = os.write
    calls: Iterator[Callable[[int, bytes], int]] = iter([lambda handle, data: real(handle, data[:9]), _full])
    monkeypatch.setattr(module.os, "write", lambda handle, data: next(calls)(handle, data))
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "torn")
    monkeypatch.undo()
    assert sink.dropped == 1
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "whole")
    assert live.read_text().splitlines() == [
        "1785578400.000 INFO [demo] first",
        "178557840",
        "1785578400.000 INFO [demo] whole",
    ]


def test_a_line_that_a_killed_daemon_tore_is_ended_first(home: Home, live: Path, clock: Clock) -> None:
    home.log.mkdir(parents=True)
    live.write_text("1785578400.000 INFO [demo] tor")
    sink = LogSink(home, clock=clock, run_aside=lambda work: work())
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "whole")
    sink.close()
    assert live.read_text().splitlines()[-1] == "1785578400.000 INFO [demo] whole"


def test_a_link_in_place_of_the_log_is_not_followed(home: Home, sink: LogSink, live: Path) -> None:
    home.log.mkdir(parents=True)
    target = home.root / "target"
    target.write_text("keep")
    live.symlink_to(target)
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "x")
    assert target.read_text() == "keep"
    assert sink.dropped == 1


def test_a_pipe_in_place_of_the_log_does_not_block(home: Home, sink: LogSink, live: Path) -> None:
    home.log.mkdir(parents=True)
    os.mkfifo(live)
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "x")
    assert sink.dropped == 1


@pytest.mark.parametrize("after_s", [RECHECK_S, -1.0])
def test_a_file_that_somebody_moved_is_made_anew(
    home: Home, sink: LogSink, live: Path, clock: Clock, after_s: float
) -> None:
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "one")
    live.rename(home.log / "moved")
    clock.now_s += after_s
    sink.append(DEFAULT_PRINCIPAL, DEMO, "info", "two")
    assert _messages(live) == ["two"]


def test_a_capsule_whose_name_starts_like_another_keeps_its_rotations(sink: LogSink, live: Path) -> None:
    for name in ("demo", "demo-x"):
        sink.append(DEFAULT_PRINCIPAL, CapsuleName(name), "info", name)
    live.with_name("demo-x.log.20260101T000000.000000Z").write_text("1.000 INFO [demo-x] old\n")
    assert old_files(live) == ()


def test_open_files_are_bounded(home: Home, sink: LogSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OPEN_FILES", 3)
    for round_number in range(2):
        for number in range(8):
            sink.append(DEFAULT_PRINCIPAL, CapsuleName(f"c{number}"), "info", f"{round_number}")
    assert len(sink._files) == 3
    assert len(names(home.log)) == 8
    assert all(_messages(path) == ["0", "1"] for path in home.log.iterdir())
