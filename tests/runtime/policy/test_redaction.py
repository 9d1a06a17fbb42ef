"""What a watcher may see of a payload."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.policy.redaction import (
    DIGEST_KEY_BYTES,
    HIDDEN,
    MAX_DEPTH,
    MAX_LISTED_BYTES,
    is_secret_name,
    payload_digest,
    payload_keys,
    secret_words,
    shown_payload,
)

KEY = bytes(32)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    "name",
    ["password", "userPassword", "API_KEY", "api-key", "apikey", "access_token", "clientSecret",
     "Authorization", "set-cookie", "private_key", "credentials", "passphrase", "signature"],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["max_tokens", "name", "path", "key", "call_id", "content", "author"])
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


def test_what_stands_under_a_secrets_name_is_hidden_whatever_it_is() -> None:
    body = b'{"a":{"token":{"deep":"x"}},"password":4711,"list":[{"api_key":"k"},1,null,true]}'
    assert shown_payload("t", body, ()) == {
        "a": {"token": HIDDEN},
        "password": HIDDEN,
        "list": [{"api_key": HIDDEN}, 1, None, True],
    }


def test_a_held_secret_is_hidden_wherever_it_stands_and_in_json_inside_of_json() -> None:
    words = secret_words(['qu"ote-me', "sk-12345", "sk-12345-longer"])
    inner = json.dumps({"echo": 'qu"ote-me', "key": "x sk-12345-longer y sk-12345"})
    body = json.dumps({"content": inner, "sk-12345": 1}).encode()
    shown = json.dumps(shown_payload("t", body, words))
    assert "sk-12345" not in shown and "ote-me" not in shown and "longer" not in shown
    assert shown.count(HIDDEN) == 4


def test_the_words_of_a_secret_are_itself_and_how_json_spells_it_the_longest_first() -> None:
    assert secret_words(['qu"ote', "plain-one"]) == ("plain-one", 'qu\\"ote', 'qu"ote')
    assert shown_payload("t", b'{"a":"x plain-one y"}', secret_words(["plain-one"])) == {"a": "x [secret] y"}


def test_a_value_of_fewer_than_four_characters_hides_nothing() -> None:
    assert secret_words(["", "a", "abc", "abcd"]) == ("abcd",)


@pytest.mark.parametrize("topic", ["astrid.v1.elicit.response.x", "astrid.v1.private.elicit.request"])
def test_what_a_human_typed_for_a_capsule_is_hidden_whole(topic: str) -> None:
    assert shown_payload(topic, b'{"value":"my pin"}', ()) == HIDDEN


def test_nesting_without_end_is_cut() -> None:
    body = b'{"a":' * (MAX_DEPTH + 40) + b"1" + b"}" * (MAX_DEPTH + 40)
    assert f"[nested deeper than {MAX_DEPTH} levels]" in json.dumps(shown_payload("t", body, ()))
    in_objects = b'{"a":' * 65 + b"1" + b"}" * 65
    assert "deeper than 64 levels" in json.dumps(shown_payload("t", in_objects, ()))
    assert "deeper" not in json.dumps(shown_payload("t", in_objects[5:-1], ()))
    for depth, is_cut in ((64, False), (65, True)):
        body = b"[" * depth + b"7" + b"]" * depth
        assert ("deeper than 64 levels" in json.dumps(shown_payload("t", body, ()))) == is_cut


def test_the_keys_are_bounded() -> None:
    body = json.dumps({f"{number:02}" + "x" * 100: 1 for number in range(40)}).encode()
    keys = payload_keys(body)
    assert keys is not None and len(keys) == 16 and {len(key) for key in keys} == {64}
    assert payload_keys(b"[1]") is None
    assert payload_keys(b'{"a"') is None
    assert payload_keys(b'{"a":"' + b"x" * (64 * 1024 - 7) + b'"}') is None
    assert payload_keys(b"[" * 5000) is None
    assert payload_keys(b'{"a":"' + b"x" * (64 * 1024 - 8) + b'"}') == ["a"]
    assert payload_keys(b'{"a":"' + b"x" * MAX_LISTED_BYTES + b'"}') is None
    assert payload_keys(b'{"has sk-12345":1}', secret_words(["sk-12345"])) == [f"has {HIDDEN}"]


def test_a_digest_tells_equal_from_different_and_needs_the_boots_key() -> None:
    assert payload_digest(b"a", KEY) == payload_digest(b"a", KEY)
    assert payload_digest(b"a", KEY) != payload_digest(b"b", KEY)
    assert payload_digest(b"a", KEY) != payload_digest(b"a", b"\1" * 32)
    assert len(payload_digest(b"a", KEY)) == 16
    assert len(KEY) == DIGEST_KEY_BYTES


@given(value=JSON, secret=st.text(min_size=4, max_size=12, alphabet="qrstuvwxyz0123456789"))
def test_no_held_secret_ever_shows(value: object, secret: str) -> None:
    body = json.dumps({"a": value, "b": f"x{secret}y", secret: [secret]}).encode()
    assert not any(secret in text for text in _texts(shown_payload("t", body, secret_words([secret]))))


def test_a_secret_that_is_a_number_is_hidden() -> None:
    assert shown_payload("t", b'{"a":123456,"b":12}', secret_words(["123456"])) == {"a": HIDDEN, "b": 12}


def _texts(value: object) -> Iterator[str]:
    """Every string and number in a JSON value, keys too."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
