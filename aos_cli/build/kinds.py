"""What kind of project a folder is: the first file of a fixed order decides (build-install.md 2.3).

Two differences to the published order: a `Capsule.toml` without a component is built, and it wins over what
lies beside it, since an author's own manifest is never passed over in silence.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from aos_runtime.errors import InvalidInput, NotFound


class Kind(Enum):
    """A kind of project, by the file that makes it one; in the order of detection."""

    CARGO = "Cargo.toml"
    MANIFEST = "Capsule.toml"
    EXTENSION = "gemini-extension.json"
    NODE = "package.json"
    MCP = "mcp.json"


def find_kind(folder: Path) -> Kind | None:
    """The kind of the project in `folder`; None where there is none."""
    return next((kind for kind in Kind if (folder / kind.value).is_file()), None)


def read_kind(folder: Path) -> Kind:
    """The kind of a project that can be built.

    NotFound `cargo-project-missing` where there is none; InvalidInput `project-kind` for JavaScript.
    """
    kind = find_kind(folder)
    if kind is None:
        raise NotFound(
            "cargo-project-missing",
            f"there is no Cargo.toml, Capsule.toml or mcp.json in {folder}",
            hint="name the folder of a capsule project, or make one with `aos capsule new NAME`",
            path=str(folder),
        )
    if kind is Kind.NODE:
        raise InvalidInput(
            "project-kind",
            f"{folder} is a JavaScript project (package.json), and nothing here compiles one",
            hint="write a Capsule.toml whose [[mcp_server]] starts it, or build from a list of MCP servers"
            " with `aos capsule build --from-mcp-json mcp.json`",
            path=str(folder),
        )
    return kind
