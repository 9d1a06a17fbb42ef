"""Delivery ids: taken out of payloads, and answered to their publisher alone."""

from __future__ import annotations

import json

import pytest

from aos_runtime.kernel.receipts import Marked, own_pattern, take_delivery_id

ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b"[1]",
        b'{"a":{"_astrid_delivery_id":"x"}}',
        b'["_astrid_delivery_id"]',
        b'"_astrid_delivery_id"',
    ],
)
def test_a_payload_without_a_mark_is_left_as_it_is(payload: bytes) -> None:
    assert take_delivery_id(payload) == Marked(payload, None)


def test_the_mark_is_taken_out_and_nothing_else_changes() -> None:
    payload = (
        b'{"n":123456789012345678901234567890,"_astrid_delivery_id":"' + ID.encode() + b'","s":"\\u00fc"}'
    )
    marked = take_delivery_id(payload)
    assert marked == Marked(b'{"n":123456789012345678901234567890,"s":"\\u00fc"}', ID)


@pytest.mark.parametrize("mark", ["0" * 32, "x" * 32, ID[:-1], ID.upper(), 5, None, {"a": 1}])
def test_a_mark_that_is_no_uuid_is_refused(mark: object) -> None:
    assert take_delivery_id(json.dumps({"_astrid_delivery_id": mark}).encode()) is None


def test_only_the_alias_is_rewritten() -> None:
    source = "310714d5-9c6d-4c94-8187-75258f393bb6"
    own = "astrid.v1.delivery.failure.310714d59c6d4c94818775258f393bb6"
    assert own_pattern("astrid.v1.delivery.failure.*", source) == f"{own}.*"
    assert own_pattern(f"astrid.v1.delivery.failure.{ID}", source) == f"{own}.{ID}"
    assert own_pattern("a.b.*", source) == "a.b.*"
