"""store.approval_rules: etc/approvals.toml, read strictly."""

from __future__ import annotations

import pytest

from aos_runtime.errors import InvalidInput
from aos_runtime.home import Home
from aos_runtime.store import approval_rules as module
from aos_runtime.store.approval_rules import ApprovalRule, ApprovalRules, parse_rules, read_rules

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


def test_rules_are_read_once_until_the_file_is_another(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call that is refused asks them."""
    reads: list[str] = []

    def parse(data: bytes, file: str) -> tuple[ApprovalRule, ...]:
        reads.append(file)
        return parse_rules(data, file)

    monkeypatch.setattr(module, "parse_rules", parse)
    rules = ApprovalRules(home)
    assert (rules.read(), reads) == ((), [])
    home.etc.mkdir(parents=True, exist_ok=True)
    home.approvals_file.write_text(GOOD, encoding="utf-8")
    assert [len(rules.read()) for _ in range(3)] == [1, 1, 1]
    assert len(reads) == 1
    home.approvals_file.write_text(GOOD.replace("allow", "deny"), encoding="utf-8")
    assert ([rule.allows for rule in rules.read()], len(reads)) == ([False], 2)
    home.approvals_file.write_text("rule = 1\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(InvalidInput):
            rules.read()
    home.approvals_file.unlink()
    assert rules.read() == ()


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
