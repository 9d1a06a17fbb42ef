"""Reading `[package]`, `[[component]]` and `[capabilities]`, and the root's keys.

Source: build-install.md 4.1 to 4.4; cases MAN-03, MAN-04, MAN-10.
"""

from __future__ import annotations

import re

from aos_runtime.capsule.capability import (
    CAPABILITY_NAMES,
    FLAG_NAMES,
    IDENTITY_LEVELS,
    LIST_NAMES,
    Capabilities,
)
from aos_runtime.capsule.manifest_reader import Section
from aos_runtime.capsule.manifest_values import Component, Package
from aos_runtime.capsule.paths import path_problem
from aos_runtime.capsule.version import Requirement, Version
from aos_runtime.errors import InvalidInput
from aos_runtime.names import CapsuleName, parse_capsule_name

ROOT_KEYS = (
    "package",
    "component",
    "imports",
    "exports",
    "publish",
    "subscribe",
    "tool",
    "capabilities",
    "env",
    "context_file",
    "command",
    "mcp_server",
    "uplink",
)
RETIRED_SECTIONS = ("topic", "interceptor", "skill")
PACKAGE_KEYS = (
    "name",
    "version",
    "description",
    "authors",
    "repository",
    "homepage",
    "documentation",
    "license",
    "license-file",
    "readme",
    "keywords",
    "categories",
    "astrid-version",
    "publish",
    "include",
    "exclude",
    "metadata",
)
COMPONENT_TYPES = ("executable", "library")
COMPONENT_KEYS = ("id", "file", "entrypoint", "hash", "type", "link", "capabilities")

MAX_CAPABILITY_ENTRIES = 1000
"""In one list, all components together; comparing what is asked with what is held takes the square of it."""

_HASH = re.compile(r"(?:sha256|blake3):[0-9a-f]{64}")


def read_root(root: Section) -> None:
    """Warn of unknown and retired sections."""
    for key in root.values:
        if key in RETIRED_SECTIONS:
            root.warn(key, "is a retired section, so it has no effect", hint="remove it")
    root.warn_unknown((*ROOT_KEYS, *RETIRED_SECTIONS), suggest=ROOT_KEYS)


def read_package(root: Section) -> Package:
    """`[package]`: `name` and `version` are required."""
    if not root.has("package"):
        root.report.error(
            (), "the section `[package]` is missing", hint="add [package] with name and version"
        )
    package = root.section("package") if root.has("package") else Section(root.report, {}, (), broken=True)
    package.warn_unknown(PACKAGE_KEYS)
    for key in ("include", "exclude"):
        package.texts(key)
    for key in ("license-file", "readme"):
        package.optional_text(key)
    return Package(
        name=_read_name(package),
        version=_read_version(package),
        description=package.optional_text("description"),
        authors=package.texts("authors"),
        astrid_version=_read_host_requirement(package),
        license=package.optional_text("license"),
        repository=package.optional_text("repository"),
        homepage=package.optional_text("homepage"),
        documentation=package.optional_text("documentation"),
        keywords=package.texts("keywords"),
        categories=package.texts("categories"),
        publish=package.flag("publish") if package.has("publish") else True,
    )


def read_components(root: Section) -> tuple[Component, ...]:
    """`[[component]]`: only the first is loaded, no two name the same file, no file lies outside."""
    components = []
    files: dict[str, str] = {}
    for section in root.sections("component"):
        section.warn_unknown(COMPONENT_KEYS)
        component = _read_component(section)
        components.append(component)
        if component.file in files:
            section.error("file", f"names {component.file}, which {files[component.file]} names already")
        elif component.file:
            files[component.file] = f"`{section.name}`"
    if len(components) > 1:
        root.report.warn(
            ("component", 1), "only the first [[component]] is loaded", hint="build one capsule per component"
        )
    return tuple(components)


def read_capabilities(root: Section) -> tuple[Capabilities, tuple[str, ...]]:
    """The root's capabilities with every component's merged in, and the names that are not known here."""
    components = (component.section("capabilities") for component in root.sections("component"))
    capabilities = Capabilities()
    unknown: tuple[str, ...] = ()
    for table in (root.section("capabilities"), *components):
        more, more_unknown = _read_capability_table(table)
        capabilities = capabilities.merged(more)
        unknown += more_unknown
        if any(len(capabilities.entries(name)) > MAX_CAPABILITY_ENTRIES for name in LIST_NAMES):
            table.report.error(table.path, f"a capability has more than {MAX_CAPABILITY_ENTRIES} entries")
            break
    return capabilities, tuple(dict.fromkeys(unknown))


def _read_component(section: Section) -> Component:
    key = "entrypoint" if section.has("entrypoint") else "file"
    if section.has("entrypoint") and section.has("file"):
        section.error("entrypoint", "and `file` are two names of one key", hint="keep `file`")
    file = section.required_text(key)
    problem = path_problem(file) if file else None
    if problem is not None:
        section.error(key, f"names {file!r}, which {problem}", hint="name a file inside the capsule's folder")
    digest = section.optional_text("hash")
    if digest is not None and not _HASH.fullmatch(digest):
        section.error("hash", "is not `sha256:` or `blake3:` and 64 lowercase hexadecimal digits")
    kind = section.text("type", "executable")
    if kind not in COMPONENT_TYPES:
        section.warn("type", f"is {kind!r}, which is taken as executable", hint="use executable or library")
        kind = "executable"
    section.texts("link")
    return Component(id=section.text("id"), file=file, hash=digest, type=kind)


def _read_capability_table(table: Section) -> tuple[Capabilities, tuple[str, ...]]:
    unknown = table.warn_unknown((*CAPABILITY_NAMES, "bind_workers"))
    flags = {name: table.flag(name) for name in FLAG_NAMES}
    lists = {name: table.texts(name) for name in LIST_NAMES}
    for name in LIST_NAMES:
        if "" in lists[name]:
            table.error(name, "has an empty entry")
    for level in lists["identity"]:
        if level not in IDENTITY_LEVELS:
            table.warn("identity", f"has the unknown level {level!r}, which grants nothing")
    workers = table.unsigned("bind_workers")
    return Capabilities(**flags, **lists, bind_workers=workers), unknown  # type: ignore[arg-type]  # field names


def _read_name(package: Section) -> CapsuleName:
    text = package.required_text("name")
    if not text:
        return CapsuleName("")
    try:
        return parse_capsule_name(text)
    except InvalidInput as error:
        package.error("name", f"is an {error.message}", hint=error.hint)
        return CapsuleName("")


def _read_version(package: Section) -> str:
    text = package.required_text("version")
    try:
        return text and str(Version.parse(text))
    except InvalidInput as error:
        package.error("version", f"is wrong: {error.message}", hint=error.hint)
        return ""


def _read_host_requirement(package: Section) -> Requirement | None:
    text = package.optional_text("astrid-version")
    if text is None:
        return None
    try:
        return Requirement.parse(text)
    except InvalidInput as error:
        package.error("astrid-version", f"is wrong: {error.message}", hint=error.hint)
        return None
