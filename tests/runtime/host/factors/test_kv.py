"""astrid:kv: its functions on plain values, and once over the real store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.errors import Unavailable
from aos_runtime.host import Err
from aos_runtime.host.factors import kv
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.kv import KvCase, KvRefused, KvStore
from tests.support.guests import Recorder


def call(recorder: Recorder, name: str, *arguments: Any, **ports: Any) -> Any:
    return kv.FUNCTIONS[name].run(recorder.context(**ports), *arguments)


@given(value=st.binary(max_size=64))
def test_abi_09_bytes_come_back_unchanged(value: bytes) -> None:
    recorder = Recorder()
    assert call(recorder, "kv-set", "k", value) is None
    assert call(recorder, "kv-get", "k") == value


@pytest.mark.parametrize("value", [b'{"a":1}', b'"x"', b"", b"\xff\xfe"])
def test_abi_09_nothing_is_encoded_twice(recorder: Recorder, value: bytes) -> None:
    call(recorder, "kv-set", "k", value)
    assert recorder.kv.values == {"k": value}


def test_abi_12_a_key_that_was_never_set_is_none(recorder: Recorder) -> None:
    assert call(recorder, "kv-get", "__state") is None
    assert recorder.logged == []


def test_delete_of_a_missing_key_is_ok(recorder: Recorder) -> None:
    assert call(recorder, "kv-delete", "k") is None


@pytest.mark.parametrize("name", ["kv-get", "kv-delete"])
def test_a_key_that_the_store_refuses_is_invalid(recorder: Recorder, name: str) -> None:
    assert call(recorder, name, "") == Err("invalid-key")
    assert call(recorder, name, "a\0b") == Err("invalid-key")


def test_listing_and_clearing(recorder: Recorder) -> None:
    for key in ("a/1", "a/2", "a/3", "b"):
        call(recorder, "kv-set", key, b"")
    assert call(recorder, "kv-list-keys", "a/") == ("a/1", "a/2", "a/3")
    assert call(recorder, "kv-list-keys-page", "a/", None, 2) == {
        "keys": ("a/1", "a/2"),
        "next-cursor": "a/2",
    }
    assert call(recorder, "kv-list-keys-page", "a/", "a/2", 2) == {"keys": ("a/3",), "next-cursor": None}
    assert call(recorder, "kv-clear-prefix", "a/") == 3
    assert call(recorder, "kv-list-keys", "") == ("b",)


@pytest.mark.parametrize(
    ("limit", "asked"), [(0, 1024), (7, 7), (1024, 1024), (1025, 1024), (2**32 - 1, 1024)]
)
def test_a_page_is_at_most_1024_keys(recorder: Recorder, limit: int, asked: int) -> None:
    seen: list[int] = []

    def list_page(_prefix: str, _cursor: str | None, size: int) -> tuple[tuple[str, ...], None]:
        seen.append(size)
        return (), None

    recorder.kv.list_page = list_page  # type: ignore[method-assign]
    call(recorder, "kv-list-keys-page", "", None, limit)
    assert seen == [asked]


def test_cas(recorder: Recorder) -> None:
    assert call(recorder, "kv-cas", "k", None, b"1") is None
    assert call(recorder, "kv-cas", "k", None, b"2") == Err("cas-mismatch")
    assert call(recorder, "kv-cas", "k", b"1", b"2") is None
    assert call(recorder, "kv-cas", "", None, b"") == Err("invalid-key")
    assert recorder.kv.values == {"k": b"2"}


@pytest.mark.parametrize(
    ("raised", "answer"),
    [
        (KvRefused(KvCase.QUOTA), Err("quota")),
        (KvRefused(KvCase.TOO_LARGE), Err("too-large")),
        (KvRefused(KvCase.UNKNOWN, "disk"), Err("unknown", "disk")),
        (Unavailable("disk-full", "no space is left", hint="free some"), Err("unknown", "no space is left")),
    ],
)
def test_a_refusal_is_an_error_arm(recorder: Recorder, raised: Exception, answer: Err) -> None:
    def refuse(*_arguments: object) -> None:
        raise raised

    recorder.kv.get = recorder.kv.set = recorder.kv.cas = refuse  # type: ignore[assignment,method-assign]
    assert call(recorder, "kv-get", "k") == answer
    assert call(recorder, "kv-set", "k", b"") == answer
    assert call(recorder, "kv-cas", "k", None, b"") == answer


def test_only_large_writes_make_way(recorder: Recorder) -> None:
    made_way: list[str] = []
    ports = {"before_block": lambda: made_way.append("way")}
    call(recorder, "kv-set", "k", bytes(kv.SMALL_VALUE_BYTES), **ports)
    call(recorder, "kv-get", "k", **ports)
    assert made_way == []
    call(recorder, "kv-set", "k", bytes(kv.SMALL_VALUE_BYTES + 1), **ports)
    call(recorder, "kv-cas", "k", None, bytes(kv.SMALL_VALUE_BYTES + 1), **ports)
    assert made_way == ["way", "way"]


def test_over_the_real_store(recorder: Recorder, tmp_path: Path) -> None:
    with KvStore(tmp_path / "state.db") as store:
        space = store.space(PrincipalName("default"), CapsuleName("guest"))
        assert call(recorder, "kv-set", "k", b"v", kv=space) is None
        assert call(recorder, "kv-get", "k", kv=space) == b"v"
        assert call(recorder, "kv-get", "", kv=space) == Err("invalid-key")
        assert call(recorder, "kv-list-keys-page", "", None, 0, kv=space) == {
            "keys": ("k",),
            "next-cursor": None,
        }
