"""Small archives for tests of the store: real containers with real signatures around a binary that is never
run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aos_runtime.capsule.archive import Member, entry_of, write_archive
from aos_runtime.capsule.provenance import PROVENANCE_FILE, content_digest, render_provenance, sign_content

COMPONENT = b"\0asm\x0d\x00\x01\x00"
"""An empty component: the store looks at a binary, only the host compiles it."""


def manifest_text(name: str = "demo", version: str = "0.1.0", extra: str = "") -> str:
    """A manifest with one component and one publish row; `extra` follows."""
    return (
        f'[package]\nname = "{name}"\nversion = "{version}"\n\n'
        '[[component]]\nid = "main"\nfile = "demo.wasm"\ntype = "executable"\n\n'
        '[publish]\n"demo.v1.answer" = "opaque"\n' + extra
    )


def make_archive(
    name: str = "demo",
    version: str = "0.1.0",
    *,
    extra: str = "",
    wasm: bytes | None = COMPONENT,
    files: Mapping[str, bytes] | None = None,
    seed: bytes | None = None,
) -> bytes:
    """The bytes of a `.capsule`, signed with `seed` where one is given."""
    content = {"Capsule.toml": manifest_text(name, version, extra).encode()}
    if wasm is not None:
        content["demo.wasm"] = wasm
    content |= {"wit/demo.wit": b"package demo:demo;\n", "assets/note.txt": b"note\n", **(files or {})}
    members = [Member(path=path, data=data) for path, data in content.items()]
    if seed is not None:
        provenance = sign_content(content_digest(entry_of(member) for member in members), seed)
        members.append(Member(path=PROVENANCE_FILE, data=render_provenance(provenance)))
    return write_archive(members)


def write_capsule(path: Path, data: bytes) -> Path:
    """Put archive bytes at `path` and return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
