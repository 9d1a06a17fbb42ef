from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.policy.authority import (
    BUILTIN_GROUPS,
    GROUP_DESCRIPTIONS,
    Explanation,
    Source,
    capability_problem,
    covers_capability,
    denial,
    explain,
    is_allowed,
    ungrantable,
)


@dataclass(frozen=True)
class Principal:
    enabled: bool = True
    groups: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    revokes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Key:
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


ADMIN, AGENT, RESTRICTED = (Principal(groups=(group,)) for group in ("admin", "agent", "restricted"))


@pytest.mark.parametrize(
    ("pattern", "capability", "covered"),
    [
        ("capsule:list", "capsule:list", True),
        ("capsule:list", "capsule:list:all", False),
        ("capsule:list", "self:capsule:list", False),
        ("*", "capsule:list", True),
        ("*", "self:capsule:list", True),
        ("*", "uplink", True),
        ("capsule:*", "capsule:list", True),
        ("capsule:*", "capsule:a:b", True),
        ("capsule:*", "capsule", False),
        ("audit:x:*", "audit:y:z", False),
        ("audit:x:*", "audit:x:y:z", True),
        ("capsule:*", "self:capsule:list", False),
        ("self:*", "self:capsule:list", True),
        ("self:*", "capsule:list", False),
        ("audit:*:read", "audit:x:read", True),
        ("audit:*:read", "audit:read", False),
        ("audit:*:read", "audit:x:y:read", False),
        ("*:list", "capsule:list", True),
        ("*:list", "self:capsule:list", False),
        ("*:*", "capsule:list", True),
        ("*:*", "uplink", False),
        ("**", "capsule:list", False),
        ("", "capsule:list", False),
        ("capsule:", "capsule:list", False),
        ("caps*", "capsule", False),
        ("*", "no good", False),
    ],
)
def test_the_grammar(pattern: str, capability: str, covered: bool) -> None:
    assert covers_capability(pattern, capability) is covered


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("capsule:list", None),
        ("*", None),
        ("net_bind", None),
        ("", "a capability is not empty"),
        ("a" * 256, None),
        ("a" * 257, "a capability has at most 256 bytes"),
        ("**", "segments between colons are letters, digits, hyphens and underscores, or a single `*`"),
        ("a::b", "segments between colons are letters, digits, hyphens and underscores, or a single `*`"),
        ("ä", "segments between colons are letters, digits, hyphens and underscores, or a single `*`"),
        ("\ud800", "segments between colons are letters, digits, hyphens and underscores, or a single `*`"),
        ("ä" * 129, "a capability has at most 256 bytes"),
        ("a\n", "segments between colons are letters, digits, hyphens and underscores, or a single `*`"),
    ],
)
def test_what_is_no_capability(text: str, problem: str | None) -> None:
    assert capability_problem(text) == problem


capabilities = st.lists(st.sampled_from(["self", "capsule", "list", "*"]), min_size=1, max_size=4).map(
    ":".join
)
concrete = st.lists(st.sampled_from(["self", "capsule", "list"]), min_size=1, max_size=4).map(":".join)


@given(capabilities, capabilities, concrete)
def test_covering_is_monotone(outer: str, inner: str, capability: str) -> None:
    if covers_capability(outer, inner) and covers_capability(inner, capability):
        assert covers_capability(outer, capability)


@pytest.mark.parametrize(
    ("profile", "capability", "allowed"),
    [
        (ADMIN, "system:shutdown", True),
        (ADMIN, "self:capsule:list", True),
        (AGENT, "self:capsule:list", True),
        (AGENT, "capsule:list", False),
        (AGENT, "system:status", False),
        (AGENT, "delegate:self:x", True),
        (RESTRICTED, "self:capsule:list", False),
        (Principal(), "self:capsule:list", False),
        (Principal(groups=("no-such-group",)), "self:capsule:list", False),
        (Principal(grants=("capsule:list",)), "capsule:list", True),
        (Principal(grants=("capsule:list",)), "self:capsule:list", False),
        (Principal(groups=("admin",), revokes=("system:*",)), "system:status", False),
        (Principal(groups=("admin",), revokes=("system:*",)), "capsule:list", True),
        (Principal(grants=("system:status",), revokes=("system:status",)), "system:status", False),
        (Principal(enabled=False, groups=("admin",)), "system:status", False),
        (None, "system:status", False),
    ],
)
def test_enabled_then_revokes_then_grants_then_groups(
    profile: Principal | None, capability: str, allowed: bool
) -> None:
    assert is_allowed(profile, capability) is allowed
    assert (denial("bob", profile, capability) is None) is allowed


@pytest.mark.parametrize(
    ("profile", "device", "text"),
    [
        (None, None, "permission denied for principal bob: missing capability system:status"),
        (AGENT, None, "permission denied for principal bob: missing capability system:status"),
        (Principal(enabled=False), None, "permission denied for principal bob: agent is disabled"),
        (
            Principal(groups=("admin",), revokes=("system:*",)),
            None,
            "permission denied for principal bob: capability system:status is revoked via system:*",
        ),
        (
            ADMIN,
            Key(allow=("self:*",)),
            "permission denied for principal bob: capability system:status is outside the authenticating "
            "device's scope",
        ),
    ],
)
def test_denials_in_the_published_words(profile: Principal | None, device: Key | None, text: str) -> None:
    assert denial("bob", profile, "system:status", device=device) == text


@pytest.mark.parametrize(
    ("device", "allowed"),
    [
        (None, True),
        (Key(), True),
        (Key(allow=("self:*",)), True),
        (Key(allow=()), False),
        (Key(allow=("self:*",), deny=("self:auth:pair",)), False),
        (Key(allow=("self:*",), deny=("self:auth:*",)), False),
        (Key(allow=("capsule:*",)), False),
    ],
)
def test_a_device_narrows_and_never_widens(device: Key | None, allowed: bool) -> None:
    assert is_allowed(ADMIN, "self:auth:pair", device=device) is allowed
    assert not is_allowed(None, "self:auth:pair", device=device)


def test_the_operators_groups_count() -> None:
    profile = Principal(groups=("ci",))
    assert is_allowed(profile, "capsule:install", groups={**BUILTIN_GROUPS, "ci": ("capsule:*",)})
    assert not is_allowed(profile, "capsule:install")


def test_a_principal_is_told_every_source_of_a_right_and_what_takes_it_away() -> None:
    groups = {**BUILTIN_GROUPS, "ci": ("capsule:*", "quota:set")}
    profile = Principal(
        groups=("ci", "gone", "admin"), grants=("capsule:list", "x"), revokes=("*:list", "quota:*")
    )
    assert explain("bob", profile, "capsule:list", groups=groups) == Explanation(
        "permission denied for principal bob: capability capsule:list is revoked via *:list",
        (Source("capsule:list", "grant"), Source("capsule:*", "group ci"), Source("*", "group admin")),
        (Source("*:list", "revoke"),),
    )
    assert explain("bob", profile, "capsule:show", groups=groups) == Explanation(
        None, (Source("capsule:*", "group ci"), Source("*", "group admin")), ()
    )
    assert explain("bob", None, "x") == Explanation(
        "permission denied for principal bob: missing capability x", (), ()
    )


@pytest.mark.parametrize(
    ("profile", "patterns", "first"),
    [
        (ADMIN, ("capsule:*", "*"), None),
        (AGENT, ("self:capsule:*", "capsule:list", "system:*"), "capsule:list"),
        (
            Principal(groups=("admin",), revokes=("capsule:install",)),
            ("capsule:list", "capsule:*"),
            "capsule:*",
        ),
        (
            Principal(groups=("admin",), revokes=("capsule:*",)),
            ("system:*", "capsule:install"),
            "capsule:install",
        ),
        (Principal(groups=("admin",), revokes=("capsule:*",)), ("system:*",), None),
        (Principal(enabled=False, groups=("admin",)), ("x",), "x"),
        (None, ("x",), "x"),
        (None, (), None),
    ],
)
def test_nobody_gives_what_they_do_not_hold_whole(
    profile: Principal | None, patterns: tuple[str, ...], first: str | None
) -> None:
    assert ungrantable(profile, patterns) == first


@pytest.mark.parametrize(
    ("wanted", "taken", "is_given"),
    [
        ("self:quota:*", "self:*:set", False),  # neither covers the other, and both cover self:quota:set
        ("self:quota:get", "self:*:set", True),
        ("agent:*", "agent:delete", False),
        ("*", "a:b:c", False),
        ("a:*", "a", True),
        ("a:*:c", "a:b:c:d", True),
        ("a:*:c", "*:b:*", False),
        ("a:b:*", "a:b", True),
        ("self:x", "x", True),
    ],
)
def test_nobody_gives_what_overlaps_what_was_taken(wanted: str, taken: str, is_given: bool) -> None:
    """By a revoke of the principal, or by what the device that it authenticated with is denied."""
    given = None if is_given else wanted
    assert ungrantable(Principal(grants=("*",), revokes=(taken,)), (wanted,)) == given
    assert ungrantable(ADMIN, (wanted,), device=Key(allow=("*",), deny=(taken,))) == given


def test_a_device_gives_no_more_than_its_scope() -> None:
    assert ungrantable(ADMIN, ("self:x", "x"), device=Key(allow=("self:*",))) == "x"


def test_the_published_groups() -> None:
    assert BUILTIN_GROUPS == {
        "admin": ("*",),
        "agent": ("self:*", "self:quota:get", "self:agent:list", "delegate:self:*"),
        "restricted": (),
    }
    assert all(GROUP_DESCRIPTIONS.values())


def test_every_builtin_group_is_sound_and_described() -> None:
    assert set(BUILTIN_GROUPS) == set(GROUP_DESCRIPTIONS) == {"admin", "agent", "restricted"}
    assert all(capability_problem(held) is None for held in sum(BUILTIN_GROUPS.values(), ()))
