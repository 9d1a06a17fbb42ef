"""A list of MCP servers, as other programs keep one (`mcp.json`, `gemini-extension.json`), as a manifest.

Every server becomes an `[[mcp_server]]`, every command an entry of `host_process`, every variable an `[env]`
row whose value is asked for at install: values never travel.  What cannot be taken over is refused or told,
with the file, the server and the field.  Source: build-install.md 2.10.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aos_runtime.capsule.version import Version
from aos_runtime.errors import AosError, InvalidInput, Issue, LimitExceeded, NotFound
from aos_runtime.names import parse_capsule_name, parse_env_key

MAX_JSON_BYTES = 1024 * 1024
DEFAULT_NAME = "legacy-mcp"
DEFAULT_VERSION = "1.0.0"
DEFAULT_DESCRIPTION = "Converted MCP capsule"
DEFAULT_CONTEXT_FILE = "AGENTS.md"
COMMANDS_FOLDER = "commands"
_SERVER_KEYS = frozenset(("command", "args", "env", "description", "type", "httpUrl", "url", "headers"))
_BOM = b"\xef\xbb\xbf"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A manifest's bytes, the folders that are packed with it, and what there is to say."""

    data: bytes
    folders: tuple[str, ...]
    warnings: tuple[Issue, ...]


def convert_file(file: Path) -> Converted:
    """Make a manifest from `file`; context file and commands are those of its folder.

    NotFound `mcp-json-missing`; LimitExceeded `mcp-json-size`; InvalidInput `mcp-json-syntax`, and
    `mcp-json-invalid` with everything that is wrong.
    """
    values = _Fields(file.name, _read(file))
    rows = _rows(values, file.parent)
    if values.issues:
        raise _invalid(file, values.issues)
    import tomlkit

    folders = (COMMANDS_FOLDER,) if "command" in rows else ()
    text = f"# Made from {file.name} by `aos capsule build`.\n" if file.name.isprintable() else ""
    data = (text + tomlkit.dumps(rows)).encode()
    return Converted(data=data, folders=folders, warnings=tuple(values.warnings))


@dataclass(slots=True)
class _Fields:
    """A JSON object whose fields are taken one by one; what is wrong is collected, with its place."""

    file: str
    values: dict[str, Any]
    place: str = ""
    issues: list[Issue] = field(default_factory=list)
    warnings: list[Issue] = field(default_factory=list)

    def refuse(self, key: str, why: str, hint: str | None = None) -> None:
        self.issues.append(Issue(message=f"{self.at(key)} {why}", file=self.file, hint=hint))

    def warn(self, key: str, what: str, hint: str | None = None) -> None:
        self.warnings.append(Issue(message=f"{self.at(key)} {what}", file=self.file, hint=hint))

    def at(self, key: str) -> str:
        return f"{self.place}`{key}`" if key else self.place.rstrip(": ")

    def inner(self, key: str, value: object, place: str) -> _Fields:
        """The object that stands at `key`; an empty one, refused, where it is none."""
        if not isinstance(value, dict):
            self.refuse(key, f"is {_kind(value)}, and must be an object")
        values = value if isinstance(value, dict) else {}
        return _Fields(self.file, values, place, self.issues, self.warnings)

    def text(self, key: str, default: str = "") -> str:
        """A text; empty is as good as none."""
        value = self.values.get(key)
        return default if value is None else self.check_text(key, value) or default

    def check_text(self, key: str, value: object) -> str:
        """`value`, where it is text that a manifest can hold; an empty one, refused, where it is not."""
        if not isinstance(value, str):
            self.refuse(key, f"is {_kind(value)}, and must be text")
            return ""
        if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            self.refuse(key, "has a NUL or half a character")
            return ""
        return value

    def parsed(self, key: str, text: str, parse: Callable[[str], T]) -> T | None:
        """`text` as what it must be; refused, in the words of `parse`, where it is not."""
        try:
            return parse(text)
        except AosError as error:
            self.refuse(key, f"is wrong: {error.message}", error.hint)
            return None


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as source:
            data = source.read(MAX_JSON_BYTES + 1).removeprefix(_BOM)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise NotFound(
            "mcp-json-missing",
            f"there is no file {file}",
            hint="name a JSON file with `mcpServers`",
            path=str(file),
        ) from None
    if len(data) > MAX_JSON_BYTES:
        raise LimitExceeded(
            "mcp-json-size",
            f"{file.name} has more than {MAX_JSON_BYTES} bytes",
            hint="keep only the list of servers in it",
            path=str(file),
        )
    try:
        values = json.loads(data, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _unreadable(file, error) from None
    if not isinstance(values, dict):
        raise _unreadable(file, ValueError(f"it holds {_kind(values)}, not an object"))
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of two equal keys most programs take the last, and a reader sees the first."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:80]!r} stands in one object twice")
    return found


def _unreadable(file: Path, error: Exception) -> InvalidInput:
    at: dict[str, Any] = {"file": file.name}
    words = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
    if isinstance(error, json.JSONDecodeError):
        words, at = error.msg, {"file": file.name, "line": error.lineno, "column": error.colno}
    elif isinstance(error, UnicodeDecodeError):
        words = "it is not UTF-8"
    return InvalidInput(
        "mcp-json-syntax",
        f"{file.name} cannot be read as JSON",
        hint="JSON has no comments and no comma before a closing bracket",
        issues=(Issue(message=words, **at),),
        path=str(file),
    )


def _invalid(file: Path, issues: list[Issue]) -> InvalidInput:
    one = issues[0]
    message = one.message if len(issues) == 1 else f"{file.name} has {len(issues)} problems"
    return InvalidInput(
        "mcp-json-invalid",
        message,
        hint=(one.hint if len(issues) == 1 else None) or f"correct {file.name} where it is shown",
        issues=tuple(issues),
        path=str(file),
    )


def _rows(values: _Fields, folder: Path) -> dict[str, Any]:
    """The manifest, in the order in which it is written."""
    servers = _servers(values)
    commands = dict.fromkeys(row["command"] for row, _ in servers if "command" in row)
    rows: dict[str, Any] = {
        "package": _package(values),
        "capabilities": {"host_process": list(commands)} if commands else None,
        "env": _settings(values) or _variables(fields for _, fields in servers),
        "mcp_server": [row for row, _ in servers],
        "context_file": _context_files(values, folder),
        "command": _commands(values, folder),
    }
    found = {key: value for key, value in rows.items() if value}
    if "servers" in values.values and "mcpServers" not in values.values:
        values.refuse("servers", "is not read", "rename it to `mcpServers`")
    elif len(found) == 1 and not values.issues:
        values.refuse("mcpServers", "is missing or empty", "name a file that lists MCP servers")
    return found


def _package(values: _Fields) -> dict[str, Any]:
    name = values.text("name")
    if not name:
        hint = "two capsules of one name replace each other"
        values.warn("name", f"is missing: the capsule is called {DEFAULT_NAME}", hint)
    version = values.text("version", DEFAULT_VERSION)
    values.parsed("name", name or DEFAULT_NAME, parse_capsule_name)
    values.parsed("version", version, Version.parse)
    return {
        "name": name or DEFAULT_NAME,
        "version": version,
        "description": values.text("description", DEFAULT_DESCRIPTION),
        "authors": ["Auto-Converter"],
    }


def _servers(values: _Fields) -> list[tuple[dict[str, Any], _Fields]]:
    """Each server's row, with the fields that it was made from."""
    servers = values.inner("mcpServers", values.values.get("mcpServers") or {}, "")
    found = []
    for name, value in servers.values.items():
        if not servers.check_text(f"mcpServers.{name}", name):
            servers.refuse("mcpServers", "has a server without a name")
            continue
        fields = values.inner(f"mcpServers.{name}", value, f"server `{name}`: ")
        if isinstance(value, dict):
            found.append((_server(name, fields), fields))
    return found


def _server(name: str, fields: _Fields) -> dict[str, Any]:
    row: dict[str, Any] = {"id": name, "description": fields.text("description", f"MCP server {name}")}
    for key in fields.values:
        if key not in _SERVER_KEYS:
            where = "a server starts in the folder of its capsule" if key == "cwd" else None
            fields.warn(key, "is not taken over", where)
    command, url = fields.text("command"), fields.text("httpUrl") or fields.text("url")
    if command:
        row |= {"type": "stdio", "command": command, "args": _arguments(fields)}
        for key, words in (("command", [command]), ("args", row["args"])):
            if any("${" in word for word in words):
                fields.warn(key, "has a variable, and nothing replaces it", "write out what it stands for")
    elif url:
        row |= {"type": "sse", "url": url}
        fields.warn("", "has a URL, and only stdio servers are started: its row has no effect")
    elif all(fields.values.get(key) in (None, "") for key in ("command", "httpUrl", "url")):
        fields.refuse("command", "is missing", "give the program that is the server, or its `httpUrl`")
    return row


def _arguments(fields: _Fields) -> list[str]:
    value = fields.values.get("args") or []
    if not isinstance(value, list):
        fields.refuse("args", f"is {_kind(value)}, and must be a list of texts")
        return []
    return [fields.check_text(f"args[{number}]", one) for number, one in enumerate(value)]


def _settings(values: _Fields) -> dict[str, Any]:
    """The `[env]` rows of `settings` that name a variable."""
    settings = values.values.get("settings") or []
    if not isinstance(settings, list):
        values.refuse("settings", f"is {_kind(settings)}, and must be a list")
        return {}
    rows = {}
    for number, one in enumerate(settings):
        fields = values.inner(f"settings[{number}]", one, f"settings[{number}]: ")
        key = fields.text("envVar")
        if key and fields.parsed("envVar", key, parse_env_key) is not None:
            texts = {"request": fields.text("name", key), "description": fields.text("description")}
            rows[key] = {"type": "secret"} | {name: text for name, text in texts.items() if text}
    return rows


def _variables(servers: Iterable[_Fields]) -> dict[str, Any]:
    """An `[env]` row for every variable that a server is given; its value is not read."""
    rows = {}
    for fields in servers:
        variables = fields.inner("env", fields.values.get("env") or {}, fields.place)
        for key in variables.values:
            if fields.parsed(f"env.{key}", key, parse_env_key) is not None:
                rows[key] = {"type": "secret", "request": f"The value of {key} for its MCP server"}
    return rows


def _context_files(values: _Fields, folder: Path) -> list[dict[str, str]]:
    name = Path(values.text("contextFileName", DEFAULT_CONTEXT_FILE)).name
    if not name or not (folder / name).is_file():
        return []
    return [{"name": "workspace-context", "file": name}]


def _commands(values: _Fields, folder: Path) -> list[dict[str, str]]:
    files = sorted(path for path in (folder / COMMANDS_FOLDER).glob("*.toml") if path.is_file())
    for path in files:
        values.check_text(f"{COMMANDS_FOLDER}/", path.name)
    return [{"name": f"/{path.stem}", "file": f"{COMMANDS_FOLDER}/{path.name}"} for path in files]


def _kind(value: object) -> str:
    names = {type(None): "nothing", bool: "true or false", int: "a number", float: "a number", str: "text"}
    return names.get(type(value), "a list" if isinstance(value, list) else "an object")
