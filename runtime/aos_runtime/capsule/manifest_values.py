"""The values that a manifest holds.  Plain data; `manifest_sections` makes and checks them.

Source: seed capsule-forge section 6, build-install.md 4.2 to 4.10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aos_runtime.capsule.version import Requirement
from aos_runtime.names import CapsuleName, EnvKey

DEFAULT_PRIORITY = 100
RESERVED_ENV_KEY = "ASTRID_SOCKET_PATH"
"""Set by the host for uplinks; a stored value is never asked for (build-install.md 4.7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """`[package]`.  The lists and links are for people and registries; nothing here acts on them."""

    name: CapsuleName
    version: str
    description: str | None
    authors: tuple[str, ...]
    astrid_version: Requirement | None
    license: str | None
    repository: str | None
    homepage: str | None
    documentation: str | None
    keywords: tuple[str, ...]
    categories: tuple[str, ...]
    publish: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """`[[component]]`.  `file` is relative to the manifest; `hash` is `sha256:` or `blake3:` and 64 hex."""

    id: str
    file: str
    hash: str | None
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRow:
    """One key of `[publish]`: an ACL pattern and the reference to its payload type."""

    topic: str
    wit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeRow:
    """One key of `[subscribe]`: an ACL pattern and, with `handler`, a row of the dispatch table."""

    topic: str
    wit: str
    handler: str | None
    priority: int = DEFAULT_PRIORITY
    """Lower runs first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionsFrom:
    """Where a client fetches the choices of an `[env]` entry."""

    http: str
    bearer: str | None
    select: str
    after: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        optional = {"bearer": self.bearer} if self.bearer is not None else {}
        return {"http": self.http, **optional, "select": self.select, "after": list(self.after)}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvRow:
    """`[env].KEY`.  `default` is any JSON value, None where there is none."""

    key: EnvKey
    type: str
    request: str | None
    description: str | None
    default: object
    enum_values: tuple[str, ...]
    placeholder: str | None
    options_from: OptionsFrom | None

    @property
    def is_secret(self) -> bool:
        """Whether the value is never shown (the word counts in any case)."""
        return self.type.lower() == "secret"

    def to_json(self) -> dict[str, object]:
        """The wire's form: absent parts are left out."""
        fields: dict[str, object] = {
            "type": self.type,
            "request": self.request,
            "description": self.description,
            "default": self.default,
            "enum_values": list(self.enum_values) or None,
            "placeholder": self.placeholder,
            "options_from": self.options_from.to_json() if self.options_from else None,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One interface that the capsule wants from others."""

    namespace: str
    interface: str
    requirement: str
    optional: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One interface that the capsule provides."""

    namespace: str
    interface: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`[[command]]`: a slash command of the agent or a verb of the command line."""

    name: str
    description: str | None
    file: str | None
    kind: Literal["slash", "cli"]


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """`[[mcp_server]]`: a host program that speaks MCP over its standard streams."""

    id: str
    description: str | None
    type: str
    command: str | None
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFile:
    """`[[context_file]]`: packed, never injected."""

    name: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """`[[uplink]]`: a front end that the capsule serves."""

    name: str
    platform: str
    profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRow:
    """`[[tool]]`: legacy, without effect; tools describe themselves on the bus."""

    name: str
    description_for_llm: str
    input_schema_wit: str | None
    mutable: bool
