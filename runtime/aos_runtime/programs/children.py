"""The one thread that starts every child, reads what they write, feeds them and sees them end.

bubblewrap ends with the *thread* that started it, so all children are started by this one, which lives as
long as the daemon.  It waits for pipes and process descriptors in one place, and never for a child.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Container
from functools import partial
from time import monotonic
from typing import IO, NamedTuple

from aos_runtime.errors import AosError
from aos_runtime.policy.process_rules import ProcessCase, ProcessRefused
from aos_runtime.programs.child import Child, Launch, Use
from aos_runtime.programs.rings import Ring
from aos_runtime.store.children import ChildRecords, signal_group

START_TIMEOUT_S = 30.0
STOP_S = 3.0
DRAIN_S = 1.0
"""How long output is waited for once a child has ended and somebody else still holds its pipes."""
LAST_READS = 16
FAULT_PAUSE_S = 0.1
SWEEP_S = 2.0
CANCEL_GRACE_S = 2.0
READ_BYTES = 64 * 1024
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_MISSING = (FileNotFoundError, NotADirectoryError, PermissionError)


class _Order:
    """A child to be started; `done` once `child` or `fault` is there.  `limit`: of its principal's slots."""

    __slots__ = ("child", "done", "fault", "is_abandoned", "launch", "limit")

    def __init__(self, launch: Launch, limit: int) -> None:
        self.is_abandoned = False
        self.launch = launch
        self.limit = limit
        self.done = threading.Event()
        self.child: Child | None = None
        self.fault: ProcessRefused | None = None


class _Output(NamedTuple):
    """One stream that is read."""

    file: IO[bytes]
    ring: Ring


class _Watched:
    """What the thread holds of a child."""

    __slots__ = ("child", "outputs", "pidfd", "stdin")

    def __init__(self, child: Child, process: subprocess.Popen[bytes], pidfd: int) -> None:
        assert process.stdout is not None and process.stderr is not None
        self.child = child
        self.pidfd: int | None = pidfd
        self.stdin = process.stdin
        self.outputs = [_Output(process.stdout, child.stdout), _Output(process.stderr, child.stderr)]


class Children:
    """All children of one daemon; the thread begins with the first.

    `on_output(child)` is told of new output where there was none, `on_over(child)` of each end,
    `on_sweep(now)` every two seconds: all on the thread, none may block.
    """

    def __init__(self, records: ChildRecords) -> None:
        self.on_output: Callable[[Child], None] = lambda child: None
        self.on_over: Callable[[Child], None] = lambda child: None
        self.on_fault: Callable[[Exception], None] = lambda error: None
        """Told of a bug of ours; the thread goes on."""
        self.on_sweep: Callable[[float], None] = lambda now: None
        self._records = records
        self._orders: deque[_Order] = deque()
        self._live: dict[int, _Watched] = {}
        self._selector = selectors.DefaultSelector()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._bell, _READ)
        self._is_stopping = False
        self._swept_at = monotonic()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, launch: Launch, limit: int) -> Child:
        """Start a child.  ProcessRefused QUOTA where its principal has `limit` in the background already,
        INVALID_INPUT where there is no such program, UNKNOWN and CANCELLED otherwise.
        """
        order = _Order(launch, limit)
        with self._lock:
            if self._is_stopping:
                raise _stopping()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="aos-children", daemon=True)
                self._thread.start()
            self._orders.append(order)
        self.ring()
        order.is_abandoned = not order.done.wait(START_TIMEOUT_S)
        if order.child is None:
            raise order.fault or ProcessRefused(ProcessCase.UNKNOWN, "it could not be started in time")
        return order.child

    def live(self) -> tuple[Child, ...]:
        """Those that are not over."""
        return tuple(one.child for one in tuple(self._live.values()))

    def slots_taken(self, principal: str) -> int:
        """How many run in the background for a principal."""
        return sum(
            one.launch.is_background and one.launch.owner.principal == principal for one in self.live()
        )

    def cancel(self, principal: str | None, call_ids: Container[str]) -> int:
        """Interrupt the children of these calls, and kill in two seconds what is left; how many they were."""
        meant = [
            one
            for one in self.live()
            if one.launch.owner.principal == principal and one.launch.call_id in call_ids
        ]
        for child in meant:
            child.interrupt(CANCEL_GRACE_S)
        return len(meant)

    def kill_all(self) -> None:
        """Start no more, and kill what there is."""
        with self._lock:
            self._is_stopping = True
        self.ring()

    def stop(self) -> bool:
        """`kill_all`, then end the thread; False where it would not end."""
        self.kill_all()
        if self._thread is not None:
            self._thread.join(STOP_S)
            if self._thread.is_alive():
                return False
        self._selector.close()
        bell, self._bell = self._bell, -1
        if bell >= 0:
            os.close(bell)
        return True

    def ring(self) -> None:
        """Let the thread look again."""
        with contextlib.suppress(OSError):  # it has ended
            os.eventfd_write(self._bell, 1)

    # the thread

    def _work(self) -> None:
        while self._live or self._orders or not self._is_stopping:
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - the top of a thread: the other children must go on
                self.on_fault(error)
                time.sleep(FAULT_PAUSE_S)

    def _step(self) -> None:
        for key, _ in self._selector.select(self._patience()):
            if key.data is None:
                os.eventfd_read(self._bell)
            elif self._selector.get_map().get(key.fd) is key:  # what was done before may have let go of it
                key.data()
        while self._orders:
            self._carry_out(self._orders.popleft())
        now = monotonic()
        for watched in tuple(self._live.values()):
            self._look_after(watched, now)
        if now - self._swept_at >= SWEEP_S:
            self._swept_at = now
            self.on_sweep(now)

    def _patience(self) -> float:
        """How long nothing may happen: until the next sweep, or the next child that has to go."""
        ends = [self._swept_at + SWEEP_S]
        for child in self.live():
            if child.ended_at is not None:
                ends.append(child.ended_at + DRAIN_S)
            elif child.kill_at is not None:
                ends.append(child.kill_at)
        return max(0.0, min(ends) - monotonic())

    def _carry_out(self, order: _Order) -> None:
        owner = order.launch.owner
        try:
            if self._is_stopping:
                raise _stopping()
            if order.launch.is_background and self.slots_taken(owner.principal) >= order.limit:
                raise crowded(order.limit)
            order.child = self._start(order.launch)
            if order.is_abandoned:
                order.child.kill()
        except ProcessRefused as fault:
            order.fault = fault
        except AosError as error:
            order.fault = ProcessRefused(ProcessCase.UNKNOWN, error.message)
        except OSError as error:
            is_asked = isinstance(error, _MISSING) or error.errno == errno.E2BIG
            case = ProcessCase.INVALID_INPUT if is_asked else ProcessCase.UNKNOWN
            order.fault = ProcessRefused(case, f"it cannot be started: {os.strerror(error.errno or 0)}")
        finally:
            order.done.set()

    def _start(self, launch: Launch) -> Child:
        process = self._open(launch)
        try:
            self._records.add(process.pid)
            pidfd = os.pidfd_open(process.pid)
        except BaseException:
            signal_group(process.pid, signal.SIGKILL, is_walled=False)
            with process:  # closes its pipes and reaps it
                pass
            raise
        child = Child(launch, process, self.ring)
        watched = _Watched(child, process, pidfd)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        self._live[child.pid] = watched
        self._selector.register(pidfd, _READ, partial(self._reap, watched))
        return child

    def _open(self, launch: Launch) -> subprocess.Popen[bytes]:
        arguments, descriptors = launch.program.open()
        has_input = launch.keeps_stdin or launch.stdin is not None
        try:
            return subprocess.Popen(
                arguments,
                bufsize=0,
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(launch.program.environ),
                cwd="/" if launch.program.is_walled else launch.program.folder,
                start_new_session=True,
                pass_fds=descriptors,
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _look_after(self, watched: _Watched, now: float) -> None:
        """Wait for what can be waited for now, and end what is over."""
        child = watched.child
        with child.changed:
            self._feed(watched)
        for output in tuple(watched.outputs):
            if output.ring.room() > 0:
                self._want(output.file.fileno(), _READ, partial(self._read, watched, output))
            else:
                self._forget(output.file.fileno())
        if child.exit is None:
            if self._is_stopping or (child.kill_at is not None and now >= child.kill_at):
                child.kill()
        elif not watched.outputs or (child.ended_at is not None and now >= child.ended_at + DRAIN_S):
            self._finish(watched)

    def _feed(self, watched: _Watched) -> None:
        """(the child's lock) Write what the child takes now; end its input where that was all."""
        child, stdin = watched.child, watched.stdin
        if stdin is None:
            return
        if child.input:
            try:
                while child.input:
                    del child.input[: os.write(stdin.fileno(), child.input[:READ_BYTES])]
            except BlockingIOError:
                self._want(stdin.fileno(), _WRITE, lambda: None)  # to be looked after is all it needs
                return
            except OSError:
                child.tear_input()
            child.changed.notify_all()
        self._forget(stdin.fileno())
        if not child.is_input_open:
            watched.stdin = None
            stdin.close()

    def _read(self, watched: _Watched, output: _Output) -> bool:
        """Take what is there now; whether there may be more."""
        child = watched.child
        try:
            data = os.read(output.file.fileno(), min(READ_BYTES, output.ring.room() or READ_BYTES))
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close(watched, output)
            return False
        with child.changed:
            is_news = not child.has_output()
            output.ring.add(data)
        if is_news:
            self.on_output(child)
        return True

    def _reap(self, watched: _Watched) -> None:
        """It has ended: so must its group, while its id is still its own."""
        child = watched.child
        if watched.pidfd is not None:
            self._selector.unregister(watched.pidfd)
            os.close(watched.pidfd)
            watched.pidfd = None
        with child.changed:
            signal_group(child.pid, signal.SIGKILL, is_walled=False)
            _, status, usage = os.wait4(child.pid, 0)
            cpu_ms = int((usage.ru_utime + usage.ru_stime) * 1000)
            child.note_exit(os.waitstatus_to_exitcode(status), Use(cpu_ms, usage.ru_maxrss * 1024))

    def _finish(self, watched: _Watched) -> None:
        """All of its output is here."""
        child = watched.child
        for output in tuple(watched.outputs):  # somebody else holds them, or nobody read what is left
            for _ in range(LAST_READS):
                if not self._read(watched, output):
                    break
            if output in watched.outputs:
                self._close(watched, output)
        del self._live[child.pid]
        self._records.remove(child.pid)
        with child.changed:
            child.note_over()
        self.on_over(child)

    def _want(self, descriptor: int, events: int, act: Callable[[], object]) -> None:
        """Wait for a pipe."""
        if descriptor not in self._selector.get_map():
            self._selector.register(descriptor, events, act)

    def _forget(self, descriptor: int) -> None:
        """Wait for a pipe no longer."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def _close(self, watched: _Watched, output: _Output) -> None:
        self._forget(output.file.fileno())
        output.file.close()
        watched.outputs.remove(output)


def crowded(limit: int) -> ProcessRefused:
    """All slots of a principal are taken."""
    return ProcessRefused(ProcessCase.QUOTA, f"{limit} background processes run already")


def _stopping() -> ProcessRefused:
    return ProcessRefused(ProcessCase.CANCELLED, "the daemon is stopping")
