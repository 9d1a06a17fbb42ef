"""Reading what a manifest offers to others and wants of them: interfaces, commands, servers, uplinks.

Source: build-install.md 4.5, 4.8 to 4.11; case MAN-11.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.capsule.manifest_reader import Section
from aos_runtime.capsule.manifest_values import (
    Command,
    ContextFile,
    Export,
    Import,
    McpServer,
    ToolRow,
    Uplink,
)
from aos_runtime.capsule.paths import path_problem
from aos_runtime.capsule.version import Requirement, Version
from aos_runtime.errors import InvalidInput

COMMAND_KEYS = ("name", "description", "file", "kind")
MCP_SERVER_KEYS = ("id", "description", "type", "command", "args")
CONTEXT_FILE_KEYS = ("name", "file")
UPLINK_KEYS = ("name", "platform", "profile")
UPLINK_PROFILES = ("chat", "interactive", "notify", "bridge")
TOOL_KEYS = ("name", "description_for_llm", "input_schema_wit", "mutable")
RESERVED_VERBS = (
    "new",
    "install",
    "update",
    "list",
    "remove",
    "tree",
    "deps",
    "build",
    "check",
    "config",
    "show",
    "run",
    "help",
)
MAX_VERB_CHARS = 32

_IDENTIFIER = re.compile(r"[a-z][a-z0-9-]*")


def read_imports(root: Section, capabilities: Capabilities) -> tuple[Import, ...]:
    """`[imports]`, flat or nested; an uplink may have none."""
    rows = []
    for namespace, interface, table in _interfaces(root.section("imports"), ("version", "optional")):
        text = table.required_text("version")
        _check_parse(table, text, Requirement.parse)
        optional = table.flag("optional")
        rows.append(Import(namespace=namespace, interface=interface, requirement=text, optional=optional))
    if rows and capabilities.uplink:
        root.error("imports", "cannot be declared by an uplink", hint="remove [imports], or `uplink = true`")
    return tuple(rows)


def read_exports(root: Section) -> tuple[Export, ...]:
    """`[exports]`, flat or nested, with exact versions."""
    rows = []
    for namespace, interface, table in _interfaces(root.section("exports"), ("version",)):
        text = table.required_text("version")
        _check_parse(table, text, Version.parse)
        rows.append(Export(namespace=namespace, interface=interface, version=text))
    return tuple(rows)


def read_commands(root: Section) -> tuple[Command, ...]:
    """`[[command]]`: the names of `cli` verbs are bounded, slash names are free."""
    commands = []
    for section in root.sections("command"):
        section.warn_unknown(COMMAND_KEYS)
        kind = _read_kind(section)
        name = section.required_text("name")
        if name and kind == "cli":
            _check_verb(section, name)
        file = _read_file(section, section.optional_text("file"))
        description = section.optional_text("description")
        commands.append(Command(name=name, description=description, file=file, kind=kind))
    return tuple(commands)


def read_mcp_servers(root: Section, capabilities: Capabilities) -> tuple[McpServer, ...]:
    """`[[mcp_server]]`: the command of a `stdio` server stands in `host_process`, letter for letter."""
    servers = []
    for section in root.sections("mcp_server"):
        section.warn_unknown(MCP_SERVER_KEYS)
        server = McpServer(
            id=section.required_text("id"),
            description=section.optional_text("description"),
            type=section.text("type", "stdio"),
            command=section.optional_text("command"),
            args=section.texts("args"),
        )
        servers.append(server)
        if server.type != "stdio":
            section.warn("type", f"is {server.type!r}; only stdio servers are started")
        elif not server.command:
            section.required_text("command")
        elif server.command not in capabilities.host_process:
            section.error(
                "command",
                f"is {server.command!r}, which `capabilities.host_process` does not list",
                hint=f'add "{server.command}" to host_process in [capabilities], exactly as written here',
            )
    return tuple(servers)


def read_context_files(root: Section) -> tuple[ContextFile, ...]:
    """`[[context_file]]`."""
    files = []
    for section in root.sections("context_file"):
        section.warn_unknown(CONTEXT_FILE_KEYS)
        file = _read_file(section, section.required_text("file")) or ""
        files.append(ContextFile(name=section.required_text("name"), file=file))
    return tuple(files)


def read_uplinks(root: Section) -> tuple[Uplink, ...]:
    """`[[uplink]]`."""
    uplinks = []
    for section in root.sections("uplink"):
        section.warn_unknown(UPLINK_KEYS)
        profile = section.required_text("profile")
        if profile and profile not in UPLINK_PROFILES:
            section.error("profile", f"is {profile!r}", hint=f"use one of {', '.join(UPLINK_PROFILES)}")
        name, platform = section.required_text("name"), section.required_text("platform")
        uplinks.append(Uplink(name=name, platform=platform, profile=profile))
    return tuple(uplinks)


def read_tools(root: Section) -> tuple[ToolRow, ...]:
    """`[[tool]]`: legacy, read for its types only."""
    tools = []
    for section in root.sections("tool"):
        section.warn_unknown(TOOL_KEYS)
        tools.append(
            ToolRow(
                name=section.required_text("name"),
                description_for_llm=section.text("description_for_llm"),
                input_schema_wit=section.optional_text("input_schema_wit"),
                mutable=section.flag("mutable"),
            )
        )
    return tuple(tools)


def _interfaces(table: Section, known: tuple[str, ...]) -> Iterator[tuple[str, str, Section]]:
    """Each interface of both surface forms, as `(namespace, interface, table with version)`."""
    seen: set[tuple[str, str]] = set()
    for key, value in table.values.items():
        if ":" in key:
            namespace, _, interface = key.partition(":")
            found = [(namespace, interface, table, key, value)]
        elif isinstance(value, dict):
            nested = table.section(key)
            found = [(key, inner, nested, inner, nested.values[inner]) for inner in nested.values]
        else:
            table.error(key, "names no interface", hint='write "namespace:interface" = "version"')
            continue
        for namespace, interface, owner, name, version in found:
            if not _IDENTIFIER.fullmatch(namespace) or not _IDENTIFIER.fullmatch(interface):
                owner.error(name, "is not two names of lowercase letters, digits and hyphens")
            if (namespace, interface) in seen:
                owner.error(name, f"declares {namespace}:{interface} a second time")
            seen.add((namespace, interface))
            yield namespace, interface, _version_table(owner, name, version, known)


def _version_table(owner: Section, name: str, value: object, known: tuple[str, ...]) -> Section:
    if isinstance(value, str):
        return Section(owner.report, {"version": value}, owner.at(name))
    table = owner.section(name)
    table.warn_unknown(known)
    return table


def _check_parse(table: Section, text: str, parse: Callable[[str], object]) -> None:
    try:
        if text:
            parse(text)
    except InvalidInput as error:
        table.report.error(table.at("version"), f"`{table.name}` is wrong: {error.message}", hint=error.hint)


def _read_kind(section: Section) -> Literal["slash", "cli"]:
    kind = section.text("kind", "slash")
    if kind not in ("slash", "cli"):
        section.error("kind", f"is {kind!r}", hint="use slash or cli")
    return "cli" if kind == "cli" else "slash"


def _check_verb(section: Section, name: str) -> None:
    if not _IDENTIFIER.fullmatch(name) or len(name) > MAX_VERB_CHARS:
        section.error(
            "name",
            f"is {name!r}, which cannot be a verb of the command line",
            hint=f"use lowercase letters, digits and hyphens, a letter first, at most {MAX_VERB_CHARS}",
        )
    elif name in RESERVED_VERBS:
        section.error("name", f"is {name!r}, a verb of aos itself", hint="choose another name")


def _read_file(section: Section, file: str | None) -> str | None:
    problem = path_problem(file) if file else None
    if problem is not None:
        section.error(
            "file", f"names {file!r}, which {problem}", hint="name a file inside the capsule's folder"
        )
    return file
