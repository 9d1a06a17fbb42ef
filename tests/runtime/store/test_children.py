"""Which processes are ended as children of a daemon, and which are never."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from aos_runtime.home import Home
from aos_runtime.store.children import CHILD_VARIABLE, ChildRecords, group_members, signal_group
from tests.support.installation import wait_until

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.run.mkdir(parents=True)
    return made


@pytest.fixture
def records(home: Home) -> ChildRecords:
    return ChildRecords(home)


class Sleepers:
    """Processes of this test, which end with it."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self, script: str = "exec sleep 300", *, new_session: bool = True, **environ: str) -> int:
        """Returns when it has said that it runs."""
        made = subprocess.Popen(
            ["/bin/sh", "-c", f"echo; {script}"],
            env=PATH | environ,
            stdout=subprocess.PIPE,
            start_new_session=new_session,
        )
        self.all.append(made)
        assert made.stdout is not None
        made.stdout.readline()
        return made.pid

    def end_of(self, pid: int) -> int:
        """Minus the signal that ended it, waited for."""
        return self._process(pid).wait(30)

    def status(self, pid: int) -> int | None:
        """Minus the signal that ended it; None while it runs."""
        try:
            return self._process(pid).wait(0.3)
        except subprocess.TimeoutExpired:
            return None

    def _process(self, pid: int) -> subprocess.Popen[bytes]:
        [found] = [one for one in self.all if one.pid == pid]
        return found


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    made = Sleepers()
    yield made
    for process in made.all:
        process.kill()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


class Heard(list[tuple[str, str]]):
    def __call__(self, level: str, sentence: str) -> None:
        self.append((level, sentence))


def test_a_home_without_children_is_left_alone(home: Home, records: ChildRecords) -> None:
    assert records.end_all(Heard()) == 0
    assert not home.children.exists()


def test_the_mark_is_on_disk_and_stays(home: Home, records: ChildRecords) -> None:
    mark = records.mark()
    assert (home.children / "mark").read_text() == mark
    assert records.mark() == ChildRecords(home).mark() == mark
    assert (home.children / "mark").stat().st_mode & 0o777 == 0o600


def test_what_carries_the_mark_is_ended_wherever_it_went(records: ChildRecords, sleepers: Sleepers) -> None:
    marked = sleepers.start(**{CHILD_VARIABLE: records.mark()})
    other = sleepers.start(**{CHILD_VARIABLE: "0" * 32})
    plain = sleepers.start(OTHER=records.mark())
    heard = Heard()
    assert records.end_all(heard) == 1
    assert heard == [("warn", f"ended process {marked}, which a capsule's program had left running")]
    assert sleepers.end_of(marked) == -signal.SIGKILL
    assert [sleepers.status(pid) for pid in (other, plain)] == [None, None]


def test_a_recorded_group_is_ended_whatever_it_did_to_its_environment(
    records: ChildRecords, sleepers: Sleepers
) -> None:
    leader = sleepers.start("env -i sleep 300 & exec env -i sleep 300")
    wait_until(lambda: len(group_members(leader)) == 2, "the shell has started both")
    records.mark()
    records.add(leader)
    assert records.end_all(Heard()) == 1
    assert sleepers.end_of(leader) == -signal.SIGKILL


def test_one_that_got_the_id_later_is_never_ended(
    home: Home, records: ChildRecords, sleepers: Sleepers
) -> None:
    stranger = sleepers.start()
    records.mark()
    (home.children / f"{stranger}-{'0' * 32}").touch()
    (home.children / f"-1-{'0' * 32}").touch()
    (home.children / f"1-{'0' * 32}").touch()
    assert records.end_all(Heard()) == 0
    assert sleepers.status(stranger) is None
    assert not home.children.exists()


def test_one_that_leads_no_group_does_not_take_its_own_along(
    records: ChildRecords, sleepers: Sleepers
) -> None:
    """A record that was forged or mistaken must not end the group of somebody else, such as ours."""
    member = sleepers.start(new_session=False)
    records.mark()
    records.add(member)
    assert records.end_all(Heard()) == 0
    assert sleepers.status(member) is None


def test_one_that_has_ended_is_forgotten(home: Home, records: ChildRecords, sleepers: Sleepers) -> None:
    pid = sleepers.start()
    records.add(pid)
    assert [path.name.partition("-")[0] for path in home.children.iterdir()] == [str(pid)]
    records.remove(pid)
    assert list(home.children.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"x", b"0" * 33, b"0" * 31 + b"\n"])
def test_a_broken_mark_ends_nobody(
    home: Home, records: ChildRecords, sleepers: Sleepers, content: bytes
) -> None:
    stranger = sleepers.start(**{CHILD_VARIABLE: ""})
    home.children.mkdir()
    (home.children / "mark").write_bytes(content)
    assert records.end_all(Heard()) == 0
    assert sleepers.status(stranger) is None


def test_behind_walls_a_signal_spares_the_leader(sleepers: Sleepers) -> None:
    """The leader would be bubblewrap: it tells how what it confines has ended."""
    leader = sleepers.start("sleep 300 & wait $!; exit $?")
    wait_until(lambda: len(group_members(leader)) == 2, "the shell has started its child")
    signal_group(leader, signal.SIGTERM, is_walled=True)
    assert sleepers.end_of(leader) == 128 + signal.SIGTERM
    alone = sleepers.start()
    signal_group(alone, signal.SIGTERM, is_walled=True)
    assert sleepers.end_of(alone) == -signal.SIGTERM
    both = sleepers.start("sleep 300 & wait")
    signal_group(both, signal.SIGTERM, is_walled=False)
    assert sleepers.end_of(both) == -signal.SIGTERM
    signal_group(os.getpid(), 0, is_walled=False)  # one that leads no group, or has gone: nothing
