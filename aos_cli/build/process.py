"""Child processes of a build: always in their own process group, always with a deadline.

Whatever ends a wait early (deadline, Ctrl-C, a failure of ours) ends the whole group, so that no compiler
outlives the command.  This module starts programs and moves their bytes; it knows none of them.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from aos_runtime.errors import LimitExceeded, Unavailable

PROBE_TIMEOUT_S = 30.0
MAX_CAPTURED_BYTES = 256 * 1024 * 1024
TAIL_BYTES = 256 * 1024
_CHUNK = 64 * 1024
_POLL_S = 0.2
_GRACE_S = 3.0

Sink = Callable[[bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A program that ended: its exit status (negative: the signal), stdout, and the tail of stderr."""

    status: int
    stdout: bytes
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to run: `arguments[0]` is looked up on the PATH of `environ`."""

    arguments: Sequence[str]
    folder: Path
    environ: Mapping[str, str]
    timeout_s: float


def run(command: Command, *, show: Sink | None = None, receive: Sink | None = None) -> Finished:
    """Run `command` to its end.

    `show` gets stderr's bytes as they come; `receive` gets stdout's, which are collected where it is None.
    Unavailable `program-missing` or `program-not-executable`; LimitExceeded `program-deadline` or
    `program-output`.
    """
    stdout = _Collected(receive, command)
    stderr = _Tail(show)
    with _started(command) as child:
        _pump(child, command, stdout, stderr)
        return Finished(status=child.returncode, stdout=bytes(stdout.data), stderr=stderr.text())


def run_all(*commands: Command) -> tuple[Finished, ...]:
    """Run several short programs side by side and collect each one's output, in order."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(_started(command)) for command in commands]
        finished = []
        for child, command in zip(children, commands, strict=True):
            stdout, stderr = _Collected(None, command), _Tail(None)
            _pump(child, command, stdout, stderr)
            finished.append(
                Finished(status=child.returncode, stdout=bytes(stdout.data), stderr=stderr.text())
            )
        return tuple(finished)


class _Collected:
    """stdout: handed on, or kept up to a bound."""

    def __init__(self, receive: Sink | None, command: Command) -> None:
        self.data = bytearray()
        self._receive = receive
        self._command = command

    def __call__(self, chunk: bytes) -> None:
        if self._receive is not None:
            self._receive(chunk)
            return
        self.data += chunk
        if len(self.data) > MAX_CAPTURED_BYTES:
            raise LimitExceeded(
                "program-output",
                f"`{self._command.arguments[0]}` wrote more than {MAX_CAPTURED_BYTES} bytes",
                hint="run it by hand to see what it prints",
            )


class _Tail:
    """stderr: handed on, and the last part kept for whoever explains a failure."""

    def __init__(self, show: Sink | None) -> None:
        self._data = bytearray()
        self._show = show

    def __call__(self, chunk: bytes) -> None:
        if self._show is not None:
            self._show(chunk)
        self._data += chunk
        if len(self._data) > 2 * TAIL_BYTES:
            del self._data[:-TAIL_BYTES]

    def text(self) -> str:
        return self._data[-TAIL_BYTES:].decode("utf-8", "replace")


@contextmanager
def _started(command: Command) -> Iterator[subprocess.Popen[bytes]]:
    program = command.arguments[0]
    try:
        child = subprocess.Popen(
            list(command.arguments),
            cwd=command.folder,
            env=dict(command.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
    except FileNotFoundError:
        raise Unavailable(
            "program-missing",
            f"`{program}` was not found on PATH",
            hint=f"install {program}, or put it on PATH",
            program=program,
        ) from None
    except PermissionError:
        raise Unavailable(
            "program-not-executable",
            f"`{program}` may not be executed",
            hint=f"check its permissions, or put another {program} first on PATH",
            program=program,
        ) from None
    try:
        yield child
    finally:
        _end_group(child)
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()


def _pump(child: subprocess.Popen[bytes], command: Command, stdout: Sink, stderr: Sink) -> None:
    """Move bytes until the program has ended and its pipes are empty, or the deadline passes."""
    ends_at = time.monotonic() + command.timeout_s
    with selectors.DefaultSelector() as selector:
        for stream, sink in ((child.stdout, stdout), (child.stderr, stderr)):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, sink)
        while selector.get_map():
            ready = selector.select(_POLL_S)
            for key, _ in ready:
                _move(key.fileobj, key.data, selector)  # type: ignore[arg-type]
            if not ready and child.poll() is not None:
                break  # a grandchild holds the pipe open; the program itself is done
            _check_deadline(command, ends_at)
    while child.poll() is None:
        _check_deadline(command, ends_at)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_POLL_S)


def _move(stream: IO[bytes], sink: Sink, selector: selectors.BaseSelector) -> None:
    chunk = os.read(stream.fileno(), _CHUNK)
    if chunk:
        sink(chunk)
    else:
        selector.unregister(stream)


def _check_deadline(command: Command, ends_at: float) -> None:
    if time.monotonic() > ends_at:
        raise LimitExceeded(
            "program-deadline",
            f"`{command.arguments[0]}` did not end within {command.timeout_s:g} seconds and was stopped",
            hint="run it by hand to see where it waits",
            program=command.arguments[0],
        )


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End what is left of the group: politely first, then for certain."""
    if child.poll() is None:
        _signal_group(child.pid, signal.SIGTERM)
        try:
            child.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            _signal_group(child.pid, signal.SIGKILL)
            child.wait(_GRACE_S)
        _signal_group(child.pid, signal.SIGKILL)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
