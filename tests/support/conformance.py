"""The rules of aos by name, and which of them stand: `tests/conformance/rules/*.toml`.

A rule is a sentence of one of the documents that aos is built from, in our words, with the tests that prove
it.  It stands where all of them passed.  Nothing here runs a test.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

RULES = Path(__file__).parents[1] / "conformance" / "rules"
_KEYS = {"id", "section", "rule", "tests"}
_ID = re.compile(r"[A-Z]+(-[A-Z]+)*-\d{2,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`tests` are node ids without parameters.  `differs` is the subject of a row of docs/differences.md: aos
    knowingly does something else, and the tests show what.
    """

    id: str
    source: str
    section: str
    text: str
    tests: tuple[str, ...]
    differs: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which rules stand after a run, which are broken, and which had tests that did not run."""

    standing: tuple[Rule, ...]
    broken: tuple[Rule, ...]
    not_run: tuple[Rule, ...]

    def line(self) -> str:
        """What the end of a test run says."""
        differing = sum(rule.differs is not None for rule in self.standing)
        words = [f"{len(self.standing)} rules stand, {differing} of them differ (docs/differences.md)"]
        if self.broken:
            words.append(f"{len(self.broken)} are broken: {', '.join(rule.id for rule in self.broken)}")
        if self.not_run:
            words.append(f"{len(self.not_run)} were not run")
        return "conformance: " + "; ".join(words)


def read_rules(folder: Path = RULES) -> tuple[Rule, ...]:
    """Every rule, by file.  ValueError names the file and what is wrong in it."""
    rules = tuple(rule for path in sorted(folder.glob("*.toml")) for rule in _read(path))
    seen: set[str] = set()
    for rule in rules:
        if rule.id in seen:
            raise ValueError(f"two rules are called {rule.id}")
        seen.add(rule.id)
    return rules


def _read(path: Path) -> Iterable[Rule]:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    source, rows = content.pop("source", None), content.pop("rule", None)
    if not isinstance(source, str) or not isinstance(rows, list) or content:
        raise ValueError(f"{path.name}: a file has a `source` and `[[rule]]` tables, nothing else")
    for row in rows:
        name = row.get("id", "a rule without an id")
        if not _KEYS <= row.keys() <= _KEYS | {"differs"}:
            raise ValueError(f"{path.name}: {name} needs {sorted(_KEYS)}, may have differs: {sorted(row)}")
        if not _ID.fullmatch(name):
            raise ValueError(f"{path.name}: {name} is no id like TOPIC-01")
        if not row["tests"] or len(set(row["tests"])) < len(row["tests"]):
            raise ValueError(f"{path.name}: {name} names no test, or one twice")
        yield Rule(
            id=name,
            source=source,
            section=row["section"],
            text=row["rule"],
            tests=tuple(row["tests"]),
            differs=row.get("differs"),
        )


def judge(rules: Iterable[Rule], passed: Collection[str], failed: Collection[str]) -> Verdict:
    """`passed` and `failed` are node ids as a run reports them, with their parameters."""
    bad = {_bare(node) for node in failed}
    good = {_bare(node) for node in passed} - bad
    groups: dict[str, list[Rule]] = {"standing": [], "broken": [], "not_run": []}
    for rule in rules:
        if bad.intersection(rule.tests):
            groups["broken"].append(rule)
        else:
            groups["standing" if good.issuperset(rule.tests) else "not_run"].append(rule)
    return Verdict(**{name: tuple(found) for name, found in groups.items()})


def _bare(node: str) -> str:
    return node.partition("[")[0]
