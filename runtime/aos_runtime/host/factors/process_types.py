"""The WIT types of astrid:process; the functions are in `process`."""

from __future__ import annotations

from aos_runtime.host.wit import (
    BOOL,
    BYTES,
    S32,
    STRING,
    U32,
    U64,
    Enum,
    ListOf,
    Option,
    Record,
    Result,
    Type,
    Variant,
)
from aos_runtime.policy.process_rules import ProcessCase

ERROR = Variant(tuple((case.value, STRING if case is ProcessCase.UNKNOWN else None) for case in ProcessCase))
SIGNAL = Enum(("term", "hup", "usr1", "usr2", "int", "stop", "cont"))
STREAM = Enum(("stdout", "stderr"))

_ENV = Record((("key", STRING), ("value", STRING)))
_LIMITS = Record(
    (
        ("max-memory-bytes", Option(U64)),
        ("max-cpu-secs", Option(U64)),
        ("max-pids", Option(U32)),
        ("max-open-files", Option(U32)),
    )
)
_INJECTION = Record(
    (("content", BYTES), ("placement", Variant((("env-pointer", STRING), ("fixed-path", STRING)))))
)
_ASKED = (
    ("cmd", STRING),
    ("args", ListOf(STRING)),
    ("stdin", Option(BYTES)),
    ("env", ListOf(_ENV)),
    ("cwd", Option(STRING)),
    ("limits", Option(_LIMITS)),
)
_KEPT = (
    ("label", Option(STRING)),
    ("keep-stdin-open", Option(BOOL)),
    ("overflow", Option(Enum(("drop-oldest", "backpressure")))),
    ("log-ring-bytes", Option(U32)),
    ("max-lifetime-ms", Option(U64)),
    ("idle-timeout-ms", Option(U64)),
    ("exit-retention-ms", Option(U64)),
)
OLD_REQUEST = Record((*_ASKED, *_KEPT))
REQUEST = Record((*_ASKED, ("file-injections", ListOf(_INJECTION)), *_KEPT))
"""1.1 has the injections in the middle of the record."""

EXIT = Record((("exit-code", Option(S32)), ("signal", Option(S32))))
RESULT = Record((("stdout", STRING), ("stderr", STRING), ("exit", EXIT)))
LOGS = Record((("stdout", STRING), ("stderr", STRING), ("running", BOOL), ("exit", Option(EXIT))))
KILLED = Record((("killed", BOOL), ("exit", Option(EXIT)), ("stdout", STRING), ("stderr", STRING)))
CURSOR = Record((("token", Option(STRING)),))
CHUNK = Record((("data", BYTES), ("next", CURSOR), ("bytes-dropped", U64), ("drained-eof", BOOL)))
INFO = Record(
    (
        ("id", STRING),
        ("label", STRING),
        ("command", STRING),
        ("os-pid", Option(U32)),
        ("phase", Enum(("starting", "running", "exited"))),
        ("exit", Option(EXIT)),
        ("age-ms", U64),
        ("idle-ms", U64),
        ("buffered-bytes", U64),
        ("bytes-dropped", U64),
        ("stdin-open", BOOL),
        ("cpu-ms", Option(U64)),
        ("mem-bytes-peak", Option(U64)),
    )
)


def fallible(ok: Type | None) -> Result:
    """A result with this interface's `error-code`."""
    return Result(ok, ERROR)
