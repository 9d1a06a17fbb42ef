"""The rules by name: each is well-formed, its tests exist, and a run tells which of them stand."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.conformance import Rule, judge, read_rules
from tests.support.installation import ROOT

HEAD = 'source = "a document"\n'
ROW = '[[rule]]\nid = "DEMO-01"\nsection = "1"\nrule = "It holds"\ntests = ["tests/a.py::test_a"]\n'


@cache
def nodes_of(file: str) -> frozenset[str]:
    """The node ids, without parameters, of a test file."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        methods = node.body if isinstance(node, ast.ClassDef) else [node]
        owner = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        names = [one.name for one in methods if isinstance(one, ast.FunctionDef)]
        found |= {f"{file}::{owner}{name}" for name in names if name.startswith("test_")}
    return frozenset(found)


def test_every_named_test_exists() -> None:
    rules = read_rules()
    named = {test for rule in rules for test in rule.tests}
    assert sorted(test for test in named if test not in nodes_of(test.partition("::")[0])) == []


def test_every_difference_is_a_row_of_the_document() -> None:
    text = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    subjects = set(re.findall(r"^\| (.*?) \|", text, re.MULTILINE))
    assert sorted(rule.id for rule in read_rules() if rule.differs and rule.differs not in subjects) == []


def test_no_two_rules_say_the_same() -> None:
    texts = [rule.text for rule in read_rules()]
    assert sorted(text for text in set(texts) if texts.count(text) > 1) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (ROW, "a file has a `source`"),
        (HEAD, "a file has a `source`"),
        (HEAD + "more = 1\n" + ROW, "a file has a `source`"),
        (HEAD + ROW.replace('rule = "It holds"\n', ""), "DEMO-01 needs"),
        (HEAD + ROW + "why = 1\n", "DEMO-01 needs"),
        (HEAD + ROW.replace("DEMO-01", "demo"), "demo is no id"),
        (HEAD + ROW.replace('["tests/a.py::test_a"]', "[]"), "DEMO-01 names no test"),
        (HEAD + ROW + ROW, "two rules are called DEMO-01"),
    ],
)
def test_a_file_that_is_wrong_says_what(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "demo.toml").write_text(content)
    with pytest.raises(ValueError, match=problem):
        read_rules(tmp_path)


def rule(name: str, *tests: str, differs: str | None = None) -> Rule:
    return Rule(id=name, source="a document", section="1", text=name, tests=tests, differs=differs)


def test_a_rule_stands_where_all_its_tests_passed() -> None:
    rules = [
        rule("DEMO-01", "t.py::one"),
        rule("DEMO-02", "t.py::one", "t.py::two", differs="a row"),
        rule("DEMO-03", "t.py::two", "t.py::three"),
        rule("DEMO-04", "t.py::one", "t.py::four"),
    ]
    verdict = judge(
        rules,
        passed=["t.py::one[a]", "t.py::one[b]", "t.py::two", "t.py::three[a]"],
        failed=["t.py::three[b]"],
    )
    assert [one.id for one in verdict.standing] == ["DEMO-01", "DEMO-02"]
    assert [one.id for one in verdict.broken] == ["DEMO-03"]
    assert [one.id for one in verdict.not_run] == ["DEMO-04"]
    assert verdict.line() == (
        "conformance: 2 rules stand, 1 of them differ (docs/differences.md); 1 are broken: DEMO-03;"
        " 1 were not run"
    )
