"""Lets mutants live and die: each in a forked process, in its memory only, with the tests that may notice it.

Two nurseries fork them.  One has the tests loaded and puts a changed function in the place of the loaded one.
The other has loaded nothing of ours: there a mutant imports its changed module first and all others after it,
as if the source had been written so; that is for what runs at import, and costs ten times as much.

Nothing is written but below one temporary folder, and nothing is left, not even after Ctrl-C: what a nursery
forks is in its process group, and ends with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType

from tests.support.mutant_session import (
    BROKEN,
    FAILED,
    NEEDS_IMPORT,
    PASSED,
    TEST_CPU_S,
    VOID,
    Session,
    run_pytest,
)
from tests.support.mutation import Mutation

WALL_S = 600
"""For a mutant that waits and uses no processor."""
MEMORY_BYTES = 4 << 30
LAST_BREATH_S = 10
READY, UNCHANGED = -1, -2
"""In the place of a mutation's number: the tests are loaded; and what is tried first, the source as it is."""
ALL_PARTS = -1
"""The part of one whose tests are loaded, where all that matter are run at once."""
FAILURES = "failures"


class End(StrEnum):
    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    VOID = "void"
    """No mutant at all: its module cannot be imported, or is the same once compiled."""
    BROKEN = "broken"
    """Its process failed outside of the tests, which says nothing of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What may be changed, and what may notice: `tests_of` gives files, the likeliest part first."""

    mutations: Sequence[Mutation]
    tests: Sequence[Path]
    tests_of: Callable[[Mutation], Sequence[Sequence[Path]]]


@dataclass(slots=True, kw_only=True)
class Nursery:
    """A process that forks a mutant for each line: the number of a mutation, and a part of its tests."""

    pid: int
    commands: int

    def send(self, index: int, part: int) -> None:
        os.write(self.commands, f"{index} {part}\n".encode())

    def end(self) -> None:
        os.close(self.commands)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        end_s = time.monotonic() + LAST_BREATH_S
        with contextlib.suppress(ProcessLookupError):  # the whole group is gone
            while time.monotonic() < end_s:
                os.killpg(self.pid, 0)
                time.sleep(0.01)


@dataclass(slots=True, kw_only=True)
class Crew:
    """Both nurseries, and what their mutants tell: number, part of the tests, exit status."""

    subject: Subject
    loaded: Nursery
    fresh: Nursery
    told: int
    _unread: bytes = b""

    def run(self, chosen: Iterable[int]) -> Iterator[tuple[Mutation, End]]:
        """Try these, as many at a time as there are processors.  Whoever was begun is seen to its end, since
        those that survive take longest."""
        waiting, alive = iter(chosen), 0
        while True:
            while alive < (os.cpu_count() or 1) and (index := next(waiting, None)) is not None:
                self.loaded.send(index, ALL_PARTS)
                alive += 1
            if not alive:
                return
            index, part, status = self.read()
            mutation = self.subject.mutations[index]
            is_open = status == PASSED and ALL_PARTS < part < len(self.subject.tests_of(mutation)) - 1
            if is_open or status == NEEDS_IMPORT:
                self.fresh.send(index, part + 1)
            else:
                alive -= 1
                yield mutation, _end_of(status)

    def read(self) -> tuple[int, int, int]:
        while b"\n" not in self._unread:
            if not select.select([self.told], [], [], 2 * WALL_S)[0]:
                raise RuntimeError("no mutant has told anything for long")
            self._unread += os.read(self.told, 4096)
        line, _, self._unread = self._unread.partition(b"\n")
        index, part, status = map(int, line.split())
        return index, part, status


@contextmanager
def crew(subject: Subject) -> Iterator[Crew]:
    """Both nurseries at work.  Raises RuntimeError where the tests fail, in either, on the source as it is:
    then it would not be a mutant that they notice.
    """
    modules = {mutation.module for mutation in subject.mutations}
    if loaded := modules & sys.modules.keys():
        raise RuntimeError(f"{min(loaded)} is loaded already: what holds it would not see it changed")
    folder = Path(tempfile.mkdtemp(prefix="aos-mutants-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        told, tell = os.pipe()
        stack.callback(os.close, told)
        stack.callback(os.close, tell)
        with _uninterrupted():
            fresh = _nursery(folder, lambda lines: _serve(lines, tell, folder, _fresh_life(subject)))
            stack.callback(fresh.end)
            loaded_tests = _nursery(folder, lambda lines: _serve_session(lines, tell, folder, subject))
            stack.callback(loaded_tests.end)
        team = Crew(subject=subject, loaded=loaded_tests, fresh=fresh, told=told)
        fresh.send(UNCHANGED, 0)
        ends = {index: status for index, _, status in (team.read(), team.read())}
        if ends[READY] != PASSED:
            raise RuntimeError((folder / FAILURES).read_text(encoding="utf-8"))
        if ends[UNCHANGED] != PASSED:
            raise RuntimeError("the tests fail in a process of their own, though nothing is changed")
        yield team


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait: in the middle of a fork it would be lost, or leave the child to nobody."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_of(status: int) -> End:
    match status:
        case _ if status == PASSED:
            return End.SURVIVED
        case _ if status == VOID:
            return End.VOID
        case _ if status == BROKEN:
            return End.BROKEN
        case _ if -status in (signal.SIGPROF, signal.SIGALRM):
            return End.TIMED_OUT
        case _:
            return End.KILLED


# in the process of a nursery


def _nursery(folder: Path, work: Callable[[int], None]) -> Nursery:
    commands, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            os.close(write)
            _take_to(folder)
            work(commands)
        finally:
            os._exit(1)
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpgid(pid, pid)  # whoever comes first
    os.close(commands)
    return Nursery(pid=pid, commands=write)


def _take_to(folder: Path) -> None:
    """Say nothing, and write nothing but below this folder."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    sys.pycache_prefix = str(folder / "bytecode")
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None


def _serve(commands: int, tell: int, folder: Path, life: Callable[[int, int], int]) -> None:
    """Fork a mutant for each line, until there are no more; each has a process that waits for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    with os.fdopen(commands) as lines:
        for line in lines:
            index, part = map(int, line.split())
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                status = _wait_for(folder, lambda: life(index, part))  # noqa: B023 - called here
                os.write(tell, f"{index} {part} {status}\n".encode())
                os._exit(0)


def _wait_for(folder: Path, life: Callable[[], int]) -> int:
    pid = os.fork()
    if pid == 0:
        status = BROKEN
        try:
            scratch = folder / str(os.getpid())
            scratch.mkdir()
            os.environ["PYTEST_DEBUG_TEMPROOT"] = str(scratch)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            signal.setitimer(signal.ITIMER_REAL, WALL_S)
            signal.setitimer(signal.ITIMER_PROF, 2 * TEST_CPU_S)  # to import and collect
            status = life()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    shutil.rmtree(folder / str(pid), ignore_errors=True)
    return status


def _serve_session(commands: int, tell: int, folder: Path, subject: Subject) -> None:
    def serve(session: Session) -> None:
        (folder / FAILURES).write_text(", ".join(session.failed), encoding="utf-8")
        os.write(tell, f"{READY} 0 {FAILED if session.failed else PASSED}\n".encode())
        _serve(commands, tell, folder, lambda index, _: session.try_mutant(subject.mutations[index]))

    session = Session(frozenset(str(mutation.path) for mutation in subject.mutations), folder, serve)
    session.calls.watch()
    status = run_pytest(subject.tests, session)
    (folder / FAILURES).write_text(f"pytest ended with {status} before any test", encoding="utf-8")
    os.write(tell, f"{READY} 0 {FAILED}\n".encode())


def _fresh_life(subject: Subject) -> Callable[[int, int], int]:
    def life(index: int, part: int) -> int:
        if index == UNCHANGED:
            return PASSED if run_pytest(subject.tests) == PASSED else FAILED
        mutation = subject.mutations[index]
        sys.meta_path.insert(0, _Finder(mutation))
        try:
            importlib.import_module(mutation.module)
        except Exception:  # noqa: BLE001 - whatever it is, nobody could land that
            return VOID
        tests = subject.tests_of(mutation)[part]
        return PASSED if not tests or run_pytest(tests) == PASSED else FAILED

    return life


class _Finder(MetaPathFinder):
    """Finds the one module that is changed; every other is found as ever."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != self._mutation.module:
            return None
        loader = _Loader(fullname, self._mutation)
        return importlib.util.spec_from_file_location(fullname, self._mutation.path, loader=loader)


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, mutation: Mutation) -> None:
        super().__init__(fullname, str(mutation.path))
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        return self._mutation.code()
