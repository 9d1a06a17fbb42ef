"""Capsules made of WAT for a real daemon: installed by the store's own functions, no Rust needed.

Their guest looks only at the first bytes of its action: `tool_describe` answers with a fixed text,
everything else runs `body`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from aos_runtime.capsule.archive import Member, entry_of, write_archive
from aos_runtime.capsule.provenance import PROVENANCE_FILE, content_digest, render_provenance, sign_content
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, PrincipalName
from aos_runtime.store.bundled import read_catalogue, record_removed
from aos_runtime.store.commit import Approval, commit
from aos_runtime.store.keys import load_runtime_seed
from aos_runtime.store.layout import open_home
from aos_runtime.store.receipts import ApprovalSource
from aos_runtime.store.stage import stage_source
from tests.support.guests import CONTINUE, component_of, guest_text, world_of

DESCRIBE_AT = 8192


def tool_guest(tools_json: str, body: str = CONTINUE) -> bytes:
    """A component that describes `tools_json` and runs `body` for every other action.

    The describe action is told by its sixth byte: `tool_d...`.
    """
    escaped = "".join(f"\\{byte:02x}" for byte in tools_json.encode())
    text = guest_text(
        describe_answer(tools_json) + body,
        imports="",
        more=f'(data (i32.const {DESCRIBE_AT}) "{escaped}")',
        pages="2",
    )
    return component_of(text, world_of())


def describe_answer(tools_json: str) -> str:
    """The part of a hook that answers `tool_describe` with the text at `DESCRIBE_AT`, and returns."""
    return f"""(if (i32.and (i32.ge_u (local.get $action_size) (i32.const 6))
      (i32.eq (i32.load8_u offset=5 (local.get $action)) (i32.const 100))) (then
     (i32.store (i32.const 16) (i32.const 64)) (i32.store (i32.const 20) (i32.const 0))
     (i32.store8 (i32.const 24) (i32.const 1)) (i32.store (i32.const 28) (i32.const {DESCRIBE_AT}))
     (i32.store (i32.const 32) (i32.const {len(tools_json.encode())})) (return (i32.const 16))))"""


def archive_of(
    home: Home,
    name: str,
    wasm: bytes,
    rows: str,
    *,
    version: str = "0.1.0",
    astrid_version: str = "*",
    extra: str = "",
) -> bytes:
    """A signed archive; `rows` follow `[subscribe]`."""
    manifest = (
        f'[package]\nname = "{name}"\nversion = "{version}"\ndescription = "A test capsule"\n'
        f'astrid-version = "{astrid_version}"\n\n'
        f'[[component]]\nid = "main"\nfile = "{name}.wasm"\ntype = "executable"\n\n'
        f"[subscribe]\n{rows}\n[publish]\n"
        f'"tool.v1.execute.*.result" = "opaque"\n"tool.v1.response.describe.*" = "opaque"\n{extra}'
    )
    members = [
        Member(path="Capsule.toml", data=manifest.encode()),
        Member(path=f"{name}.wasm", data=wasm),
        Member(path="wit/capsule.wit", data=b"package demo:demo;\n"),
    ]
    provenance = sign_content(
        content_digest(entry_of(member) for member in members), load_runtime_seed(home, create=True)
    )
    members.append(Member(path=PROVENANCE_FILE, data=render_provenance(provenance)))
    return write_archive(members)


def without_bundled(home: Home) -> None:
    """As if the operator had removed the bundled capsules: a daemon on this home installs none."""
    open_home(home, create=True)
    for row in read_catalogue():
        record_removed(home, DEFAULT_PRINCIPAL, row.name, removed=True)


def install(
    home: Home,
    folder: Path,
    name: str,
    archive: bytes,
    *,
    source: ApprovalSource = ApprovalSource.LOCAL_BUILD,
    principal: PrincipalName = DEFAULT_PRINCIPAL,
) -> None:
    """Install an archive, without compiling it."""
    path = folder / f"{name}.capsule"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(archive)
    with stage_source(home, principal, path, now=datetime.now(UTC)) as stage:
        commit(stage, approval=Approval(source=source), source_text=str(path))
