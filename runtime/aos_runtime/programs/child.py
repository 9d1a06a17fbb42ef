"""One running program: its streams, its end, and what may be done to it.

The thread of `children.Children` starts it, reads what it writes, feeds it and reaps it; everything public
here is safe from any thread.  The lock orders signals against reaping: while it is held and `exit` is None,
the process id is this child's and nobody else's.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from aos_runtime.policy.process_rules import ProcessCase, ProcessRefused
from aos_runtime.programs.rings import Chunk, Ring
from aos_runtime.programs.sandbox import Program
from aos_runtime.store.children import has_begun, signal_group

SLICE_S = 0.02
"""How long a wait goes on before it asks again whether it may."""
_ENDING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2))
"""What ends a program that has no handler yet."""


class Owner(NamedTuple):
    """Whose child it is."""

    principal: str
    capsule: str


class Exit(NamedTuple):
    """How a child ended: with a code, or by a signal."""

    code: int | None
    signal: int | None


class Output(NamedTuple):
    """What both streams had, as text."""

    stdout: str
    stderr: str


class Use(NamedTuple):
    """Processor time, and the most memory that was seen."""

    cpu_ms: int
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start, and for whom.  `call_id` is the tool call that asked for it."""

    program: Program
    owner: Owner
    call_id: str | None
    line: str
    """The command as it was asked for."""
    is_background: bool
    """It takes one of its principal's slots."""
    stdin: bytes | None = None
    keeps_stdin: bool = False
    """Its input stays open after `stdin`."""
    ring_bytes: int
    has_backpressure: bool = False


class Child:
    """See the module's text.  `is_over`: it has ended, and all of its output is here."""

    def __init__(self, launch: Launch, process: subprocess.Popen[bytes], wake: Callable[[], None]) -> None:
        self.launch = launch
        self.pid = process.pid
        self.changed = threading.Condition()
        self.started_at = monotonic()
        self.stdout = Ring(launch.ring_bytes, has_backpressure=launch.has_backpressure)
        self.stderr = Ring(launch.ring_bytes, has_backpressure=launch.has_backpressure)
        self.exit: Exit | None = None
        self.ended_at: float | None = None
        self.kill_at: float | None = None
        """When it is killed, unless it has ended by then."""
        self.is_over = False
        self.use = Use(0, 0)
        self.input = bytearray(launch.stdin or b"")
        """What it has been given and has not taken yet."""
        self.is_input_open = launch.keeps_stdin
        """Whether more may be written."""
        self.is_input_torn = False
        """Whoever wrote gave up in the middle: the rest is not handed over."""
        self._process = process
        self._wake = wake
        self._sent: set[int] = set()
        self._early: int | None = None
        """The signal that ended it before its program had begun behind the walls."""

    # what may be asked of it

    def send(self, number: int) -> None:
        """Send a signal to its group.  ProcessRefused CLOSED where it has ended."""
        with self.changed:
            if self.exit is not None:
                raise ProcessRefused(ProcessCase.CLOSED)
            self._send(number)

    def interrupt(self, grace_s: float, number: int = signal.SIGINT) -> None:
        """Ask it to end, and kill it where it has not in so many seconds; nothing where it was asked."""
        with self.changed:
            if self.exit is not None or self.kill_at is not None:
                return
            self._send(number)
            # one that is stopped would hear of it only when it is too late
            signal_group(self.pid, signal.SIGCONT, is_walled=self.launch.program.is_walled)
            self.kill_at = monotonic() + grace_s
        self._wake()

    def kill(self) -> bool:
        """Kill its group now; False where it had ended before."""
        with self.changed:
            if self.exit is not None:
                return False
            self._send(signal.SIGKILL)
            self.kill_at = None
            return True

    def let_go(self) -> None:
        """Nobody wants it any more: kill it, unless it was asked to end and has time left."""
        if self.kill_at is None:
            self.kill()

    def wait(self, timeout_s: float | None, is_cut: Callable[[], bool]) -> bool:
        """Whether it is over, once it is, the time is up (None: no limit) or the wait is cut short."""
        ends = None if timeout_s is None else monotonic() + timeout_s
        with self.changed:
            while not self.is_over and not is_cut():
                left_s = SLICE_S if ends is None else min(SLICE_S, ends - monotonic())
                if left_s <= 0:
                    break
                self.changed.wait(left_s)
            return self.is_over

    def drain(self) -> Output:
        """The output that no drain gave before."""
        with self.changed:
            taken = Output(self.stdout.drain(), self.stderr.drain())
        self._wake()  # there is room again
        return taken

    def since(self, stream: str, offset: int | None, max_bytes: int) -> tuple[Chunk, bool]:
        """A part of a stream from an offset on, and whether that was all there will ever be."""
        with self.changed:
            ring = self.stdout if stream == "stdout" else self.stderr
            chunk = ring.since(offset, max_bytes)
            is_all = self.is_over and chunk.next_offset >= ring.end
        self._wake()
        return chunk, is_all

    def has_output(self) -> bool:
        """Whether a drain would give something, or nothing will ever come."""
        return self.is_over or bool(self.stdout.unread or self.stderr.unread)

    def write(self, data: bytes, is_cut: Callable[[], bool]) -> bool:
        """Hand over all of `data`, waiting for the child to take it; whether it had to wait.

        ProcessRefused CLOSED where it takes no input, CANCELLED where the wait was cut: then its input ends.
        """
        began = monotonic()
        with self.changed:
            self._await_taken(is_cut)
            if not self.is_input_open:
                raise ProcessRefused(ProcessCase.CLOSED)
            self.input += data
            self._wake()
            self._await_taken(is_cut)
            if self.is_input_torn:
                raise ProcessRefused(ProcessCase.CLOSED)
        return monotonic() - began > SLICE_S

    def close_input(self) -> None:
        """The child sees the end of its input once it has what was written; again and again is fine."""
        with self.changed:
            self.is_input_open = False
        self._wake()

    # by the thread that reads it, with the lock held

    def note_exit(self, code: int, use: Use) -> None:
        """It was reaped."""
        self._process.returncode = code
        self.ended_at = monotonic()
        self.use = use
        self.exit = self._exit_of(code)
        self.tear_input()

    def note_over(self) -> None:
        """All of its output is here."""
        self.stdout.is_ended = self.stderr.is_ended = self.is_over = True
        self.changed.notify_all()

    def tear_input(self) -> None:
        """It takes no more: what waits for it is lost, and whoever wrote that hears of it."""
        self.is_input_open = False
        if self.input:
            self.is_input_torn = True
            self.input.clear()
        self.changed.notify_all()

    def _await_taken(self, is_cut: Callable[[], bool]) -> None:
        """(the lock) Return once everything that was written is taken, or never will be."""
        while self.input:
            if is_cut():
                self.tear_input()
                self._wake()
                raise ProcessRefused(ProcessCase.CANCELLED)
            self.changed.wait(SLICE_S)

    def _exit_of(self, code: int) -> Exit:
        if code < 0:
            return Exit(None, self._early or -code)
        if self.launch.program.is_walled and code - 128 in self._sent:
            return Exit(None, code - 128)  # bubblewrap tells of a signal as a shell does
        return Exit(code, None)

    def _send(self, number: int) -> None:
        self._sent.add(number)
        if number in _ENDING and self.launch.program.is_walled and not has_begun(self.pid):
            self._early, number = number, signal.SIGKILL
        signal_group(self.pid, number, is_walled=self.launch.program.is_walled)
