"""astrid:process/host@1.0.0 and @1.1.0 (host-abi.md 1.9): programs that are waited for, that run beside the
guest, and that outlive its instance.

One implementation for both versions; they differ in what a request holds.  What may be started is the door's
to say.  Every wait is one of this call: the leader is asked to go on without it first, and its deadline and
cancellation end it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from aos_runtime.host.codecs import Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors.factor import Published, published
from aos_runtime.host.factors.outside import gives, method
from aos_runtime.host.factors.process_calls import (
    HANDLE,
    Held,
    Operation,
    added,
    at_once,
    by_handle,
    by_id,
    door_of,
    waits,
)
from aos_runtime.host.factors.process_reading import (
    exit_info,
    kill_result,
    log_chunk,
    process_info,
    process_result,
    read_logs_result,
)
from aos_runtime.host.factors.process_types import (
    CHUNK,
    CURSOR,
    EXIT,
    INFO,
    KILLED,
    LOGS,
    OLD_REQUEST,
    REQUEST,
    RESULT,
    SIGNAL,
    STREAM,
    fallible,
)
from aos_runtime.host.streams import POLLABLE, Pollable
from aos_runtime.host.wit import BYTES, OWN, STRING, U32, U64, ListOf, Option, Record
from aos_runtime.policy.process_rules import (
    MAX_WRITE_BYTES,
    ProcessCase,
    ProcessRefused,
    check_suffix,
    grace_of,
)
from aos_runtime.programs import Child, Kept, ProcessDoor, Tier
from aos_runtime.programs.registry import KILLED as BY_KILL

END_S = 5.0
"""How long a child that was killed is waited for."""
MAX_IDS = 1024
SIGNALS = {
    "term": signal.SIGTERM,
    "hup": signal.SIGHUP,
    "usr1": signal.SIGUSR1,
    "usr2": signal.SIGUSR2,
    "int": signal.SIGINT,
    "stop": signal.SIGSTOP,
    "cont": signal.SIGCONT,
}


class _Source:
    """What a guest waits for at a child; asked, since nothing of it has a descriptor of its own."""

    __slots__ = ("is_ready",)

    def __init__(self, is_ready: Callable[[], bool]) -> None:
        self.is_ready = is_ready

    def descriptor(self) -> tuple[int, int] | None:
        return None


# starting


def spawn(context: GuestContext, request: dict[str, Any]) -> dict[str, object] | Err:
    """`spawn`: the end of a child and all that it wrote."""

    def run(door: ProcessDoor) -> dict[str, object]:
        _check_wanted(context)
        child = door.start(request, Tier.WAITED)
        if not child.wait(None, context.is_over):
            door.give_up(child, is_cancelled=context.is_cancelled)
        lost = child.stdout.dropped + child.stderr.dropped
        if lost:
            context.log("warn", f"process: {lost} bytes that a program wrote were too much and are lost")
        return process_result(child)

    return waits(context, run)


def spawn_background(context: GuestContext, request: dict[str, Any]) -> int | Err:
    """`spawn-background`: a handle; the child ends with it."""

    def run(door: ProcessDoor) -> int:
        _check_wanted(context)
        return added(context, Held(door.start(request, Tier.BACKGROUND)))

    return waits(context, run)


def spawn_persistent(context: GuestContext, request: dict[str, Any]) -> str | Err:
    """`spawn-persistent`: an id, for any later call of the same capsule and principal."""

    def run(door: ProcessDoor) -> str:
        _check_wanted(context)
        return door.start_persistent(request).id

    return waits(context, run)


# one child, by its handle


def read_logs(context: GuestContext, held: Held) -> dict[str, object]:
    """What no reader of logs got before."""
    return read_logs_result(held.child)


def write_stdin(context: GuestContext, held: Held, data: bytes) -> int:
    """All of `data`, or an error: then the child may have a part of it, and gets no more."""
    if len(data) > MAX_WRITE_BYTES:
        raise ProcessRefused(ProcessCase.TOO_LARGE)
    has_waited = held.child.write(data, context.is_over)
    if has_waited and held.kept is not None:
        door_of(context).registry.announce(held.kept, "stdin-drained")
    return len(data)


def close_stdin(context: GuestContext, held: Held) -> None:
    """The child sees the end of its input."""
    held.child.close_input()


def send_signal(context: GuestContext, held: Held, name: str) -> None:
    """A signal to its whole group."""
    held.child.send(SIGNALS[name])


def kill(context: GuestContext, held: Held) -> dict[str, object]:
    """SIGKILL to its whole group, and what it still had to say."""
    was_running = held.child.kill()
    if was_running and held.kept is not None:
        held.kept.reason = BY_KILL
    held.child.wait(END_S, lambda: False)
    return kill_result(held.child, is_killed=was_running)


def wait(context: GuestContext, held: Held, timeout_ms: int | None) -> dict[str, object]:
    """How it ended, once it has."""
    _await_end(context, held, timeout_ms)
    return exit_info(held.child)


def wait_with_output(context: GuestContext, held: Held, timeout_ms: int | None) -> dict[str, object]:
    """How it ended, and what no reader got before."""
    _await_end(context, held, timeout_ms)
    return process_result(held.child)


def os_pid(context: GuestContext, held: Held) -> int:
    """Its process id; behind bubblewrap that of the wall."""
    if held.child.exit is not None:
        raise ProcessRefused(ProcessCase.CLOSED)
    return held.child.pid


# one child, by its id


def attach(context: GuestContext, name: str) -> int | Err:
    """`attach`: a handle that ends nothing when it is dropped."""

    def run(door: ProcessDoor) -> int:
        kept = door.registry.find(door.owner, name)
        return added(context, Held(kept.child, kept))

    return at_once(context, run)


def list_processes(context: GuestContext, label: str | None) -> list[dict[str, object]] | Err:
    """`list-processes`: those of this capsule and principal; looking is not using."""
    return at_once(
        context,
        lambda door: [
            process_info(one)
            for one in door.registry.of(door.owner)
            if label is None or label in one.spawn.label
        ],
    )


def status(context: GuestContext, name: str) -> dict[str, object] | Err:
    """`status`: a look at one, which reads nothing of its output."""
    return at_once(context, lambda door: process_info(_seen(door, name)))


def status_many(context: GuestContext, names: list[str]) -> list[dict[str, object]] | Err:
    """`status-many`: those that there are."""

    def run(door: ProcessDoor) -> list[dict[str, object]]:
        known = {one.id: one for one in door.registry.of(door.owner)}
        return [process_info(known[name]) for name in dict.fromkeys(names[:MAX_IDS]) if name in known]

    return at_once(context, run)


def read_since(
    context: GuestContext, name: str, stream: str, cursor: dict[str, Any], max_bytes: int
) -> dict[str, object] | Err:
    """`read-since`: a part of a stream, which others still can read."""
    return at_once(
        context,
        lambda door: log_chunk(door.registry.find(door.owner, name), stream, cursor["token"], max_bytes),
    )


def stop(context: GuestContext, name: str, grace_ms: int | None) -> dict[str, object] | Err:
    """`stop`: SIGTERM, after the grace SIGKILL; the id is given back."""

    def run(door: ProcessDoor) -> dict[str, object]:
        kept = door.registry.find(door.owner, name)
        grace_s = grace_of(grace_ms)
        if kept.child.exit is None:
            kept.reason = BY_KILL
            kept.child.interrupt(grace_s, signal.SIGTERM)
            door.note("process.stop", kept.child.launch.line, None)
        if not kept.child.wait(grace_s + END_S, context.is_over):
            kept.child.kill()
            kept.child.wait(END_S, lambda: False)
        door.registry.forget(name)
        return exit_info(kept.child)

    return waits(context, run)


def release(context: GuestContext, name: str) -> Err | None:
    """`release-process`: forget one that has ended; again and again is fine."""

    def run(door: ProcessDoor) -> None:
        try:
            kept = door.registry.find(door.owner, name)
        except ProcessRefused:
            return
        if not kept.child.is_over:
            raise ProcessRefused(ProcessCase.INVALID_INPUT, "it still runs: stop it")
        door.registry.forget(name)

    return at_once(context, run)


def watch(context: GuestContext, name: str, suffix: str | None) -> Err | None:
    """`watch`: what happens to it comes on `astrid.process.v1.{exited,log-ready,stdin-drained}.SUFFIX`."""

    def run(door: ProcessDoor) -> None:
        kept = door.registry.find(door.owner, name)
        chosen = check_suffix(kept.id if suffix is None else suffix)
        door.registry.watch(kept, chosen)

    return at_once(context, run)


def unwatch(context: GuestContext, name: str) -> Err | None:
    """`unwatch`: no more of that; of one that is not there neither."""

    def run(door: ProcessDoor) -> None:
        for kept in door.registry.of(door.owner):
            if kept.id == name:
                kept.suffix = None

    return at_once(context, run)


def _check_wanted(context: GuestContext) -> None:
    """ProcessRefused CANCELLED where the call that asks for a child is over already."""
    if context.is_over():
        raise ProcessRefused(ProcessCase.CANCELLED)


def _seen(door: ProcessDoor, name: str) -> Kept:
    """One of the registry, without counting as use of it."""
    for kept in door.registry.of(door.owner):
        if kept.id == name:
            return kept
    raise ProcessRefused(ProcessCase.NO_SUCH_PROCESS)


def _await_end(context: GuestContext, held: Held, timeout_ms: int | None) -> None:
    """Return once it is over; without a limit only where its handle is all that there is of it."""
    if timeout_ms is None and held.kept is not None:
        raise ProcessRefused(ProcessCase.INVALID_INPUT, "a wait for a persistent process needs a limit")
    timeout_s = None if timeout_ms is None else timeout_ms / 1000
    if not held.child.wait(timeout_s, context.is_over):
        is_cut = context.is_over()
        raise ProcessRefused(ProcessCase.CANCELLED if is_cut else ProcessCase.WAIT_TIMEOUT)


READ_LOGS = Operation(read_logs)
WRITE_STDIN = Operation(write_stdin, waits=True, recorded="process.write-stdin")
CLOSE_STDIN = Operation(close_stdin)
SIGNAL_IT = Operation(send_signal, recorded="process.signal")
KILL = Operation(kill, waits=True, recorded="process.kill")
WAIT = Operation(wait, waits=True)
WAIT_WITH_OUTPUT = Operation(wait_with_output, waits=True)
OS_PID = Operation(os_pid)


def _pollable(is_ready: Callable[[Child], bool]) -> Callable[..., int]:
    return gives(HANDLE, POLLABLE, lambda held: Pollable(_Source(lambda: is_ready(held.child))))


def _functions(request: Record) -> dict[str, Published]:
    return {
        "spawn": published(spawn, fallible(RESULT), request=request),
        "spawn-background": published(spawn_background, fallible(OWN), request=request),
        "spawn-persistent": published(spawn_persistent, fallible(STRING), request=request),
        "attach": published(attach, fallible(OWN), id=STRING),
        "list-processes": published(list_processes, fallible(ListOf(INFO)), label_filter=Option(STRING)),
        "status": published(status, fallible(INFO), id=STRING),
        "status-many": published(status_many, fallible(ListOf(INFO)), ids=ListOf(STRING)),
        "read-logs": published(by_id(READ_LOGS), fallible(LOGS), id=STRING),
        "read-since": published(
            read_since, fallible(CHUNK), id=STRING, which_stream=STREAM, cursor=CURSOR, max_bytes=U32
        ),
        "write-stdin": published(by_id(WRITE_STDIN), fallible(U32), id=STRING, data=BYTES),
        "close-stdin": published(by_id(CLOSE_STDIN), fallible(None), id=STRING),
        "signal": published(by_id(SIGNAL_IT), fallible(None), id=STRING, sig=SIGNAL),
        "wait": published(by_id(WAIT), fallible(EXIT), id=STRING, timeout_ms=U64),
        "stop": published(stop, fallible(EXIT), id=STRING, grace_ms=Option(U64)),
        "release-process": published(release, fallible(None), id=STRING),
        "watch": published(watch, fallible(None), id=STRING, suffix=Option(STRING)),
        "unwatch": published(unwatch, fallible(None), id=STRING),
        "[method]process-handle.read-logs": method(by_handle(READ_LOGS), fallible(LOGS)),
        "[method]process-handle.write-stdin": method(by_handle(WRITE_STDIN), fallible(U32), data=BYTES),
        "[method]process-handle.close-stdin": method(by_handle(CLOSE_STDIN), fallible(None)),
        "[method]process-handle.signal": method(by_handle(SIGNAL_IT), fallible(None), sig=SIGNAL),
        "[method]process-handle.kill": method(by_handle(KILL), fallible(KILLED)),
        "[method]process-handle.wait": method(by_handle(WAIT), fallible(EXIT), timeout_ms=Option(U64)),
        "[method]process-handle.wait-with-output": method(
            by_handle(WAIT_WITH_OUTPUT), fallible(RESULT), timeout_ms=Option(U64)
        ),
        "[method]process-handle.os-pid": method(by_handle(OS_PID), fallible(U32)),
        "[method]process-handle.subscribe-exit": method(_pollable(lambda child: child.is_over), OWN),
        "[method]process-handle.subscribe-logs": method(_pollable(Child.has_output), OWN),
    }


FUNCTIONS_1_0 = _functions(OLD_REQUEST)
FUNCTIONS = _functions(REQUEST)
