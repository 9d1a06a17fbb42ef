"""store.metadata: `meta.json` with exactly the published keys."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from aos_runtime.errors import Corrupt
from aos_runtime.store.metadata import Meta, parse_meta, render_meta, render_time

META = Meta(
    version="0.2.0",
    installed_at="2026-08-01T10:00:00+00:00",
    updated_at="2026-08-22T09:00:00+00:00",
    source="/srv/notes.capsule",
    imports={"astrid": {"session": "^1.0"}},
    exports={"acme": {"notes": "1.0.0"}},
    wasm_hash="a" * 64,
    wit_files={"notes.wit": "b" * 64},
    signer="s",
    signature="t",
    resolved_ref="v0.2.0",
    provenance_distro="unicity-ce",
    provenance_source_digest="blake3:" + "c" * 64,
)


def test_every_key_is_written_under_its_published_name() -> None:
    assert list(json.loads(render_meta(META))) == [
        "version",
        "installed_at",
        "updated_at",
        "source",
        "imports",
        "exports",
        "wasm_hash",
        "wit_files",
        "signer",
        "signature",
        "resolved_ref",
        "provenance_distro",
        "provenance_source_digest",
    ]
    assert parse_meta(render_meta(META)) == META


def test_absent_values_and_empty_maps_are_omitted() -> None:
    meta = Meta(version="0.1.0", installed_at="a", updated_at="b")
    assert json.loads(render_meta(meta)) == {"version": "0.1.0", "installed_at": "a", "updated_at": "b"}
    assert parse_meta(render_meta(meta)) == meta


def test_a_source_path_that_is_not_unicode_is_recorded_readably() -> None:
    meta = Meta(version="0.1.0", installed_at="a", updated_at="b", source="/x/\udcff.capsule")
    assert parse_meta(render_meta(meta)).source == "/x/?.capsule"


def test_unknown_keys_are_ignored() -> None:
    value = {**json.loads(render_meta(META)), "tools": ["x"]}
    assert parse_meta(json.dumps(value).encode()) == META


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"version":"1.0.0"}',
        b'{"version":1,"installed_at":"a","updated_at":"b"}',
        b'{"version":"1","installed_at":"a","updated_at":"b","wit_files":{"a":1}}',
        b'{"version":"1","installed_at":"a","updated_at":"b","imports":{"a":"b"}}',
    ],
)
def test_what_is_no_meta_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt) as caught:
        parse_meta(data)
    assert caught.value.code == "meta-damaged"


def test_times_are_in_utc() -> None:
    moment = datetime(2026, 8, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=2)))
    assert render_time(moment) == "2026-08-01T10:00:00.123456+00:00"
