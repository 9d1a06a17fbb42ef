"""The operator's own groups: `etc/groups.toml`, one `[groups.NAME]` each (daemon-kernel.md 9.1).

The built-in groups are not in it and cannot be changed; `policy.authority` has them.  A file that cannot be
read gives nobody anything: reading it is an error, never an empty table.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

import tomlkit

from aos_runtime.errors import Corrupt, InvalidInput
from aos_runtime.home import Home
from aos_runtime.store.files import make_private_folder, read_optional, write_atomic

MAX_GROUPS_BYTES = 1024 * 1024
MAX_GROUPS = 256
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group that the operator made.  `unsafe_admin`: it was agreed that it may hold `*`."""

    name: str
    capabilities: tuple[str, ...]
    description: str | None = None
    unsafe_admin: bool = False


def read_groups(home: Home) -> dict[str, Group]:
    """The operator's groups by name, sorted.  Corrupt `groups-damaged`."""
    data = read_optional(home.groups_file, MAX_GROUPS_BYTES)
    if data is None:
        return {}
    try:
        table = tomllib.loads(data.decode("utf-8")).get("groups", {})
        return {name: _group(name, table[name]) for name in sorted(table)}
    except (ValueError, TypeError, AttributeError) as error:
        raise Corrupt(
            "groups-damaged",
            f"{home.groups_file} is damaged: {error}",
            hint="correct the file; until then its groups give nothing",
            path=str(home.groups_file),
        ) from error


def write_groups(home: Home, groups: Mapping[str, Group]) -> None:
    """(profiles lock held) Replace the operator's groups, durably."""
    table = tomlkit.table(is_super_table=True)
    for name, group in sorted(groups.items()):
        row = tomlkit.table()
        row["capabilities"] = list(group.capabilities)
        if group.description is not None:
            row["description"] = group.description
        if group.unsafe_admin:
            row["unsafe_admin"] = True
        table[name] = row
    document = tomlkit.document()
    document.add(tomlkit.comment("Groups of this home. Change them with `aos group`, or here."))
    document["groups"] = table
    make_private_folder(home.etc)
    write_atomic(home.groups_file, tomlkit.dumps(document).encode("utf-8"))


def check_group_name(name: str) -> str:
    """InvalidInput `group-name` unless it is 1 to 64 of `[A-Za-z0-9_-]`."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            "group-name",
            f"invalid group name {name[:160]!r}",
            hint="use ASCII letters, digits, hyphens and underscores, at most 64 characters",
            name=name[:160],
        )
    return name


def _group(name: str, row: object) -> Group:
    if not isinstance(row, dict):
        raise TypeError(f"`groups.{name}` is not a table")
    capabilities = row.get("capabilities", [])
    if not isinstance(capabilities, list) or not all(isinstance(one, str) for one in capabilities):
        raise TypeError(f"`groups.{name}.capabilities` is not a list of text")
    description = row.get("description")
    return Group(
        name=check_group_name_text(name),
        capabilities=tuple(capabilities),
        description=description if isinstance(description, str) else None,
        unsafe_admin=row.get("unsafe_admin") is True,
    )


def check_group_name_text(name: str) -> str:
    """The same check for a name in the file: ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:64]!r} is no group name")
    return name
