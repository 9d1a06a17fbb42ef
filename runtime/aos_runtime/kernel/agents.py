"""The admin requests about principals and what they hold: agent.* and caps.* (daemon-kernel.md 5.3, 9.1).

A new principal starts with its groups and nothing else (SEC-13).  `inherit_from` copies the installed
capsules of the one named, with env values and secrets; `clone_from` its whole profile besides, keys apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomlkit

from aos_runtime.errors import Conflict, Denied, InvalidInput
from aos_runtime.kernel.answers import owner_uid
from aos_runtime.kernel.office import (
    UNIVERSAL,
    Office,
    check_capabilities,
    existing_name,
    not_default,
)
from aos_runtime.kernel.requests import Answer, Caller
from aos_runtime.names import ANONYMOUS_PRINCIPAL, PrincipalName, parse_capsule_name, parse_principal_name
from aos_runtime.policy.authority import covers_capability, explain
from aos_runtime.store.files import read_optional
from aos_runtime.store.principal_life import check_no_leftovers, copy_capsules, reclaim
from aos_runtime.store.principals import (
    ADMIN_GROUP,
    MAX_PROFILE_BYTES,
    Profile,
    check_free_name,
    create_profile,
    list_profiles,
    read_profile,
)
from aos_runtime.store.profile_edits import (
    change_profile,
    expect_profile,
    profiles_locked,
    set_list,
    unknown_principal,
)

Params = Mapping[str, Any]
DEFAULT_GROUPS = ("agent",)
MAX_PRINCIPALS = 1024
DELETE_WAIT_S = 5.0
"""How long calls of a principal that is being deleted may go on."""

_CLONED = ("grants", "revokes", "capsules", "network", "approvals", "process", "quotas")


class AgentRequests:
    """Creates, deletes, changes and explains principals."""

    def __init__(self, office: Office) -> None:
        self._office = office

    def create(self, caller: Caller, params: Params) -> Answer:
        principal = parse_principal_name(params["name"])
        source, is_clone = self._source(params)
        with profiles_locked(self._office.home):
            self._check_new(principal)
            groups = tuple(params["groups"]) or (() if is_clone else DEFAULT_GROUPS)
            model = None if source is None else expect_profile(self._office.home, source)
            if is_clone and model is not None:
                groups = model.groups
            self._check_rights(caller, params, groups, model if is_clone else None)
            if source is not None:
                copy_capsules(self._office.home, source, principal)
            self._write(principal, params, groups, model, is_clone=is_clone)
        return Answer(
            status="Success",
            data={"principal": principal, "astrid_user_id": owner_uid(f"user of {principal}")},
        )

    def delete(self, caller: Caller, params: Params) -> Answer:
        principal = existing_name(params["principal"])
        not_default(principal, "be deleted")
        office = self._office
        with profiles_locked(office.home):
            if read_profile(office.home, principal) is None and not self._has_leftovers(principal):
                raise unknown_principal(principal)
            if read_profile(office.home, principal) is not None:  # from here on it can neither come nor call
                change_profile(office.home, principal, lambda text: text.update({"enabled": False}))
            office.applied(principal)
            unloaded = office.lifecycle.forget(principal, DELETE_WAIT_S)
            gone = reclaim(office.home, principal, office.state)
            for forget in (office.principals.forget, *office.deleted):
                forget(principal)
        data = {
            "principal": principal,
            "unloaded_capsules": list(unloaded),
            "reclaimed": list(gone.what),
            "cleanup_errors": list(gone.errors),
        }
        return Answer(status="Success", data=data)

    def enable(self, caller: Caller, params: Params) -> Answer:
        return self._switch(params, enabled=True)

    def disable(self, caller: Caller, params: Params) -> Answer:
        not_default(existing_name(params["principal"]), "be disabled")
        return self._switch(params, enabled=False)

    def modify(self, caller: Caller, params: Params) -> Answer:
        principal, office = existing_name(params["principal"]), self._office
        add_groups, remove_groups = params["add_groups"], params["remove_groups"]
        capsules = [parse_capsule_name(name) for name in params["add_capsules"]]
        if ADMIN_GROUP in remove_groups:
            not_default(principal, f"leave the group {ADMIN_GROUP}")
        office.check_groups(add_groups)
        office.check_giving(caller, (), add_groups)
        with profiles_locked(office.home):
            held = expect_profile(office.home, principal)
            groups = _changed(held.groups, add_groups, remove_groups)
            allowed = _changed(held.capsules, capsules, params["remove_capsules"])

            def change(text: tomlkit.TOMLDocument) -> None:
                set_list(text, "groups", groups)
                set_list(text, "capsules", allowed)

            is_changed = (groups, allowed) != (held.groups, held.capsules)
            if is_changed:
                change_profile(office.home, principal, change)
        office.applied(principal)
        data = {
            "principal": principal,
            "groups": list(groups),
            "capsules": list(allowed),
            "changed": is_changed,
        }
        return Answer(status="Success", data=data)

    def grant(self, caller: Caller, params: Params) -> Answer:
        """Add grants; a revoke of the very same pattern is taken back."""
        principal, wanted = existing_name(params["principal"]), params["capabilities"]
        check_capabilities(_some(wanted), unsafe_admin=params["unsafe_admin"])
        self._office.check_giving(caller, wanted)
        return self._change_rights(principal, add_to="grants", take_from="revokes", patterns=wanted)

    def revoke(self, caller: Caller, params: Params) -> Answer:
        """Add revokes, which win over grants and groups; a grant of the very same pattern is taken back."""
        principal, taken = existing_name(params["principal"]), params["capabilities"]
        not_default(principal, "lose a capability")
        check_capabilities(_some(taken), unsafe_admin=True)
        return self._change_rights(principal, add_to="revokes", take_from="grants", patterns=taken)

    def explain(self, caller: Caller, params: Params) -> Answer:
        """Why a principal may or may not do something (ours)."""
        principal, capability = parse_principal_name(params["principal"]), params["capability"]
        check_capabilities((capability,), unsafe_admin=True)
        if principal == ANONYMOUS_PRINCIPAL:
            profile: Profile | None = None
        else:
            profile = expect_profile(self._office.home, principal)
        groups = self._office.rights.groups()
        found = explain(principal, profile, capability, groups=groups)
        data = {
            "principal": principal,
            "capability": capability,
            "allowed": found.denial is None,
            "denial": found.denial,
            "enabled": profile is not None and profile.enabled,
            "given_by": [source._asdict() for source in found.gives],
            "groups_that_give": sorted(
                name
                for name, held in groups.items()
                if any(covers_capability(pattern, capability) for pattern in held)
            ),
            "revoked_by": [source._asdict() for source in found.takes],
        }
        return Answer(status="Success", data=data)

    # creating

    def _source(self, params: Params) -> tuple[PrincipalName | None, bool]:
        """Whose things a new principal starts with, and whether that is all of them."""
        inherit, clone = params["inherit_from"], params["clone_from"]
        if inherit is not None and clone is not None:
            raise InvalidInput(
                "agent-source",
                "inherit_from and clone_from exclude each other",
                hint="a clone inherits as well",
            )
        if clone is not None and (params["groups"] or params["grants"]):
            raise InvalidInput(
                "agent-source",
                "a clone has the groups and grants of the one that is cloned, and no others",
                hint="create it, then change it with `aos agent modify` and `aos caps grant`",
            )
        name = inherit if clone is None else clone
        return (None if name is None else existing_name(name)), clone is not None

    def _check_new(self, principal: PrincipalName) -> None:
        home = self._office.home
        existing_name(principal)
        if read_profile(home, principal) is not None:
            raise Conflict(
                "principal-exists", f"principal '{principal}' already exists", hint="choose another name"
            )
        check_free_name(home, principal)
        check_no_leftovers(home, principal, self._office.state)
        if len(list_profiles(home)) >= MAX_PRINCIPALS:
            raise Conflict(
                "principal-limit",
                f"this home has {MAX_PRINCIPALS} principals, the most that it may",
                hint="delete one with `aos agent delete NAME`",
            )

    def _check_rights(
        self, caller: Caller, params: Params, groups: tuple[str, ...], model: Profile | None
    ) -> None:
        """What the new principal would hold must be held by who makes it, and `*` be agreed to."""
        office, grants = self._office, tuple(params["grants"])
        if model is not None:
            grants, held = model.grants, office.rights.groups()
            everything = (*grants, *(one for group in groups for one in held.get(group, ())))
            if UNIVERSAL in everything and not params["allow_admin_clone"]:
                raise Denied(
                    "admin-clone",
                    f"principal '{model.principal}' holds every capability; its clone would too",
                    hint="pass --unsafe-admin if that is meant",
                )
        else:
            check_capabilities(grants, unsafe_admin=False)
            office.check_groups(groups)
        office.check_giving(caller, grants, groups)

    def _write(
        self,
        principal: PrincipalName,
        params: Params,
        groups: tuple[str, ...],
        model: Profile | None,
        *,
        is_clone: bool,
    ) -> None:
        """Write the profile, the last step: from then on the principal exists."""
        home = self._office.home

        def edit(text: str) -> str:
            document = tomlkit.parse(text)
            if model is not None and is_clone:
                data = read_optional(home.profile(model.principal), MAX_PROFILE_BYTES) or b""
                source = tomlkit.parse(data.decode("utf-8"))
                document.update({key: source[key].unwrap() for key in _CLONED if key in source})
            else:
                set_list(document, "grants", params["grants"])
                set_list(document, "capsules", () if model is None else model.capsules)
            return tomlkit.dumps(_tables_last(document))

        create_profile(home, principal, groups=groups, now=self._office.now(), edit=edit)

    # changing

    def _switch(self, params: Params, *, enabled: bool) -> Answer:
        principal, office = existing_name(params["principal"]), self._office
        with profiles_locked(office.home):
            before, _ = change_profile(office.home, principal, lambda text: text.update({"enabled": enabled}))
        office.applied(principal)
        data = {"principal": principal, "enabled": enabled, "changed": before.enabled != enabled}
        return Answer(status="Success", data=data)

    def _change_rights(
        self, principal: PrincipalName, *, add_to: str, take_from: str, patterns: list[str]
    ) -> Answer:
        office = self._office
        with profiles_locked(office.home):
            held = expect_profile(office.home, principal)
            lists = {"grants": held.grants, "revokes": held.revokes}

            def change(text: tomlkit.TOMLDocument) -> None:
                set_list(text, add_to, _changed(lists[add_to], patterns, ()))
                set_list(text, take_from, _changed(lists[take_from], (), patterns))

            _, after = change_profile(office.home, principal, change)
        office.applied(principal)
        data = {"principal": principal, "grants": list(after.grants), "revokes": list(after.revokes)}
        return Answer(status="Success", data=data)

    def _has_leftovers(self, principal: PrincipalName) -> bool:
        try:
            check_no_leftovers(self._office.home, principal, self._office.state)
        except Conflict:
            return True
        return False


def _changed(held: tuple[str, ...], add: object, remove: object) -> tuple[str, ...]:
    """`held` with what is added behind, each once, without what is removed."""
    added, removed = _texts(add), set(_texts(remove))
    return tuple(name for name in dict.fromkeys((*held, *added)) if name not in removed)


def _texts(items: object) -> tuple[str, ...]:
    return tuple(str(item) for item in items) if isinstance(items, (list, tuple)) else ()


def _some(items: list[str]) -> list[str]:
    if not items:
        raise InvalidInput("capability-none", "no capability was named", hint="name at least one")
    return items


def _tables_last(document: tomlkit.TOMLDocument) -> tomlkit.TOMLDocument:
    """The same values with plain keys before tables: TOML would read a later key as the table's."""
    plain = {key: item for key, item in document.unwrap().items() if not isinstance(item, dict)}
    tables = {key: item for key, item in document.unwrap().items() if isinstance(item, dict)}
    ordered = tomlkit.document()
    ordered.update({**plain, **tables})
    return ordered
