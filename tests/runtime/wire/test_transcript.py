"""The recorded frames of the published runtime, run through the pure half of the daemon.

tests/golden/wire/transcript.json holds them with names replaced and long lists cut to two entries.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from aos_runtime.errors import PeerFault
from aos_runtime.names import PrincipalName
from aos_runtime.policy.authority import denial
from aos_runtime.wire import requests
from aos_runtime.wire.client import Exchange, Reply
from aos_runtime.wire.egress import decide_egress, encode_event
from aos_runtime.wire.frames import FrameDecoder
from aos_runtime.wire.handshake import KeyEntry, Rejected, ServerHandshake
from aos_runtime.wire.handshake_client import signed_text
from aos_runtime.wire.ingress import Accepted, ConnectionFacts, Refused, decide_ingress
from aos_runtime.wire.methods import ADMIN_METHODS, METHODS, NIL_SOURCE, reply_topic

ROWS = json.loads((Path(__file__).parents[2] / "golden/wire/transcript.json").read_text())
BY_ROW = {row["row"]: row for row in ROWS}
TOKEN = "ab" * 32
KEY = SigningKey(b"k" * 32)
NONCE = b"n" * 32
EXCHANGES = [
    row
    for row in ROWS
    if isinstance(row["received"], list) and "topic" in (row["sent"] or {}) and row["row"] != 16
]


def find_keys(principal: PrincipalName) -> tuple[KeyEntry, ...] | None:
    return (KeyEntry("k1", bytes(KEY.verify_key).hex()),)


def server() -> ServerHandshake:
    return ServerHandshake(TOKEN, "2026.10.1", find_keys, NONCE)


def handshake_frame(row: int) -> bytes:
    sent = BY_ROW[row]["sent"]
    signature = KEY.sign(signed_text("default", NONCE.hex())).signature.hex()
    real = {"token": TOKEN, "signature": signature if sent["signature"] else None}
    return json.dumps({**sent, **real}).encode()


def expected(row: int, **changes: object) -> dict[str, Any]:
    return {**BY_ROW[row]["received"], **changes}


@pytest.mark.parametrize("rows", [(0,), (2, 3), (20, 21), (23, 24)])
def test_handshakes(rows: tuple[int, ...]) -> None:
    handshake = server()
    for row in rows:
        challenge = {"challenge": NONCE.hex()} if "challenge" in BY_ROW[row]["received"] else {}
        reply = handshake.receive(handshake_frame(row))
        assert json.loads(reply.frame) == expected(row, **challenge)
    assert reply.outcome is not None
    assert not isinstance(reply.outcome, Rejected)


def test_row_26_bad_token() -> None:
    frame = json.dumps({**BY_ROW[26]["sent"], "token": "cd" * 32}).encode()
    assert json.loads(server().receive(frame).frame) == expected(26)


def test_row_27_bad_version() -> None:
    reason = BY_ROW[27]["received"]["reason"].replace("`astrid restart`", "`aos restart`")
    assert json.loads(server().receive(handshake_frame(27)).frame) == expected(27, reason=reason)


@pytest.mark.parametrize("row", EXCHANGES, ids=lambda row: f"row {row['row']} {row['what']}")
def test_requests_and_replies(row: dict[str, Any]) -> None:
    """The request is taken and understood, and the recorded reply is what we encode, deliver and read."""
    sent, reply = row["sent"], row["received"][-1]
    facts = ConnectionFacts(reply["principal"], "owner-1", verified=True)
    taken = decide_ingress(json.dumps(sent).encode(), facts)
    assert isinstance(taken, Accepted)
    admin = sent["topic"].startswith("astrid.v1.admin.")
    decode = requests.decode_admin_request if admin else requests.decode_request
    request = decode(taken.body, taken.kind)
    assert isinstance(request, requests.Request)
    assert request.method == (ADMIN_METHODS if admin else METHODS)[row["what"]]

    topic = reply_topic(sent["topic"])
    assert topic is not None
    assert topic == reply["topic"]
    payload = reply["payload"]
    body = requests.ok(payload["status"], payload["data"], request.request_id)
    frame = encode_event(topic, body, NIL_SOURCE, reply["principal"])
    assert json.loads(frame) == reply
    exchange = Exchange(b"", topic, sent["payload"].get("request_id"))
    assert exchange.receive(frame) == Reply(payload["status"], payload["data"])


def test_every_recorded_exchange_is_replayed() -> None:
    assert [row["row"] for row in EXCHANGES] == [1, 4, 5, 6, 7, 8, 9, 14, 15, 17]


def test_row_1_anonymous_is_denied_in_the_recorded_words() -> None:
    request = requests.decode_request(b'{"method":"GetStatus"}')
    assert isinstance(request, requests.Request)
    (capability,) = requests.required_capabilities(request, "anonymous")
    assert denial("anonymous", None, capability) == BY_ROW[1]["received"][0]["payload"]["data"]


def test_row_14_capsules_loaded_reaches_the_client() -> None:
    loaded = BY_ROW[14]["received"][0]
    frame = encode_event(loaded["topic"], json.dumps(loaded["payload"]).encode(), NIL_SOURCE, "default")
    assert json.loads(frame) == loaded
    facts = ConnectionFacts("default", "owner-1")

    class Loaded:
        topic, body, principal, device_key_id, request_owner = loaded["topic"], b"{}", "default", None, None

    assert decide_egress(Loaded(), facts)


def test_row_16_an_unknown_method_is_answered_here() -> None:
    taken = decide_ingress(json.dumps(BY_ROW[16]["sent"]).encode(), ConnectionFacts("default", "o"))
    assert isinstance(taken, Accepted)
    assert requests.decode_request(taken.body, taken.kind) == requests.BadRequest(
        "unknown method 'NoSuchMethod'"
    )


def test_rows_18_and_19_a_refused_topic() -> None:
    owner = BY_ROW[18]["received"]["request_owner"]
    decision = decide_ingress(json.dumps(BY_ROW[18]["sent"]).encode(), ConnectionFacts("default", owner))
    assert isinstance(decision, Refused)
    assert json.loads(decision.frame) == BY_ROW[18]["received"]
    assert decision.close
    assert BY_ROW[19]["received"] == "EOFError"


def test_row_22_a_prefix_of_3_mib_closes() -> None:
    assert BY_ROW[22]["received"] == "EOFError"
    with pytest.raises(PeerFault):
        FrameDecoder().feed((3 * 1024 * 1024).to_bytes(4, "big"))


def test_row_25_malformed_json_closes() -> None:
    assert BY_ROW[25]["received"] == "EOFError"
    with pytest.raises(PeerFault):
        decide_ingress(b"{not json", ConnectionFacts("default", "owner-1"))
