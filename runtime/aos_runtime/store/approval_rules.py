"""The operator's answers for when nobody can be asked: `etc/approvals.toml`, read strictly.

```toml
[[rule]]
capsule = "deploy"          # patterns: `*` is any text
action = "git push"
resource = "git push origin *"
decision = "allow"          # or "deny"; a denial wins
```

What no rule allows is asked, and denied where nobody can be.  A key that is not known is an error: a rule
that seems to deny and does not is worse than none.  Deciding is `policy.approval`'s.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from aos_runtime.errors import InvalidInput, Issue
from aos_runtime.home import Home
from aos_runtime.store.files import Stamp, file_stamp, read_optional

MAX_RULES_BYTES = 1024 * 1024
MAX_RULES = 1024
_KEYS = ("capsule", "action", "resource", "decision")
_DECISIONS = ("allow", "deny")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRule:
    """One rule; the three texts are patterns."""

    capsule: str
    action: str
    resource: str
    allows: bool


class ApprovalRules:
    """The rules of a home, read again where the file is another one than it was."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: tuple[Stamp, tuple[ApprovalRule, ...]] | None = None

    def read(self) -> tuple[ApprovalRule, ...]:
        """As `read_rules`.  What cannot be read is tried again each time."""
        stamp, known = file_stamp(self._home.approvals_file), self._known  # the stamp before the content
        if known is not None and known[0] == stamp:
            return known[1]
        rules = read_rules(self._home)
        self._known = None if stamp is None else (stamp, rules)
        return rules


def read_rules(home: Home) -> tuple[ApprovalRule, ...]:
    """The rules of a home, none where it has no file.  Errors as `parse_rules`."""
    data = read_optional(home.approvals_file, MAX_RULES_BYTES)
    return () if data is None else parse_rules(data, str(home.approvals_file))


def parse_rules(data: bytes, file: str) -> tuple[ApprovalRule, ...]:
    """InvalidInput `approvals-syntax`, or `approvals-invalid` with every issue."""
    try:
        value = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            "approvals-syntax", f"{file} is not valid TOML: {error}", hint="correct the file", file=file
        ) from error
    rows = value.get("rule", [])
    issues = [
        _issue(file, f"unknown key `{key}`; rules are [[rule]] tables") for key in value if key != "rule"
    ]
    if not isinstance(rows, list) or len(rows) > MAX_RULES:
        rows = []
        issues.append(_issue(file, f"`rule` must be a list of at most {MAX_RULES} tables"))
    for number, row in enumerate(rows, start=1):
        issues += [_issue(file, f"rule {number}: {problem}") for problem in _problems(row)]
    if issues:
        raise InvalidInput(
            "approvals-invalid",
            issues[0].message if len(issues) == 1 else f"{file} has {len(issues)} problems",
            hint="a rule has capsule, action, resource (patterns) and decision: allow or deny",
            issues=issues,
            file=file,
        )
    return tuple(
        ApprovalRule(
            capsule=row["capsule"],
            action=row["action"],
            resource=row["resource"],
            allows=row["decision"] == "allow",
        )
        for row in rows
    )


def _problems(row: object) -> list[str]:
    if not isinstance(row, dict):
        return ["it is not a table"]
    found = [f"unknown key `{key}`" for key in row if key not in _KEYS]
    found += [f"`{key}` is missing or empty" for key in _KEYS if not row.get(key)]
    found += [f"`{key}` is not text" for key in _KEYS if row.get(key) and not isinstance(row[key], str)]
    if isinstance(row.get("decision"), str) and row["decision"] not in _DECISIONS:
        found.append(f"decision {row['decision']!r} is neither allow nor deny")
    return found


def _issue(file: str, message: str) -> Issue:
    return Issue(message=message, file=file)
