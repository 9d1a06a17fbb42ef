"""A program on pipes, for an event loop: started, read in bounded lines, ended with its whole group.

What it writes is hostile: a line that is too long is dropped whole, and of what it complains only so much a
second is handed on.  Nothing here knows what the lines mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

from aos_runtime.programs.mcp_tools import Log
from aos_runtime.programs.sandbox import Program
from aos_runtime.store.children import ChildRecords, signal_group

MAX_LINE_BYTES = 8 << 20
STOP_GENTLY_S = 1.0
LINES_PER_S = 50
CHARS_PER_S = 256 * 1024
BREATH_BYTES = 16 << 20
"""Of what is dropped in a second; more is left in the pipe until the next one."""
_READ_BYTES = 64 * 1024
_WINDOW_S = 1.0


class PipedProgram:
    """A program that runs.  Start it on the thread of an event loop that lives as long as the daemon."""

    def __init__(
        self, process: asyncio.subprocess.Process, records: ChildRecords, *, is_walled: bool
    ) -> None:
        self._process = process
        self._records = records
        self._is_walled = is_walled

    @classmethod
    async def start(cls, program: Program, records: ChildRecords) -> PipedProgram:
        """Start it, as the leader of a group of its own, on record.  OSError where it cannot be started."""
        arguments, descriptors = program.open()
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(program.environ),
                cwd=program.folder,
                start_new_session=True,
                pass_fds=descriptors,
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        records.add(process.pid)
        return cls(process, records, is_walled=program.is_walled)

    @property
    def status(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> None:
        """Until it has ended."""
        await self._process.wait()

    def output(self) -> AsyncIterator[bytes]:
        assert self._process.stdout is not None
        return read_lines(self._process.stdout)

    def complaints(self) -> AsyncIterator[bytes]:
        assert self._process.stderr is not None
        return read_lines(self._process.stderr)

    async def write(self, data: bytes) -> None:
        """Hand over `data`, waiting while its pipe is full; nothing where it reads no more."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.drain()

    async def end(self, number: int = signal.SIGTERM, grace_s: float = STOP_GENTLY_S) -> None:
        """A signal, after the grace SIGKILL, to everybody in its group; reaped."""
        pid = self._process.pid
        signal_group(pid, number, is_walled=self._is_walled)
        try:
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._process.wait()), grace_s)
        finally:
            signal_group(pid, signal.SIGKILL, is_walled=self._is_walled)
        await self._process.wait()
        self._records.remove(pid)


async def read_lines(stream: asyncio.StreamReader, max_bytes: int = MAX_LINE_BYTES) -> AsyncIterator[bytes]:
    """The lines with something in them; one longer than `max_bytes` is dropped from beginning to end."""
    held = bytearray()
    is_dropping = False
    while chunk := await stream.read(_READ_BYTES):
        for number, part in enumerate(chunk.split(b"\n")):
            if number:
                if held.strip() and not is_dropping:
                    yield bytes(held)
                held.clear()
                is_dropping = False
            if not is_dropping:
                held += part
                if len(held) > max_bytes:
                    held.clear()
                    is_dropping = True
    if held.strip():
        yield bytes(held)


class Murmur:
    """What a program says beside its purpose, into a log: so much a second, then one line counts the rest."""

    def __init__(self, log: Log, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._log = log
        self._name = name
        self._loop = loop
        self._ends_at = 0.0
        self._lines = 0
        self._chars = 0
        self._dropped = 0
        self._dropped_bytes = 0
        self._telling: asyncio.TimerHandle | None = None

    async def say(self, level: str, text: str) -> None:
        """Log it, or count it; where too much is counted, wait, so that its writer waits too."""
        now = self._loop.time()
        if now >= self._ends_at:
            self._turn(now)
        if self._lines < LINES_PER_S and self._chars < CHARS_PER_S:
            self._lines += 1
            self._chars += len(text)
            self._log(level, text)
            return
        self._dropped += 1
        self._dropped_bytes += len(text)
        if self._telling is None:
            self._telling = self._loop.call_at(self._ends_at, self.tell)
        if self._dropped_bytes > BREATH_BYTES:
            await asyncio.sleep(max(0.0, self._ends_at - now))

    def tell(self) -> None:
        """Say how much was dropped since it was said last."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if self._dropped:
            self._log("warn", f"{self._name} wrote too much: {self._dropped} lines more were dropped")
            self._dropped = 0

    def _turn(self, now: float) -> None:
        self.tell()
        self._ends_at = now + _WINDOW_S
        self._lines = self._chars = self._dropped_bytes = 0
