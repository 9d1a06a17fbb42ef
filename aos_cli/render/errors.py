"""A failure as words and as a document: message, details, hint, code, exit status.  Pure."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

from aos_cli.console import safe
from aos_cli.signals import INTERRUPTED_STATUS, TERMINATED_STATUS, Terminated
from aos_runtime.errors import AosError, InvalidInput

FAILED = 1
USAGE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What the user is told.  An empty `message` says nothing in words; `text` replaces all words (help)."""

    status: int
    code: str
    message: str = ""
    hint: str = ""
    details: tuple[str, ...] = ()
    text: str = ""
    context: dict[str, object] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """The JSON form: `{"error": {code, message, hint, ...}}` (cli-ux 4.4, item 5)."""
        error: dict[str, object] = {
            "code": self.code,
            "message": self.message or self.code,
            "hint": self.hint,
        }
        if self.details:
            error["details"] = list(self.details)
        if self.context:
            error["context"] = self.context
        return {"error": error}


def describe(error: BaseException) -> Described:
    """Project one failure.  Everything that may hold foreign text is made safe for a terminal here."""
    if isinstance(error, AosError):
        return _aos_error(error)
    if isinstance(error, KeyboardInterrupt):
        return Described(status=INTERRUPTED_STATUS, code="interrupted")
    if isinstance(error, Terminated):
        return Described(status=TERMINATED_STATUS, code="terminated")
    if isinstance(error, OSError):
        return _os_error(error)
    return _usage_error(error) or _internal_error(error)


def _aos_error(error: AosError) -> Described:
    issues = error.issues if isinstance(error, InvalidInput) else ()
    details = tuple(
        safe(issue.render()) + (f" ({safe(issue.hint)})" if issue.hint else "") for issue in issues
    )
    context = {key: _plain(value) for key, value in error.context.items()}
    tail = error.context.get("log_tail")
    if isinstance(tail, list):
        details += tuple(safe(str(line)) for line in tail)
    return Described(
        status=FAILED,
        code=error.code,
        message=safe(error.message),
        hint=safe(error.hint, keep_lines=True),
        details=details,
        context=context,
    )


def _plain(value: object) -> object:
    """A context value as JSON: containers stay, everything unknown becomes its text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return str(value)


def _os_error(error: OSError) -> Described:
    where = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, (str, bytes)) else ""
    return Described(
        status=FAILED,
        code="os-error",
        message=safe(f"{error.strerror or error}{where}"),
        hint="check the path, its permissions and the space that is left on the disk",
    )


def _usage_error(error: BaseException) -> Described | None:
    from typer._click.exceptions import ClickException, NoArgsIsHelpError, UsageError
    from typer.exceptions import Abort

    if isinstance(error, Abort):
        return Described(status=FAILED, code="aborted", message="aborted", hint="nothing was changed")
    if isinstance(error, NoArgsIsHelpError):
        return Described(status=USAGE, code="usage", message="missing command", text=error.format_message())
    if isinstance(error, ClickException):
        hint = getattr(error, "hint", "")
        if not hint and isinstance(error, UsageError) and error.ctx is not None:
            hint = f"run `{error.ctx.command_path} --help`"
        message = error.format_message().rstrip(".")
        message = message[:1].lower() + message[1:]
        return Described(status=USAGE, code=_usage_code(error), message=safe(message), hint=safe(hint))
    return None


def _usage_code(error: BaseException) -> str:
    return "unknown-command" if type(error).__name__ == "UnknownCommand" else "usage"


def _internal_error(error: BaseException) -> Described:
    return Described(
        status=FAILED,
        code="internal-error",
        message=safe(f"unexpected failure: {type(error).__name__}: {error}"),
        hint="this is a bug in aos: run it again with AOS_BACKTRACE=1 and report what it prints",
    )


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
