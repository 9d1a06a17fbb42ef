"""policy.platforms and policy.capability_gate: names, levels, and the line of a refusal."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.capsule.capability import IDENTITY_LEVELS
from aos_runtime.policy.capability_gate import IDENTITY_NEEDS, check_identity, check_uplink
from aos_runtime.policy.platforms import MAX_PLATFORM_CHARACTERS, read_platform, read_text, read_user_id


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        (" Discord\t", "discord"),
        ("Ünï", "ünï"),
        ("a\nb", None),
        ("a\0b", None),
        ("a\u2028b", None),
        ("", None),
        (" ", None),
        ("p" * MAX_PLATFORM_CHARACTERS, "p" * MAX_PLATFORM_CHARACTERS),
        ("p" * (MAX_PLATFORM_CHARACTERS + 1), None),
    ],
)
def test_platforms(text: str, platform: str | None) -> None:
    assert read_platform(text) == platform


@given(st.text(max_size=80))
def test_a_platform_has_one_spelling(text: str) -> None:
    once = read_platform(text)
    assert once is None or read_platform(f" {once} ") == once


def test_a_joined_emoji_is_a_name_and_a_control_character_none() -> None:
    assert read_text("👩\u200d🚀", 10) == "👩\u200d🚀"
    assert read_text("a\x1b[31m", 10) is None


@given(st.uuids())
def test_user_ids(known: uuid.UUID) -> None:
    assert read_user_id(str(known).upper()) == str(known)
    for other in (known.hex, f"{{{known}}}", f"urn:uuid:{known}", f"{known}\n", str(known)[:-1]):
        assert read_user_id(other) is None


@pytest.mark.parametrize("operation", IDENTITY_NEEDS)
def test_a_level_covers_those_before_it(operation: str) -> None:
    needed = IDENTITY_LEVELS.index(IDENTITY_NEEDS[operation])
    for place, level in enumerate(IDENTITY_LEVELS):
        assert (check_identity(operation, (level,), "x") is None) == (place >= needed)
    assert check_identity(operation, ("nonsense", ""), "x") is not None


def test_the_line_of_a_refusal() -> None:
    denial, uplink = (
        check_identity("identity-link", ("resolve",), "irc:7"),
        check_uplink("uplink-send", False, "u"),
    )
    assert denial is not None and uplink is not None
    assert denial.render() == (
        'denied operation=identity-link target="irc:7" case=capability-denied '
        'rule="it needs the identity level link" allow="[capabilities] identity = [\\"link\\"]"'
    )
    assert uplink.render(repeated=2) == (
        'denied operation=uplink-send target="u" case=capability-denied '
        'rule="only an uplink brings in messages of others" allow="[capabilities] uplink = true" repeated=2'
    )
    assert check_uplink("uplink-send", True, "u") is None
