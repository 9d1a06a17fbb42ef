"""Capsules to measure with: the wheel's own bundled tool capsule, and copies of it that are different
capsules.

A copy has its own name and a custom section of its own, so that it has its own digest, blob and
precompiled code and shares nothing with the others.
"""

from __future__ import annotations

import io
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import aos_runtime
from aos_runtime.capsule.archive import Member, iter_members, scan_archive, write_archive
from aos_runtime.capsule.manifest import parse_manifest

BUNDLED = Path(aos_runtime.__file__).parent / "_bundled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A bundled capsule that offers a tool, unpacked: what the copies are made of."""

    members: tuple[Member, ...]
    name: str
    tool: str


def bundled_names() -> tuple[str, ...]:
    """The capsules that every daemon installs by itself: those of the wheel that ask for nothing."""
    return tuple(
        row["name"] for row in json.loads((BUNDLED / "bundled.json").read_bytes()) if not row["asks"]
    )


def find_tool_capsule() -> Original:
    """The first bundled capsule that asks for nothing and has a tool of its own."""
    for row in json.loads((BUNDLED / "bundled.json").read_bytes()):
        if row["asks"]:
            continue
        data = io.BytesIO((BUNDLED / row["file"]).read_bytes())
        inventory = scan_archive(data)
        manifest = parse_manifest(inventory.manifest)
        for handler in manifest.handlers:
            match = re.fullmatch(r"tool\.v1\.execute\.([A-Za-z0-9_-]+)", handler.topic)
            if match is not None and match[1] != "result":
                data.seek(0)
                members = tuple(iter_members(data, inventory))
                return Original(members=members, name=str(manifest.name), tool=match[1])
    raise LookupError("no bundled capsule offers a tool")


def write_copy(original: Original, name: str, folder: Path, *, packed_bytes: int = 0) -> Path:
    """An unsigned archive of the same capsule under `name`, grown to at least `packed_bytes`."""
    members = [
        _renamed(member, original.name, name)
        if member.path == "Capsule.toml"
        else Member(path=member.path, data=_marked(member.data, name, 0), executable=member.executable)
        if member.path.endswith(".wasm")
        else member
        for member in original.members
        if member.path != "provenance.json" and not member.path.startswith(".astrid")
    ]
    data = write_archive(members, compression="gzip")
    if len(data) < packed_bytes:
        padding = packed_bytes - len(data)
        members = [
            Member(path=member.path, data=_marked(member.data, name, padding), executable=member.executable)
            if member.path.endswith(".wasm")
            else member
            for member in members
        ]
        data = write_archive(members, compression="gzip")
    path = folder / f"{name}.capsule"
    path.write_bytes(data)
    return path


def _renamed(member: Member, old: str, new: str) -> Member:
    text = member.data.decode()
    changed = re.sub(
        rf'^(\s*name\s*=\s*)"{re.escape(old)}"', rf'\1"{new}"', text, count=1, flags=re.MULTILINE
    )
    return Member(path=member.path, data=changed.encode(), executable=member.executable)


def _marked(wasm: bytes, name: str, padding_bytes: int) -> bytes:
    """The module or component with a custom section that holds `name` and bytes that do not compress."""
    title = b"bench"
    body = bytes([len(title)]) + title + name.encode() + os.urandom(padding_bytes)
    return wasm + b"\0" + _leb128(len(body)) + body


def _leb128(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)
