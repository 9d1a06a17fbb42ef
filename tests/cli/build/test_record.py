"""The document of a build."""

from __future__ import annotations

from pathlib import Path

from aos_cli.build.component import Component
from aos_cli.build.package import Packed
from aos_cli.build.record import BuildRecord
from aos_cli.build.toolchain import Compiler, Toolchain
from aos_runtime.capsule.manifest import parse_manifest
from aos_runtime.capsule.provenance import sign_content
from aos_runtime.errors import Issue
from aos_runtime.names import Digest

MANIFEST = b"""
[package]
name = "demo"
version = "0.1.0"
[capabilities]
net = ["example.com"]
host_process = ["run"]
[[mcp_server]]
id = "runner"
command = "run"
[[mcp_server]]
id = "far"
type = "sse"
[subscribe]
"tool.v1.execute.hello" = { wit = "opaque", handler = "tool_execute_hello" }
"tool.v1.execute.silent" = { wit = "opaque" }
"tool.v1.execute.*.result" = { wit = "opaque", handler = "on_result" }
"tool.v1.request.describe" = { wit = "opaque", handler = "tool_describe" }
"""
DIGEST = Digest("ab" * 32)


def record() -> BuildRecord:
    compiler = Compiler(
        rustc="rustc", release="1.95.0", commit="c0ffee", sysroot=Path("/rust"), libraries=Path("/rust/lib")
    )
    return BuildRecord(
        path=Path("/p/dist/demo.capsule"),
        manifest=parse_manifest(MANIFEST),
        packed=Packed(
            data=b"archive",
            content_digest=DIGEST,
            provenance=sign_content(DIGEST, bytes(32)),
            files=("Capsule.toml", "demo.wasm"),
        ),
        component=Component(data=b"component", imports=("astrid:sys/host@1.0.0",)),
        sdk="0.7.2",
        toolchain=Toolchain(compiler=compiler),
        profile="release",
        compression="gzip",
        is_fresh=True,
        warnings=(Issue(message="m", file="f", line=1, hint="h"),),
        duration_s=1.2345,
    )


def test_tools_are_the_concrete_rows_with_a_handler() -> None:
    assert record().tools == ("hello",)


def test_the_document_has_its_version_and_every_fact() -> None:
    document = record().to_json()
    capabilities = document.pop("capabilities")
    assert isinstance(capabilities, dict) and capabilities["net"] == ["example.com"]
    assert document == {
        "schema_version": 1,
        "path": "/p/dist/demo.capsule",
        "name": "demo",
        "version": "0.1.0",
        "size_bytes": 7,
        "compression": "gzip",
        "digests": {
            "archive": "blake3:1ff28929422717d74e648482a67b31b423e83858609e2ae1aef3ab9f77066c5b",
            "content": f"blake3:{DIGEST}",
            "component": "blake3:509c294dcd988ac7559ae9d86fde70b7c5a0b46372f9b22eee9ad1e464d827bf",
        },
        "signer": "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29",
        "files": ["Capsule.toml", "demo.wasm"],
        "tools": ["hello"],
        "mcp_servers": ["runner"],
        "imports": ["astrid:sys/host@1.0.0"],
        "sdk": "0.7.2",
        "profile": "release",
        "fresh": True,
        "toolchain": {
            "rustc": "1.95.0",
            "commit": "c0ffee",
            "toolchain": None,
            "pinned": None,
            "pinned_by": None,
            "fallback": False,
            "fix": None,
        },
        "warnings": [{"message": "m", "hint": "h", "file": "f", "line": 1, "column": None}],
        "duration_ms": 1234,
    }
