"""names: what passes can become a path."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.errors import InvalidInput
from aos_runtime.names import parse_capsule_name, parse_digest, parse_env_key, parse_principal_name

PARSERS: dict[str, tuple[Callable[[str], str], str]] = {
    "capsule-name": (parse_capsule_name, r"[a-z0-9-]{1,128}"),
    "principal-name": (parse_principal_name, r"[A-Za-z0-9_-]{1,64}"),
    "env-key": (parse_env_key, r"[A-Za-z_][A-Za-z0-9_]{0,127}"),
    "digest": (parse_digest, r"[0-9a-f]{64}"),
}


@pytest.mark.parametrize(
    ("code", "good"),
    [
        ("capsule-name", "hello-2"),
        ("capsule-name", "x" * 128),
        ("principal-name", "Alice_1-b"),
        ("env-key", "_API_KEY2"),
        ("digest", "0123456789abcdef" * 4),
    ],
)
def test_good_names_come_back_as_they_are(code: str, good: str) -> None:
    assert PARSERS[code][0](good) == good


@pytest.mark.parametrize("code", sorted(PARSERS))
@pytest.mark.parametrize(
    "bad",
    [
        "",
        ".",
        "..",
        "../../secrets/demo",
        "/etc/passwd",
        "a b",
        "a\n",
        "a\0",
        "a/b",
        "ä",
        "١",
        "x" * 200,
        "a.b",
    ],
)
def test_log_09_what_is_no_name_never_becomes_a_path(code: str, bad: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        PARSERS[code][0](bad)
    assert caught.value.code == code
    assert caught.value.hint
    assert len(caught.value.message) < 250


@pytest.mark.parametrize("code", sorted(PARSERS))
@given(text=st.text(max_size=140))
def test_exactly_the_stated_alphabet_passes(code: str, text: str) -> None:
    parse, pattern = PARSERS[code]
    is_good = re.fullmatch(pattern, text, re.ASCII) is not None
    try:
        assert parse(text) == text
    except InvalidInput:
        assert not is_good
    else:
        assert is_good
