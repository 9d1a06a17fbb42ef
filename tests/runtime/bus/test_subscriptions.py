"""Who receives a topic: the same answer as the one truth table of all matchers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.bus.inbox import Scope
from aos_runtime.bus.subscriptions import SubscriptionTable
from aos_runtime.capsule.topics import covers, subscription_problem

GOLDEN = Path(__file__).parents[2] / "golden" / "topics" / "matchers.json"
ALICE = Scope("alice", True)


@dataclass(frozen=True, eq=False)
class Live:
    pattern: str
    scope: Scope = ALICE


def receives(pattern: str, topic: str) -> bool:
    table: SubscriptionTable[Live] = SubscriptionTable()
    table.add(Live(pattern))
    return bool(table.matching(topic, "alice"))


def test_the_truth_table_holds() -> None:
    rows = [
        row
        for row in json.loads(GOLDEN.read_text())["matchers"]
        if subscription_problem(row["pattern"]) is None
    ]
    assert len(rows) > 10
    for row in rows:
        assert receives(row["pattern"], row["topic"]) == row["covers"], row


SEGMENTS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=9)


@given(SEGMENTS, SEGMENTS)
def test_it_agrees_with_covers(pattern: list[str], topic: list[str]) -> None:
    text = ".".join(pattern)
    if subscription_problem(text) is None:
        assert receives(text, ".".join(topic)) == covers(text, ".".join(topic))


def test_each_subscription_is_told_once_and_only_while_it_lives() -> None:
    table: SubscriptionTable[Live] = SubscriptionTable()
    first, second, other = Live("a.*"), Live("a.*"), Live("a.b", Scope("bob", False))
    for one in (first, second, other):
        table.add(one)
    assert table.matching("a.b", "alice") == [first, second]
    assert table.matching("a.b", "bob") == [other]
    assert table.matching("a.b", None) == [first, second]
    assert (table.count, table.remove(first), table.remove(first), table.count) == (3, True, False, 2)
    assert table.matching("a.b.c", "alice") == [second]
    assert (table.remove(second), table.matching("a.b.c", "alice"), table.count) == (True, [], 1)
    assert (table.remove(other), table._exact, table._heads) == (True, {}, {})
    assert table.matching("a." + "b." * 19 + "b", "alice") == []
