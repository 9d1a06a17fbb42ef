"""One pytest session, collected once and forked for every mutant: it meets the tests that call what changed.

Before the first mutant all tests run on the source as it is, in processes of their own, and tell which
functions of the changed modules each of them calls and how long it takes.  The quickest come first.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support.mutant_code import Key, changed_functions, key_of, loaded_functions, put_in_place
from tests.support.mutation import Mutation

T = TypeVar("T")

PASSED, FAILED, NEEDS_IMPORT, VOID, BROKEN = 0, 1, 101, 102, 103
"""How the process of a mutant ends; `BROKEN` where it failed outside of the tests."""
TEST_CPU_S = 5.0
"""Processor time of one test; the slowest of the rooms uses one second.  What needs more never ends."""

_OPTIONS = ("-x", "-s", "--tb=no", "-p", "no:cacheprovider")


def run_pytest(tests: Sequence[Path], *plugins: object) -> int:
    """One session on these files.  No test of a pure room needs a plugin, so none is looked for."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    settings.register_profile(
        "mutants",
        database=None,
        deadline=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutants")
    return int(pytest.main([*_OPTIONS, *map(str, tests)], plugins=[Shares(), *plugins]))


class Shares:
    """A pytest plugin: each test gets its share of processor time anew."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, TEST_CPU_S)


class Calls:
    """Which functions of some files were called, while it watches."""

    def __init__(self, files: frozenset[str]) -> None:
        self.files = files
        self.seen: set[CodeType] = set()

    def _note(self, frame: FrameType, _event: str, _argument: object) -> None:
        if frame.f_code.co_filename in self.files:
            self.seen.add(frame.f_code)

    def watch(self) -> None:
        sys.settrace(self._note)  # which is told of calls only, since it answers None

    def stop(self) -> set[Key]:
        """What was called since the last stop."""
        sys.settrace(None)
        keys = {key_of(code) for code in self.seen}
        self.seen.clear()
        return keys


class Session:
    """A pytest plugin: instead of running the tests once, `serve` is given the collected session."""

    def __init__(self, files: frozenset[str], scratch: Path, serve: Callable[[Session], None]) -> None:
        self.calls = Calls(files)
        self._scratch = scratch
        self._serve = serve
        self._tests: dict[Key, list[pytest.Item]] = {}
        self._functions: dict[Key, list[FunctionType]] = {}
        self._at_import: set[Key] = set()
        self.failed: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._at_import = self.calls.stop()
        if session.testsfailed:
            self.failed = ["collection"]
        else:
            self._learn(session.items)
            self._functions = loaded_functions(self.calls.files)
        self._serve(self)
        return True

    def try_mutant(self, mutation: Mutation) -> int:
        """Change the function and run the tests that call it; the exit status says how that ended."""
        original = compile(mutation.tree, str(mutation.path), "exec", dont_inherit=True)
        changed = changed_functions(original, mutation.code())
        if changed == []:
            return VOID
        if changed is None or any(key_of(code) in self._at_import for code in changed):
            return NEEDS_IMPORT
        if not all(put_in_place(code, self._functions) for code in changed):
            return NEEDS_IMPORT
        tests = {test: None for code in changed for test in self._tests.get(key_of(code), ())}
        return PASSED if all(_passes(test, following) for test, following in _pairs(list(tests))) else FAILED

    # what each test does

    def _learn(self, items: list[pytest.Item]) -> None:
        shares = os.cpu_count() or 1
        pids = [self._fork_share(items, share, shares) for share in range(shares)]
        for pid in pids:
            os.waitpid(pid, 0)
        rows: list[dict[str, Any]] = []
        for share in range(shares):
            told = self._scratch / f"share-{share}"
            rows += json.loads(told.read_text(encoding="utf-8")) if told.exists() else []
        if len(rows) != len(items):
            self.failed = ["a process that ran the tests unchanged has died"]
        self.failed += [items[row["index"]].nodeid for row in rows if not row["passed"]]
        for row in sorted(rows, key=lambda row: row["seconds"]):
            for file, name, line in row["calls"]:
                self._tests.setdefault((file, name, line), []).append(items[row["index"]])

    def _fork_share(self, items: list[pytest.Item], share: int, shares: int) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                chosen = list(range(share, len(items), shares))
                rows = [self._row(items, *pair) for pair in _pairs(chosen)]
                (self._scratch / f"share-{share}").write_text(json.dumps(rows), encoding="utf-8")
            finally:
                os._exit(0)
        return pid

    def _row(self, items: list[pytest.Item], index: int, following: int | None) -> dict[str, Any]:
        started_s = time.process_time()
        self.calls.watch()
        passed = _passes(items[index], None if following is None else items[following])
        calls = sorted(self.calls.stop())
        return {
            "index": index,
            "passed": passed,
            "seconds": time.process_time() - started_s,
            "calls": calls,
        }


def _pairs(things: list[T]) -> Iterator[tuple[T, T | None]]:
    """Each with the one that follows it."""
    return zip(things, [*things[1:], None], strict=False)


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    before = item.session.testsfailed
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return item.session.testsfailed == before
