"""Finds every error code that the source can raise, by reading the source (never by importing it).

`docs/errors.md` is what `render_catalogue` gives; `python -m tests.support.error_catalogue` writes it anew,
and a contract test compares.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("aos_cli", "runtime/aos_runtime")
DOCUMENT = ROOT / "docs" / "errors.md"
FAMILIES = {
    "InvalidInput": "The caller's input is wrong. All issues are carried, not only the first.",
    "NotFound": "What was named does not exist.",
    "Conflict": "The state that was found forbids the operation; nothing was changed.",
    "Denied": "Policy says no. The hint is the manifest line or the grant that would allow it.",
    "Corrupt": "Stored or received bytes are not what their digest, signature or format promises.",
    "BuildFailed": "A tool of the build chain failed; its own output has been shown.",
    "Unavailable": "Something needed is not there now: the daemon, a program, the network, disk space.",
    "LimitExceeded": "A stated bound was passed: size, depth, time, count.",
    "PeerFault": "The other side of a connection broke the protocol.",
    "AosError": "None of the families.",
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Construction:
    """One place that makes an AosError.  `code` is None where it is not a literal."""

    family: str
    code: str | None
    message: str
    hint: str
    file: str
    line: int


def find_constructions(root: Path = ROOT) -> list[Construction]:
    """Every construction of an AosError family below the two packages, ordered by file and line."""
    found: list[Construction] = []
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if {"_data", "_bundled"} & set(path.relative_to(root).parts):
                continue
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found.extend(_constructions(tree, path.relative_to(root).as_posix()))
    return found


def _constructions(tree: ast.Module, file: str) -> Iterator[Construction]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _called_name(node.func) not in FAMILIES:
            continue
        if not node.args and not any(keyword.arg == "code" for keyword in node.keywords):
            continue
        code = _argument(node, 0, "code")
        yield Construction(
            family=_called_name(node.func),
            code=code.value if isinstance(code, ast.Constant) and isinstance(code.value, str) else None,
            message=_template(_argument(node, 1, "message")),
            hint=_template(_argument(node, 99, "hint")),
            file=file,
            line=node.lineno,
        )


def _called_name(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    if position < len(call.args):
        return call.args[position]
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _template(value: ast.expr | None) -> str:
    """The text of a literal or f-string, with `<expression>` where a value goes in."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.JoinedStr):
        return "".join(_template(part) for part in value.values)
    if isinstance(value, ast.FormattedValue):
        return f"<{_shortest_name(value.value)}>"
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return _template(value.left) + _template(value.right)
    return f"<{_shortest_name(value)}>" if value is not None else ""


def _shortest_name(value: ast.expr) -> str:
    """The last plain name in an expression: `error.path.name` gives `name`."""
    names = [node.attr if isinstance(node, ast.Attribute) else node.id
             for node in ast.walk(value) if isinstance(node, ast.Attribute | ast.Name)]  # fmt: skip
    return names[0] if names else "value"


def render_catalogue(constructions: list[Construction]) -> str:
    """The whole of docs/errors.md."""
    lines = [
        "# Errors",
        "",
        "Every code that `aos` can report, by family. A code is permanent: scripts may test it.",
        'With `--format json` an error is `{"error": {"code": ..., "message": ..., "hint": ...}}`.',
        "`<name>` stands for a value. Generated from the source by",
        "`python -m tests.support.error_catalogue`; a test compares.",
        "",
        "The exit status is 1 for all of them, and 2 where the command line itself is wrong.",
    ]
    for family, meaning in FAMILIES.items():
        rows = sorted(item for item in constructions if item.family == family and item.code)
        if not rows:
            continue
        lines += [
            "",
            f"## {family}",
            "",
            meaning,
            "",
            "| code | message | what to do | raised in |",
            "|---|---|---|---|",
        ]
        for code, group in groupby(rows, key=lambda item: item.code):
            lines += _rows(str(code), list(group))
    return "\n".join(lines) + "\n"


def _rows(code: str, group: list[Construction]) -> list[str]:
    seen: dict[tuple[str, str], list[str]] = {}
    for item in group:
        seen.setdefault((item.message, item.hint), []).append(item.file)
    return [
        f"| `{code}` | {_cell(message)} | {_cell(hint)} | {', '.join(sorted(set(files)))} |"
        for (message, hint), files in seen.items()
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


if __name__ == "__main__":
    DOCUMENT.write_text(render_catalogue(find_constructions()), encoding="utf-8")
