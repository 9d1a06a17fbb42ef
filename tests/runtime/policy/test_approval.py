"""policy.approval: what is shown is what is decided on, and an answer covers no more than it said."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.policy.approval import (
    DECISION_WORDS,
    MAX_ACTION_CHARACTERS,
    MAX_RESOURCE_CHARACTERS,
    Allowance,
    Decision,
    Deed,
    find_verdict,
    glob,
    is_command,
    read_deed,
    spell_out,
)

PUSH = Deed("deploy", "git push", "git push origin main", "/work")
ALLOWED = Allowance(*PUSH)


@dataclass(frozen=True)
class Rule:
    capsule: str = "*"
    action: str = "*"
    resource: str = "*"
    allows: bool = True


def test_a_request_is_trimmed_and_spelled_out() -> None:
    assert read_deed("deploy", "  git push ", "a\x1b[2J\nb\u202e\u200bc é ", None) == Deed(
        "deploy", "git push", "a\\u{1b}[2J\\u{a}b\\u{202e}\\u{200b}c é", None
    )


@pytest.mark.parametrize(
    ("action", "resource", "valid"),
    [
        ("", "x", False),
        (" \t ", "x", False),
        ("x", "", True),
        ("a" * MAX_ACTION_CHARACTERS, "", True),
        ("a" * (MAX_ACTION_CHARACTERS + 1), "", False),
        ("a", "r" * MAX_RESOURCE_CHARACTERS, True),
        ("a", "r" * (MAX_RESOURCE_CHARACTERS + 1), False),
    ],
)
def test_what_is_no_request(action: str, resource: str, valid: bool) -> None:
    assert (read_deed("c", action, resource, None) is not None) == valid


def test_the_three_words_that_approve() -> None:
    """The words of an `approval_response` on the wire, and the WIT case that each becomes."""
    assert DECISION_WORDS == {
        "approve": "approved",
        "approve_session": "approved-session",
        "approve_always": "approved-always",
    }
    assert [*Decision] == ["denied", "approved", "approved-session", "approved-always", "allowance"]


def test_an_action_has_256_characters_and_a_resource_4096() -> None:
    assert (MAX_ACTION_CHARACTERS, MAX_RESOURCE_CHARACTERS) == (256, 4096)


@pytest.mark.parametrize(
    "hidden",
    "\x00\x7f\u00ad\u200b\u2028\u2029\ue000\ud800\u0378\u00a0\u3000\u034f\u115f\u2800\u3164\ufe0f\uffa0\U000e0100",
)
def test_each_kind_of_hidden_character_is_written_out(hidden: str) -> None:
    assert spell_out(f"a{hidden}b é") == f"a\\u{{{ord(hidden):x}}}b é"


@given(st.text())
def test_nothing_that_is_spelled_out_is_hidden(text: str) -> None:
    shown = spell_out(text)
    assert not {unicodedata.category(one) for one in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert {one for one in shown if unicodedata.category(one) == "Zs"} <= {" "}


@given(st.text(st.sampled_from("\\u{5c}\na1")))
def test_every_text_is_spelled_in_its_own_way(text: str) -> None:
    """What was shown says which text it was: no other one is covered by a yes to it."""
    told = re.sub(r"\\u\{([0-9a-f]+)\}", lambda found: chr(int(found[1], 16)), spell_out(text))
    assert told == text


def test_a_yes_to_what_looks_like_a_line_end_is_none_to_a_line_end() -> None:
    harmless = read_deed("shell", "echo", "echo hi \\u{a}rm -rf src", "/work")
    harmful = read_deed("shell", "echo", "echo hi \nrm -rf src", "/work")
    assert harmless is not None and harmful is not None
    assert not Allowance(*harmless).covers(harmful)
    assert find_verdict([Rule(resource=harmless.resource)], harmful) is None


@pytest.mark.parametrize(
    ("deed", "covered"),
    [
        (PUSH, True),
        (PUSH._replace(resource="git push"), True),
        (PUSH._replace(resource="git push origin other"), True),
        (PUSH._replace(resource="git push --force; rm -rf /"), False),
        (PUSH._replace(resource="git push `id`"), False),
        (PUSH._replace(resource="git push $(id)"), False),
        (PUSH._replace(resource="git push a\\u{a}rm"), False),
        (PUSH._replace(resource="git pushy"), False),
        (PUSH._replace(resource="git pull"), False),
        (PUSH._replace(action="git pull"), False),
        (PUSH._replace(capsule="other"), False),
        (PUSH._replace(workspace="/other"), False),
        (PUSH._replace(workspace=None), False),
    ],
)
def test_abi_33_what_an_allowance_covers(deed: Deed, covered: bool) -> None:
    assert ALLOWED.covers(deed) == covered


def test_an_allowance_for_one_resource_is_for_that_one() -> None:
    deed = Deed("files", "delete file", "/tmp/a; b", None)
    held = Allowance(*deed)
    assert held.covers(deed), "what was shown was approved, whatever is in it"
    assert not held.covers(deed._replace(resource="/tmp/b"))
    assert not held.covers(deed._replace(resource="delete file /etc/passwd")), "it was no command"


def test_globs_in_an_action_are_itself() -> None:
    held = Allowance("c", "git *", "git * x", None)
    assert not held.covers(Deed("c", "git *", "git push x", None))


def test_a_denial_wins_and_silence_is_none() -> None:
    allow, deny = Rule(action="git push"), Rule(resource="*--force*", allows=False)
    assert find_verdict([], PUSH) is None
    assert find_verdict([Rule(capsule="other")], PUSH) is None
    assert find_verdict([Rule(action="git pull")], PUSH) is None
    assert find_verdict([Rule(resource="git pull")], PUSH) is None
    assert find_verdict([allow], PUSH) is True
    forced = PUSH._replace(resource="git push --force")
    assert find_verdict([allow, deny], forced) is False
    assert find_verdict([deny, allow], forced) is False


def test_a_pattern_allows_no_second_command_but_denies_one() -> None:
    second = PUSH._replace(resource="git push; reboot")
    assert find_verdict([Rule(resource="git push*")], PUSH) is True
    assert find_verdict([Rule(resource="git push*")], second) is None
    assert find_verdict([Rule(resource="git push*", allows=False)], second) is False
    assert find_verdict([Rule(resource="*")], second) is True, "a whole star was written knowing it"
    assert find_verdict([Rule(resource="git push; reboot")], second) is True


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("*", "", True),
        ("a*", "abc", True),
        ("*c", "abc", True),
        ("a*c", "abc", True),
        ("a*a", "a", False),
        ("a*b*c", "a1b2c", True),
        ("a*b*c", "acb", False),
        ("a*b*b*c", "abc", False),
        ("a*bb*bb*c", "abbbc", False),
        ("a*bc*c", "abc", False),
        ("*ab*b", "ab", False),
        ("*.*", "a.b", True),
        ("[a]?", "a", False),
    ],
)
def test_globs(pattern: str, text: str, fits: bool) -> None:
    assert glob(pattern, text) == fits


@given(st.text("ab*", max_size=6), st.text("ab", max_size=8))
def test_globs_are_those_of_fnmatch(pattern: str, text: str) -> None:
    import fnmatch

    assert glob(pattern, text) == fnmatch.fnmatchcase(text, pattern)


@given(st.text(), st.text())
def test_a_command_stays_one(action: str, more: str) -> None:
    if is_command(action, f"{action} {more}"):
        assert not set(";&|<>`$(){}\\\n\r") & set(f"{action}{more}")
