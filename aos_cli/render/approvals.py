"""What waits for a person and what one has allowed, as pages: everything whole, nothing cut.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aos_cli.console import safe


def render_approvals(data: Mapping[str, Any]) -> str:
    """The answer of ApprovalList; empty text where there is nothing."""
    pending, standing = _rows(data, "pending"), _rows(data, "standing")
    lines: list[str] = []
    if pending:
        lines += ["Waiting for an answer", *(line for row in pending for line in _pending_lines(row))]
    if standing:
        lines += [""] if lines else []
        lines += ["Allowed until revoked", *(line for row in standing for line in _standing_lines(row))]
    return "\n".join(lines)


def _pending_lines(row: Mapping[str, Any]) -> list[str]:
    kind, capsule = _text(row, "kind"), _text(row, "capsule")
    if kind == "elicit":
        what = [f"    Asks:       {_text(row, 'description')} (answered in the terminal of the install)"]
    elif kind == "grant":
        what = [f"    Grants:     {_text(row, 'principal')} may use this capsule from now on"]
    else:
        what = _deed_lines(row)
    return [f"  {_text(row, 'request_id')}  capsule {capsule}", *what, *_place(row)]


def _standing_lines(row: Mapping[str, Any]) -> list[str]:
    head = f"  {_text(row, 'id')}  capsule {_text(row, 'capsule')}, {_text(row, 'scope')}"
    return [head, *_deed_lines(row), *_place(row)]


def _deed_lines(row: Mapping[str, Any]) -> list[str]:
    return [f"    Action:     {_text(row, 'action')}", f"    Resource:   {_text(row, 'resource')}"]


def _place(row: Mapping[str, Any]) -> list[str]:
    return [f"    Workspace:  {_text(row, 'workspace')}"] if row.get("workspace") else []


def _rows(data: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    rows = data.get(key)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _text(row: Mapping[str, Any], key: str) -> str:
    return safe(str(row.get(key) or ""))
