"""The process around a runtime: descriptors, session, signals, and how it ends.

The main thread only waits for signals: no guest ever runs on it, so a spinning one cannot keep SIGTERM
from being acted on (CMP-15).  The first signal stops gracefully, with eight seconds until a forced exit;
a second one ends the process at once.  No signal is blocked: a program that the daemon starts would inherit
that, and could not be told to end.  Source: daemon-kernel.md 1.6.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import traceback
from dataclasses import replace
from types import FrameType

from aos_runtime.daemon.options import Options, StuckThreads
from aos_runtime.daemon.runtime import Runtime
from aos_runtime.errors import AosError, InvalidInput
from aos_runtime.home import Home
from aos_runtime.host.heap import share_one_heap
from aos_runtime.store.file_tree import PRIVATE_UMASK

FORCE_EXIT_S = 8.0
EXIT_FAILED = 1
EXIT_FORCED = 1
EXIT_INTERRUPTED = 130
ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
WAKE = 0
"""What a thread of ours writes to the main thread, where a signal writes its number."""

COLLECT_AFTER = 50_000
"""Allocations between two runs of the cycle collector: what a call allocates dies without it."""


def serve(home: Home, options: Options) -> int:
    """Run a daemon until it is told to stop; the exit status.  An error of the start is told on stderr."""
    share_one_heap()
    prepare_descriptors(foreground=options.foreground)
    options = replace(options, umask=os.umask(PRIVATE_UMASK))
    if not options.foreground:
        with contextlib.suppress(PermissionError):  # a session leader already
            os.setsid()
        os.chdir("/")
    ending = _Ending()
    runtime = Runtime(home, options, ending.begin)
    boot = threading.Thread(target=_boot, args=(runtime, home, options, ending), name="aos-boot", daemon=True)
    boot.start()
    return ending.wait(boot, runtime)


def _boot(runtime: Runtime, home: Home, options: Options, ending: _Ending) -> None:
    """Open the runtime, on a thread of its own: loading a capsule runs guest code."""
    try:
        runtime.open()
    except AosError as error:
        tell_error(error)
        ending.fail()
        return
    except StuckThreads:
        os._exit(EXIT_FORCED)
    except Exception:  # noqa: BLE001 - the top of a thread: a start that breaks must end the process
        traceback.print_exc()
        ending.fail()
        return
    if not options.foreground:
        redirect_stderr(home)
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


class _Ending:
    """Waits on the main thread for the first reason to stop, then for the end of stopping."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in ENDING:
            signal.signal(number, _leave_to_the_reader)
        self._reason: str | None = None
        self._is_finished = False
        self._status = 0

    def begin(self, reason: str) -> None:
        """Ask for the end, from any thread."""
        self._reason = reason
        self._wake()

    def fail(self) -> None:
        """The start failed and everything is closed already."""
        self._status = EXIT_FAILED
        self._is_finished = True
        self._wake()

    def wait(self, boot: threading.Thread, runtime: Runtime) -> int:
        """Block until the process should exit; its status."""
        while self._reason is None and not self._is_finished:
            number = self._read()
            if number != WAKE:
                self._reason = signal.Signals(number).name
        if self._is_finished:
            return self._status
        force = threading.Timer(FORCE_EXIT_S, os._exit, (EXIT_FORCED,))
        force.daemon = True
        force.start()
        closer = threading.Thread(target=self._close, args=(boot, runtime), name="aos-shutdown", daemon=True)
        closer.start()
        while not self._is_finished:
            if self._read() != WAKE:
                os._exit(EXIT_INTERRUPTED)
        force.cancel()
        return self._status

    def _close(self, boot: threading.Thread, runtime: Runtime) -> None:
        boot.join()
        if self._is_finished:
            return
        runtime.journal.daemon("info", f"stopping: {self._reason}")
        try:
            runtime.close()
        except StuckThreads:
            os._exit(EXIT_FORCED)  # memory under a running thread must not be freed
        finally:
            self._is_finished = True
            self._wake()

    def _read(self) -> int:
        """Block until there is something: WAKE, or the number of a signal."""
        return os.read(self._reader, 1)[0]

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full of signals that were not read yet
            os.write(self._writer, bytes([WAKE]))


def _leave_to_the_reader(number: int, frame: FrameType | None) -> None:
    """The interpreter has written the number already; without a handler it would not."""


def prepare_descriptors(*, foreground: bool) -> None:
    """Make descriptors 0 to 2 exist, and hold nothing of the parent's but stderr (DMN-10)."""
    handle = os.open(os.devnull, os.O_RDWR)
    while handle <= 2:  # one of them was closed
        handle = os.dup(handle)
    os.dup2(handle, 0)
    if not foreground:
        os.dup2(handle, 1)
    os.close(handle)


def redirect_stderr(home: Home) -> None:
    """What the interpreter itself says goes to the daemon's log from here on."""
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(home.daemon_log, flags, 0o600)
    except OSError:  # a full disk must not end a daemon that serves
        handle = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(handle, 2)
    os.close(handle)


def tell_error(error: AosError) -> None:
    """Message, issues and hint on stderr, for the boot log or the terminal."""
    lines = [f"error: {error.message}"]
    if isinstance(error, InvalidInput):
        lines += [f"  {issue.render()}" for issue in error.issues]
    lines.append(f"hint: {error.hint}")
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()
