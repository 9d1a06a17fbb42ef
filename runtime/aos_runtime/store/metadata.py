"""`meta.json`: what the published runtime records about an installed capsule (build-install.md 5.12).

Exactly those keys; absent values and empty maps are omitted, unknown keys are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime

from aos_runtime.errors import Corrupt

META_FILE = "meta.json"
MAX_META_BYTES = 4 * 1024 * 1024

InterfaceMap = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """One `meta.json`.  Times are RFC 3339 in UTC; `wit_files` maps a path below `wit/` to its BLAKE3."""

    version: str
    installed_at: str
    updated_at: str
    source: str | None = None
    imports: InterfaceMap = field(default_factory=dict)
    exports: InterfaceMap = field(default_factory=dict)
    wasm_hash: str | None = None
    wit_files: Mapping[str, str] = field(default_factory=dict)
    signer: str | None = None
    signature: str | None = None
    resolved_ref: str | None = None
    provenance_distro: str | None = None
    provenance_source_digest: str | None = None


def render_meta(meta: Meta) -> bytes:
    """The file's bytes: pretty JSON."""
    value = {name: getattr(meta, name) for name in _NAMES}
    present = {name: item for name, item in value.items() if item is not None and item != {}}
    return (json.dumps(present, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def parse_meta(data: bytes) -> Meta:
    """Read a `meta.json`.  Corrupt `meta-damaged` otherwise."""
    try:
        value = json.loads(data)
        if not isinstance(value, dict):
            raise TypeError("it is not an object")
        known = {name: value[name] for name in _NAMES if name in value}
        for name, item in known.items():
            _check(name, item)
        return Meta(**known)
    except (ValueError, TypeError, RecursionError) as error:
        raise Corrupt(
            "meta-damaged",
            f"{META_FILE} is damaged: {error}",
            hint="install the capsule again from its archive",
        ) from error


def render_time(moment: datetime) -> str:
    """RFC 3339 in UTC with an offset, as the published runtime writes times."""
    return moment.astimezone(UTC).isoformat()


def _check(name: str, item: object) -> None:
    if name in ("imports", "exports"):
        good = _is_map(item) and all(_is_text_map(inner) for inner in item.values())  # type: ignore[attr-defined]
    elif name == "wit_files":
        good = _is_text_map(item)
    else:
        good = isinstance(item, str)
    if not good:
        raise TypeError(f"`{name}` has the wrong type")


def _is_map(item: object) -> bool:
    return isinstance(item, dict)


def _is_text_map(item: object) -> bool:
    return isinstance(item, dict) and all(isinstance(value, str) for value in item.values())


_NAMES = tuple(one.name for one in fields(Meta))
