"""Principals: who may use the runtime, one `etc/profiles/<name>.toml` each (daemon-kernel.md 9.1).

A file of a newer aos is read as far as it is understood; what is not is a warning that names the key, since
only `profile_version` is the breaking gate (MAN-04).  What a profile allows is decided in `policy`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from aos_runtime.capsule.provenance import bytes_digest
from aos_runtime.errors import AosError, Conflict, Corrupt, InvalidInput
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, PrincipalName, parse_principal_name
from aos_runtime.store.files import list_folder, make_private_folder, read_optional, write_once
from aos_runtime.store.keys import principal_seed, public_hex
from aos_runtime.store.layout import open_home

PROFILE_VERSION = 1
MAX_PROFILE_BYTES = 1024 * 1024
ADMIN_GROUP = "admin"

_KNOWN: Mapping[str, frozenset[str]] = {
    "": frozenset(
        (
            "profile_version",
            "enabled",
            "groups",
            "grants",
            "revokes",
            "capsules",
            "auth",
            "network",
            "approvals",
            "process",
            "quotas",
        )
    ),
    "auth": frozenset(("methods", "public_keys")),
    "network": frozenset(("egress",)),
    "approvals": frozenset(("command_always",)),
    "process": frozenset(("allow",)),
    "quotas": frozenset(
        (
            "max_memory_bytes",
            "max_timeout_secs",
            "max_ipc_throughput_bytes",
            "max_background_processes",
            "max_storage_bytes",
            "max_cpu_fuel_per_sec",
            "max_in_flight_calls",
        )
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKey:
    """One `auth.public_keys` row.  `allow` and `deny` are empty for the scope `full`."""

    key_id: str
    public_key: str
    is_full: bool
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    label: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One principal.  `warnings` name keys that this aos does not know."""

    principal: PrincipalName
    enabled: bool
    groups: tuple[str, ...]
    grants: tuple[str, ...]
    revokes: tuple[str, ...]
    capsules: tuple[str, ...]
    auth_methods: tuple[str, ...]
    public_keys: tuple[DeviceKey, ...]
    quotas: Mapping[str, int]
    egress: tuple[str, ...] | None
    """`network.egress`, None where the key is absent."""
    programs: tuple[str, ...] | None
    """`process.allow`, None where the key is absent."""
    warnings: tuple[str, ...]


def read_profile(home: Home, principal: PrincipalName) -> Profile | None:
    """One profile, None where the principal has none.

    Corrupt `profile-damaged`, Conflict `profile-newer`.
    """
    path = home.profile(principal)
    data = read_optional(path, MAX_PROFILE_BYTES)
    if data is None:
        return None
    try:
        value = tomllib.loads(data.decode("utf-8"))
        version = value.get("profile_version", PROFILE_VERSION)
        if version == PROFILE_VERSION:
            return _build(principal, value)
    except (ValueError, KeyError, TypeError) as error:
        raise damaged_profile(path, error) from error
    raise Conflict(
        "profile-newer",
        f"{path} has profile_version {version!r}, this aos knows {PROFILE_VERSION}",
        hint="install a newer aos",
        path=str(path),
    )


def damaged_profile(path: Path, error: Exception) -> Corrupt:
    """What to say of a profile that cannot be read."""
    return Corrupt(
        "profile-damaged",
        f"{path} is damaged: {error}",
        hint="correct the file; a principal without a readable profile is refused",
        path=str(path),
    )


def list_profiles(home: Home) -> tuple[PrincipalName, ...]:
    """Every principal with a profile, by name.  Conflict `principal-case` where two differ only in case."""
    names: dict[str, PrincipalName] = {}
    for path in list_folder(home.profiles):
        if path.suffix != ".toml" or path.name.startswith("."):
            continue
        try:
            name = parse_principal_name(path.stem)
        except InvalidInput:
            continue
        twin = names.setdefault(name.lower(), name)
        if twin != name:
            raise _twins(twin, name)
    return tuple(sorted(names.values()))


def create_profile(
    home: Home,
    principal: PrincipalName,
    *,
    groups: tuple[str, ...],
    now: datetime,
    edit: Callable[[str], str] = str,
) -> Profile:
    """Make a principal with a key of its own.  Conflict `principal-exists` or `principal-case`.

    `edit` may change the text of the profile before it is written.
    """
    open_home(home, create=True)
    check_free_name(home, principal)
    public = public_hex(principal_seed(home, principal, create=True))
    make_private_folder(home.profiles)
    if not write_once(home.profile(principal), edit(_render(groups, public, now)).encode("utf-8")):
        raise Conflict(
            "principal-exists",
            f"principal `{principal}` exists already",
            hint="choose another name",
            principal=principal,
        )
    return _expect(home, principal)


def check_free_name(home: Home, principal: PrincipalName) -> None:
    """Conflict `principal-case` where another principal differs only in case: they would share their files
    on some file systems.
    """
    for name in list_profiles(home):
        if name != principal and name.lower() == principal.lower():
            raise _twins(name, principal)


def ensure_default(home: Home, *, now: datetime) -> Profile:
    """The profile of `default`, made on first use with the group admin and `keys/default.key`.

    A home whose key is gone gets a new one only while it has no profile; an existing profile is never
    changed.
    """
    profile = read_profile(home, DEFAULT_PRINCIPAL)
    if profile is not None:
        return profile
    try:
        return create_profile(home, DEFAULT_PRINCIPAL, groups=(ADMIN_GROUP,), now=now)
    except Conflict as error:
        if error.code != "principal-exists":
            raise
        return _expect(home, DEFAULT_PRINCIPAL)


def key_id(public_key: str) -> str:
    """The name of a public key: the first 16 hexadecimal digits of its BLAKE3."""
    return bytes_digest(bytes.fromhex(public_key))[:16]


def _expect(home: Home, principal: PrincipalName) -> Profile:
    profile = read_profile(home, principal)
    if profile is None:
        raise Corrupt(
            "profile-missing",
            f"the profile of `{principal}` vanished while it was made",
            hint="run the command again",
            principal=principal,
        )
    return profile


def _render(groups: tuple[str, ...], public_key: str, now: datetime) -> str:
    quoted = ", ".join(f'"{group}"' for group in groups)
    return (
        f"profile_version = {PROFILE_VERSION}\n"
        "enabled = true\n"
        f"groups = [{quoted}]\n"
        "grants = []\n"
        "revokes = []\n"
        "\n"
        "[auth]\n"
        'methods = ["keypair"]\n'
        "\n"
        "[[auth.public_keys]]\n"
        f'key_id = "{key_id(public_key)}"\n'
        f'pubkey = "{public_key}"\n'
        'scope = { type = "full" }\n'
        f'created_at = "{now.isoformat()}"\n'
    )


def _build(principal: PrincipalName, value: Mapping[str, object]) -> Profile:
    auth = _table(value, "auth")
    keys = auth.get("public_keys", [])
    if not isinstance(keys, list):
        raise TypeError("`auth.public_keys` is not a list")
    quotas = _table(value, "quotas")
    return Profile(
        principal=principal,
        enabled=_flag(value, "enabled"),
        groups=_texts(value, "groups"),
        grants=_texts(value, "grants"),
        revokes=_texts(value, "revokes"),
        capsules=_texts(value, "capsules"),
        auth_methods=_texts(auth, "methods"),
        public_keys=tuple(_device_key(row) for row in keys),
        quotas={key: _number(quotas, key) for key in quotas if key in _KNOWN["quotas"]},
        egress=_optional_texts(_table(value, "network"), "egress"),
        programs=_optional_texts(_table(value, "process"), "allow"),
        warnings=tuple(_unknown(value)),
    )


def _unknown(value: Mapping[str, object]) -> list[str]:
    found = [key for key in value if key not in _KNOWN[""]]
    for section, known in _KNOWN.items():
        if section:
            found += [f"{section}.{key}" for key in _table(value, section) if key not in known]
    return [f"unknown key `{key}` has no effect" for key in found]


def _device_key(row: object) -> DeviceKey:
    if not isinstance(row, dict):
        raise TypeError("a public key is not a table")
    public = row["pubkey"]
    if not isinstance(public, str) or len(bytes.fromhex(public)) != 32:
        raise ValueError("a public key does not have 64 hexadecimal digits")
    scope = row.get("scope", {"type": "full"})
    kind = scope.get("type") if isinstance(scope, dict) else None
    if kind not in ("full", "scoped"):
        raise ValueError(f"a public key has the unknown scope {kind!r}")
    label = row.get("label")
    return DeviceKey(
        key_id=str(row.get("key_id", key_id(public))),
        public_key=public.lower(),
        is_full=kind == "full",
        allow=_texts(scope, "allow"),
        deny=_texts(scope, "deny"),
        label=label if isinstance(label, str) else None,
    )


def _table(value: Mapping[str, object], key: str) -> Mapping[str, object]:
    item = value.get(key, {})
    if not isinstance(item, dict):
        raise TypeError(f"`{key}` is not a table")
    return item


def _texts(value: Mapping[str, object], key: str) -> tuple[str, ...]:
    items = value.get(key, [])
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise TypeError(f"`{key}` is not a list of text")
    return tuple(items)


def _optional_texts(value: Mapping[str, object], key: str) -> tuple[str, ...] | None:
    return _texts(value, key) if key in value else None


def _number(value: Mapping[str, object], key: str) -> int:
    item = value[key]
    if isinstance(item, bool) or not isinstance(item, int):
        raise TypeError(f"`{key}` is not a whole number")
    return item


def _flag(value: Mapping[str, object], key: str) -> bool:
    item = value.get(key, True)
    if not isinstance(item, bool):
        raise TypeError(f"`{key}` is not true or false")
    return item


def _twins(one: PrincipalName, other: PrincipalName) -> AosError:
    return Conflict(
        "principal-case",
        f"principals `{one}` and `{other}` differ only in case",
        hint="rename one of them: on some file systems they would share their files",
        principals=[one, other],
    )
