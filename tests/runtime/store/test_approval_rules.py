"""store.approval_rules: etc/approvals.toml, read strictly."""

from __future__ import annotations

import pytest

from aos_runtime.errors import InvalidInput
from aos_runtime.home import Home
from aos_runtime.store.approval_rules import ApprovalRule, parse_rules, read_rules

GOOD = '[[rule]]\ncapsule = "deploy"\naction = "git push"\nresource = "*"\ndecision = "allow"\n'


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidInput) as refused:
        parse_rules(text.encode(), "approvals.toml")
    return [issue.message for issue in refused.value.issues] or [refused.value.code]


def test_rules_are_read(home: Home) -> None:
    assert read_rules(home) == ()
    home.etc.mkdir(parents=True, exist_ok=True)
    home.approvals_file.write_text(GOOD + GOOD.replace("allow", "deny"), encoding="utf-8")
    rule = ApprovalRule(capsule="deploy", action="git push", resource="*", allows=True)
    denial = ApprovalRule(capsule="deploy", action="git push", resource="*", allows=False)
    assert read_rules(home) == (rule, denial)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("rule = 1\n", ["`rule` must be a list of at most 1024 tables"]),
        ("default = 'allow'\n", ["unknown key `default`; rules are [[rule]] tables"]),
        (GOOD + "actions = 'x'\n", ["rule 1: unknown key `actions`"]),
        (GOOD.replace("allow", "ask"), ["rule 1: decision 'ask' is neither allow nor deny"]),
        (GOOD.replace('"git push"', "3"), ["rule 1: `action` is not text"]),
        ("rule = [1]\n", ["rule 1: it is not a table"]),
        (
            "[[rule]]\naction = ''\n",
            [
                "rule 1: `capsule` is missing or empty",
                "rule 1: `action` is missing or empty",
                "rule 1: `resource` is missing or empty",
                "rule 1: `decision` is missing or empty",
            ],
        ),
        ("[[rule]\n", ["approvals-syntax"]),
        ("\udcff", ["approvals-syntax"]),
    ],
)
def test_whatever_is_not_a_rule_is_an_error(text: str, found: list[str]) -> None:
    if text == "\udcff":
        with pytest.raises(InvalidInput, match="not valid TOML"):
            parse_rules(b"\xff", "approvals.toml")
    else:
        assert problems(text) == found
