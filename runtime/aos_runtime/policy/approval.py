"""What a person is asked to approve, and which later requests an answer covers.

The snapshot that is shown is the one that is decided on: whole, with every character that a terminal would
obey or hide written out (case ABI-34).  An allowance covers its own capsule, action and workspace and no more
(case ABI-33).  Source: host-abi.md 1.10, daemon-kernel.md 9.3.  Decisions only: nothing here waits or writes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, Protocol

MAX_ACTION_CHARACTERS = 256
MAX_RESOURCE_CHARACTERS = 4096
"""The published runtime cuts at 1024, which hides the end; a longer one is refused here."""

_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"))
_DOUBTFUL = re.compile(r"\\(?=u\{)|[^\x20-\x7e]")
_BLANK = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that show as nothing."""
_SHELL = re.compile(r"[;&|<>`$(){}\\\n\r]")
"""What turns one command into another: no pattern approves a text that has any of it."""


class Decision(StrEnum):
    """The cases of `approval-decision`; the value is the WIT name."""

    DENIED = "denied"
    APPROVED = "approved"
    APPROVED_SESSION = "approved-session"
    APPROVED_ALWAYS = "approved-always"
    ALLOWANCE = "allowance"


DECISION_WORDS = {
    "approve": Decision.APPROVED,
    "approve_session": Decision.APPROVED_SESSION,
    "approve_always": Decision.APPROVED_ALWAYS,
}
"""The words of an `approval_response`; every other word denies."""


class Deed(NamedTuple):
    """What a capsule asks to do, as it is shown."""

    capsule: str
    action: str
    resource: str
    workspace: str | None


class Allowance(NamedTuple):
    """A standing yes: to one resource, and to the same command with other words after it."""

    capsule: str
    action: str
    resource: str
    workspace: str | None

    def covers(self, deed: Deed) -> bool:
        """Whether this yes holds for `deed`."""
        same = (self.capsule, self.action, self.workspace) == (deed.capsule, deed.action, deed.workspace)
        return same and (self.resource == deed.resource or self._is_same_command(deed.resource))

    def _is_same_command(self, resource: str) -> bool:
        """The published pattern `ACTION *`, and the bare action; it needs both to be such a command."""
        return is_command(self.action, self.resource) and is_command(self.action, resource)


class Rule(Protocol):
    """One rule of the operator's policy file."""

    @property
    def capsule(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def resource(self) -> str: ...
    @property
    def allows(self) -> bool: ...


def read_deed(capsule: str, action: str, resource: str, workspace: str | None) -> Deed | None:
    """The request as it is shown; None where it is not valid: no action, or one of the two too long."""
    if len(action) > MAX_ACTION_CHARACTERS or len(resource) > MAX_RESOURCE_CHARACTERS:
        return None
    shown = spell_out(action.strip())
    return Deed(capsule, shown, spell_out(resource.strip()), workspace) if shown else None


def spell_out(text: str) -> str:
    """`text` with control, invisible and unassigned characters written as `\\u{..}`.

    So is the backslash of what already looks like that: two texts never become one, and a yes to the one is
    no yes to the other.
    """
    return _DOUBTFUL.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    character = found[0]
    is_seen = character != "\\" and unicodedata.category(character) not in _HIDDEN
    return character if is_seen and not _BLANK.match(character) else f"\\u{{{ord(character):x}}}"


def is_command(action: str, resource: str) -> bool:
    """Whether `resource` is the command `action`, alone or with plain words after it."""
    return (resource == action or resource.startswith(f"{action} ")) and not _SHELL.search(resource)


def find_verdict(rules: Iterable[Rule], deed: Deed) -> bool | None:
    """What the policy file says: True allows, False denies, None says nothing.  A denial wins."""
    verdicts = {rule.allows for rule in rules if _matches(rule, deed)}
    if not verdicts:
        return None
    return False not in verdicts


def _matches(rule: Rule, deed: Deed) -> bool:
    if not glob(rule.capsule, deed.capsule) or not glob(rule.action, deed.action):
        return False
    if not glob(rule.resource, deed.resource):
        return False
    # `git push *` must not allow `git push; rm -rf /`, a whole `*` was written knowing it.
    is_open = "*" in rule.resource and rule.resource != "*"
    return not (rule.allows and is_open and _SHELL.search(deed.resource))


def glob(pattern: str, text: str) -> bool:
    """Whether `text` fits `pattern`, in which `*` is any text and everything else itself."""
    parts = pattern.split("*")
    if len(parts) == 1:
        return pattern == text
    head, *middle, tail = parts
    if not text.startswith(head) or not text.endswith(tail) or len(text) < len(head) + len(tail):
        return False
    at, end = len(head), len(text) - len(tail)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
