"""`aos capsule build`: a project folder, or a list of MCP servers, becomes a `.capsule` file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aos_cli.console import get_console, safe
from aos_cli.invocation import get_invocation

COMPRESSIONS = ("gzip", "zstd")


def _compression(value: str) -> str:
    if value not in COMPRESSIONS:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(COMPRESSIONS)}")
    return value


def build(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Folder of the project.")] = ".",
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Where the archive goes.")
    ] = "dist",
    debug: Annotated[bool, typer.Option("--debug", help="Compile unoptimised, with names.")] = False,
    locked: Annotated[
        bool, typer.Option("--locked", help="Cargo.lock must fit, and the pinned toolchain must be there.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Never use the network.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Treat warnings about the capsule as errors.")
    ] = False,
    compression: Annotated[
        str,
        typer.Option("--compression", metavar="KIND", help="gzip or zstd.", callback=_compression),
    ] = "gzip",
    from_mcp_json: Annotated[
        str | None,
        typer.Option("--from-mcp-json", metavar="FILE", help="Make the manifest from a list of MCP servers."),
    ] = None,
) -> int:
    """Build the project in PATH and pack it into DIR/<package>.capsule, signed with this home's key.

    A Rust project is compiled, and cargo's own words go to stderr as they come. A folder whose Capsule.toml
    has no component, or that has an mcp.json, is packed as it is. DIR is taken from the current folder. JSON:
    {"schema_version": 1, "path", "name", "version", "size_bytes", "digests", "tools", "mcp_servers",
    "capabilities", "toolchain", "warnings", "duration_ms", ...}.

    Examples:
      aos capsule build
      aos capsule build ./my-capsule --locked --strict
      aos capsule build --from-mcp-json ./servers/mcp.json
    """
    from aos_cli.build.pipeline import Request, build_project
    from aos_runtime.store.keys import load_runtime_seed
    from aos_runtime.store.layout import open_home

    console, invocation = get_console(), get_invocation()
    mcp_json = Path(from_mcp_json).expanduser().absolute() if from_mcp_json is not None else None
    if mcp_json is not None and path != ".":
        raise typer.BadParameter("PATH cannot stand beside it: the project is the folder of FILE")
    open_home(invocation.home, create=True)
    request = Request(
        folder=(mcp_json.parent if mcp_json else Path(path).expanduser()).resolve(),
        mcp_json=mcp_json,
        output=Path(output).expanduser().absolute(),
        debug=debug,
        locked=locked,
        offline=offline,
        strict=strict,
        compression="zstd" if compression == "zstd" else "gzip",
        seed=load_runtime_seed(invocation.home, create=True),
    )
    record = build_project(request, environ=invocation.environ, console=console)
    if console.is_json:
        console.json(record.to_json())
        return 0
    what, names = ("MCP servers", record.mcp_servers) if record.mcp_servers else ("tools", record.tools)
    shown = ", ".join(names) or "none"
    console.success(f"{record.manifest.name} {record.manifest.version}, {what}: {safe(shown)}")
    console.data(safe(str(record.path)))
    return 0
