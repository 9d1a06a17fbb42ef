"""What requests are answered with: pure functions from views to the shapes of the wire.

Key sets and types are those of daemon-kernel.md 5.2 and of the recorded transcripts; what is ours is
additive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import msgspec
from blake3 import blake3

from aos_runtime import AOS_VERSION, HOST_VERSION
from aos_runtime.capsule.topics import covers
from aos_runtime.kernel.order import satisfies
from aos_runtime.kernel.runloop import LoopState, RunLoop
from aos_runtime.kernel.views import Resident, View
from aos_runtime.store.metadata import Meta

PROMPT_TOPIC = "user.v1.prompt"
ANSWER_TOPIC = "agent.v1.response"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The daemon as `GetStatus` shows it.  Times in seconds, `started_at` RFC 3339."""

    pid: int
    started_at: str
    uptime_s: int
    workspace: str | None
    ephemeral: bool
    clients: Mapping[str, int]
    """Connections by principal."""
    trouble: str | None = None
    """What is wrong with the daemon itself: a trail or a log that the disk does not take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProfile:
    """What `AgentList` tells of a principal."""

    principal: str
    enabled: bool
    groups: tuple[str, ...]
    grants: tuple[str, ...]
    revokes: tuple[str, ...]
    capsules: tuple[str, ...] = ()


def owner_uid(principal: str) -> str:
    """A stable opaque id of a principal in this runtime: 64 hexadecimal digits."""
    return blake3(b"aos-principal-uid-v1\0" + principal.encode()).hexdigest()


def status(view: View, process: Process) -> dict[str, object]:
    """`Status`: the published keys, then ours."""
    return {
        "pid": process.pid,
        "uptime_secs": process.uptime_s,
        "version": HOST_VERSION,
        "ephemeral": process.ephemeral,
        "connected_clients": sum(process.clients.values()),
        "connections_by_principal": [
            {"principal": principal, "count": count} for principal, count in sorted(process.clients.items())
        ],
        "loaded_capsules": list(view.names),
        "capsule_install_batch_protocol": 1,
        "aos_version": AOS_VERSION,
        "workspace": process.workspace,
        "started_at": process.started_at,
        "trouble": process.trouble,
        "capsules": [*_resident_rows(view), *_unready_rows(view)],
    }


def metadata(view: View) -> list[dict[str, object]]:
    """`CapsuleMetadata`: one row per serving capsule."""
    return [_metadata_row(resident) for resident in view.residents.values()]


def commands(view: View) -> list[dict[str, object]]:
    """`Commands`: the verbs of every serving capsule, by name."""
    rows: list[dict[str, object]] = [
        {
            "name": command.name,
            "description": command.description or "No description",
            "provider_capsule": resident.name,
            **({"kind": "cli"} if command.kind == "cli" else {}),
        }
        for resident in view.residents.values()
        for command in resident.manifest.commands
    ]
    return sorted(rows, key=lambda row: (str(row["name"]), str(row["provider_capsule"])))


def agent_readiness(view: View) -> dict[str, object]:
    """`AgentReadiness`: whether a prompt would find an agent (daemon-kernel.md 6.9)."""
    residents = view.residents.values()
    subscribers = [one.name for one in residents if _covers(one.manifest.subscribe_patterns, PROMPT_TOPIC)]
    publishers = [one.name for one in residents if _covers(one.manifest.publish_patterns, ANSWER_TOPIC)]
    missing = list(_unsatisfied(view))
    return {
        "ready": bool(subscribers and publishers and not missing),
        "prompt_subscribers": subscribers,
        "response_publishers": publishers,
        "unsatisfied_required_imports": missing,
        "loaded_capsules": list(view.names),
    }


def agents(profiles: Iterable[AgentProfile]) -> list[dict[str, object]]:
    """`AgentList`, sorted by principal."""
    return [
        {
            "principal": profile.principal,
            "owner_uid": owner_uid(profile.principal),
            "accountable_user": owner_uid(f"user of {profile.principal}"),
            "enabled": profile.enabled,
            "groups": list(profile.groups),
            "grants": list(profile.grants),
            "revokes": list(profile.revokes),
            "capsules": list(profile.capsules),
        }
        for profile in sorted(profiles, key=lambda one: one.principal)
    ]


def capsules_loaded(view: View) -> bytes:
    """The body of `astrid.v1.capsules_loaded`: `tools` come from the probe, absent where it could not ask."""
    rows = [
        {
            "principal": view.principal,
            "name": resident.name,
            "source_id": resident.loaded.source_id,
            "meta": _live_meta(resident),
        }
        for resident in view.residents.values()
    ]
    return msgspec.json.encode({"status": "ready", "capsules": rows})


def _resident_rows(view: View) -> Iterable[dict[str, object]]:
    for resident in view.residents.values():
        newer = view.unready.get(resident.name)
        warnings = list(resident.loaded.warnings)
        if newer is not None:
            warnings.append(f"the version that is installed now does not load: {newer.reason}")
        warnings += (
            f"{topic} has a handler that nothing calls: the run loop must subscribe to it"
            for topic in resident.unheard
        )
        actor = resident.actor
        leaked = actor.generation.context.resources.leaked
        if leaked:
            warnings.append(f"its handlers left {leaked} handles open, which were closed for it")
        yield {
            "name": resident.name,
            "version": resident.version,
            "principal": view.principal,
            **_loop_facts(resident.loops),
            **actor.meter.to_json(),
            "queue_depth": actor.depth,
            "drops": actor.mailbox.drops,
            "bundled": resident.loaded.installed.bundled,
            "tools": [tool.name for tool in resident.tools],
            "warnings": warnings,
            "shadowed": [
                {"topic": one.topic, "by": one.winner}
                for one in view.surfaces.shadowed
                if one.loser == resident.name
            ],
        }


def _loop_facts(loops: tuple[RunLoop, ...]) -> dict[str, object]:
    """`state` is that of the worker that is worst off, `reason` why one failed last, also after it came
    back.
    """
    if not loops:
        return {"state": "ready"}
    down = [one.state.value for one in loops if one.state is not LoopState.READY]
    facts: dict[str, object] = {"state": (down or ["ready"])[0], "run_loop": True}
    facts["restarts"] = sum(one.restarts.count for one in loops)
    if len(loops) > 1:
        facts["workers"] = len(loops)
    reasons = [one.reason for one in loops if one.reason]
    return {**facts, "reason": reasons[0]} if reasons else facts


def _unready_rows(view: View) -> Iterable[dict[str, object]]:
    for one in view.unready.values():
        if one.name in view.residents:
            continue
        yield {
            "name": one.name,
            "version": one.version,
            "state": one.state,
            "reason": one.reason,
            "missing": [row.key for row in one.missing],
            "principal": view.principal,
            "calls": 0,
            "errors": 0,
            "denied": 0,
            "queue_depth": 0,
            "drops": 0,
            "bundled": False,
            "tools": [],
            "warnings": [],
            "shadowed": [],
        }


def _metadata_row(resident: Resident) -> dict[str, object]:
    manifest, meta = resident.manifest, resident.loaded.installed.meta
    row: dict[str, object] = {
        "name": resident.name,
        "version": resident.version,
        "description": manifest.description,
        "interceptor_events": list(dict.fromkeys(row.topic for row in manifest.handlers)),
        "imports": manifest.imports_json(),
        "exports": manifest.exports_json(),
        "capabilities": resident.loaded.installed.receipt.capabilities.to_json(),
        "env": {row.key: row.to_json() for row in manifest.env},
        "wit_hashes": sorted(meta.wit_files.values()),
        "wasm_hash": meta.wasm_hash,
        "source_id": resident.loaded.source_id,
        "owner_uid": owner_uid(resident.actor.principal),
    }
    optional = ("description", "imports", "exports", "env")
    return {key: value for key, value in row.items() if key not in optional or value}


def _live_meta(resident: Resident) -> dict[str, object]:
    meta = resident.loaded.installed.meta
    found = {field.name: getattr(meta, field.name) for field in fields(Meta)}
    present: dict[str, object] = {
        key: value for key, value in found.items() if value is not None and value != {}
    }
    if resident.loaded.tools is not None:
        present["tools"] = [tool.to_json() for tool in resident.tools]
    return present


def _covers(patterns: tuple[str, ...], topic: str) -> bool:
    return any(covers(pattern, topic) for pattern in patterns)


def _unsatisfied(view: View) -> Iterable[dict[str, str]]:
    """Required imports that no serving capsule exports."""
    exports = [export for resident in view.residents.values() for export in resident.manifest.exports]
    for resident in view.residents.values():
        for wanted in resident.manifest.imports:
            if not wanted.optional and not any(satisfies(export, wanted) for export in exports):
                yield {
                    "capsule": resident.name,
                    "namespace": wanted.namespace,
                    "interface": wanted.interface,
                    "requirement": wanted.requirement,
                }
