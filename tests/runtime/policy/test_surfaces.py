from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.names import CapsuleName
from aos_runtime.policy.surfaces import Candidate, Shadowed, bind_providers

SEARCH = "tool.v1.execute.search"


def capsule(
    name: str,
    *patterns: str,
    bundled: bool = False,
    at: str = "2026-01-01T00:00:00Z",
    tools: frozenset[str] | None = frozenset({"search"}),
) -> Candidate:
    return Candidate(
        name=CapsuleName(name),
        patterns=patterns or (SEARCH,),
        is_bundled=bundled,
        installed_at=at,
        tools=tools,
    )


def winner(*candidates: Candidate) -> CapsuleName | None:
    """The provider of SEARCH, which must be the same in every order."""
    (found,) = {bind_providers(order).provider_of(SEARCH) for order in itertools.permutations(candidates)}
    return found


def test_bus_12_the_choice_does_not_depend_on_load_order() -> None:
    early, late = capsule("b", at="2026-01-01T00:00:00Z"), capsule("a", at="2026-01-02T00:00:00Z")
    for order in ([early, late], [late, early]):
        surfaces = bind_providers(order)
        assert surfaces.provider_of(SEARCH) == "b"
        assert surfaces.shadowed == (Shadowed(topic=SEARCH, winner=CapsuleName("b"), loser=CapsuleName("a")),)


def test_bus_12_after_removal_the_loser_serves() -> None:
    surfaces = bind_providers([capsule("a", at="2026-01-02T00:00:00Z")])
    assert (surfaces.provider_of(SEARCH), surfaces.shadowed) == ("a", ())


def test_an_installed_capsule_beats_a_bundled_one() -> None:
    bundled = capsule("a", bundled=True, at="2020-01-01T00:00:00Z")
    assert winner(bundled, capsule("b", at="2026-01-02T00:00:00Z")) == "b"


ROUTER_ROWS = ("tool.v1.request.execute", "tool.v1.execute.*.result")


def test_a_bundled_capsule_yields_whole_to_an_installed_one_with_all_its_rows() -> None:
    bundled = capsule("router", *ROUTER_ROWS, bundled=True)
    installed = capsule("aos-router", *ROUTER_ROWS, "x.v1.more")
    surfaces = bind_providers([bundled, installed])
    assert surfaces.yielded == {("router", topic): "aos-router" for topic in ROUTER_ROWS}
    assert surfaces.shadowed == tuple(
        Shadowed(topic=topic, winner=CapsuleName("aos-router"), loser=CapsuleName("router"))
        for topic in sorted(ROUTER_ROWS)
    )


@pytest.mark.parametrize(
    "other",
    [
        capsule("guard", ROUTER_ROWS[0]),
        capsule("tools", SEARCH, "tool.v1.request.describe"),
    ],
)
def test_what_does_not_replace_a_bundled_capsule(other: Candidate) -> None:
    bundled = capsule("router", *ROUTER_ROWS, "tool.v1.request.describe", bundled=True)
    assert bind_providers([bundled, other]).yielded == {}


def test_there_is_one_router_and_its_other_rows_are_its_own() -> None:
    first = capsule("z-router", *ROUTER_ROWS, at="2026-01-01T00:00:00Z")
    second = capsule("a-router", *ROUTER_ROWS, "x.v1.more", at="2026-01-02T00:00:00Z")
    for order in itertools.permutations([first, second, capsule("router", *ROUTER_ROWS, bundled=True)]):
        yielded = bind_providers(order).yielded
        assert yielded == {
            (loser, topic): "z-router" for loser in ("a-router", "router") for topic in ROUTER_ROWS
        }


def test_a_bundled_capsule_of_tools_only_is_bound_tool_by_tool() -> None:
    bundled = capsule("files", SEARCH, "tool.v1.request.describe", bundled=True)
    installed = capsule("mine", SEARCH, "tool.v1.request.describe")
    assert bind_providers([bundled, installed]).yielded == {}


def test_a_bundled_capsule_that_is_no_router_yields_too() -> None:
    rows = ("notes.v1.add", "notes.v1.list")
    surfaces = bind_providers([capsule("notes", *rows, bundled=True), capsule("mine", *rows)])
    assert surfaces.yielded == {("notes", row): "mine" for row in rows}


def test_a_topic_that_nobody_invokes_has_no_provider_whatever_covers_it() -> None:
    surfaces = bind_providers([capsule("a", "tool.v1.execute.*.result", "tool.v1.execute.*")])
    assert surfaces.provider_of("tool.v1.execute.search.result") is None
    assert surfaces.provider_of("tool.v1.execute.result") is None


def test_at_the_same_instant_the_name_decides() -> None:
    assert winner(capsule("c"), capsule("a"), capsule("b")) == "a"


def test_who_describes_the_tool_beats_who_only_has_a_row() -> None:
    silent = capsule("a", tools=frozenset(), at="2020-01-01T00:00:00Z")
    assert winner(silent, capsule("b", bundled=True)) == "b"
    assert winner(silent) == "a"


def test_a_capsule_that_could_not_be_asked_counts_as_describing() -> None:
    assert winner(capsule("a", tools=None), capsule("b")) == "a"


def test_a_named_row_beats_a_star() -> None:
    catch_all = capsule("a", "tool.v1.execute.*", at="2020-01-01T00:00:00Z")
    assert winner(catch_all, capsule("b", bundled=True)) == "b"
    assert winner(catch_all) == "a"


def test_a_star_anywhere_in_a_row_is_seen() -> None:
    for row in ("*.v1.execute.search", "tool.*.*.search", "tool.v1.execute.*"):
        assert bind_providers([capsule("a", row)]).provider_of(SEARCH) == "a"
    for row in ("tool.v1.execute.*.result", "tool.*.search", "*", "tool.v1.execute.other"):
        assert bind_providers([capsule("a", row)]).provider_of(SEARCH) is None


def test_commands_have_one_provider_and_know_no_schema() -> None:
    topic = "cli.v1.command.run.git"
    surfaces = bind_providers([capsule("b", topic, tools=frozenset()), capsule("a", topic, tools=None)])
    assert surfaces.provider_of(topic) == "a"
    silent = bind_providers([capsule("b", topic, tools=None), capsule("a", topic, tools=frozenset())])
    assert silent.provider_of(topic) == "a"
    assert [shadow.loser for shadow in surfaces.shadowed] == ["b"]


@pytest.mark.parametrize(
    "topic",
    [
        "tool.v1.execute.result",
        "tool.v1.request.execute",
        "tool.v1.execute.a.result",
        "cli.v1.command.execute",
        "x",
    ],
)
def test_other_topics_are_bound_to_nobody(topic: str) -> None:
    surfaces = bind_providers([capsule("a", topic), capsule("b", topic)])
    assert (surfaces.provider_of(topic), surfaces.shadowed, surfaces.topics()) == (None, (), ())


def test_a_topic_that_nobody_serves_has_no_provider() -> None:
    assert bind_providers([]).provider_of(SEARCH) is None
    assert bind_providers([capsule("a")]).provider_of("tool.v1.execute.other") is None


def test_topics_are_the_named_ones() -> None:
    rows = (SEARCH, "tool.v1.execute.*", "cli.v1.command.run.git", "tool.v1.request.describe")
    assert bind_providers([capsule("a", *rows)]).topics() == ("cli.v1.command.run.git", SEARCH)


candidates = st.lists(
    st.builds(
        capsule,
        st.sampled_from("abcdef"),
        st.sampled_from([SEARCH, "tool.v1.execute.*"]),
        bundled=st.booleans(),
        at=st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
        tools=st.sampled_from([None, frozenset[str](), frozenset({"search"})]),
    ),
    unique_by=lambda one: one.name,
    max_size=6,
)


@given(candidates, st.randoms(use_true_random=False))
def test_any_set_of_capsules_binds_one_whatever_the_order(loaded: list[Candidate], random: Random) -> None:
    first = bind_providers(loaded)
    shuffled = list(loaded)
    random.shuffle(shuffled)
    second = bind_providers(shuffled)
    assert (first.provider_of(SEARCH), first.shadowed) == (second.provider_of(SEARCH), second.shadowed)
    assert (first.provider_of(SEARCH) is None) == (not loaded)
    assert all(shadow.loser != shadow.winner for shadow in first.shadowed)
