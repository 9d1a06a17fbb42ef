"""aos_cli.install.consent: when an install is silent, asked for, agreed to or refused."""

from __future__ import annotations

import itertools

import pytest

from aos_cli.install.consent import Answers, Decision, decide


def answers(*, yes: bool = False, approve: bool = False, interactive: bool = False) -> Answers:
    return Answers(yes=yes, approve_untrusted=approve, interactive=interactive)


@pytest.mark.parametrize(
    ("trusted", "widens", "given", "decision"),
    [
        (True, False, answers(), Decision.SILENT),
        (True, True, answers(), Decision.REFUSED),
        (True, True, answers(interactive=True), Decision.ASK),
        (True, True, answers(yes=True), Decision.AGREED),
        (True, True, answers(approve=True), Decision.AGREED),
        (False, False, answers(), Decision.REFUSED),
        (False, False, answers(interactive=True), Decision.ASK),
        (False, False, answers(yes=True), Decision.REFUSED),
        (False, False, answers(yes=True, interactive=True), Decision.REFUSED),
        (False, True, answers(approve=True), Decision.AGREED),
        (False, True, answers(approve=True, yes=True), Decision.AGREED),
    ],
)
def test_the_rules(trusted: bool, widens: bool, given: Answers, decision: Decision) -> None:
    assert decide(trusted=trusted, widens=widens, answers=given) is decision


def test_only_trust_without_a_new_wish_is_silent() -> None:
    for trusted, widens, yes, approve, interactive in itertools.product([False, True], repeat=5):
        given = answers(yes=yes, approve=approve, interactive=interactive)
        silent = decide(trusted=trusted, widens=widens, answers=given) is Decision.SILENT
        assert silent == (trusted and not widens)


def test_yes_never_stands_in_for_trust() -> None:
    for widens, interactive in itertools.product([False, True], repeat=2):
        given = answers(yes=True, interactive=interactive)
        assert decide(trusted=False, widens=widens, answers=given) is Decision.REFUSED
