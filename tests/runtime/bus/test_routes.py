from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.bus.routes import MAX_CACHED_TOPICS, Handler, RouteTable
from aos_runtime.capsule.topics import matches_dispatch, user_invocable
from aos_runtime.names import CapsuleName, PrincipalName

ALICE, BOB = PrincipalName("alice"), PrincipalName("bob")


def handler(
    capsule: str, pattern: str, action: str = "run", principal: PrincipalName = ALICE, priority: int = 100
) -> Handler:
    return Handler(CapsuleName(capsule), principal, action, pattern, priority)


def nobody(topic: str) -> CapsuleName | None:
    return None


def test_a_topic_reaches_the_rows_that_match_it() -> None:
    exact, star, other = handler("a", "x.y.z"), handler("b", "x.*.z"), handler("c", "x.y")
    table = RouteTable([exact, star, other], {})
    assert table.targets("x.y.z", ALICE) == (exact, star)
    assert table.targets("x.q.z", ALICE) == (star,)
    assert table.targets("x.y.z.q", ALICE) == ()


def test_order_is_priority_then_capsule_then_action() -> None:
    rows = [
        handler("b", "x.y", "two"),
        handler("b", "x.y", "one"),
        handler("a", "x.y"),
        handler("z", "x.y", priority=1),
    ]
    ordered = (rows[3], rows[2], rows[1], rows[0])
    for shuffled in itertools.permutations(rows):
        assert RouteTable(shuffled, {}).targets("x.y", ALICE) == ordered


def test_a_message_reaches_only_the_capsules_of_its_principal() -> None:
    mine, theirs = handler("a", "x.y"), handler("a", "x.y", principal=BOB)
    star = handler("b", "x.*", principal=BOB)
    table = RouteTable([mine, theirs, star], {})
    assert table.targets("x.y", ALICE) == (mine,)
    assert table.targets("x.y", BOB) == (theirs, star)
    assert table.targets("x.y", "carol") == ()
    assert table.targets("x.y", None) == ()


def test_only_the_bound_provider_is_called_on_a_tool_topic() -> None:
    one, two = handler("one", "tool.v1.execute.delete"), handler("two", "tool.v1.execute.delete")
    for row in (one, two):
        table = RouteTable([one, two], {ALICE: {"tool.v1.execute.delete": row.capsule}.get})
        assert table.targets("tool.v1.execute.delete", ALICE) == (row,)
    assert RouteTable([one, two], {ALICE: nobody}).targets("tool.v1.execute.delete", ALICE) == ()
    assert RouteTable([one, two], {}).targets("tool.v1.execute.delete", ALICE) == ()


def test_the_provider_is_told_also_where_it_has_no_row_here() -> None:
    table = RouteTable([], {ALICE: {"tool.v1.execute.delete": CapsuleName("one")}.get})
    assert table.provider("tool.v1.execute.delete", ALICE) == "one"
    assert table.provider("tool.v1.execute.other", ALICE) is None
    assert table.provider("tool.v1.execute.delete", BOB) is None
    assert table.provider("tool.v1.execute.delete", None) is None


def test_a_row_without_a_priority_has_100() -> None:
    row = Handler(CapsuleName("one"), ALICE, "run", "x.y")
    assert row == handler("one", "x.y", priority=100)


def test_a_provider_with_two_rows_is_called_once_through_the_most_specific() -> None:
    star, exact = handler("one", "tool.v1.execute.*", "any", priority=1), handler("one", "tool.v1.execute.a")
    table = RouteTable([star, exact], {ALICE: lambda topic: CapsuleName("one")})
    assert table.targets("tool.v1.execute.a", ALICE) == (exact,)
    assert table.targets("tool.v1.execute.b", ALICE) == (star,)


def test_other_topics_know_no_provider() -> None:
    rows = [handler("one", "tool.v1.execute.*.result"), handler("two", "tool.v1.execute.hello.result")]
    table = RouteTable(rows, {ALICE: nobody})
    assert len(table.targets("tool.v1.execute.hello.result", ALICE)) == 2
    result = RouteTable([handler("one", "tool.v1.execute.result")], {ALICE: nobody})
    assert len(result.targets("tool.v1.execute.result", ALICE)) == 1


def test_answers_are_remembered_in_a_bounded_table() -> None:
    table = RouteTable([handler("a", "x.*")], {})
    first = table.targets("x.y", ALICE)
    assert table.targets("x.y", ALICE) is first
    assert MAX_CACHED_TOPICS == 4096
    for number in range(4095):
        table.targets(f"x.{number}", ALICE)
    assert len(table._cache) == 4096
    table.targets("x.one-more", ALICE)
    assert len(table._cache) == 1
    assert table.targets("x.y", ALICE) == first


segments = st.sampled_from(["a", "b", "*", "tool", "v1", "execute", "x"])
patterns = st.lists(segments, min_size=1, max_size=4).map(".".join)
topics = st.lists(segments.filter(lambda s: s != "*"), min_size=1, max_size=4).map(".".join)


@given(st.lists(patterns, max_size=6), topics)
def test_the_index_agrees_with_the_matcher(rows: list[str], topic: str) -> None:
    handlers = [handler(f"c{number}", row) for number, row in enumerate(rows)]
    found = RouteTable(handlers, {}).targets(topic, ALICE)
    wanted = [] if user_invocable(topic) else [h for h in handlers if matches_dispatch(h.pattern, topic)]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
