"""What a guest may ask of `astrid:process`: the command gate, and a request checked whole before it runs.

Values in, decisions out; nothing is looked up and nothing is started here.  Source: host-abi.md 1.9, cases
ABI-25 and ABI-26, ADR 0017.  The limits are the published ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aos_runtime.policy.bounds import covers_command
from aos_runtime.policy.denial_line import quoted, render_denial

MIB = 1024 * 1024
MAX_STDIN_BYTES = 4 * MIB
MAX_WRITE_BYTES = MIB
MAX_ARGUMENT_BYTES = MIB
"""Of the command and all of its arguments together; the machine itself takes little more."""
MAX_ENV_VARS = 256
MAX_ENV_VALUE_BYTES = 64 * 1024
MAX_INJECTIONS = 128
MAX_INJECTION_BYTES = 8 * MIB
MAX_INJECTIONS_BYTES = 16 * MIB
MAX_PATH_BYTES = 4096
MAX_LABEL_BYTES = 128
RING_BYTES, MIN_RING_BYTES, MAX_RING_BYTES = MIB, 4096, 8 * MIB
WAITED_RING_BYTES = 4 * MIB
"""Of each stream of a child that is waited for, whose output goes to the guest in one piece."""
MAX_LIFETIME_S = 6 * 3600.0
IDLE_S = 30 * 60.0
RETENTION_S, MAX_RETENTION_S = 5 * 60.0, 3600.0
GRACE_S, MAX_GRACE_S = 5.0, 30.0
MAX_RETAINED, MAX_RETAINED_IN_ALL = 32, 256
MAX_CHUNK_BYTES = 4 * MIB

_ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SUFFIX = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+){0,3}\Z")
MAX_SUFFIX_BYTES = 128
RESERVED_KEYS = frozenset(
    {
        "PATH",
        "ASTRID_SESSION_TOKEN",
        "AOS_CHILD",
        "BASH_ENV",
        "ENV",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "NODE_OPTIONS",
        "PERL5OPT",
        "PYTHONHOME",
        "PYTHONPATH",
        "RUBYOPT",
        "ZDOTDIR",
    }
)
RESERVED_PREFIXES = ("DYLD_", "LD_")
_WORKSPACE = "cwd://"
_OTHER_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class ProcessCase(StrEnum):
    """The cases of the interface's `error-code`, in their order."""

    CAPABILITY_DENIED = "capability-denied"
    INVALID_INPUT = "invalid-input"
    BOUNDARY_ESCAPE = "boundary-escape"
    QUOTA = "quota"
    TOO_LARGE = "too-large"
    CLOSED = "closed"
    CANCELLED = "cancelled"
    WAIT_TIMEOUT = "wait-timeout"
    NO_SUCH_PROCESS = "no-such-process"
    REGISTRY_FULL = "registry-full"
    PERSIST_UNSUPPORTED = "persist-unsupported"
    UNKNOWN = "unknown"


class ProcessRefused(Exception):
    """An expected failure: the guest gets the case, its log the reason."""

    def __init__(self, case: ProcessCase, why: str = "") -> None:
        super().__init__(why or case.value)
        self.case = case
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """Bytes that a child reads and cannot change: at a path of its own, or at one that a variable names."""

    content: bytes
    path: str | None
    variable: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one child may use; None: no limit of its own."""

    memory_bytes: int | None = None
    cpu_s: int | None = None
    processes: int | None = None
    open_files: int | None = None

    @property
    def is_none(self) -> bool:
        return self == Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """A request that may be carried out.  `folder` are the names below the workspace."""

    command: str
    arguments: tuple[str, ...]
    stdin: bytes | None
    environ: Mapping[str, str]
    folder: tuple[str, ...]
    limits: Limits
    injections: tuple[Injection, ...]
    label: str
    keeps_stdin: bool | None
    has_backpressure: bool
    ring_bytes: int
    lifetime_s: float
    idle_s: float
    retention_s: float

    @property
    def line(self) -> str:
        """The command as it was asked for, for lists and the record."""
        return " ".join((self.command, *self.arguments))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDenial:
    """One refusal.  `allow` is the line that would allow it, None where none would."""

    operation: str
    command: str
    case: ProcessCase
    rule: str
    allow: str | None = None

    @property
    def kind(self) -> tuple[str, str, str]:
        """What repeats are told by."""
        return self.operation, self.command, self.rule

    def render(self, *, repeated: int = 0) -> str:
        """One line for the capsule's log (`policy.denial_line`)."""
        named = ("command", self.command)
        return render_denial(
            self.operation, named, self.rule, case=self.case.value, allow=self.allow, repeated=repeated
        )


def check_command(
    entries: Iterable[str], command: str, arguments: Iterable[str], operation: str
) -> ProcessDenial | None:
    """Whether `host_process` lists the command (`bounds.covers_command`)."""
    if covers_command(entries, command, arguments):
        return None
    return ProcessDenial(
        operation=operation,
        command=command,
        case=ProcessCase.CAPABILITY_DENIED,
        rule="no host_process entry covers it",
        allow=f"[capabilities] host_process = [{quoted(command[:200])}]",
    )


def check_spawn(request: Mapping[str, Any]) -> Spawn:
    """The request as it will be carried out.  ProcessRefused where it cannot be."""
    command, arguments = request["cmd"], tuple(request["args"])
    _check_words(command, arguments)
    stdin = request["stdin"]
    if stdin is not None and len(stdin) > MAX_STDIN_BYTES:
        raise ProcessRefused(ProcessCase.TOO_LARGE, f"stdin has more than {MAX_STDIN_BYTES} bytes")
    if request["idle-timeout-ms"] == 0:
        raise _invalid("an idle time of nothing")
    environ = _environ(request["env"])
    return Spawn(
        command=command,
        arguments=arguments,
        stdin=stdin,
        environ=environ,
        folder=read_folder(request["cwd"]),
        limits=_limits(request["limits"]),
        injections=_injections(request.get("file-injections") or (), environ),
        label=_label(request["label"] or command),
        keeps_stdin=request["keep-stdin-open"],
        has_backpressure=request["overflow"] == "backpressure",
        ring_bytes=max(MIN_RING_BYTES, min(request["log-ring-bytes"] or RING_BYTES, MAX_RING_BYTES)),
        lifetime_s=_seconds(request["max-lifetime-ms"], MAX_LIFETIME_S, MAX_LIFETIME_S),
        idle_s=_seconds(request["idle-timeout-ms"], IDLE_S, MAX_LIFETIME_S),
        retention_s=_seconds(request["exit-retention-ms"], RETENTION_S, MAX_RETENTION_S),
    )


def read_folder(cwd: str | None) -> tuple[str, ...]:
    """The names of a working directory below the workspace; of none, the workspace itself."""
    if cwd is None:
        return ()
    text = cwd.removeprefix(_WORKSPACE)
    if _CONTROL.search(text) or len(text.encode()) > MAX_PATH_BYTES:
        raise _invalid("the working directory is no path")
    parts = tuple(part for part in text.split("/") if part not in ("", "."))
    if ".." in parts or text.startswith("/") or _OTHER_SCHEME.match(text):
        raise ProcessRefused(ProcessCase.BOUNDARY_ESCAPE, "the working directory is not below the workspace")
    return parts


def grace_of(grace_ms: int | None) -> float:
    """Seconds between asking a child to end and killing it."""
    return _seconds(grace_ms, GRACE_S, MAX_GRACE_S)


def check_suffix(suffix: str) -> str:
    """The end of a topic that a guest chose for the events of a child."""
    if len(suffix) > MAX_SUFFIX_BYTES or not _SUFFIX.match(suffix):
        raise _invalid("a suffix is of a-z, 0-9, _ and -, in at most four parts with a dot between")
    return suffix


def check_variable(key: str) -> None:
    """ProcessRefused INVALID_INPUT for what is no name of a variable, or one that a guest may not set."""
    if not _ENV_KEY.match(key):
        raise _invalid(f"{key[:80]!r} is no name of a variable")
    if key in RESERVED_KEYS or key.startswith(RESERVED_PREFIXES):
        raise _invalid(f"the variable {key[:80]} is not a guest's to set")


def _check_words(command: str, arguments: tuple[str, ...]) -> None:
    if not command.strip() or _CONTROL.search(command):
        raise _invalid("the command is empty or holds control characters")
    if any("\0" in argument for argument in arguments):
        raise _invalid("an argument holds a NUL byte")
    if len(command.encode()) + sum(len(one.encode()) + 1 for one in arguments) > MAX_ARGUMENT_BYTES:
        raise _invalid(f"the arguments have more than {MAX_ARGUMENT_BYTES} bytes")


def _environ(rows: Iterable[Mapping[str, str]]) -> dict[str, str]:
    pairs = [(row["key"], row["value"]) for row in rows]
    if len(pairs) > MAX_ENV_VARS:
        raise ProcessRefused(ProcessCase.TOO_LARGE, f"more than {MAX_ENV_VARS} variables")
    environ: dict[str, str] = {}
    for key, value in pairs:
        check_variable(key)
        if key in environ:
            raise _invalid(f"the variable {key[:80]} twice")
        if "\0" in value or len(value.encode()) > MAX_ENV_VALUE_BYTES:
            raise _invalid(f"the value of {key[:80]} holds a NUL byte or is too long")
        environ[key] = value
    return environ


def _injections(asked: Iterable[Mapping[str, Any]], environ: Mapping[str, str]) -> tuple[Injection, ...]:
    found = tuple(_injection(one) for one in asked)
    sizes = [len(one.content) for one in found]
    if (
        len(found) > MAX_INJECTIONS
        or sum(sizes) > MAX_INJECTIONS_BYTES
        or max(sizes, default=0) > MAX_INJECTION_BYTES
    ):
        raise ProcessRefused(ProcessCase.TOO_LARGE, "too many or too large injections")
    places = [one.path or one.variable for one in found]
    if len(set(places)) < len(places) or any(one.variable in environ for one in found):
        raise _invalid("two injections at one place")
    return found


def _injection(asked: Mapping[str, Any]) -> Injection:
    kind, place = asked["placement"]
    if kind == "env-pointer":
        check_variable(place)
        return Injection(content=asked["content"], path=None, variable=place)
    parts = place.split("/")
    is_path = place.startswith("/") and not set(parts[1:]) & {"", ".", ".."}
    if not is_path or _CONTROL.search(place) or len(place.encode()) > MAX_PATH_BYTES:
        raise _invalid("an injection needs an absolute path without `..`")
    return Injection(content=asked["content"], path=place, variable=None)


def _limits(asked: Mapping[str, int | None] | None) -> Limits:
    if asked is None:
        return Limits()
    return Limits(
        memory_bytes=asked["max-memory-bytes"],
        cpu_s=asked["max-cpu-secs"],
        processes=asked["max-pids"],
        open_files=asked["max-open-files"],
    )


def _label(text: str) -> str:
    cleaned = _CONTROL.sub("", text).encode()[:MAX_LABEL_BYTES]
    return cleaned.decode("utf-8", "ignore")


def _seconds(asked_ms: int | None, default_s: float, most_s: float) -> float:
    return default_s if asked_ms is None else min(asked_ms / 1000, most_s)


def _invalid(why: str) -> ProcessRefused:
    return ProcessRefused(ProcessCase.INVALID_INPUT, why)
