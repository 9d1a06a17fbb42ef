"""The admin requests about groups: group.* (daemon-kernel.md 5.3, 9.1).

The built-in groups are shown and cannot be changed.  A change reaches every member at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aos_runtime.errors import AosError, Conflict, NotFound
from aos_runtime.kernel.office import UNIVERSAL, Office, check_capabilities, is_builtin
from aos_runtime.kernel.requests import Answer, Caller
from aos_runtime.policy.authority import BUILTIN_GROUPS, GROUP_DESCRIPTIONS
from aos_runtime.store.groups import MAX_GROUPS, Group, check_group_name, read_groups, write_groups
from aos_runtime.store.principals import list_profiles, read_profile
from aos_runtime.store.profile_edits import profiles_locked

Params = Mapping[str, Any]


class GroupRequests:
    """Creates, deletes, changes and lists groups."""

    def __init__(self, office: Office) -> None:
        self._office = office

    def create(self, caller: Caller, params: Params) -> Answer:
        name = check_group_name(params["name"])
        capabilities = tuple(dict.fromkeys(params["capabilities"]))
        check_capabilities(capabilities, unsafe_admin=params["unsafe_admin"])
        self._office.check_giving(caller, capabilities)
        group = Group(
            name=name,
            capabilities=capabilities,
            description=params["description"],
            unsafe_admin=params["unsafe_admin"],
        )
        with profiles_locked(self._office.home):
            groups = read_groups(self._office.home)
            for other in (*groups, *BUILTIN_GROUPS):
                if other.lower() == name.lower():
                    raise Conflict(
                        "group-exists", f"group '{other}' already exists", hint="choose another name"
                    )
            if len(groups) >= MAX_GROUPS:
                raise Conflict(
                    "group-limit", f"there are {MAX_GROUPS} groups already", hint="delete one first"
                )
            write_groups(self._office.home, {**groups, name: group})
        self._office.applied()
        return Answer(status="Success", data=_row(group))

    def delete(self, caller: Caller, params: Params) -> Answer:
        """Delete a group that nobody is in."""
        home = self._office.home
        with profiles_locked(home):
            name = self._own(params["name"]).name
            members = self._members(name)
            if members:
                raise Conflict(
                    "group-in-use",
                    f"group '{name}' has members: {', '.join(members)}",
                    hint=f"take them out with `aos agent modify NAME --remove-group {name}`",
                )
            groups = read_groups(home)
            write_groups(home, {key: group for key, group in groups.items() if key != name})
        self._office.applied()
        return Answer(status="Success", data={"name": name})

    def modify(self, caller: Caller, params: Params) -> Answer:
        """Change what is given; what is left out stays."""
        home = self._office.home
        with profiles_locked(home):
            group = self._own(params["name"])
            unsafe_admin = params.get("unsafe_admin", group.unsafe_admin)
            capabilities = tuple(dict.fromkeys(params.get("capabilities", group.capabilities)))
            check_capabilities(capabilities, unsafe_admin=unsafe_admin)
            self._office.check_giving(caller, [one for one in capabilities if one not in group.capabilities])
            changed = replace(
                group,
                capabilities=capabilities,
                unsafe_admin=unsafe_admin,
                description=params.get("description", group.description),
            )
            write_groups(home, {**read_groups(home), group.name: changed})
        self._office.applied()
        return Answer(status="Success", data=_row(changed))

    def list_groups(self, caller: Caller, params: Params) -> Answer:
        """Every group by name, the built-in ones first."""
        built_in = [
            {
                "name": name,
                "capabilities": list(capabilities),
                "description": GROUP_DESCRIPTIONS[name],
                "unsafe_admin": False,
                "builtin": True,
            }
            for name, capabilities in BUILTIN_GROUPS.items()
        ]
        made = [_row(group) for group in read_groups(self._office.home).values()]
        return Answer(status="GroupList", data=[*built_in, *made])

    def _own(self, name: str) -> Group:
        """A group that the operator made."""
        if is_builtin(name):
            raise Conflict(
                "group-builtin",
                f"group '{name}' is built in and cannot be changed",
                hint="make one of your own",
            )
        group = read_groups(self._office.home).get(name)
        if group is None:
            raise NotFound(
                "group-unknown", f"group '{name[:64]}' does not exist", hint="`aos group list` shows them"
            )
        return group

    def _members(self, name: str) -> list[str]:
        found: list[str] = []
        for principal in list_profiles(self._office.home):
            try:
                profile = read_profile(self._office.home, principal)
            except AosError:
                continue
            if profile is not None and name in profile.groups:
                found.append(principal)
        return found


def _row(group: Group) -> dict[str, object]:
    return {
        "name": group.name,
        "capabilities": list(group.capabilities),
        "description": group.description,
        "unsafe_admin": group.unsafe_admin or UNIVERSAL in group.capabilities,
        "builtin": False,
    }
