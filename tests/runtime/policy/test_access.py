"""What a profile comes to: which capsules may be called, and who is exempt from rates."""

from __future__ import annotations

import pytest

from aos_runtime.kernel.answers import AgentProfile
from aos_runtime.policy.access import DESCRIBE_SURFACES, NOBODY, UNRESTRICTED, Standing, standing_of


def profile(*groups: str, grants: tuple[str, ...] = (), enabled: bool = True) -> AgentProfile:
    return AgentProfile(principal="bob", enabled=enabled, groups=groups, grants=grants, revokes=())


def test_nobody_may_do_nothing() -> None:
    assert Standing() == NOBODY
    assert (
        Standing(enabled=False, capsules=frozenset(), uses_any=False, lists=False, is_exempt=False) == NOBODY
    )
    assert standing_of(None) == standing_of(profile("admin", enabled=False), ("x",)) == NOBODY
    for is_bundled in (True, False):
        assert not NOBODY.may_call("x", is_bundled=is_bundled)
        assert not NOBODY.may_see("x", is_bundled=is_bundled)


def test_an_admin_may_call_everything_and_is_held_to_no_rate() -> None:
    assert standing_of(profile("admin")) == UNRESTRICTED
    assert UNRESTRICTED.may_call("x", is_bundled=False)


def test_an_agent_may_call_what_came_with_aos_and_what_it_was_granted() -> None:
    standing = standing_of(profile("agent"), ("granted",))
    assert standing == Standing(enabled=True, capsules=frozenset({"granted"}), lists=True)
    assert standing.may_call("granted", is_bundled=False)
    assert standing.may_call("other", is_bundled=True)
    assert not standing.may_call("other", is_bundled=False)
    assert standing.may_see("other", is_bundled=False)


def test_without_the_right_to_list_only_what_may_be_called_is_seen() -> None:
    standing = standing_of(profile("restricted"), ("granted",))
    assert standing.may_see("granted", is_bundled=False)
    assert not standing.may_see("other", is_bundled=False)


@pytest.mark.parametrize("grant", ["capsule:list", "self:capsule:list"])
def test_who_may_list_sees_what_capsules_offer(grant: str) -> None:
    standing = standing_of(profile(grants=(grant,)))
    assert standing.lists
    assert not standing.may_call("other", is_bundled=False)


def test_capsules_are_asked_what_they_offer_on_two_topics() -> None:
    assert {"tool.v1.request.describe", "llm.v1.request.describe"} == DESCRIBE_SURFACES


@pytest.mark.parametrize("grant", ["system:resources:unbounded", "net_bind", "uplink"])
def test_who_is_exempt(grant: str) -> None:
    assert standing_of(profile(grants=(grant,))).is_exempt
    assert not standing_of(profile("agent")).is_exempt


def test_a_group_of_the_operator_counts() -> None:
    groups = {"openers": ("capsule:access:any",)}
    assert standing_of(profile("openers"), groups=groups).uses_any
    assert not standing_of(profile("openers")).uses_any
