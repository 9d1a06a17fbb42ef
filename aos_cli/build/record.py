"""The record of a build: what a program wants to know about it, in a versioned form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aos_cli.build.component import Component
from aos_cli.build.package import Compression, Packed
from aos_cli.build.toolchain import Toolchain
from aos_runtime.capsule.manifest import Manifest
from aos_runtime.errors import Issue

SCHEMA_VERSION = 1
_TOOL_PREFIX = "tool.v1.execute."


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRecord:
    """One finished build.  `component`, `toolchain` and `profile` are None where nothing was compiled."""

    path: Path
    manifest: Manifest
    packed: Packed
    component: Component | None
    sdk: str | None
    toolchain: Toolchain | None
    profile: str | None
    compression: Compression
    is_fresh: bool
    warnings: tuple[Issue, ...]
    duration_s: float

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools that the manifest serves: a concrete `tool.v1.execute.<tool>` row with a handler each."""
        topics = (row.topic for row in self.manifest.handlers if row.topic.startswith(_TOOL_PREFIX))
        names = (topic.removeprefix(_TOOL_PREFIX) for topic in topics)
        return tuple(name for name in names if "*" not in name and "." not in name)

    @property
    def mcp_servers(self) -> tuple[str, ...]:
        """The servers that a daemon will start."""
        return tuple(row.id for row in self.manifest.mcp_servers if row.type == "stdio")

    def to_json(self) -> dict[str, object]:
        """The document of `aos capsule build --format json`, schema 1."""
        from aos_runtime.capsule.provenance import bytes_digest

        component, provenance = self.component, self.packed.provenance
        return {
            "schema_version": SCHEMA_VERSION,
            "path": str(self.path),
            "name": self.manifest.name,
            "version": self.manifest.version,
            "size_bytes": len(self.packed.data),
            "compression": self.compression,
            "digests": {
                "archive": f"blake3:{bytes_digest(self.packed.data)}",
                "content": f"blake3:{self.packed.content_digest}",
                "component": f"blake3:{bytes_digest(component.data)}" if component else None,
            },
            "signer": provenance.signer if provenance else None,
            "files": list(self.packed.files),
            "tools": list(self.tools),
            "mcp_servers": list(self.mcp_servers),
            "capabilities": self.manifest.capabilities.to_json(),
            "imports": list(component.imports) if component else [],
            "sdk": self.sdk,
            "profile": self.profile,
            "fresh": self.is_fresh,
            "toolchain": self.toolchain.to_json() if self.toolchain else None,
            "warnings": [
                {
                    "message": one.message,
                    "hint": one.hint,
                    "file": one.file,
                    "line": one.line,
                    "column": one.column,
                }
                for one in self.warnings
            ],
            "duration_ms": round(self.duration_s * 1000),
        }
