from __future__ import annotations

import pytest

from aos_runtime.bus.chain import (
    MAX_LINK_BYTES,
    Chain,
    Outcome,
    Verdict,
    is_chain,
    returned,
    trapped,
)
from aos_runtime.bus.routes import Handler
from aos_runtime.names import CapsuleName, PrincipalName


def handler(name: str, priority: int = 100) -> Handler:
    return Handler(CapsuleName(name), PrincipalName("default"), "run", "x.y", priority)


@pytest.mark.parametrize(
    ("priorities", "chained"),
    [([], False), ([100], False), ([100, 100], False), ([5, 5, 5], False), ([1, 2], True), ([1, 1, 2], True)],
)
def test_equal_priorities_fan_out_and_different_ones_chain(priorities: list[int], chained: bool) -> None:
    assert is_chain([handler(f"c{n}", priority) for n, priority in enumerate(priorities)]) is chained


@pytest.mark.parametrize(
    ("action", "data", "outcome"),
    [
        ("continue", None, Outcome(Verdict.CONTINUE)),
        ("continue", b"", Outcome(Verdict.CONTINUE)),
        ("continue", b"x", Outcome(Verdict.CONTINUE, b"x")),
        ("final", b"x", Outcome(Verdict.FINAL, b"x")),
        ("final", None, Outcome(Verdict.FINAL)),
        ("deny", b"no", Outcome(Verdict.DENY, reason="no")),
        ("deny", None, Outcome(Verdict.DENY, reason="denied by interceptor")),
        ("deny", b"", Outcome(Verdict.DENY, reason="denied by interceptor")),
        ("abort", b"no", Outcome(Verdict.DENY, reason="no")),
        ("deny", b"\xff", Outcome(Verdict.DENY, reason="\ufffd")),
        ("whatever", b"x", Outcome(Verdict.CONTINUE, b"x")),
        ("", None, Outcome(Verdict.CONTINUE)),
    ],
)
def test_what_a_hook_returns(action: str, data: bytes | None, outcome: Outcome) -> None:
    assert returned(action, data) == outcome


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("fuel", "interceptor exhausted its fuel budget"),
        ("deadline", "interceptor exceeded its execution deadline"),
        ("cancelled", "the call was cancelled"),
        ("memory", "interceptor execution failed: unreachable"),
        ("trap", "interceptor execution failed: unreachable"),
    ],
)
def test_a_trap_denies(kind: str, reason: str) -> None:
    assert trapped(kind, "unreachable") == Outcome(Verdict.DENY, reason=reason)


def run(outcomes: list[Outcome], payload: bytes = b"start") -> tuple[list[tuple[str, bytes]], Chain[str]]:
    """What each link was given, and the chain at its end."""
    chain = Chain([f"link{number}" for number in range(3)], payload)
    seen: list[tuple[str, bytes]] = []
    for outcome in outcomes:
        assert chain.link is not None
        seen.append((chain.link, chain.payload))
        chain.advance(outcome)
    return seen, chain


def test_continue_with_data_replaces_the_payload_for_the_next() -> None:
    seen, chain = run(
        [returned("continue", b"one"), returned("continue", None), returned("continue", b"three")]
    )
    assert seen == [("link0", b"start"), ("link1", b"one"), ("link2", b"one")]
    assert (chain.link, chain.payload, chain.denied) == (None, b"three", None)


def test_final_stops_with_its_payload() -> None:
    _seen, chain = run([returned("continue", b"one"), returned("final", b"last")])
    assert (chain.link, chain.payload, chain.denied) == (None, b"last", None)
    assert run([returned("final", None)])[1].payload == b"start"


def test_deny_stops_with_its_reason() -> None:
    _seen, chain = run([returned("continue", b"one"), returned("deny", b"not today")])
    assert (chain.link, chain.payload, chain.denied) == (None, b"one", "not today")


def test_an_outcome_without_data_or_reason_has_neither() -> None:
    outcome = Outcome(Verdict.CONTINUE)
    assert (outcome.data, outcome.reason) == (b"", "")


def test_a_trap_in_the_middle_denies_the_rest() -> None:
    _seen, chain = run([trapped("deadline", "x")])
    assert (chain.link, chain.denied) == (None, "interceptor exceeded its execution deadline")


def test_a_payload_over_the_limit_of_a_message_denies() -> None:
    _seen, chain = run([returned("continue", b"x" * (MAX_LINK_BYTES + 1))])
    assert (chain.link, chain.denied) == (None, "interceptor returned 1048577 bytes, limit 1048576")
    assert run([returned("continue", b"x" * MAX_LINK_BYTES)])[1].denied is None


def test_no_links_is_the_end() -> None:
    assert Chain([], b"x").link is None
