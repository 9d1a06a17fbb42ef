"""The operator's settings: `etc/config.toml`, read strictly.

A key that nothing enforces is an error with its line, never a comment (SEC-16): above all a security key that
would do nothing.  This module reads that one file and knows no other source.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aos_runtime.errors import InvalidInput, Issue, Unavailable
from aos_runtime.home import Home
from aos_runtime.names import parse_capsule_name

MAX_CONFIG_BYTES = 1024 * 1024
LOG_LEVELS = ("trace", "debug", "info", "warn", "error")
MIB = 1024 * 1024
MAX_PORT = 65_535

_ENDPOINT = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):(\*|[0-9]{1,5})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator can set.  Seconds, bytes, and wasmtime's units of fuel."""

    daemon_ready_s: float = 60.0
    daemon_shutdown_s: float = 60.0
    call_timeout_s: float = 300.0
    memory_bytes: int = 64 * MIB
    fuel_per_call: int = 10_000_000_000
    log_level: str = "info"
    allow_unsandboxed: bool = False
    """Whether programs of capsules run where bubblewrap cannot confine them."""
    mcp_start_s: float = 20.0
    """How long an MCP server may take to be ready; a package runner may have to fetch it first."""
    audit_entries: int = 1_000_000
    audit_bytes: int = 1024 * MIB
    local_egress: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By capsule: the `host:port` (or `host:*`) on this machine and its networks that it may reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    field: str
    check: Callable[[object], str | None]
    read: Callable[[Any], object] = lambda value: value
    """The setting that a checked value is."""


def _number(low: int, high: int) -> Callable[[object], str | None]:
    def check(value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            return f"must be a whole number from {low} to {high}"
        return None

    return check


def _level(value: object) -> str | None:
    return None if value in LOG_LEVELS else f"must be one of {', '.join(LOG_LEVELS)}"


def _endpoints(value: object) -> str | None:
    """A table of lists of `host:port`, by the name of a capsule."""
    if not isinstance(value, dict):
        return 'must be a table of lists, such as fetcher = ["127.0.0.1:8080"]'
    for capsule, entries in value.items():
        try:
            parse_capsule_name(capsule)
        except InvalidInput:
            return f"names no capsule: {capsule[:80]!r}"
        if not isinstance(entries, list) or not all(isinstance(e, str) and _is_endpoint(e) for e in entries):
            return f"has something else than a list of host:port or host:* for {capsule}"
    return None


def _frozen(value: dict[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {capsule: tuple(entries) for capsule, entries in value.items()}


def _is_endpoint(entry: str) -> bool:
    found = _ENDPOINT.match(entry)
    return found is not None and (found[1] == "*" or 0 < int(found[1]) <= MAX_PORT)


def _flag(value: object) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


KEYS: Mapping[tuple[str, str], _Key] = {
    ("timeouts", "daemon_ready_secs"): _Key(field="daemon_ready_s", check=_number(1, 600)),
    ("timeouts", "daemon_shutdown_secs"): _Key(field="daemon_shutdown_s", check=_number(1, 600)),
    ("timeouts", "call_secs"): _Key(field="call_timeout_s", check=_number(1, 3600)),
    ("timeouts", "mcp_start_secs"): _Key(field="mcp_start_s", check=_number(1, 600)),
    ("limits", "memory_bytes"): _Key(field="memory_bytes", check=_number(MIB, 4096 * MIB)),
    ("limits", "fuel_per_call"): _Key(field="fuel_per_call", check=_number(1_000_000, 10**15)),
    ("audit", "max_entries"): _Key(field="audit_entries", check=_number(10_000, 100_000_000)),
    ("audit", "max_bytes"): _Key(field="audit_bytes", check=_number(16 * MIB, 1024 * 1024 * MIB)),
    ("logging", "level"): _Key(field="log_level", check=_level),
    ("security", "capsule_local_egress"): _Key(field="local_egress", check=_endpoints, read=_frozen),
    ("process", "unsandboxed"): _Key(field="allow_unsandboxed", check=_flag),
}
"""Every setting that has an effect: `[section] key`."""


def parse_settings(data: bytes, file: str) -> Settings:
    """Read a `config.toml`.

    InvalidInput `config-syntax` or `config-invalid` with all issues and their lines.
    """
    try:
        text = data.decode("utf-8")
        value = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise _syntax(file, str(error)) from error
    issues: list[Issue] = []
    fields: dict[str, object] = {}
    for section, body in value.items():
        if not isinstance(body, dict):
            issues.append(_unsupported(file, text, section, ""))
            continue
        for key, item in body.items():
            known = KEYS.get((section, key))
            problem = None if known is None else known.check(item)
            if known is None:
                issues.append(_unsupported(file, text, section, key))
            elif problem is not None:
                issues.append(
                    Issue(
                        message=f"`{section}.{key}` {problem}", file=file, line=_find_line(text, section, key)
                    )
                )
            else:
                fields[known.field] = known.read(item)
        if not body and section not in {name for name, _ in KEYS}:
            issues.append(_unsupported(file, text, section, ""))
    if issues:
        raise _invalid(file, issues)
    return Settings(**fields)  # type: ignore[arg-type]  # every value was checked by its key


def load_settings(home: Home) -> Settings:
    """The settings of a home, the defaults where it has no file.

    Errors as `parse_settings`; InvalidInput `config-misplaced` where a config lies beside `etc`, in the place
    that the published loader reads (DMN-23).
    """
    misplaced = home.state / "config.toml"
    if os.path.lexists(misplaced):
        raise InvalidInput(
            "config-misplaced",
            f"{misplaced} is not read: the configuration is {home.config_file}",
            hint=f"move it: mv {misplaced} {home.config_file}",
            path=str(misplaced),
        )
    data = _read(home.config_file)
    return Settings() if data is None else parse_settings(data, str(home.config_file))


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unavailable(
            "config-unreadable",
            f"cannot read {path}: {os.strerror(error.errno or 0)}",
            hint="make the file readable for this user, or remove it",
            path=str(path),
        ) from error
    if len(data) > MAX_CONFIG_BYTES:
        raise _syntax(str(path), f"larger than {MAX_CONFIG_BYTES} bytes")
    return data


def _unsupported(file: str, text: str, section: str, key: str) -> Issue:
    name = ".".join(part for part in (section, key) if part)
    return Issue(
        message=f"`{name}` is not a setting of this aos; it would have no effect",
        file=file,
        line=_find_line(text, section, key),
        hint=f"remove it; the settings are {', '.join('.'.join(pair) for pair in KEYS)}",
    )


def _find_line(text: str, section: str, key: str) -> int | None:
    """The line, from 1, where `key` of `section` stands in any spelling; else the section's."""
    name, within = _spelling(section), _spelling(key)
    header = re.compile(rf"\s*\[+\s*{name}\s*[\].]")
    whole_header = re.compile(rf"\s*\[+\s*{name}\s*\.\s*{within}")
    dotted = re.compile(rf"\s*{name}\s*\.\s*{within}")
    inline = re.compile(rf"\s*{name}\s*=")
    assignment = re.compile(rf"\s*{within}\s*[=.]")
    is_inside = not section
    at: int | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("["):
            is_inside = header.match(line) is not None
            if is_inside and whole_header.match(line) and key:
                return number
        elif key and ((is_inside and assignment.match(line)) or dotted.match(line)):
            return number
        if at is None and ((is_inside and section) or inline.match(line)):
            at = number
    return at


def _spelling(name: str) -> str:
    """A pattern for a TOML key, bare or quoted."""
    return rf"[\"']?{re.escape(name)}[\"']?"


def _syntax(file: str, reason: str) -> InvalidInput:
    found = re.search(r"\(at line (\d+), column (\d+)\)", reason)
    issue = Issue(
        message=re.sub(r" \(at .*\)$", "", reason),
        file=file,
        line=int(found[1]) if found else None,
        column=int(found[2]) if found else None,
    )
    return InvalidInput(
        "config-syntax",
        f"{file} is not valid TOML",
        hint="correct the file at the place shown",
        issues=(issue,),
        file=file,
    )


def _invalid(file: str, issues: list[Issue]) -> InvalidInput:
    return InvalidInput(
        "config-invalid",
        issues[0].message if len(issues) == 1 else f"{file} has {len(issues)} problems",
        hint=issues[0].hint or "correct the file at the places shown",
        issues=issues,
        file=file,
    )
