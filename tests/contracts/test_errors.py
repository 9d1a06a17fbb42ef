"""Every error is data with a permanent code, and docs/errors.md lists them all."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.support.error_catalogue import DOCUMENT, find_constructions, render_catalogue

CONSTRUCTIONS = find_constructions()
WRITE_ANEW = "run: python -m tests.support.error_catalogue"


def test_the_scan_finds_the_codes_of_the_lowest_room() -> None:
    codes = {item.code for item in CONSTRUCTIONS if item.file == "runtime/aos_runtime/names.py"}
    assert codes == {"capsule-name", "principal-name", "env-key", "digest"}


def test_every_code_is_a_kebab_case_literal_at_the_call() -> None:
    wrong = [
        f"{item.file}:{item.line} {item.code}"
        for item in CONSTRUCTIONS
        if item.code is None or not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", item.code)
    ]
    assert wrong == []


def test_one_code_belongs_to_one_family() -> None:
    families: dict[str, set[str]] = defaultdict(set)
    for item in CONSTRUCTIONS:
        families[item.code or ""].add(item.family)
    assert {code: sorted(names) for code, names in families.items() if len(names) > 1} == {}


def test_every_message_is_one_sentence_without_its_period_and_has_a_hint() -> None:
    wrong = [
        f"{item.file}:{item.line} {item.code}"
        for item in CONSTRUCTIONS
        if not item.hint or not item.message or item.message.endswith((".", "!", "\n"))
    ]
    assert wrong == []


def test_docs_errors_lists_every_code() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == render_catalogue(CONSTRUCTIONS), WRITE_ANEW
