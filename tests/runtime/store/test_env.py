"""store.env: values come back unchanged, and what has no value is named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.capsule.manifest import Manifest, parse_manifest
from aos_runtime.errors import AosError, Corrupt, LimitExceeded
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, EnvKey
from aos_runtime.store import env as module
from aos_runtime.store.env import (
    EnvChanges,
    apply_changes,
    capture,
    read_env,
    read_secrets,
    render_value,
    resolve_env,
    restore,
    write_env,
)
from tests.support.capsules import manifest_text

DEMO = CapsuleName("demo")
EXTRA = """
[env]
URL = { type = "text", default = "http://h:1/" }
REGION = { type = "select", enum_values = ["eu", "us"], default = "eu" }
ONE = { type = "select", enum_values = ["only"], default = "only" }
TOKEN = { type = "Secret" }
COUNT = { type = "integer", default = 5 }
TAGS = { type = "array", default = ["a", "b"] }
NAME = { type = "text" }
ASTRID_SOCKET_PATH = { type = "text" }
"""


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return parse_manifest(manifest_text(extra=EXTRA).encode())


def test_defaults_are_used_where_there_is_no_choice_to_make(manifest: Manifest) -> None:
    resolved = resolve_env(manifest, {}, {})
    assert resolved.values == {"URL": "http://h:1/", "ONE": "only", "COUNT": "5", "TAGS": '["a","b"]'}
    assert [row.key for row in resolved.missing] == ["REGION", "TOKEN", "NAME"]


def test_abi_09_stored_values_are_given_as_they_are(manifest: Manifest) -> None:
    stored = {"URL": 'https://x/?a="b"', "REGION": "us", "NAME": "", "TOKEN": "", "TAGS": ["x"]}
    resolved = resolve_env(manifest, stored, {"TOKEN": "s3cret", "UNDECLARED": "x"})
    assert resolved.missing == ()
    assert resolved.values["URL"] == 'https://x/?a="b"'
    assert resolved.values["TOKEN"] == "s3cret"
    assert resolved.values["NAME"] == ""
    assert "UNDECLARED" not in resolved.values


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_text_is_rendered_as_itself(text: str) -> None:
    assert render_value(text) == text


def test_values_are_stored_privately_and_secrets_apart(home: Home) -> None:
    changes = EnvChanges(values={EnvKey("A"): "ä", EnvKey("B"): ["x"]}, secrets={EnvKey("S"): "s3cret"})
    apply_changes(home, DEFAULT_PRINCIPAL, DEMO, changes)
    assert read_env(home, DEFAULT_PRINCIPAL, DEMO) == {"A": "ä", "B": ["x"], "S": ""}
    assert read_secrets(home, DEFAULT_PRINCIPAL, DEMO) == {"S": "s3cret"}
    path = home.env_file(DEFAULT_PRINCIPAL, DEMO)
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"s3cret" not in path.read_bytes()


def test_a_change_can_be_put_back(home: Home) -> None:
    first = EnvChanges(values={EnvKey("A"): "1"}, secrets={EnvKey("S"): "old"})
    second = EnvChanges(
        values={EnvKey("A"): "2"}, secrets={EnvKey("S"): "new", EnvKey("T"): "t"}, removed=(EnvKey("B"),)
    )
    nothing = capture(home, DEFAULT_PRINCIPAL, DEMO, first)
    apply_changes(home, DEFAULT_PRINCIPAL, DEMO, first)
    before = apply_changes(home, DEFAULT_PRINCIPAL, DEMO, second)
    restore(home, DEFAULT_PRINCIPAL, DEMO, before)
    assert read_env(home, DEFAULT_PRINCIPAL, DEMO) == {"A": "1", "S": ""}
    assert read_secrets(home, DEFAULT_PRINCIPAL, DEMO) == {"S": "old"}
    restore(home, DEFAULT_PRINCIPAL, DEMO, nothing)
    assert read_env(home, DEFAULT_PRINCIPAL, DEMO) == {}
    assert read_secrets(home, DEFAULT_PRINCIPAL, DEMO) == {}


def test_a_failure_part_way_puts_everything_back(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_changes(home, DEFAULT_PRINCIPAL, DEMO, EnvChanges(secrets={EnvKey("S"): "old"}))

    def refuse(*_arguments: object) -> None:
        raise RuntimeError("power")

    monkeypatch.setattr(module, "write_env", refuse)
    with pytest.raises(RuntimeError):
        apply_changes(home, DEFAULT_PRINCIPAL, DEMO, EnvChanges(secrets={EnvKey("S"): "new"}))
    assert read_secrets(home, DEFAULT_PRINCIPAL, DEMO) == {"S": "old"}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_named(home: Home, data: bytes) -> None:
    path = home.env_file(DEFAULT_PRINCIPAL, DEMO)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with pytest.raises(Corrupt) as caught:
        read_env(home, DEFAULT_PRINCIPAL, DEMO)
    assert caught.value.code == "env-damaged"
    assert str(path) in caught.value.message


def test_what_cannot_be_stored_is_refused_before_anything_is(home: Home) -> None:
    large = EnvChanges(values={EnvKey("A"): "x" * (1024 * 1024 + 1)})
    for changes, code in (
        (large, "env-too-large"),
        (EnvChanges(values={EnvKey("A"): "a\0b"}), "env-not-text"),
        (EnvChanges(values={EnvKey("A"): "\udcff"}), "env-not-text"),
        (EnvChanges(secrets={EnvKey("S"): "\udcff"}), "env-not-text"),
        (EnvChanges(values={EnvKey("A"): "1"}, secrets={EnvKey("S"): ""}), "secret-empty"),
    ):
        with pytest.raises(AosError) as caught:
            apply_changes(home, DEFAULT_PRINCIPAL, DEMO, changes)
        assert caught.value.code == code
    assert not home.root.exists()
    with pytest.raises(LimitExceeded):
        write_env(home, DEFAULT_PRINCIPAL, DEMO, {"A": "x" * (1024 * 1024 + 1)})


def test_the_file_is_plain_json_in_the_published_form(home: Home) -> None:
    write_env(home, DEFAULT_PRINCIPAL, DEMO, {"B": "2", "A": "1"})
    assert json.loads(home.env_file(DEFAULT_PRINCIPAL, DEMO).read_bytes()) == {"A": "1", "B": "2"}


def test_no_changes_are_false() -> None:
    assert not EnvChanges()
    assert EnvChanges(removed=(EnvKey("A"),))
