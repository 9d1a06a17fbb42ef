"""One guest's way to the programs of this machine: gate, check, walls, record, start, in this order.

What is refused says in the capsule's log why, and which line would allow it; nothing starts that is not on
record.  Source: host-abi.md 1.9 and 6.8, architecture section 4 (gate, act, audit, result), ADR 0017.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from blake3 import blake3

from aos_runtime.errors import AosError, InvalidInput, NotFound, Unavailable
from aos_runtime.policy.bounds import PROGRAMS, Bounds, unbound
from aos_runtime.policy.process_rules import (
    RING_BYTES,
    WAITED_RING_BYTES,
    Injection,
    Limits,
    ProcessCase,
    ProcessDenial,
    ProcessRefused,
    Spawn,
    check_command,
    check_spawn,
)
from aos_runtime.programs.child import Child, Launch, Owner
from aos_runtime.programs.children import CANCEL_GRACE_S, DRAIN_S, Children, crowded
from aos_runtime.programs.registry import Kept, Registry
from aos_runtime.programs.sandbox import INSIDE_HOME, Program, Sandbox, Shown, clear_environ, find_on_machine

SLACK_S = 1.0
MAX_SHOWN = 200
"""Characters of a command in the line that would allow it."""
LIMITER = "prlimit"
_NO_LIMIT = resource.RLIM_INFINITY
_T = TypeVar("_T")


class Tier(Enum):
    """What becomes of a child."""

    WAITED = "spawn"
    BACKGROUND = "spawn-background"
    PERSISTENT = "spawn-persistent"

    @property
    def operation(self) -> str:
        return f"process.{self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDoor:
    """See the module's text.

    `admit(action)` puts a start on record first, AosError where that cannot be; `note(call, target, error)`
    any other effect.  `slots` is how many children its principal may have in the background, `allow_slots`
    the command that gives it more; `bounds` are the most that it may start now.
    """

    owner: Owner
    entries: tuple[str, ...]
    may_persist: bool
    children: Children
    registry: Registry
    open_sandbox: Callable[[], Sandbox]
    workspace: Callable[[], Path | None]
    call_id: Callable[[], str | None]
    caller: Callable[[], str | None]
    slots: Callable[[], int]
    allow_slots: str
    admit: Callable[[Mapping[str, object]], None]
    note: Callable[[str, str, str | None], None]
    denied: Callable[[ProcessDenial], None]
    log: Callable[[str, str], None]
    bounds: Callable[[], Bounds] = unbound

    def start(self, request: Mapping[str, Any], tier: Tier) -> Child:
        """Start a child of the guest's.  ProcessRefused where it cannot be."""
        return self._noted(request, tier, lambda: self._start(request, tier)[0])

    def start_persistent(self, request: Mapping[str, Any]) -> Kept:
        """Start one that outlives the instance."""

        def run() -> Kept:
            reserved = self.registry.reserve(self.owner)
            try:
                child, spawn = self._start(request, Tier.PERSISTENT)
            except BaseException:
                self.registry.forget(reserved)
                raise
            return self.registry.fill(reserved, child, spawn)

        return self._noted(request, Tier.PERSISTENT, run)

    def give_up(self, child: Child, *, is_cancelled: bool) -> NoReturn:
        """Nobody waits for a child any more: it is asked to end where its call was cancelled, else killed."""
        if is_cancelled:
            child.interrupt(CANCEL_GRACE_S)
            child.wait(CANCEL_GRACE_S + DRAIN_S + SLACK_S, _never)
        else:
            child.kill()
            child.wait(DRAIN_S + SLACK_S, _never)
        raise ProcessRefused(ProcessCase.CANCELLED)

    def _noted(self, request: Mapping[str, Any], tier: Tier, run: Callable[[], _T]) -> _T:
        """Gate and run; what is refused is put on record with its case."""
        try:
            self._check(request, tier)
            return run()
        except ProcessRefused as refused:
            self.note(tier.operation, str(request["cmd"]), refused.case.value)
            raise

    def _check(self, request: Mapping[str, Any], tier: Tier) -> None:
        command = request["cmd"]
        denial = check_command(self.entries, command, request["args"], tier.operation)
        if denial is not None:
            self._refuse(denial)
        bounds = self.bounds()
        if not bounds.starts(command, request["args"]):
            allow = bounds.allow(PROGRAMS, command[:MAX_SHOWN])
            self._deny(tier, command, ProcessCase.CAPABILITY_DENIED, bounds.rule(PROGRAMS), allow)
        if tier is Tier.PERSISTENT and not self.may_persist:
            self._deny(
                tier,
                command,
                ProcessCase.CAPABILITY_DENIED,
                "it may not start what outlives it",
                "[capabilities] allow_persistent = true",
            )
        slots = self.slots()
        if tier is not Tier.WAITED and self.children.slots_taken(self.owner.principal) >= slots:
            self._deny(tier, command, ProcessCase.QUOTA, crowded(slots).why, self.allow_slots)

    def _start(self, request: Mapping[str, Any], tier: Tier) -> tuple[Child, Spawn]:
        spawn = check_spawn(request)
        program, folder = self._program(spawn, tier)
        self._admit(spawn, tier, folder)
        is_waited, is_persistent = tier is Tier.WAITED, tier is Tier.PERSISTENT
        keeps_stdin = spawn.keeps_stdin is True if is_persistent else spawn.keeps_stdin is not False
        launch = Launch(
            program=program,
            owner=self.owner,
            call_id=self.call_id(),
            line=spawn.line,
            is_background=not is_waited,
            stdin=spawn.stdin,
            keeps_stdin=not is_waited and keeps_stdin,
            ring_bytes=spawn.ring_bytes if is_persistent else WAITED_RING_BYTES if is_waited else RING_BYTES,
            has_backpressure=is_persistent and spawn.has_backpressure,
        )
        return self.children.start(launch, self.slots()), spawn

    def _admit(self, spawn: Spawn, tier: Tier, folder: Path) -> None:
        action: dict[str, object] = {
            "type": "process_spawned",
            "capsule_id": self.owner.capsule,
            "call": tier.operation,
            "command": spawn.line,
            "folder": str(folder),
        }
        call_id = self.call_id()
        if call_id is not None:
            action["call_id"] = call_id
        if spawn.injections:
            action["injections"] = [blake3(one.content).hexdigest() for one in spawn.injections]
        try:
            self.admit(action)
        except AosError as error:
            raise ProcessRefused(ProcessCase.UNKNOWN, error.message) from error

    def _program(self, spawn: Spawn, tier: Tier) -> tuple[Program, Path]:
        """What to start, and where it starts."""
        sandbox = self._sandbox(tier)
        workspace = self.workspace()
        folder = _below(workspace, spawn.folder)
        files, pointers = _placed(spawn.injections, sandbox)
        try:
            program = sandbox.machine_program(
                spawn.command,
                spawn.arguments,
                {**spawn.environ, **pointers},
                start=folder,
                writable=() if workspace is None else (workspace,),
                files=files,
            )
        except (InvalidInput, NotFound) as error:
            raise ProcessRefused(ProcessCase.INVALID_INPUT, error.message) from error
        for warning in program.warnings:
            self.log("warn", warning)
        writable = () if workspace is None else (workspace,)
        return _limited(program, spawn.limits, (*writable, sandbox.masks.home)), folder

    def _sandbox(self, tier: Tier) -> Sandbox:
        is_persistent = tier is Tier.PERSISTENT
        try:
            sandbox = self.open_sandbox()
        except Unavailable as error:
            case = ProcessCase.PERSIST_UNSUPPORTED if is_persistent else ProcessCase.INVALID_INPUT
            raise ProcessRefused(case, f"{error.message}; {error.hint}") from error
        if is_persistent and sandbox.wall is None:
            raise ProcessRefused(
                ProcessCase.PERSIST_UNSUPPORTED, "nothing is kept running without bubblewrap"
            )
        if is_persistent and self.caller() is None:
            raise ProcessRefused(ProcessCase.PERSIST_UNSUPPORTED, "nobody is there to whom it would belong")
        return sandbox

    def _deny(self, tier: Tier, command: str, case: ProcessCase, rule: str, allow: str) -> NoReturn:
        self._refuse(
            ProcessDenial(operation=tier.operation, command=command, case=case, rule=rule, allow=allow)
        )

    def _refuse(self, denial: ProcessDenial) -> NoReturn:
        self.denied(denial)
        raise ProcessRefused(denial.case)


def _never() -> bool:
    return False


def _below(workspace: Path | None, names: tuple[str, ...]) -> Path:
    """Where a child starts: without a workspace only in a scratch folder of its own.

    A workspace that another child has made a link of would be bound where the link leads, the aos home even.
    """
    if workspace is None:
        if names:
            raise ProcessRefused(ProcessCase.INVALID_INPUT, "there is no working directory")
        return Path(INSIDE_HOME)
    folder = workspace.joinpath(*names).resolve()
    if not folder.is_relative_to(workspace):
        raise ProcessRefused(ProcessCase.BOUNDARY_ESCAPE, "a link leads the working directory out")
    if not folder.is_dir():
        raise ProcessRefused(ProcessCase.INVALID_INPUT, "the working directory is not there")
    return folder


def _placed(injections: tuple[Injection, ...], sandbox: Sandbox) -> tuple[tuple[Shown, ...], dict[str, str]]:
    """The files that a child finds, and the variables that say where."""
    if injections and sandbox.wall is None:
        raise ProcessRefused(
            ProcessCase.INVALID_INPUT, "without bubblewrap no file is safe from the program that reads it"
        )
    files, pointers = [], {}
    for number, one in enumerate(injections):
        path = sandbox.masks.home / "injected" / str(number) if one.path is None else Path(one.path)
        files.append(Shown(path, one.content))
        if one.variable is not None:
            pointers[one.variable] = str(path)
    return tuple(files), pointers


def _limited(program: Program, limits: Limits, never: tuple[Path, ...]) -> Program:
    """The program, started by one that limits itself first: nothing runs before the limits hold.

    That one is not found in the folders `never`.
    """
    if limits.is_none:
        return program
    limiter = find_on_machine(LIMITER, clear_environ(os.environ)["PATH"], never)
    if limiter is None:
        raise ProcessRefused(ProcessCase.INVALID_INPUT, f"limits need {LIMITER}, which is not installed")
    asked = (
        ("as", limits.memory_bytes, resource.RLIMIT_AS),
        ("cpu", limits.cpu_s, resource.RLIMIT_CPU),
        ("nproc", limits.processes, resource.RLIMIT_NPROC),
        ("nofile", limits.open_files, resource.RLIMIT_NOFILE),
    )
    words = tuple(f"--{name}={_least(value, kind)}" for name, value, kind in asked if value is not None)
    return replace(program, words=(str(limiter), *words, "--", *program.words))


def _least(asked: int, kind: int) -> int:
    """What may be asked of the machine: never more than this process itself may have."""
    most = resource.getrlimit(kind)[1]
    return asked if most == _NO_LIMIT else min(asked, most)
