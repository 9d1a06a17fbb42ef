"""Installed capsules as tables, pages and documents.  Pure: values of `store` in, text or JSON values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aos_cli.console import plain, safe
from aos_cli.render.table import Column, one_line, render_table
from aos_cli.render.units import UNKNOWN, short_digest
from aos_runtime.capsule.capability import Capabilities, permissions
from aos_runtime.capsule.manifest import Manifest
from aos_runtime.store.installed import Broken, Installed

_COLUMNS = (
    Column(title="CAPSULE"),
    Column(title="VERSION"),
    Column(title="ORIGIN"),
    Column(title="DESCRIPTION", flexible=True),
)
_TOOL_PREFIX = "tool.v1.execute."
_CONTRACTS = "astrid-contracts.wit"


def tool_names(manifest: Manifest) -> tuple[str, ...]:
    """The tools that a manifest binds a handler for."""
    topics = (row.topic for row in manifest.handlers)
    names = (topic.removeprefix(_TOOL_PREFIX) for topic in topics if topic.startswith(_TOOL_PREFIX))
    return tuple(sorted(name for name in names if name and "." not in name and name != "*"))


def origin(installed: Installed) -> str:
    """Why this capsule is trusted, in one word."""
    if installed.bundled:
        return "bundled"
    return {"local-runtime-build": "built here", "explicit-approval": "approved"}.get(
        installed.receipt.source.value, installed.receipt.source.value
    )


def render_capsule_list(entries: Sequence[Installed | Broken], *, width: int | None) -> str:
    """One line per capsule; one that cannot be read stands in its place as broken, with the reason."""
    rows = [_row(entry) for entry in entries]
    return render_table(_COLUMNS, rows, width=width)


def _row(entry: Installed | Broken) -> list[str]:
    if isinstance(entry, Broken):
        return [safe(entry.name), UNKNOWN, "broken", safe(one_line(entry.reason))]
    description = safe(one_line(entry.manifest.description or ""))
    return [entry.name, safe(entry.version), origin(entry), description]


def render_capsule_details(entries: Sequence[Installed | Broken]) -> str:
    """The long form of the list: a block per capsule."""
    return "\n\n".join(_block(entry) for entry in entries)


def _block(entry: Installed | Broken) -> str:
    if isinstance(entry, Broken):
        return f"{safe(entry.name)}\n  Broken:     {safe(one_line(entry.reason))}"
    manifest, meta = entry.manifest, entry.meta
    lines = [f"{entry.name} {safe(entry.version)}"]
    if manifest.description:
        lines.append(f"  {safe(one_line(manifest.description))}")
    lines.append(f"  Origin:     {origin(entry)}")
    lines.append(f"  Source:     {safe(meta.source or UNKNOWN)}")
    lines.append(f"  Binary:     {short_digest(meta.wasm_hash) if meta.wasm_hash else UNKNOWN}")
    lines.append(f"  Tools:      {_joined(tool_names(manifest))}")
    lines.append(f"  Handles:    {_joined(row.topic for row in manifest.handlers)}")
    lines.append(f"  Exports:    {_joined(_interfaces(manifest.exports_json()))}")
    lines.append(f"  Imports:    {_joined(_interfaces(manifest.imports_json()))}")
    lines.append(f"  Env keys:   {_joined(row.key for row in manifest.env)}")
    return "\n".join(lines)


def _joined(names: object) -> str:
    found = [safe(str(name)) for name in names]  # type: ignore[attr-defined]
    return ", ".join(found) if found else "(none)"


def _interfaces(table: Mapping[str, Mapping[str, str]]) -> list[str]:
    return [f"{space}/{name} {version}" for space, rows in table.items() for name, version in rows.items()]


def list_document(entries: Sequence[Installed | Broken]) -> list[dict[str, object]]:
    """The JSON of `aos capsule list`."""
    return [_list_entry(entry) for entry in entries]


def _list_entry(entry: Installed | Broken) -> dict[str, object]:
    if isinstance(entry, Broken):
        return {"name": entry.name, "state": "broken", "reason": entry.reason, "principal": entry.principal}
    meta = entry.meta
    return {
        "name": entry.name,
        "version": entry.version,
        "state": "installed",
        "description": entry.manifest.description,
        "principal": entry.principal,
        "origin": "bundled" if entry.bundled else entry.receipt.source.value,
        "source": meta.source,
        "wasm_hash": meta.wasm_hash,
        "content_digest": entry.receipt.content_digest,
        "installed_at": meta.installed_at,
        "updated_at": meta.updated_at,
        "tools": list(tool_names(entry.manifest)),
        "exports": entry.manifest.exports_json(),
        "imports": entry.manifest.imports_json(),
        "env": [row.key for row in entry.manifest.env],
    }


def permission_documents(capabilities: Capabilities) -> list[dict[str, object]]:
    """`{capability, action, scope, impact}` for each capability held or asked."""
    return [
        {"capability": one.capability, "action": one.action, "scope": list(one.scope), "impact": one.impact}
        for one in permissions(capabilities)
    ]


def permission_lines(capabilities: Capabilities, *, indent: str = "  ") -> list[str]:
    """The same for a person; manifest text is escaped."""
    lines = []
    for one in permissions(capabilities):
        lines.append(f"{indent}- {one.action}")
        if one.scope:
            lines.append(f"{indent}  Scope: {', '.join(map(_scope, one.scope))}")
        lines.append(f"{indent}  Impact: {one.impact}")
    return lines or [f"{indent}(none)"]


def _scope(entry: str) -> str:
    """One entry, in quotes where it could be taken for several."""
    text = plain(entry)
    return '"' + text.replace('"', '\\"') + '"' if set(text) & set(' ,"') else text


def show_document(
    installed: Installed, *, manifest_text: str, env: Mapping[str, str], problem: str | None
) -> dict[str, object]:
    """The JSON of `aos capsule show`: the published keys (cli-ux 1.5) and additive ones."""
    meta = installed.meta
    pin = next(
        (digest for path, digest in meta.wit_files.items() if path.rpartition("/")[2] == _CONTRACTS), None
    )
    return {
        "name": installed.name,
        "version": installed.version,
        "source": meta.source,
        "wasm_hash": meta.wasm_hash,
        "installed_at": meta.installed_at,
        "updated_at": meta.updated_at,
        "contracts_pin": pin,
        "contracts_canonical": None,
        "contracts_status": "no-canonical" if pin else "not-pinned",
        "manifest": manifest_text,
        "permissions": permission_documents(installed.manifest.capabilities),
        "principal": installed.principal,
        "description": installed.manifest.description,
        "origin": "bundled" if installed.bundled else installed.receipt.source.value,
        "signer": installed.receipt.signer,
        "content_digest": installed.receipt.content_digest,
        "tools": list(tool_names(installed.manifest)),
        "env": dict(env),
        "intact": problem is None,
        "problem": problem,
    }


def render_capsule(installed: Installed, *, env: Mapping[str, str], problem: str | None) -> str:
    """The page of `aos capsule show`."""
    meta, receipt, manifest = installed.meta, installed.receipt, installed.manifest
    lines = [f"{installed.name} {safe(installed.version)}"]
    if manifest.description:
        lines.append(f"  {safe(one_line(manifest.description))}")
    lines += [
        "",
        f"  Principal:  {installed.principal}",
        f"  Origin:     {origin(installed)}",
        f"  Signer:     {short_digest(receipt.signer) if receipt.signer else 'unsigned'}",
        f"  Source:     {safe(meta.source or UNKNOWN)}",
        f"  Installed:  {safe(meta.installed_at)}",
        f"  Updated:    {safe(meta.updated_at)}",
        f"  Binary:     {short_digest(meta.wasm_hash) if meta.wasm_hash else UNKNOWN}",
        f"  Content:    {short_digest(receipt.content_digest)}",
        f"  Intact:     {'yes' if problem is None else 'NO: ' + safe(one_line(problem))}",
        "",
        "Tools",
        f"  {_joined(tool_names(manifest))}",
        "",
        "Permissions",
        *permission_lines(manifest.capabilities),
        "",
        "Publishes",
        *_topics(row.topic for row in manifest.publish),
        "",
        "Handles",
        *_topics(f"{row.topic} -> {row.handler}" for row in manifest.handlers),
        "",
        "Env",
        *_topics(f"{key} = {value}" for key, value in env.items()),
    ]
    return "\n".join(lines)


def _topics(names: object) -> list[str]:
    return [f"  {safe(str(name))}" for name in names] or ["  (none)"]  # type: ignore[attr-defined]
