"""`Capsule.toml`: what a capsule is, what it may say on the bus and what it asks of the machine.

Parsing collects every problem with its line and column.  What is unknown is a warning, never an error:
strictness belongs to the author's `check` and `build --strict`, not to the operator's install and boot.  This
room reads no file and decides nothing about consent.
Source: seed capsule-forge sections 6 and 7, build-install.md 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.capsule.manifest_reader import Report, Section, in_file_order
from aos_runtime.capsule.manifest_rows import read_env, read_publish, read_subscribe
from aos_runtime.capsule.manifest_sections import read_capabilities, read_components, read_package, read_root
from aos_runtime.capsule.manifest_surfaces import (
    read_commands,
    read_context_files,
    read_exports,
    read_imports,
    read_mcp_servers,
    read_tools,
    read_uplinks,
)
from aos_runtime.capsule.manifest_text import load_toml
from aos_runtime.capsule.manifest_values import (
    Command,
    Component,
    ContextFile,
    EnvRow,
    Export,
    Import,
    McpServer,
    OptionsFrom,
    Package,
    PublishRow,
    SubscribeRow,
    ToolRow,
    Uplink,
)
from aos_runtime.capsule.version import Requirement, Version
from aos_runtime.errors import InvalidInput, Issue
from aos_runtime.names import CapsuleName

__all__ = [
    "MANIFEST_FILE",
    "Command",
    "Component",
    "ContextFile",
    "EnvRow",
    "Export",
    "Import",
    "Manifest",
    "McpServer",
    "OptionsFrom",
    "Package",
    "PublishRow",
    "SubscribeRow",
    "ToolRow",
    "Uplink",
    "check_host_version",
    "parse_manifest",
]

MANIFEST_FILE = "Capsule.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest that holds.  Rows keep the file's order; `capabilities` has the components' merged in.

    `warnings` are what was not understood or has no effect; `unknown_capabilities` are the names among them
    that a person should see at consent, since they grant nothing here.
    """

    package: Package
    components: tuple[Component, ...]
    publish: tuple[PublishRow, ...]
    subscribe: tuple[SubscribeRow, ...]
    capabilities: Capabilities
    env: tuple[EnvRow, ...]
    imports: tuple[Import, ...]
    exports: tuple[Export, ...]
    commands: tuple[Command, ...]
    mcp_servers: tuple[McpServer, ...]
    context_files: tuple[ContextFile, ...]
    uplinks: tuple[Uplink, ...]
    tools: tuple[ToolRow, ...]
    unknown_capabilities: tuple[str, ...]
    warnings: tuple[Issue, ...]

    @property
    def name(self) -> CapsuleName:
        return self.package.name

    @property
    def version(self) -> str:
        return self.package.version

    @property
    def description(self) -> str | None:
        return self.package.description

    @property
    def authors(self) -> tuple[str, ...]:
        return self.package.authors

    @property
    def astrid_version(self) -> Requirement | None:
        return self.package.astrid_version

    @property
    def component(self) -> Component | None:
        """The component that is loaded: the first one."""
        return self.components[0] if self.components else None

    @property
    def handlers(self) -> tuple[SubscribeRow, ...]:
        """The subscribe rows that bind a handler; the others are ACL only."""
        return tuple(row for row in self.subscribe if row.handler is not None)

    @property
    def publish_patterns(self) -> tuple[str, ...]:
        """The publish ACL."""
        return tuple(row.topic for row in self.publish)

    @property
    def subscribe_patterns(self) -> tuple[str, ...]:
        """The subscribe ACL."""
        return tuple(row.topic for row in self.subscribe)

    def imports_json(self) -> dict[str, dict[str, str]]:
        """`{namespace: {interface: requirement}}`, as meta.json and the wire hold it."""
        table: dict[str, dict[str, str]] = {}
        for row in self.imports:
            table.setdefault(row.namespace, {})[row.interface] = row.requirement
        return table

    def exports_json(self) -> dict[str, dict[str, str]]:
        """`{namespace: {interface: version}}`, as meta.json and the wire hold it."""
        table: dict[str, dict[str, str]] = {}
        for row in self.exports:
            table.setdefault(row.namespace, {})[row.interface] = row.version
        return table


def parse_manifest(data: bytes, *, file: str = MANIFEST_FILE) -> Manifest:
    """Read and check a manifest.  `file` is the name that issues carry.

    InvalidInput `manifest-syntax` where it is not TOML, `manifest-invalid` with all issues where it is not a
    manifest, `manifest-too-large` over MAX_MANIFEST_BYTES.
    """
    values, positions = load_toml(data, file=file)
    report = Report(file, positions)
    manifest = _read(Section(report, values, ()))
    if report.issues:
        raise _invalid(file, in_file_order(report.issues))
    return manifest


def check_host_version(manifest: Manifest, host_version: str) -> None:
    """Check `astrid-version` against the host.  InvalidInput `astrid-version-unsatisfied` otherwise."""
    requirement = manifest.astrid_version
    host = Version.parse(host_version)
    if requirement is None or requirement.matches(host):
        return
    low = max(one.lowest for one in requirement.comparators)
    hint = "install a newer aos"
    if (host if low.pre else host.release) >= low:
        hint = f'the capsule shuts out newer runtimes; its author can write astrid-version = ">={low}"'
    raise InvalidInput(
        "astrid-version-unsatisfied",
        f"capsule {manifest.name} {manifest.version} needs runtime {requirement}, this is {host_version}",
        hint=hint,
        requirement=str(requirement),
        host_version=host_version,
    )


def _read(root: Section) -> Manifest:
    read_root(root)
    package, components = read_package(root), read_components(root)
    capabilities, unknown = read_capabilities(root)
    return Manifest(
        package=package,
        components=components,
        capabilities=capabilities,
        unknown_capabilities=unknown,
        publish=read_publish(root),
        subscribe=read_subscribe(root),
        env=read_env(root),
        imports=read_imports(root, capabilities),
        exports=read_exports(root),
        commands=read_commands(root),
        mcp_servers=read_mcp_servers(root, capabilities),
        context_files=read_context_files(root),
        uplinks=read_uplinks(root),
        tools=read_tools(root),
        warnings=in_file_order(root.report.warnings),
    )


def _invalid(file: str, issues: tuple[Issue, ...]) -> InvalidInput:
    message = issues[0].message if len(issues) == 1 else f"{file} has {len(issues)} problems"
    return InvalidInput(
        "manifest-invalid",
        message,
        hint=(issues[0].hint if len(issues) == 1 else None) or f"correct {file} at the places shown",
        issues=issues,
        file=file,
    )
